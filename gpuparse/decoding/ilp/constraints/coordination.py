"""Coordination, where the conjunction heads it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from gpuparse.decoding.ilp.constraints.base import Constraint, Doubles, Words, as_names, take_names
from gpuparse.decoding.ilp.rows import Box, Places, Row

if TYPE_CHECKING:
    from gpuparse.decoding.ilp.check import CheckedTrees


@dataclass(frozen=True)
class Coordination(Constraint):
    """C1 to C4, where the conjunction heads its arguments. Forms of conjunctions are compared in lower case.

    Args:
        symmetric: forms of conjunctions with one argument to the right and at least one to the left (C1).
        asymmetric: forms with none to the left and at least two to the right (C2).
        commas: forms of commas; one at least between neighbouring arguments to the left of a symmetric one (C3).
        classes: sets of tags; the arguments of a conjunction are all of one set (C4). Tags in no set are free.
        others: forms of conjunctions of which C4 alone is asked, so that it can have a weight of its own.
        tags: of conjunctions; words of these forms with other tags are none. None: any.
        labels: of arguments; other children of a conjunction do not count. None: all children are arguments.
        always: a conjunction has arguments; otherwise one without any is free, as where it begins a sentence.

    Example:
        >>> from gpuparse import lp
        >>> words = lp.Words.of(["you", "and", "me"])
        >>> both = lp.Coordination(symmetric={"and"})
        >>> [row.why for row in both.violated(words, [-1, 2, 0, 1], [-1, 0, 0, 0])]
        ["one argument to the right of word 2 ('and')"]
    """

    symmetric: frozenset[str] = frozenset()
    asymmetric: frozenset[str] = frozenset()
    commas: frozenset[str] = frozenset()
    classes: tuple[frozenset[str], ...] = ()
    others: frozenset[str] = frozenset()
    tags: frozenset[str] | None = None
    labels: frozenset[str] | None = None
    always: bool = True

    def __post_init__(self) -> None:
        take_names(self)
        for name in ("symmetric", "asymmetric", "others"):
            object.__setattr__(self, name, frozenset(form.lower() for form in getattr(self, name)))
        classes: Any = self.classes
        given = classes if isinstance(classes, Iterable) and not isinstance(classes, str) else [classes]
        object.__setattr__(self, "classes", tuple(as_names("one of classes", each) for each in given))

    def rows(self, words: Words) -> Iterator[Row]:
        for i in self._conjunctions(words):
            yield from self._rows(words, i, [m for m in words.words if m != i])

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        these = words.numbers(self.labels)
        for i in self._conjunctions(words):
            arguments = [m for m in words.words if heads[m] == i and (these is None or labels[m] in these)]
            for row in self._rows(words, i, arguments):
                if row.is_violated(heads, labels):
                    yield row

    def separated(self, words: Words, weights: Doubles, hard: bool) -> Iterator[Row]:
        these = words.numbers(self.labels)
        arcs = weights.sum(2) if these is None else weights[:, :, sorted(these)].sum(2)
        for i in self._conjunctions(words):
            yield from self._rows(words, i, np.nonzero(arcs[i] > 0)[0].tolist())

    def breaks(self, trees: CheckedTrees) -> Bool[Tensor, " B"]:
        place = torch.arange(trees.heads.shape[1], device=trees.heads.device)
        argument = trees.is_word & trees.labelled(self.labels)
        left, right = (trees.children(argument & side) for side in (place < trees.heads, place > trees.heads))
        known = trees.tagged(self.tags) & trees.knows(self.labels)[:, None]
        symmetric, asymmetric = (trees.formed(forms) & known for forms in (self.symmetric, self.asymmetric))
        bad = symmetric & ((left < 1) | (right != 1)) | asymmetric & ((left > 0) | (right < 2))
        if not self.always:
            bad = bad & (left + right > 0)
        broken = bad.any(1)
        if self.commas or self.classes:
            alike = trees.heads[:, :, None] == trees.heads[:, None]
            pair = alike & argument[:, :, None] & argument[:, None] & (place[:, None] < place)
            if self.commas:
                of = trees.of_head(symmetric) & (place < trees.heads)
                broken = broken | (pair & of[:, None] & ~_between(trees, self.commas)).flatten(1).any(1)
            if self.classes:
                of = trees.of_head(symmetric | asymmetric | trees.formed(self.others) & known)
                broken = broken | (pair & of[:, None] & self._apart(trees)).flatten(1).any(1)
        return broken

    def _conjunctions(self, words: Words) -> list[int]:
        if self.labels is not None and not words.named(self.labels):
            return []
        forms = self.symmetric | self.asymmetric | self.others
        return [i for i in sorted(words.tagged(self.tags)) if words.forms[i].lower() in forms]

    def _rows(self, words: Words, i: int, arguments: list[int]) -> Iterator[Row]:
        """The rows of a conjunction; those that are about single words only of these."""
        labels, form, name = words.numbers(self.labels), words.forms[i].lower(), words.name(i)
        left, right = frozenset(range(1, i)), frozenset(range(i + 1, len(words.forms)))
        if form in self.symmetric:
            why = f"an argument to the left of {name}", f"one argument to the right of {name}"
            yield from self._some(i, left, [m for m in arguments if m > i], labels, 1, why[0])
            yield from self._some(i, right, [m for m in arguments if m < i], labels, 1, why[1])
            yield Row((Box(frozenset({i}), right, labels),), 0, 1, why[1])
        if form in self.asymmetric:
            yield Row((Box(frozenset({i}), left, labels),), 0, 0, f"no argument to the left of {name}")
            yield from self._some(i, right, arguments, labels, 2, f"two arguments to the right of {name}")
        for a, b in combinations(arguments, 2):
            box = Box(frozenset({i}), frozenset({a, b}), labels)
            # Neighbouring arguments, or those between would need a comma too.
            if form in self.symmetric and self.commas and b < i and self.commas.isdisjoint(words.forms[a + 1 : b]):
                yield Row((box,), 0, 1, f"a comma between the arguments {a} and {b} of {name}")
            if self._are_apart(words.tags[a], words.tags[b]):
                yield Row((box,), 0, 1, f"arguments {a} and {b} of {name} of one class")

    def _some(
        self, i: int, side: frozenset[int], others: list[int], labels: Places, least: int, why: str
    ) -> Iterator[Row]:
        """So many arguments on a side; where conjunctions may be without any, as soon as one of the others is one."""
        here = frozenset({i})
        if self.always:
            yield Row((Box(here, side, labels),), least, math.inf, why)
            return
        for m in others:
            yield Row((Box(here, side, labels), Box(here, frozenset({m}), labels, -float(least))), 0, math.inf, why)

    def _are_apart(self, one: str, other: str) -> bool:
        """Whether two tags are of classes that do not go together."""
        first, second = ({k for k, tags in enumerate(self.classes) if tag in tags} for tag in (one, other))
        return bool(first and second and not first & second)

    def _apart(self, trees: CheckedTrees) -> Bool[Tensor, "B N N"]:
        known = trees.known_tags
        table = torch.tensor([[self._are_apart(a, b) for b in known] for a in known], device=trees.heads.device)
        return table[trees.tags[:, :, None], trees.tags[:, None]]


def _between(trees: CheckedTrees, forms: frozenset[str]) -> Bool[Tensor, "B N N"]:
    """Whether one of these forms stands between a word and a later one."""
    here = trees.formed(forms, lower=False)
    until: Int[Tensor, "B N"] = here.cumsum(1)
    return (until - here.long())[:, None] > until[:, :, None]
