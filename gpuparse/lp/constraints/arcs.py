"""What is known of single sentences: arcs and spans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool
from torch import Tensor

from gpuparse.lp.constraints.base import Constraint, Words
from gpuparse.lp.rows import Box, Row

if TYPE_CHECKING:
    from gpuparse.lp.check import Trees

Arc = tuple[int, int, str | None]
"""Head, word, and a label or None for any."""


@dataclass(frozen=True)
class Arcs(Constraint):
    """Arcs that the tree has, or that it does not."""

    required: tuple[Arc, ...] = ()
    forbidden: tuple[Arc, ...] = ()

    def rows(self, words: Words) -> Iterator[Row]:
        for arcs, wanted in ((self.required, 1), (self.forbidden, 0)):
            for head, word, label in arcs:
                box = Box(frozenset({head}), frozenset({word}), words.numbers(None if label is None else [label]))
                why = f"{'the' if wanted else 'no'} arc {head} -> {word}" + (f" ({label})" if label else "")
                yield Row((box,), wanted, wanted, why)

    def breaks(self, trees: Trees) -> Bool[Tensor, " B"]:
        broken, last = trees.none(), trees.heads.shape[1] - 1  # an arc past the end is of no sentence that is asked
        for arcs, wanted in ((self.required, True), (self.forbidden, False)):
            for head, word, label in arcs:
                known = trees.labelled(None if label is None else {label})
                there = ((trees.heads == head) & known)[:, min(word, last)]
                broken = broken | (there != wanted)
        return broken

    def check(self, words: Words) -> None:
        for head, word, _ in (*self.required, *self.forbidden):
            if head not in words.nodes or word not in words.words or head == word:
                raise ValueError(f"no arc {head} -> {word} in a sentence of {len(words.words)} words; name others")


@dataclass(frozen=True)
class Span(Constraint):
    """The words from ``first`` to ``last`` hang together: one of them has its head outside."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise ValueError(f"no span from {self.first} to {self.last}; count words from 1")

    def rows(self, words: Words) -> Iterator[Row]:
        inside = frozenset(range(self.first, self.last + 1))
        outside = frozenset(words.nodes) - inside
        yield Row((Box(outside, inside),), 1, 1, f"words {self.first} to {self.last} hang together")

    def breaks(self, trees: Trees) -> Bool[Tensor, " B"]:
        place = torch.arange(trees.heads.shape[1], device=trees.heads.device)
        inside = (place >= self.first) & (place <= self.last) & trees.is_word
        return (inside & ((trees.heads < self.first) | (trees.heads > self.last))).sum(1) != 1

    def check(self, words: Words) -> None:
        if self.last not in words.words:
            raise ValueError(f"no span from {self.first} to {self.last} in a sentence of {len(words.words)} words")
