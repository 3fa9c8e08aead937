"""Sentences of CoNLL-U as they are drawn: parses, compared with gold where there is gold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from gpuparse.data.conllu import ConlluError, Sentence
from gpuparse.data.looks import CONFIDENCE_KEY, probabilities
from gpuparse.render.svg import Outcome, Token, outcomes
from gpuparse.system.quote import quoted


class ParsedFile(NamedTuple):
    """A sentence as it is drawn; ``heads`` has −1 where a word has none."""

    sentence: Sentence
    words: list[str]
    heads: list[int]
    labels: list[str]
    confidence: list[float | None]
    gold_heads: list[int] | None
    gold_labels: list[str] | None
    outcomes: list[Outcome] | None

    @property
    def right_heads(self) -> int:
        return sum(outcome != "head" for outcome in self.outcomes or ())

    @property
    def right_labels(self) -> int:
        return sum(outcome in {"right", "subtype"} for outcome in self.outcomes or ())

    @property
    def wrong(self) -> bool:
        """Whether it is compared with gold and a head or a label is wrong."""
        return self.outcomes is not None and self.right_labels < len(self.words)


def parses(
    sentences: Iterable[Sentence], gold: Iterable[Sentence] | None = None, *, confidence_key: str = CONFIDENCE_KEY
) -> Iterator[ParsedFile]:
    """What is drawn of each sentence that has words, compared with the gold one where given.

    Raises :class:`ConlluError` where the two do not have the same words, naming both places.

    Example:
        >>> from gpuparse.data import Sentence
        >>> from gpuparse.render import parses
        >>> words = ["She", "sleeps"]
        >>> ours, gold = (Sentence.from_words(words, heads=heads) for heads in ([2, 0], [0, 1]))
        >>> [drawn.outcomes for drawn in parses([ours], [gold])]
        [['head', 'head']]
    """
    ours = (sentence for sentence in sentences if len(sentence))
    if gold is None:
        for sentence in ours:
            yield _parse(sentence, None, confidence_key)
        return
    last: Sentence | None = None
    for sentence, right in zip_longest(ours, (sentence for sentence in gold if len(sentence))):
        if sentence is None:
            where = f"{last.source}:{last.line}: the last sentence" if last is not None else "no sentences"
            raise ConlluError(f"{where}, but gold goes on at {right.source}:{right.line}; give both in full")
        if right is None:
            raise ConlluError(f"{sentence.source}:{sentence.line}: gold has no such sentence; give both in full")
        yield _parse(sentence, right, confidence_key)
        last = sentence


def _parse(sentence: Sentence, right: Sentence | None, key: str) -> ParsedFile:
    words, heads, labels = sentence.words, _heads(sentence), _labels(sentence)
    gold_heads = gold_labels = found = None
    if right is not None:
        _check_words(sentence, right)
        gold_heads, gold_labels = right.heads, _labels(right)
        _check_loops(right, gold_heads)
        found = outcomes(heads, labels, gold_heads, gold_labels)
    return ParsedFile(sentence, words, heads, labels, probabilities(sentence, key), gold_heads, gold_labels, found)


def _heads(sentence: Sentence) -> list[int]:
    """The heads, −1 where there is none: a parser leaves sentences that it fails on without."""
    heads = [-1 if head is None else head for head in sentence.given_heads]
    _check_loops(sentence, heads)
    return heads


def _labels(sentence: Sentence) -> list[str]:
    return ["" if label == "_" else label for label in sentence.deprels]


def _rows(sentence: Sentence) -> list[list[str]]:
    """The lines of words, ranges and empty nodes, in columns."""
    lines = sentence.text.removeprefix("\ufeff").split("\n")
    return [line.split("\t") for line in lines if "\t" in line and line[0].isdigit()]


def _check_loops(sentence: Sentence, heads: Sequence[int]) -> None:
    for word, head in enumerate(heads, 1):
        if head == word:
            raise sentence.error(word, f"word {word} is its own head; correct HEAD or leave the sentence out")


def _check_words(sentence: Sentence, right: Sentence) -> None:
    ours, theirs = sentence.words, right.words
    if ours == theirs:
        return
    for word, (one, two) in enumerate(zip(ours, theirs, strict=False), 1):
        if one != two:
            where = f"{right.source}:{right.line_of(word)}"
            raise sentence.error(
                word,
                f"the word {quoted(one)}, but {quoted(two)} in gold ({where}); give the same words in both",
            )
    where = f"{right.source}:{right.line}"
    raise ConlluError(
        f"{sentence.source}:{sentence.line}: {len(ours)} words, but {len(theirs)} in gold ({where}); "
        "give the same words in both"
    )


def tokens_of(sentence: Sentence) -> list[Token]:
    """Its tokens of several words."""
    ranges = ((row[0].split("-"), row[1]) for row in _rows(sentence) if "-" in row[0])
    return [Token(int(first), int(last), form) for (first, last), form in ranges]


def tags_of(sentence: Sentence) -> list[str] | None:
    """UPOS, or XPOS where there is no UPOS, or nothing."""
    for column in (sentence.upos, sentence.xpos):
        if any(tag != "_" for tag in column):
            return ["" if tag == "_" else tag for tag in column]
    return None


def notes_of(sentence: Sentence) -> list[str]:
    """Lemma, tags and features of each word, in a line."""
    columns = zip(sentence.lemmas, sentence.upos, sentence.xpos, sentence.feats, strict=True)
    return [" ".join(value for value in row if value != "_") for row in columns]


def text_of(sentence: Sentence) -> str:
    """What the comment ``# text = ...`` says, or else the words."""
    text = sentence.comment("text")
    return " ".join(sentence.words) if text is None else text
