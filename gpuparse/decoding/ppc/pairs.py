"""Columns and rows of one kind of pairs of arcs in the linear program of ``program.py``: what kinds have in common.

A pair is a triple (x, p, c): the arc p -> c, and that of x. Of grandparents the other arc is x -> p; of siblings it is
p -> x, x being the child of p before c, and x = p if there is none. Every arc that can have a pair has one:

    One(p, c)       sum over x of z^pair(x, p, c) = z(p, c)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpuparse.decoding.parts import Kind
from gpuparse.decoding.ppc.cuts import Terms
from gpuparse.decoding.solver import Entries, Program

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NONE = np.zeros((0, 3), dtype=np.int64)


class PairDuals(NamedTuple):
    """Prices of a kind's rows.

    Attributes:
        one: of One(p, c) [N, N], -inf where the row is not there.
        outer: of the rows that hold pairs to their other arcs [N, N], as ``gpuparse.ops.pricing`` has them.
        rows: of rows of single triples.
        worth: what the prices are worth: terms of a sum.
    """

    one: Doubles
    outer: Doubles
    rows: tuple[Doubles, ...]
    worth: Doubles


class PairRows(ABC):
    """A kind of pairs in a live program.

    Attributes:
        y: columns of triples [N, N, N], -1 where there is none.
        triples, scores: those that are columns [T, 3], as they were added, and their scores.
    """

    kind: Kind

    def __init__(self, program: Program, N: int) -> None:
        self.program, self.N, self.n = program, N, N - 1
        self.y = np.full((N, N, N), -1)
        self.triples, self.scores = NONE, np.zeros(0)
        self._one = np.full((N, N), -1)

    @abstractmethod
    def add_arcs(self, h: Ints, m: Ints, z: Ints) -> None:
        """The rows of new arcs, whose columns are in z [N, N]."""

    @abstractmethod
    def _rows(self, triples: Ints) -> tuple[Ints, Ints]:
        """Which of the triples [T, 3] are in which rows."""

    def add(self, triples: Ints, scores: Doubles, of_cuts: Terms, rows: Ints) -> None:
        """Columns for triples. ``of_cuts``: what cuts, in these rows, say of triples."""
        if not len(triples):
            return
        first = self.program.columns
        self.y[tuple(triples.T)] = first + np.arange(len(triples))
        which, row = self._rows(triples)
        cut, at, _ = of_cuts
        place = self.y[tuple(at.T)] - first
        new = place >= 0
        which, row = np.concatenate([which, place[new]]), np.concatenate([row, rows[cut[new]]])
        self.program.add_columns(scores, Entries.of(len(triples), which, row, np.ones(len(row))))
        self.triples, self.scores = np.concatenate([self.triples, triples]), np.concatenate([self.scores, scores])

    def weights(self, values: Doubles, triples: Ints) -> Doubles:
        """z^pair of triples [T, 3], 0 of those that are no columns."""
        at = self.y[tuple(triples.T)]
        return np.where(at >= 0, values[at], 0.0)

    def cube(self, values: Doubles, least: float) -> Doubles:
        """z^pair [N, N, N], 0 where it is not above ``least``."""
        found, weight = np.zeros(self.y.shape), self.weights(values, self.triples)
        some = weight > least
        found[tuple(self.triples[some].T)] = weight[some]
        return found

    @abstractmethod
    def duals(self, prices: Doubles) -> PairDuals:
        """The prices of a solution by the names of the rows."""

    def _one_of(self, prices: Doubles) -> Doubles:
        return np.where(self._one >= 0, prices[self._one], -np.inf)

    @abstractmethod
    def paid(self, duals: PairDuals) -> Doubles:
        """What arcs pay for the pairs that they are the other arc of, not below 0 [N, N]."""

    def rows_of_arcs(self, duals: PairDuals) -> Iterator[tuple[tuple[Ints, ...], Doubles]]:
        """What rows of single triples add to the budgets of arcs: arcs, and how much each gets."""
        return iter(())

    def rows_of_triples(self, duals: PairDuals) -> Iterator[tuple[Ints, Doubles]]:
        """What rows of single triples add to the reduced costs of triples: triples [R, 3], and how much each gets."""
        return iter(())

    @abstractmethod
    def outer_of(self, duals: PairDuals, triples: Ints) -> Doubles:
        """The price of the row that holds each triple [T, 3] to its other arc."""

    @staticmethod
    @abstractmethod
    def arcs_of(triples: Ints) -> Ints:
        """The other arcs of triples [T, 3] that have one [K, 2]."""

    @staticmethod
    @abstractmethod
    def has_arcs(here: Bools, triples: Ints) -> Bools:
        """Whether the arcs of triples [T, 3] are among these [N, N]."""

    @staticmethod
    @abstractmethod
    def of_tree(heads: Ints) -> Ints:
        """The triples of a tree [T, 3]; heads [N], -1 at node 0."""

    @staticmethod
    @abstractmethod
    def legal(here: Bools) -> Ints:
        """All triples of these arcs [T, 3], in order."""

    @staticmethod
    @abstractmethod
    def likely(z: Doubles, arcs: Ints) -> Ints:
        """For each of the arcs [K, 2] a triple that goes with the weights of arcs z [N, N]; [K, 3]."""
