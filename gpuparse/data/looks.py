"""Sentences as people look at them: in one line, as a drawing, and how sure of them a parser was."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from gpuparse.system.quote import shown

if TYPE_CHECKING:
    from gpuparse.data.sentence import Sentence

CONFIDENCE_KEY = "Confidence"  # in MISC, the probability of a word's arc
_MOST = 12  # words in one line
_LONGEST = 30  # characters of a word there
_ROUNDING = 1e-3  # by which a probability may be beyond its bounds


def in_one_line(sentence: Sentence) -> str:
    """``Sentence(1 She ← 2, 2 sleeps ← 0)``: words, numbered, with their heads where they have them."""
    try:
        words, heads = sentence.words, sentence.given_heads
    except ValueError as error:
        return f"Sentence(malformed: {shown(str(error))})"
    count = len(words)
    parts = [
        f"{number} {shown(word, _LONGEST)}" + ("" if head is None else f" ← {head}")
        for number, (word, head) in enumerate(zip(words[:_MOST], heads, strict=False), 1)
    ]
    if count > _MOST:
        parts.append(f"… {count} words")
    return f"Sentence({', '.join(parts) or 'no words'})"


def drawn(sentence: Sentence) -> str | None:
    """A drawing as SVG; None where there is nothing to draw, or no reading it."""
    try:
        if not len(sentence):
            return None
        # By its name: drawing stands above the data, and is not imported where nothing is drawn.
        return str(import_module("gpuparse.render").sentence_svg(sentence))
    except ValueError:
        return None


def probabilities(sentence: Sentence, key: str = CONFIDENCE_KEY) -> list[float | None]:
    """What ``key`` in MISC says of each word's arc, from 0 to 1; None where it says nothing.

    A ``ConlluError`` where that is no such number.
    """
    mark = f"{key}="
    return [
        _probability(sentence, word, misc, mark) if mark in misc else None for word, misc in enumerate(sentence.misc, 1)
    ]


def _probability(sentence: Sentence, word: int, misc: str, mark: str) -> float | None:
    found = None
    for part in misc.split("|"):
        if part.startswith(mark):
            try:
                value = float(part[len(mark) :])
            except ValueError:
                value = -1.0
            # A marginal may be a rounding error beyond its bounds.
            if not -_ROUNDING <= value <= 1 + _ROUNDING:
                raise sentence.error(
                    word, f"{shown(part)} in MISC is not a number between 0 and 1; correct it, or give another key"
                )
            found = min(max(value, 0.0), 1.0)
    return found
