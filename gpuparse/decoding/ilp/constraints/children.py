"""Constraints on the labels and the number of children."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool
from torch import Tensor

from gpuparse.decoding.ilp.constraints.base import Constraint, Doubles, Words, take_names
from gpuparse.decoding.ilp.rows import Box, Row
from gpuparse.system.quote import quoted

if TYPE_CHECKING:
    from gpuparse.decoding.ilp.check import CheckedTrees


@dataclass(frozen=True)
class Unique(Constraint):
    """A1: no head has two children with the same label of these.

    Args:
        labels: names of labels; ``nsubj*`` is all that begin so.

    Example:
        >>> from gpuparse import lp
        >>> words = lp.Words.of(["We", "it", "saw"], labels=["root", "nsubj"])
        >>> [row.why for row in lp.Unique({"nsubj"}).violated(words, [-1, 3, 3, 0], [-1, 1, 1, 0])]
        ["at most one nsubj under word 3 ('saw')"]
    """

    labels: frozenset[str]

    def __post_init__(self) -> None:
        take_names(self)

    def rows(self, words: Words) -> Iterator[Row]:
        for name, number in words.named(self.labels).items():
            for head in words.nodes:
                yield self._row(words, name, number, head)

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        counts = Counter((heads[m], labels[m]) for m in words.words)
        for name, number in words.named(self.labels).items():
            for head in words.nodes:
                if counts[head, number] > 1:
                    yield self._row(words, name, number, head)

    def separated(self, words: Words, weights: Doubles, hard: bool) -> Iterator[Row]:
        counts = weights.sum(1)
        for name, number in words.named(self.labels).items():
            for head in np.nonzero(counts[:, number] > 1)[0].tolist():
                yield self._row(words, name, number, head)

    def breaks(self, trees: CheckedTrees) -> Bool[Tensor, " B"]:
        broken = trees.none()
        for name in sorted({name for words in trees.different_labels() for name in words.named(self.labels)}):
            broken = broken | (trees.children(trees.labelled({name})) > 1).any(1)
        return broken

    @staticmethod
    def _row(words: Words, name: str, number: int, head: int) -> Row:
        why = f"at most one {name} under {words.name(head)}"
        return Row((Box(frozenset({head}), None, frozenset({number})),), 0, 1, why)


@dataclass(frozen=True)
class Children(Constraint):
    """So many children, at least and at most, under every word with one of ``heads``' tags; "" stands for the root.

    Children count that have one of ``labels`` and one of ``tags``; None is any. Words of other tags are free, so is the
    root where it is not named, and all are if the model knows none of the labels.

    Example:
        >>> from gpuparse import lp
        >>> words = lp.Words.of(["We", "saw"], ["PRON", "VERB"])
        >>> no_children = lp.Children(at_most=0, heads={"PRON"})
        >>> [row.why for row in no_children.violated(words, [-1, 0, 1], [-1, 0, 0])]
        ["no children under word 1 ('We')"]
    """

    at_least: int = 0
    at_most: int | None = None
    labels: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    heads: frozenset[str] | None = None

    def __post_init__(self) -> None:
        take_names(self)
        if self.at_most is not None and self.at_most < self.at_least:
            raise ValueError(f"at_most is {self.at_most}, below at_least, {self.at_least}")

    @property
    def _high(self) -> float:
        return math.inf if self.at_most is None else self.at_most

    def rows(self, words: Words) -> Iterator[Row]:
        return self._rows(words, words.heads_tagged(self.heads))

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        these = words.numbers(self.labels)
        counts = Counter(heads[m] for m in words.tagged(self.tags) if these is None or labels[m] in these)
        heads_here = words.heads_tagged(self.heads)
        return self._rows(words, [h for h in heads_here if not self.at_least <= counts[h] <= self._high])

    def separated(self, words: Words, weights: Doubles, hard: bool) -> Iterator[Row]:
        these, children = words.numbers(self.labels), sorted(words.tagged(self.tags))
        counts = weights[:, children, :] if these is None else weights[:, children][:, :, sorted(these)]
        counts = counts.sum((1, 2))
        return self._rows(
            words, [h for h in words.heads_tagged(self.heads) if not self.at_least <= counts[h] <= self._high]
        )

    def breaks(self, trees: CheckedTrees) -> Bool[Tensor, " B"]:
        counts = trees.children(trees.tagged(self.tags) & trees.labelled(self.labels))
        off = counts < self.at_least
        if self.at_most is not None:
            off = off | (counts > self.at_most)
        return (off & trees.heads_tagged(self.heads)).any(1) & trees.knows(self.labels)

    def _rows(self, words: Words, heads: Iterable[int]) -> Iterator[Row]:
        labels, children = words.numbers(self.labels), words.tagged(self.tags)
        if labels is not None and not labels:
            return
        what = " or ".join(sorted(self.labels or self.tags or {self._child()}))
        for head in sorted(heads):
            why = f"{self._many()} {what} under {words.name(head)}"
            yield Row((Box(frozenset({head}), children, labels),), self.at_least, self._high, why)

    def _child(self) -> str:
        return "child" if (self.at_least if self.at_most is None else self.at_most) == 1 else "children"

    def _many(self) -> str:
        if self.at_least == self.at_most:
            return f"{self.at_least}" if self.at_most else "no"
        if self.at_most is None:
            return f"at least {self.at_least}"
        return f"{self.at_least} to {self.at_most}" if self.at_least else f"at most {self.at_most}"


@dataclass(frozen=True)
class Leaf(Constraint):
    """A word with one of these labels has no children, but with labels in ``allowed``.

    Args:
        labels: names of labels, of the leaf; ``nsubj*`` is all that begin so.
        allowed: labels that its children may have.

    Example:
        >>> from gpuparse import lp
        >>> words = lp.Words.of(["of", "us"], labels=["root", "case"])
        >>> [row.why for row in lp.Leaf({"case"}).violated(words, [-1, 0, 1], [-1, 1, 0])]
        ["word 2 ('us') not under word 1 ('of') as a leaf (case)"]
    """

    labels: frozenset[str]
    allowed: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        take_names(self)

    def rows(self, words: Words) -> Iterator[Row]:
        return self._rows(words, ((p, c) for p in words.words for c in words.words if c != p))

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        these, free = words.numbers(self.labels) or (), words.numbers(self.allowed) or ()
        arcs = ((heads[c], c) for c in words.words if heads[c] > 0)
        return self._rows(words, ((p, c) for p, c in arcs if labels[p] in these and labels[c] not in free))

    def separated(self, words: Words, weights: Doubles, hard: bool) -> Iterator[Row]:
        these, free = sorted(words.numbers(self.labels) or ()), sorted(words.numbers(self.allowed) or ())
        leaf, child = weights[:, :, these].sum((0, 2)), weights.sum(2) - weights[:, :, free].sum(2)
        found = np.nonzero(leaf[:, None] + child > 1)
        return self._rows(words, ((p, c) for p, c in zip(*(x.tolist() for x in found), strict=True) if p))

    def breaks(self, trees: CheckedTrees) -> Bool[Tensor, " B"]:
        leaf, free = trees.labelled(self.labels), trees.labelled(self.allowed)
        return (trees.of_head(leaf) & ~free & trees.is_word).any(1)

    def _rows(self, words: Words, arcs: Iterable[tuple[int, int]]) -> Iterator[Row]:
        these, free = words.numbers(self.labels), words.numbers(self.allowed)
        if not these:
            return
        what = " or ".join(sorted(self.labels))
        for p, c in arcs:
            parent, child = frozenset({p}), frozenset({c})
            boxes = [Box(None, parent, these), Box(parent, child)]
            if free:
                boxes.append(Box(parent, child, free, weight=-1.0))
            yield Row(tuple(boxes), 0, 1, f"{words.name(c)} not under {words.name(p)} as a leaf ({what})")


@dataclass(frozen=True)
class LabelUnder(Constraint):
    """A label is used only under heads with one of these tags; "" stands for the root.

    Args:
        label: a name; ``nsubj*`` is all that begin so.
        heads: tags.

    Example:
        >>> from gpuparse import lp
        >>> words = lp.Words.of(["We", "saw"], ["PRON", "VERB"], labels=["root", "nsubj"])
        >>> [row.why for row in lp.LabelUnder("nsubj", {"VERB"}).violated(words, [-1, 0, 1], [-1, 0, 1])]
        ["no nsubj of word 2 ('saw') there"]
    """

    label: str
    heads: frozenset[str]

    def __post_init__(self) -> None:
        take_names(self)
        label: Any = self.label
        if not isinstance(label, str):
            raise ValueError(f"label is {quoted(label)}; wanted a name, as in 'nsubj'")

    def rows(self, words: Words) -> Iterator[Row]:
        return self._rows(words, words.words)

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        these, fine = words.named([self.label]).values(), words.heads_tagged(self.heads)
        return self._rows(words, [m for m in words.words if labels[m] in these and heads[m] not in fine])

    def breaks(self, trees: CheckedTrees) -> Bool[Tensor, " B"]:
        return (trees.labelled({self.label}) & ~trees.of_head(trees.heads_tagged(self.heads))).any(1)

    def _rows(self, words: Words, which: Iterable[int]) -> Iterator[Row]:
        labels, others = words.numbers([self.label]), frozenset(words.nodes) - words.heads_tagged(self.heads)
        if labels:
            for m in which:
                yield Row((Box(others, frozenset({m}), labels),), 0, 0, f"no {self.label} of {words.name(m)} there")
