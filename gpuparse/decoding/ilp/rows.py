"""Linear constraints on labelled trees, apart from any program: how many arcs of some boxes the tree may have."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

Places = frozenset[int] | None
"""Some nodes or labels; None is all of them."""


@dataclass(frozen=True)
class Box:
    """The arcs from some heads to some words with some labels, each counted ``weight`` times.

    Attributes:
        heads, words, labels: their numbers; None is all of them.

    Example:
        >>> from gpuparse import lp
        >>> lp.Box(heads={2}, labels={1}).count([-1, 2, 0, 2], [-1, 1, 0, 1])  # of the arcs 2 -> 1, 0 -> 2, 2 -> 3
        2
    """

    heads: Places = None
    words: Places = None
    labels: Places = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        for name in ("heads", "words", "labels"):
            places = getattr(self, name)
            if places is not None and not isinstance(places, frozenset):
                object.__setattr__(self, name, frozenset(places))

    def count(self, heads: Sequence[int], labels: Sequence[int]) -> int:
        """How many arcs of a tree are in it."""
        words = range(1, len(heads)) if self.words is None else self.words
        return sum(
            (self.heads is None or heads[m] in self.heads) and (self.labels is None or labels[m] in self.labels)
            for m in words
            if 0 < m < len(heads)
        )


@dataclass(frozen=True)
class Row:
    """low <= number of arcs of the tree in the boxes <= high.

    Attributes:
        why: names the constraint and the words.
        weight: what each unit costs by which the row is off; inf: it must hold.
        share: soft rows with the same one cost as much as the one that costs most, not as much as all.

    Example:
        >>> from gpuparse import lp
        >>> row = lp.Row((lp.Box(heads={2}),), 0, 1, "at most one child of word 2")
        >>> row.is_violated([-1, 2, 0, 2], [-1, 0, 0, 0]), row.is_hard
        (True, True)
    """

    boxes: tuple[Box, ...]
    low: float
    high: float
    why: str
    weight: float = math.inf
    share: Hashable = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "boxes", tuple(self.boxes))
        if not self.weight > 0:
            raise ValueError(f"row {self.why!r}: weight is {self.weight}; wanted a number above 0, or inf")
        if not self.low <= self.high:
            raise ValueError(f"row {self.why!r}: low is {self.low}, high is {self.high}; wanted low <= high")
        if not all(math.isfinite(box.weight) for box in self.boxes):
            raise ValueError(f"row {self.why!r}: a box's weight is not finite; wanted a number")

    @property
    def group(self) -> Hashable:
        """What rows have in common of which only the one that costs most is paid for: ``share``, or they are alike."""
        return (self.boxes, self.low, self.high, self.weight, self.why) if self.share is None else self.share

    @cached_property
    def _hash(self) -> int:
        return hash((self.boxes, self.low, self.high, self.why, self.weight, self.share))

    def __hash__(self) -> int:  # asked for again and again
        return self._hash

    @property
    def is_hard(self) -> bool:
        return math.isinf(self.weight)

    def is_violated(self, heads: Sequence[int], labels: Sequence[int]) -> bool:
        """Whether a tree breaks it: the head and label of every word, those of node 0 not read."""
        return self.excess(heads, labels) > 1e-9

    def excess(self, heads: Sequence[int], labels: Sequence[int]) -> float:
        """By how much a tree is off: 0 if the row holds."""
        value = sum(box.weight * box.count(heads, labels) for box in self.boxes)
        return max(0.0, self.low - value, value - self.high)
