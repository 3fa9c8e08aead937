"""A treebank of an artificial language, made on the spot from a seed: for demonstrations, tests and trials.

A few hundred words with an inflection that agrees, about twenty kinds of dependencies, lengths as in real treebanks and
some crossing arcs. Where a phrase could belong to several words, the tree often follows the head's own head or the
previous sibling (see ``draft.py``), so that models of single arcs leave something to win.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gpuparse.data.artificial.grammar import LONGEST, SHORTEST, ArtificialGrammar
from gpuparse.data.artificial.lexicon import lexicon
from gpuparse.data.sentence import Sentence

__all__ = ["LANGUAGE_SEED", "LONGEST", "SHORTEST", "artificial_treebank", "builtin_treebank"]

LANGUAGE_SEED = 2012
"""The language of the built-in treebank."""

# Splits of the built-in treebank: the seed and the number of sentences.
_SPLITS = {"train": (1_000_001, 2000), "dev": (1_000_002, 300), "test": (1_000_003, 300)}


def artificial_treebank(
    sentences: int, seed: int = 0, *, start: int = 0, language_seed: int = LANGUAGE_SEED
) -> Iterator[Sentence]:
    """Make sentences ``start`` to ``start + sentences - 1`` of the seed's endless treebank, one at a time.

    A sentence depends on ``seed``, its number and ``language_seed`` only, on every machine. Seeds share the language;
    another ``language_seed`` has other words under the same grammar.
    """
    for name, value in {"sentences": sentences, "seed": seed, "start": start, "language_seed": language_seed}.items():
        if not 0 <= value < 1 << 63:
            raise ValueError(f"{name}: {value} is not between 0 and 2^63 - 1; give another number")
    return _treebank(sentences, seed, start, language_seed)


def builtin_treebank(split: Literal["train", "dev", "test"]) -> list[Sentence]:
    """A split of the built-in treebank: 2,000 sentences to train on, 300 each for development and test."""
    if split not in _SPLITS:
        raise ValueError(f"split: {split!r} is none of {', '.join(_SPLITS)}")
    seed, sentences = _SPLITS[split]
    return list(artificial_treebank(sentences, seed))


def _treebank(sentences: int, seed: int, start: int, language_seed: int) -> Iterator[Sentence]:
    grammar = ArtificialGrammar(lexicon(language_seed))
    for number in range(start, start + sentences):
        grammar.sentence((language_seed << 128) | (seed << 64) | number)  # seeds may be of any size
        yield Sentence(_conllu(grammar, f"artificial-{seed}-{number}"), f"<artificial {seed}-{number}>")


def _conllu(grammar: ArtificialGrammar, name: str) -> str:
    """The text of the sentence that the grammar has written last."""
    words, heads, labels = grammar.words, grammar.heads, grammar.labels
    count = len(words)
    text: list[str] = []
    lines: list[str] = []
    for number in range(1, count):
        form, columns, _, _ = words[number]
        if number == 1:
            form = form[0].upper() + form[1:]
        text.append(form)
        # No space before punctuation.
        if number + 1 < count and words[number + 1].upos == "PUNCT":
            misc = "SpaceAfter=No"
        else:
            misc = "_"
            text.append(" ")
        lines.append(f"{number}\t{form}\t{columns}\t{heads[number]}\t{labels[number]}\t_\t{misc}\n")
    return f"# sent_id = {name}\n# text = {''.join(text).rstrip()}\n{''.join(lines)}\n"
