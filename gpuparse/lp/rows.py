"""Linear constraints on labelled trees, apart from any program: how many arcs of some boxes the tree may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Places = frozenset[int] | None
"""Some nodes or labels; None is all of them."""


@dataclass(frozen=True)
class Box:
    """The arcs from some heads to some words with some labels, each counted ``weight`` times."""

    heads: Places = None
    words: Places = None
    labels: Places = None
    weight: float = 1.0

    def count(self, heads: Sequence[int], labels: Sequence[int]) -> int:
        """How many arcs of a tree are in it."""
        words = range(1, len(heads)) if self.words is None else self.words
        return sum(
            (self.heads is None or heads[m] in self.heads) and (self.labels is None or labels[m] in self.labels)
            for m in words
        )

    def holds(self, head: Ints, word: Ints, label: Ints) -> npt.NDArray[np.bool_]:
        """Which of these labelled arcs are in it."""
        inside = np.ones(len(head), dtype=bool)
        for places, values in ((self.heads, head), (self.words, word), (self.labels, label)):
            if places is not None:
                inside &= np.isin(values, list(places))
        return inside


@dataclass(frozen=True)
class Row:
    """low <= number of arcs of the tree in the boxes <= high; ``why`` names the constraint and the words."""

    boxes: tuple[Box, ...]
    low: float
    high: float
    why: str

    def coefficients(self, head: Ints, word: Ints, label: Ints) -> Doubles:
        """How often each of these labelled arcs is counted."""
        total = np.zeros(len(head))
        for box in self.boxes:
            total += box.weight * box.holds(head, word, label)
        return total

    def is_violated(self, heads: Sequence[int], labels: Sequence[int]) -> bool:
        """Whether a tree breaks it: the head and label of every word, those of node 0 not read."""
        value = sum(box.weight * box.count(heads, labels) for box in self.boxes)
        return not self.low - 1e-9 <= value <= self.high + 1e-9
