"""What a parser says about one sentence."""

from __future__ import annotations

from typing import NamedTuple


class Prediction(NamedTuple):
    """The parse of one sentence: an entry for each word, in order."""

    heads: list[int]
    """The number of each word's head, 0 for the root."""
    deprels: list[str]
    """The label of each word's arc."""
    confidence: list[float] | None = None
    """The probability of each word's arc, where it was asked for."""
