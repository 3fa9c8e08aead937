"""What a tree may be asked for beyond its score. A constraint is a small object that gives rows for a sentence."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from gpuparse.lp.rows import Box, Row


@dataclass(frozen=True)
class Words:
    """What constraints see of a sentence: its words from 1 on, node 0 is the root.

    Attributes:
        forms: of the nodes, "" at the root.
        tags: of the nodes, "" at the root.
        labels: the number of each label's name.
    """

    forms: tuple[str, ...]
    tags: tuple[str, ...]
    labels: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, forms: Sequence[str], tags: Sequence[str] | None = None, labels: Sequence[str] = ()) -> Words:
        """Of a sentence's words and their tags, without the root, and the names of the labels."""
        if tags is not None and len(tags) != len(forms):
            raise ValueError(f"tags: {len(tags)} for {len(forms)} words")
        numbers = {name: number for number, name in enumerate(labels)}
        return cls(("", *forms), ("", *(tags if tags is not None else [""] * len(forms))), numbers)

    @property
    def nodes(self) -> range:
        return range(len(self.forms))

    @property
    def words(self) -> range:
        return range(1, len(self.forms))

    def numbers(self, names: Iterable[str]) -> frozenset[int]:
        """The labels of these names that the model has."""
        return frozenset(self.labels[name] for name in names if name in self.labels)

    def tagged(self, tags: Iterable[str] | None) -> frozenset[int]:
        """The words with one of these tags; all of them where ``None``."""
        return frozenset(m for m in self.words if tags is None or self.tags[m] in tags)

    def name(self, node: int) -> str:
        """A node in a message."""
        return f"word {node} ({self.forms[node]!r})" if node else "the root"


class Constraint(ABC):
    """Holds or does not hold for a labelled tree. Subclasses give their rows, or find those that a tree violates."""

    @abstractmethod
    def rows(self, words: Words) -> Iterator[Row]:
        """All rows of a sentence."""

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        """The rows that a tree breaks: ``heads`` and ``labels`` of the nodes, those of node 0 not read."""
        return (row for row in self.rows(words) if row.is_violated(heads, labels))


@dataclass(frozen=True)
class Unique(Constraint):
    """A1: no head has two children with the same label of these."""

    labels: frozenset[str]

    def rows(self, words: Words) -> Iterator[Row]:
        for name in sorted(self.labels & words.labels.keys()):
            label = frozenset({words.labels[name]})
            for head in words.nodes:
                why = f"at most one {name} under {words.name(head)}"
                yield Row((Box(frozenset({head}), None, label),), 0, 1, why)


@dataclass(frozen=True)
class Children(Constraint):
    """So many children, at least and at most, under every word with one of ``heads``' tags.

    Children count that have one of ``labels`` and one of ``tags``; None is any. Words of other tags and the root are
    free, and all are if the model knows none of the labels.
    """

    at_least: int = 0
    at_most: int | None = None
    labels: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    heads: frozenset[str] | None = None

    def rows(self, words: Words) -> Iterator[Row]:
        labels = None if self.labels is None else words.numbers(self.labels)
        if labels is not None and not labels:
            return
        high = math.inf if self.at_most is None else self.at_most
        what = " or ".join(sorted(self.labels or self.tags or {"child"}))
        for head in sorted(words.tagged(self.heads)):
            why = f"{self.at_least} to {high:g} {what} under {words.name(head)}"
            yield Row((Box(frozenset({head}), words.tagged(self.tags), labels),), self.at_least, high, why)


@dataclass(frozen=True)
class Projective(Constraint):
    """P1: no arc with one of these labels crosses another; with None no two arcs cross."""

    labels: frozenset[str] | None = None

    def rows(self, words: Words) -> Iterator[Row]:
        nodes = list(words.nodes)
        for a, b, c, d in combinations(nodes, 4):  # a - c and b - d cross
            for first in ((a, c), (c, a)):
                for second in ((b, d), (d, b)):
                    yield from self._pair(words, first, second)

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        arcs = sorted((min(h, m), max(h, m), h, m) for m, h in enumerate(heads) if m)
        for first, second in combinations(arcs, 2):
            if first[0] < second[0] < first[1] < second[1]:
                for row in self._pair(words, first[2:], second[2:]):
                    if row.is_violated(heads, labels):
                        yield row

    def _pair(self, words: Words, first: tuple[int, ...], second: tuple[int, ...]) -> Iterator[Row]:
        if 0 in (first[1], second[1]):
            return
        these = None if self.labels is None else words.numbers(self.labels)
        boxes = [(frozenset({h}), frozenset({m})) for h, m in (first, second)]
        for one, other in (boxes, boxes[::-1]) if these is not None else (boxes,):
            why = f"{first[0]} -> {first[1]} and {second[0]} -> {second[1]} cross"
            yield Row((Box(*one, these), Box(*other)), 0, 1, why)


@dataclass(frozen=True)
class Coordination(Constraint):
    """C1 to C4, where the conjunction heads its arguments.

    Args:
        symmetric: forms of conjunctions with one argument to the right and at least one to the left (C1).
        asymmetric: forms with none to the left and at least two to the right (C2).
        commas: forms of commas; one at least between neighbouring arguments to the left of a symmetric one (C3).
        classes: sets of tags; the arguments of a conjunction are all of one set (C4). Tags in no set are free.
    """

    symmetric: frozenset[str] = frozenset()
    asymmetric: frozenset[str] = frozenset()
    commas: frozenset[str] = frozenset()
    classes: tuple[frozenset[str], ...] = ()

    def rows(self, words: Words) -> Iterator[Row]:
        for i in words.words:
            form, here, name = words.forms[i].lower(), frozenset({i}), words.name(i)
            left, right = frozenset(range(1, i)), frozenset(range(i + 1, len(words.forms)))
            if form in self.symmetric:
                yield Row((Box(here, left),), 1, math.inf, f"an argument to the left of {name}")
                yield Row((Box(here, right),), 1, 1, f"one argument to the right of {name}")
                if self.commas:
                    yield from self._commas(words, i)
            if form in self.asymmetric:
                yield Row((Box(here, left),), 0, 0, f"no argument to the left of {name}")
                yield Row((Box(here, right),), 2, math.inf, f"two arguments to the right of {name}")
            if form in self.symmetric | self.asymmetric:
                yield from self._classes(words, i)

    def _commas(self, words: Words, i: int) -> Iterator[Row]:
        """Two arguments without a comma between them: neighbouring ones, or those between would need one too."""
        for a, b in combinations(range(1, i), 2):
            between = range(a + 1, b)
            if not any(words.forms[k] in self.commas for k in between):
                why = f"a comma between the arguments {a} and {b} of {words.name(i)}"
                yield Row((Box(frozenset({i}), frozenset({a, b})),), 0, 1, why)

    def _classes(self, words: Words, i: int) -> Iterator[Row]:
        for a, b in combinations([m for m in words.words if m != i], 2):
            one, other = ([k for k, tags in enumerate(self.classes) if words.tags[m] in tags] for m in (a, b))
            if one and other and not set(one) & set(other):
                why = f"arguments {a} and {b} of {words.name(i)} of one class"
                yield Row((Box(frozenset({i}), frozenset({a, b})),), 0, 1, why)


@dataclass(frozen=True)
class LabelUnder(Constraint):
    """A label is used only under heads with one of these tags; "" stands for the root."""

    label: str
    heads: frozenset[str]

    def rows(self, words: Words) -> Iterator[Row]:
        if self.label in words.labels:
            others = frozenset(h for h in words.nodes if words.tags[h] not in self.heads)
            label = frozenset({words.labels[self.label]})
            for m in words.words:
                yield Row((Box(others, frozenset({m}), label),), 0, 0, f"no {self.label} of {words.name(m)} there")


@dataclass(frozen=True)
class Arcs(Constraint):
    """Arcs that the tree has, or that it does not: head, word, and a label or None for any."""

    required: tuple[tuple[int, int, str | None], ...] = ()
    forbidden: tuple[tuple[int, int, str | None], ...] = ()

    def rows(self, words: Words) -> Iterator[Row]:
        for arcs, wanted in ((self.required, 1), (self.forbidden, 0)):
            for head, word, label in arcs:
                numbers = None if label is None else words.numbers([label])
                box = Box(frozenset({head}), frozenset({word}), numbers)
                why = f"{'the' if wanted else 'no'} arc {head} -> {word}" + (f" ({label})" if label else "")
                yield Row((box,), wanted, wanted, why)


@dataclass(frozen=True)
class Span(Constraint):
    """The words from ``first`` to ``last`` hang together: one of them has its head outside."""

    first: int
    last: int

    def rows(self, words: Words) -> Iterator[Row]:
        inside = frozenset(range(self.first, self.last + 1))
        outside = frozenset(words.nodes) - inside
        yield Row((Box(outside, inside),), 1, 1, f"words {self.first} to {self.last} hang together")
