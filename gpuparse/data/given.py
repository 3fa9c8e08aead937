"""Sentences as users give them: words, (word, tag) pairs, or CoNLL-U sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpuparse.data.sentence import ConlluError, Sentence
from gpuparse.system.room import NoRoom

Words = Sequence[str] | Sequence[tuple[str, str]]


def as_sentences(sentences: Iterable[Words | Sentence]) -> list[Sentence]:
    """CoNLL-U sentences of what is given; one that is such a sentence stays as it is."""
    if isinstance(sentences, Sentence):
        raise ValueError("sentences: one sentence; wanted a list of them")
    return [_sentence(sentence, index) for index, sentence in enumerate(sentences)]


def _sentence(words: Any, index: int) -> Sentence:
    if isinstance(words, Sentence):
        return words
    if isinstance(words, str):
        raise ValueError(f"sentences: sentence {index} is a string; wanted a list of words")
    words = list(words) if isinstance(words, Iterable) else [words]
    tags = None
    if not all(isinstance(word, str) for word in words):
        if not all(isinstance(w, (tuple, list)) and len(w) == 2 and all(isinstance(x, str) for x in w) for w in words):
            raise ValueError(f"sentences: sentence {index} is neither words nor (word, tag) pairs")
        words, tags = [word for word, _ in words], [tag for _, tag in words]
    try:
        return Sentence.from_words(words, tags)
    except ValueError as error:
        raise ValueError(f"sentences: sentence {index}: {error}") from None


def unfit(sentence: Sentence, why: NoRoom) -> ConlluError:
    """Says of a sentence that there is no room for it."""
    words = "1 word" if len(sentence) == 1 else f"{len(sentence):,} words"
    return ConlluError(f"{sentence.source}:{sentence.line}: a sentence of {words} {why}; split it, or find more memory")
