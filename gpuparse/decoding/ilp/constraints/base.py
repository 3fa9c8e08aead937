"""What constraints see of a sentence, what a constraint is, and what can be made of any of them."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool
from torch import Tensor

from gpuparse.decoding.ilp.rows import Row
from gpuparse.system.quote import quoted

if TYPE_CHECKING:
    from gpuparse.decoding.ilp.check import CheckedTrees

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

    Example:
        >>> from gpuparse import lp
        >>> words = lp.Words.of(["We", "saw", "it"], ["PRON", "VERB", "PRON"], labels=["root", "nsubj", "obj"])
        >>> words.tagged({"PRON"}) == {1, 3}, words.named({"n*"}), words.name(2)
        (True, {'nsubj': 1}, "word 2 ('saw')")
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
            raise ValueError(f"tags: {len(tags)} for {_words(len(forms))}")
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
        return f"word {node} ({quoted(self.forms[node])})" if node else "the root"

    def size(self) -> str:
        """How many words there are, in a message."""
        return _words(len(self.words))


def _words(number: int) -> str:
    return "1 word" if number == 1 else f"{number:,} words"


def matching(names: Iterable[str], labels: Mapping[str, int]) -> dict[str, int]:
    """Those of the labels that are named, or that begin as a name that ends in ``*`` does."""
    found = {}
    for name in sorted(names):
        stem, star, rest = name.partition("*")
        if rest:
            raise ValueError(f"label {quoted(name)}: * stands at the end only, for all labels that begin so")
        if star:
            found.update({label: number for label, number in labels.items() if label.startswith(stem)})
        elif name in labels:
            found[name] = labels[name]
    return found


def as_names(what: str, given: Any) -> frozenset[str]:
    """A set of names, from any collection of them; ``what`` they are for is said where they are none."""
    if not isinstance(given, str) and isinstance(given, Iterable):
        names = list(given)
        if all(isinstance(name, str) for name in names):
            return frozenset(names)
    example = quoted(given) if isinstance(given, str) else "'nsubj'"
    raise ValueError(f"{what} is {quoted(given)}; wanted a set of names, as in {{{example}}}")


def take_names(constraint: Any) -> None:
    """Make sets of the names that a constraint was given, in all its fields that are sets of them, or None."""
    for each in fields(constraint):
        given = getattr(constraint, each.name)
        if each.type == "frozenset[str]" or (each.type == "frozenset[str] | None" and given is not None):
            object.__setattr__(constraint, each.name, as_names(each.name, given))


class Constraint(ABC):
    """Holds or does not hold for a labelled tree. A new one is a small class that says what rows it is made of; where
    they are many, override ``violated`` to find those that matter, and ``breaks`` to look at a batch at once.

    Example:
        >>> from dataclasses import dataclass
        >>> from gpuparse import lp
        >>> @dataclass(frozen=True)
        ... class Short(lp.Constraint):
        ...     longest: int
        ...
        ...     def rows(self, words):
        ...         for m in words.words:
        ...             far = frozenset(h for h in words.words if abs(h - m) > self.longest)
        ...             yield lp.Row((lp.Box(far, frozenset({m})),), 0, 0, f"no far head of {words.name(m)}")
        >>> words = lp.Words.of(["a", "b", "c"])
        >>> [row.why for row in Short(1).violated(words, [-1, 3, 3, 0], [-1, 0, 0, 0])]
        ["no far head of word 1 ('a')"]
    """

    @abstractmethod
    def rows(self, words: Words) -> Iterator[Row]:
        """All rows of a sentence."""

    def all_rows(self, words: Words) -> Iterator[Row]:
        """The same with those that ``separated`` may give besides."""
        return self.rows(words)

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        """The rows that a tree breaks: ``heads`` and ``labels`` of the nodes, those of node 0 not read."""
        return (row for row in self.rows(words) if row.is_violated(heads, labels))

    def breaks(self, trees: CheckedTrees) -> Bool[Tensor, " B"]:
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


def innermost(constraint: Constraint) -> Constraint:
    """What ``Soft`` and ``Only`` were made of."""
    while isinstance(constraint, (Soft, Only)):
        constraint = constraint.constraint
    return constraint


def _check_is_one(made: str, given: Any) -> None:
    if not isinstance(given, Constraint):
        raise ValueError(f"{made} is made of a constraint (see gpuparse.decoding.ilp), got {type(given).__name__}")


@dataclass(frozen=True)
class Soft(Constraint):
    """A constraint that may be broken: each unit by which one of its rows is off costs ``weight``.

    What several objects ask for alike is paid for several times.

    Args:
        constraint: any.
        weight: above 0, in units of the scores; else ValueError.

    Example:
        >>> from gpuparse import lp
        >>> crossings = lp.Soft(lp.Projective(), weight=1.5)
        >>> words = lp.Words.of(["a", "b", "c"])
        >>> [row.weight for row in crossings.violated(words, [-1, 3, 0, 2], [-1, 0, 0, 0])]
        [1.5]
    """

    constraint: Constraint
    weight: float

    def __post_init__(self) -> None:
        _check_is_one("Soft", self.constraint)
        weight: Any = self.weight
        if not isinstance(weight, (int, float, np.floating)) or not 0 < weight <= sys.float_info.max:
            raise ValueError(f"weight is {quoted(weight)}; wanted a number above 0")

    def rows(self, words: Words) -> Iterator[Row]:
        return self._soft(self.constraint.rows(words))

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        return self._soft(self.constraint.violated(words, heads, labels))

    def separated(self, words: Words, weights: Doubles, hard: bool) -> Iterator[Row]:
        return self._soft(self.constraint.separated(words, weights, hard=False))

    def _soft(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            share = (row.boxes, row.low, row.high) if row.share is None else row.share
            yield replace(row, weight=self.weight, share=(id(self), share))

    def breaks(self, trees: CheckedTrees) -> Bool[Tensor, " B"]:
        return self.constraint.breaks(trees)

    def check(self, words: Words) -> None:
        self.constraint.check(words)


@dataclass(frozen=True)
class Only(Constraint):
    """A constraint on some sentences, by ``Words.sentence``: what is known of these, as in partial annotation.

    Args:
        constraint: any.
        sentences: names.

    Example:
        >>> from gpuparse import lp
        >>> known = lp.Only(lp.Arcs(required=[(2, 1)]), {"s1"})
        >>> [len(list(known.rows(lp.Words.of(["a", "b"], sentence=name)))) for name in ("s1", "s2")]
        [1, 0]
    """

    constraint: Constraint
    sentences: frozenset[str]

    def __post_init__(self) -> None:
        _check_is_one("Only", self.constraint)
        take_names(self)

    def rows(self, words: Words) -> Iterator[Row]:
        return self.constraint.rows(words) if words.sentence in self.sentences else iter(())

    def all_rows(self, words: Words) -> Iterator[Row]:
        return self.constraint.all_rows(words) if words.sentence in self.sentences else iter(())

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        return self.constraint.violated(words, heads, labels) if words.sentence in self.sentences else iter(())

    def separated(self, words: Words, weights: Doubles, hard: bool) -> Iterator[Row]:
        return self.constraint.separated(words, weights, hard) if words.sentence in self.sentences else iter(())

    def breaks(self, trees: CheckedTrees) -> Bool[Tensor, " B"]:
        ours = [words.sentence in self.sentences for words in trees.words]
        if not any(ours):
            return trees.none()
        if type(innermost(self.constraint)).breaks is Constraint.breaks:
            return super().breaks(trees)  # which looks at none of the others
        return self.constraint.breaks(trees) & torch.tensor(ours, device=trees.heads.device)

    def check(self, words: Words) -> None:
        if words.sentence in self.sentences:
            self.constraint.check(words)
