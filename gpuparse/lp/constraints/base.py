"""What constraints see of a sentence, what a constraint is, and what can be made of any of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool
from torch import Tensor

from gpuparse.lp.rows import Row

if TYPE_CHECKING:
    from gpuparse.lp.check import Trees

Doubles = npt.NDArray[np.float64]


class Labels(dict[str, int]):
    """The number of each label's name; what names stand for is looked up once."""

    def __init__(self, labels: Iterable[tuple[str, int]] = ()) -> None:
        super().__init__(labels)
        self._named: dict[frozenset[str], tuple[dict[str, int], frozenset[int]]] = {}

    def named(self, names: Iterable[str]) -> tuple[dict[str, int], frozenset[int]]:
        """Those of these names, ``nsubj*`` being all that begin with nsubj, and their numbers."""
        names = frozenset(names)
        if names not in self._named:
            found = matching(names, self)
            self._named[names] = found, frozenset(found.values())
        return self._named[names]


@lru_cache(maxsize=256)
def _labels(labels: tuple[tuple[str, int], ...]) -> Labels:
    """The same object for the same labels."""
    return Labels(labels)


@dataclass(frozen=True)
class Words:
    """What constraints see of a sentence: its words from 1 on, node 0 is the root.

    Attributes:
        forms: of the nodes, "" at the root.
        tags: of the nodes, "" at the root.
        labels: the number of each label's name.
        sentence: its name, such as its sent_id.
    """

    forms: tuple[str, ...]
    tags: tuple[str, ...]
    labels: Mapping[str, int] = field(default_factory=dict)
    sentence: str | None = None
    _tagged: dict[frozenset[str], frozenset[int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.labels, Labels):
            object.__setattr__(self, "labels", _labels(tuple(self.labels.items())))

    @classmethod
    def of(
        cls,
        forms: Sequence[str],
        tags: Sequence[str] | None = None,
        labels: Sequence[str] = (),
        sentence: str | None = None,
    ) -> Words:
        """Of a sentence's words and their tags, without the root, and the names of the labels."""
        if tags is not None and len(tags) != len(forms):
            raise ValueError(f"tags: {len(tags)} for {len(forms)} words")
        numbers = {name: number for number, name in enumerate(labels)}
        return cls(("", *forms), ("", *(tags if tags is not None else [""] * len(forms))), numbers, sentence)

    @property
    def nodes(self) -> range:
        return range(len(self.forms))

    @property
    def words(self) -> range:
        return range(1, len(self.forms))

    def named(self, names: Iterable[str]) -> dict[str, int]:
        """The labels of these names that the model has, and their numbers; ``nsubj*`` is all that begin with nsubj."""
        return self._numbered.named(names)[0]

    def numbers(self, names: Iterable[str] | None) -> frozenset[int] | None:
        """The numbers of these labels, as in ``named``; None stays None."""
        return None if names is None else self._numbered.named(names)[1]

    def tagged(self, tags: Iterable[str] | None) -> frozenset[int]:
        """The words with one of these tags; all of them where ``None``."""
        if tags is None:
            return frozenset(self.words)
        tags = frozenset(tags)
        if tags not in self._tagged:
            self._tagged[tags] = frozenset(m for m in self.words if self.tags[m] and self.tags[m] in tags)
        return self._tagged[tags]

    def heads_tagged(self, tags: Iterable[str] | None) -> frozenset[int]:
        """The same, and the root if "" is among the tags."""
        return self.tagged(tags) | ({0} if tags is not None and "" in tags else set())

    @property
    def _numbered(self) -> Labels:
        return cast(Labels, self.labels)

    def name(self, node: int) -> str:
        """A node in a message."""
        return f"word {node} ({self.forms[node]!r})" if node else "the root"


def matching(names: Iterable[str], labels: Mapping[str, int]) -> dict[str, int]:
    """Those of the labels that are named, or that begin as a name that ends in ``*`` does."""
    found = {}
    for name in sorted(names):
        stem, star, rest = name.partition("*")
        if rest:
            raise ValueError(f"label {name!r}: * stands at the end only, for all labels that begin so")
        if star:
            found.update({label: number for label, number in labels.items() if label.startswith(stem)})
        elif name in labels:
            found[name] = labels[name]
    return found


class Constraint(ABC):
    """Holds or does not hold for a labelled tree. A new one says what rows it is made of:

        @dataclass(frozen=True)
        class Short(Constraint):
            longest: int

            def rows(self, words: Words) -> Iterator[Row]:
                for m in words.words:
                    far = frozenset(h for h in words.words if abs(h - m) > self.longest)
                    yield Row((Box(far, frozenset({m})),), 0, 0, f"no far head of {words.name(m)}")

    Where the rows are many, override ``violated`` to find those that matter, and ``breaks`` to look at a batch at once.
    """

    @abstractmethod
    def rows(self, words: Words) -> Iterator[Row]:
        """All rows of a sentence."""

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        """The rows that a tree breaks: ``heads`` and ``labels`` of the nodes, those of node 0 not read."""
        return (row for row in self.rows(words) if row.is_violated(heads, labels))

    def breaks(self, trees: Trees) -> Bool[Tensor, " B"]:
        """Which trees of a batch violate it. Here each is looked at by itself, which waits for the device."""
        broken = [any(True for _ in self.violated(*each)) for each in trees.each()]
        return torch.tensor(broken, dtype=torch.bool, device=trees.heads.device)

    def separated(self, words: Words, weights: Doubles, hard: bool) -> Iterator[Row]:
        """Rows that weights of labelled arcs [N, N, L], of which some are fractions, may break; none will do.

        ``hard``: the rows must hold, so that stronger ones may be given which no tree breaks that keeps to all of them.
        """
        return iter(())

    def check(self, words: Words) -> None:  # noqa: B027 - most name no words
        """A ValueError if it cannot be asked of a sentence, for it names a word that is not there."""


@dataclass(frozen=True)
class Soft(Constraint):
    """A constraint that may be broken: each unit by which one of its rows is off costs ``weight``."""

    constraint: Constraint
    weight: float

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ValueError(f"weight is {self.weight!r}; wanted a number above 0")

    def rows(self, words: Words) -> Iterator[Row]:
        return self._soft(self.constraint.rows(words))

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        return self._soft(self.constraint.violated(words, heads, labels))

    def separated(self, words: Words, weights: Doubles, hard: bool) -> Iterator[Row]:
        return self._soft(self.constraint.separated(words, weights, hard=False))

    def _soft(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The same row of another soft constraint is paid for by itself."""
        for row in rows:
            share = (row.boxes, row.low, row.high) if row.share is None else row.share
            yield replace(row, weight=self.weight, share=(self, share))

    def breaks(self, trees: Trees) -> Bool[Tensor, " B"]:
        return self.constraint.breaks(trees)

    def check(self, words: Words) -> None:
        self.constraint.check(words)


@dataclass(frozen=True)
class Only(Constraint):
    """A constraint on some sentences, by ``Words.sentence``: what is known of these, as in partial annotation."""

    constraint: Constraint
    sentences: frozenset[str]

    def rows(self, words: Words) -> Iterator[Row]:
        return self.constraint.rows(words) if words.sentence in self.sentences else iter(())

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        return self.constraint.violated(words, heads, labels) if words.sentence in self.sentences else iter(())

    def separated(self, words: Words, weights: Doubles, hard: bool) -> Iterator[Row]:
        return self.constraint.separated(words, weights, hard) if words.sentence in self.sentences else iter(())

    def breaks(self, trees: Trees) -> Bool[Tensor, " B"]:
        ours = [words.sentence in self.sentences for words in trees.words]
        if not any(ours):
            return trees.none()
        return self.constraint.breaks(trees) & torch.tensor(ours, device=trees.heads.device)

    def check(self, words: Words) -> None:
        if words.sentence in self.sentences:
            self.constraint.check(words)
