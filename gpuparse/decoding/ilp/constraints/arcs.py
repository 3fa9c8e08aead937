"""What is known of single sentences: arcs and spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral
from types import NoneType
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool
from torch import Tensor

from gpuparse.decoding.ilp.constraints.base import Constraint, Words
from gpuparse.decoding.ilp.rows import Box, Row
from gpuparse.system.quote import quoted

if TYPE_CHECKING:
    from gpuparse.decoding.ilp.check import CheckedTrees

Arc = tuple[int | None, int, str | None]
"""Head, word and label; None is any head, or any label."""


@dataclass(frozen=True)
class Arcs(Constraint):
    """Arcs that the tree has, or that it does not: (head, word), (head, word, label), or (None, word, label).

    Args:
        required, forbidden: arcs, a head of None being any. One that no sentence can have is a ValueError.

    Example:
        >>> from gpuparse import lp
        >>> known = lp.Arcs(required=[(2, 1, "nsubj")], forbidden=[(0, 1)])
        >>> words = lp.Words.of(["We", "saw"], labels=["root", "nsubj"])
        >>> [row.why for row in known.violated(words, [-1, 0, 1], [-1, 0, 1])]
        ['the arc 2 -> 1 (nsubj)', 'no arc 0 -> 1']
    """

    required: tuple[Arc, ...] = ()
    forbidden: tuple[Arc, ...] = ()

    def __post_init__(self) -> None:
        for name in ("required", "forbidden"):
            given: Any = getattr(self, name)
            arcs = given if isinstance(given, Iterable) else [given]
            object.__setattr__(self, name, tuple(_arc(name, each) for each in arcs))

    def rows(self, words: Words) -> Iterator[Row]:
        for arcs, wanted in ((self.required, 1), (self.forbidden, 0)):
            for head, word, label in arcs:
                heads = None if head is None else frozenset({head})
                box = Box(heads, frozenset({word}), words.numbers(None if label is None else [label]))
                why = f"{'the' if wanted else 'no'} arc {_shown(head, word)}" + (f" ({label})" if label else "")
                yield Row((box,), wanted, wanted, why)

    def breaks(self, trees: CheckedTrees) -> Bool[Tensor, " B"]:
        broken, last = trees.none(), trees.heads.shape[1] - 1  # an arc past the end is of no sentence that is asked
        for arcs, wanted in ((self.required, True), (self.forbidden, False)):
            for head, word, label in arcs:
                known = trees.labelled(None if label is None else {label})
                there = (known if head is None else known & (trees.heads == head))[:, min(word, last)]
                broken = broken | (there != wanted)
        return broken

    def check(self, words: Words) -> None:
        for head, word, _ in (*self.required, *self.forbidden):
            if word not in words.words or not (head is None or head in words.nodes):
                raise ValueError(f"no arc {_shown(head, word)} in a sentence of {words.size()}; name others")


def _arc(what: str, given: Any) -> Arc:
    """An arc that some sentence could have."""
    parts = tuple(given) if isinstance(given, (tuple, list)) else ()
    parts = (*parts, None) if len(parts) == 2 else parts
    kinds = (Integral, NoneType), (Integral,), (str, NoneType)
    if len(parts) != 3 or not all(map(isinstance, parts, kinds)):
        raise ValueError(f"{what} has {quoted(given)}; wanted arcs as in (2, 1, 'nsubj'): head, word and label")
    head, word, label = parts
    if head is None and label is None:
        raise ValueError(f"{what} has an arc {_shown(head, word)} without a label; name its head or its label")
    if word < 1 or head == word or (head is not None and head < 0):
        raise ValueError(f"no arc {_shown(head, word)} in any sentence; words count from 1, the root is 0")
    return None if head is None else int(head), int(word), label


def _shown(head: int | None, word: int) -> str:
    return f"{'*' if head is None else head} -> {word}"


@dataclass(frozen=True)
class Span(Constraint):
    """The words from ``first`` to ``last`` hang together: one of them has its head outside.

    Args:
        first, last: words, from 1; else ValueError.

    Example:
        >>> from gpuparse import lp
        >>> words = lp.Words.of(["a", "b", "c"])
        >>> [row.why for row in lp.Span(1, 2).violated(words, [-1, 3, 3, 0], [-1, 0, 0, 0])]
        ['words 1 to 2 hang together']
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise ValueError(f"no span from {self.first} to {self.last}; count words from 1")

    def rows(self, words: Words) -> Iterator[Row]:
        inside = frozenset(range(self.first, self.last + 1))
        outside = frozenset(words.nodes) - inside
        yield Row((Box(outside, inside),), 1, 1, f"words {self.first} to {self.last} hang together")

    def breaks(self, trees: CheckedTrees) -> Bool[Tensor, " B"]:
        place = torch.arange(trees.heads.shape[1], device=trees.heads.device)
        inside = (place >= self.first) & (place <= self.last) & trees.is_word
        return (inside & ((trees.heads < self.first) | (trees.heads > self.last))).sum(1) != 1

    def check(self, words: Words) -> None:
        if self.last not in words.words:
            raise ValueError(f"no span from {self.first} to {self.last} in a sentence of {words.size()}")
