"""What dual decomposition is asked and what it says: oracles, what they find, all of them together, the outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

Structures = dict[str, Tensor]  # tensors of a batch by name, [B, ..] each
Penalties = dict[str, Tensor]
Trace = Float64[Tensor, "K B"]
Rows = Int64[Tensor, " K"]


@dataclass(frozen=True)
class Found:
    """What an oracle found.

    Attributes:
        value: of its best structure, penalties included [B]; -inf where it has none.
        indicators: by name, 1 where they hold [B, ..]; float64. Probabilities, if the oracle is soft.
        structures: the structures themselves.

    Example:
        >>> import torch
        >>> from gpuparse import dual
        >>> found = dual.TreeOracle(torch.zeros(1, 3, 3).double(), torch.tensor([2])).best({})
        >>> found.value, found.indicators["arcs"].shape, found.structures["heads"].shape
        (tensor([0.], dtype=torch.float64), torch.Size([1, 3, 3]), torch.Size([1, 3]))
    """

    value: Float64[Tensor, " B"]
    indicators: Mapping[str, Tensor]
    structures: Structures = field(default_factory=dict)


class Oracle(Protocol):
    """Finds best structures of a batch of sentences under penalties on indicators."""

    @property
    def device(self) -> torch.device:
        """Where its scores are."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The names of the indicators, and their shapes [B, ..]."""

    def best(self, penalties: Mapping[str, Tensor]) -> Found:
        """The best structures, with what the penalties (float64, of some of the indicators) add to their scores."""

    def take(self, rows: Rows) -> Oracle:
        """The same for some of the sentences."""


Primal = Callable[[Sequence[Found], Rows], tuple[Structures, Float64[Tensor, " K"]]]


@dataclass(frozen=True, eq=False)
class Agreement:
    """What dual decomposition found.

    Attributes:
        structures: by name, [B, ..]; which ones, see ``output`` of ``DualDecomposition``.
        score: of these [B]; -inf where there is none.
        bound: no structure scores more [B]; -inf where it is proven that there is none.
        certified: whether the best is proven best [B].
        iterations: how many each sentence took [B].
        duals, scores: L(u) and the best score so far by iteration [iterations, B]; NaN once a sentence was done.
        sizes: of the steps, likewise.
        penalties: the last ones, of each oracle by name; indicators: averages over the iterations, likewise.
        least: the penalties of the least L(u), likewise; none unless they were to be kept.
        seconds: what is left of the sentences' time [B]; None if there was no limit.

    Example:
        >>> import torch, gpuparse as gp
        >>> from gpuparse import dual
        >>> found = dual.second_order(gp.Scores(torch.zeros(1, 4, 4), siblings=torch.ones(1, 4, 4, 4))).run()
        >>> found.structures["heads"].shape, found.duals.shape[1], found.certified
        (torch.Size([1, 4]), 1, tensor([True]))
    """

    structures: Structures
    score: Float64[Tensor, " B"]
    bound: Float64[Tensor, " B"]
    certified: Bool[Tensor, " B"]
    iterations: Int64[Tensor, " B"]
    duals: Trace
    scores: Trace
    sizes: Trace
    penalties: tuple[Penalties, ...]
    indicators: tuple[Penalties, ...]
    least: tuple[Penalties, ...] = ()
    seconds: Float64[Tensor, " B"] | None = None


@dataclass(frozen=True)
class Rounding:
    """What scores of sentences may be off, and bounds beside them, if parts that are as far away as a tree can matter.

    Attributes:
        numbers: of each sentence [B, 6]: what a dual may be off by its size, a score by the sizes of its parts and by
            its distance; the score of which distances are told, the size that all trees share, and whether (1) scores
            are so coarse that of those that are next to it nothing is known.
        total: of each arc, less the word's best [B, N, N]: those not further away than a tree can matter.
        moved: how large the parts of each arc are [B, N, N].
    """

    numbers: Float64[Tensor, "B 6"]
    total: Float64[Tensor, "B N N"]
    moved: Float64[Tensor, "B N N"]

    def take(self, rows: Rows) -> Rounding:
        """That of some of the sentences."""
        return Rounding(self.numbers[rows], self.total[rows], self.moved[rows])


@dataclass(frozen=True)
class Shared:
    """Which oracles share which indicators; how these lie side by side: of every name one oracle's after the other's.

    Attributes:
        oracles: by name.
        shapes: by name, [B, ..].
        count: of all oracles.
    """

    oracles: dict[str, list[int]]
    shapes: dict[str, tuple[int, ...]]
    count: int

    @cached_property
    def parts(self) -> list[tuple[int, int]]:
        """Of each name how many oracles and how many indicators."""
        return [(len(those), torch.Size(self.shapes[name][1:]).numel()) for name, those in self.oracles.items()]

    def apart(self, flat: Float64[Tensor, "K T"]) -> tuple[Penalties, ...]:
        """Views of what lies side by side, of each oracle by name [K, ..]."""
        found: tuple[Penalties, ...] = tuple({} for _ in range(self.count))
        each = flat.split([n for many, size in self.parts for n in [size] * many], 1)
        for (name, o), x in zip(((name, o) for name, those in self.oracles.items() for o in those), each, strict=True):
            found[o][name] = x.unflatten(1, self.shapes[name][1:])
        return found

    def beside(self, given: Sequence[Mapping[str, Tensor]]) -> Float64[Tensor, "K T"]:
        """The other way round."""
        return torch.cat([given[o][name].flatten(1) for name, those in self.oracles.items() for o in those], 1)


class Said(NamedTuple):
    """One evaluation of the Lagrangian: the oracles' values [K, O], all indicators [K, T], structures of the whole
    problem and their scores [K]; None: known only where all agree."""

    values: Float64[Tensor, "K O"]
    indicators: Float64[Tensor, "K T"]
    structures: Structures
    score: Float64[Tensor, " K"] | None


class Together(Protocol):
    """All oracles of some sentences, asked at once."""

    def ask(self, u: Float64[Tensor, "K T"]) -> Said:
        """What they say under penalties."""

    def look(self) -> None:
        """Called where sentences are looked at, which waits for the device: what else waits is done here."""

    def take(self, rows: Rows) -> Together:
        """Those of some of these sentences."""


@dataclass(frozen=True)
class OneByOne:
    """Any oracles, and what makes structures of what they find, told the sentences' numbers (``rows``)."""

    oracles: Sequence[Oracle]
    shared: Shared
    primal: Primal | None
    rows: Rows

    def ask(self, u: Float64[Tensor, "K T"]) -> Said:
        each = zip(self.oracles, self.shared.apart(u), strict=True)
        found = [oracle.best(penalties) for oracle, penalties in each]
        values = torch.stack([f.value for f in found], 1).double()
        return Said(values, self.shared.beside([f.indicators for f in found]), *self.whole(found))

    def whole(self, found: Sequence[Found]) -> tuple[Structures, Float64[Tensor, " K"] | None]:
        """Structures of the whole problem."""
        if self.primal is None:
            return {name: x for f in found for name, x in f.structures.items()}, None
        structures, score = self.primal(found, self.rows)
        return structures, score.double()

    def look(self) -> None:
        """Nothing is left for it."""

    def take(self, rows: Rows) -> OneByOne:
        return replace(self, oracles=[oracle.take(rows) for oracle in self.oracles], rows=self.rows[rows])
