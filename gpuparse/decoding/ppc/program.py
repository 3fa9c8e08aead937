"""The linear program of trees and pairs of arcs (Riedel, Smith and McCallum 2012, section 3), with some or all columns.

Columns: z of arcs, phi of their flow, and those of pairs, each kind with rows of its own (``grandparents.py``,
``siblings.py``). Rows of arcs, under the paper's names:

    OneHead(m)      sum over h of z(h, m) = 1
    OneRoot         sum over m of z(0, m) = 1, for trees with a single root
    Source          sum over m of phi(0, m) = n
    Consume(t)      sum over h of phi(h, t) - sum over m of phi(t, m) = 1
    NoFlow(h, m)    phi(h, m) <= n z(h, m)

Cuts (``gpuparse.decoding.ppc.cuts``) may join, which the paper does not have; flow is not needed then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuparse.decoding import certificates
from gpuparse.decoding.parts import Kind
from gpuparse.decoding.ppc.cuts import Cuts, Key, no_cross, no_cycle, no_cycle_gp, triangle
from gpuparse.decoding.ppc.grandparents import Grandparents
from gpuparse.decoding.ppc.pairs import PairDuals, PairRows
from gpuparse.decoding.ppc.siblings import Siblings
from gpuparse.decoding.ppc.stars import one_star
from gpuparse.decoding.solver import Entries, Program, Solution

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Polytope = Literal["arcgp", "onegp", "all", "tight"]
POLYTOPES: tuple[Polytope, ...] = ("arcgp", "onegp", "all", "tight")  # tight: all, with cuts in place of flow
PRICED: tuple[Polytope, ...] = ("all", "tight")  # those whose columns can be priced
KINDS: dict[Kind, type[PairRows]] = {"grandparents": Grandparents, "siblings": Siblings}


class Duals(NamedTuple):
    """Prices of the rows, those of inequalities not below 0; 0 where a row is not there. ``cuts`` are of
    ``PairProgram.cuts``, ``pairs`` of its kinds, in their order."""

    one_head: Doubles  # [N], 0 at node 0
    one_root: float
    source: float
    consume: Doubles  # [N], 0 at node 0
    cuts: Doubles
    pairs: tuple[PairDuals, ...]


class PairProgram:
    """A live program for one sentence of n words; arcs and triples are given as arrays of their nodes.

    Args:
        arcs: scores [N, N].
        kinds: of pairs.
        projective: whether arcs that cross are cut off.
        no_gp: whether there are rows NoGP, where ``polytope`` says nothing of them.
        penalty: what artificial columns cost, with which there is always a solution; 0: there are none.
        flow: whether flow and its rows are there from the start; ``add_flow`` adds them later.

    Attributes:
        z, phi: columns of the arcs [N, N], -1 where there is none.
        pairs: the kinds, each with its columns and rows.
        cuts: those that are rows.
    """

    def __init__(
        self,
        arcs: Doubles,
        kinds: Sequence[Kind] = ("grandparents",),
        *,
        single_root: bool,
        projective: bool = False,
        polytope: Polytope = "all",
        no_gp: bool = True,
        penalty: float = 0.0,
        flow: bool = True,
    ) -> None:
        self.scores = arcs
        self.N = N = len(arcs)
        self.n = n = N - 1
        self.single_root, self.projective = single_root, projective
        self.program = Program()
        self.z, self.phi = (np.full((N, N), -1) for _ in range(2))
        self.cuts, self._cut_rows = Cuts.none(), np.zeros(0, dtype=np.int64)
        self._known_cuts: set[Key] = set()
        ones, none = np.ones(n + single_root), np.zeros(0, dtype=np.int64)
        self.program.add_rows(ones, ones, Entries.of(len(ones), none, none, np.zeros(0)))
        self._root = n  # OneRoot, where there is one
        self._source = -1  # Source, and Consume behind it
        self.artificial = none
        if penalty:
            self._add_artificial(penalty)
        self.grandparents: Grandparents | None = None
        self.pairs: list[PairRows] = []
        for kind in kinds:
            if kind == "grandparents":
                has_one_gp = polytope != "arcgp"
                has_no_gp = polytope == "onegp" or (has_one_gp and no_gp)
                self.grandparents = Grandparents(self.program, N, has_one_gp=has_one_gp, has_no_gp=has_no_gp)
                self.pairs.append(self.grandparents)
            else:
                self.pairs.append(Siblings(self.program, N))
        if flow:
            self.add_flow()

    def _add_artificial(self, penalty: float) -> None:
        """For every word a head of its own (with one unit of flow), and a root."""
        each = np.arange(self.n + self.single_root)
        self.artificial = self.program.columns + each
        self.program.add_columns(np.full(len(each), -penalty), Entries.of(len(each), each, each, np.ones(len(each))))

    @property
    def has_flow(self) -> bool:
        return self._source >= 0

    def add_flow(self) -> None:
        """Rows Source and Consume, and what there is of flow to the arcs that there are."""
        n = self.n
        some, row = self.artificial[:n], np.arange(len(self.artificial[:n])) + 1
        rows, columns = np.concatenate([0 * row, row]), np.concatenate([some, some])
        ones = np.append(float(n), np.ones(n))
        self._source = self.program.rows
        self.program.add_rows(ones, ones, Entries.of(n + 1, rows, columns, np.ones(len(rows))))
        h, m = np.nonzero(self.z >= 0)
        self._add_flow_of(h.astype(np.int64), m.astype(np.int64))

    def _add_flow_of(self, h: Ints, m: Ints) -> None:
        """phi of arcs, with their rows NoFlow."""
        k = len(h)
        if not k:
            return
        which, root = np.arange(k), h == 0
        self.phi[h, m] = self.program.columns + which
        column = np.concatenate([which, which])
        row = self._source + np.concatenate([m, np.where(root, 0, h)])
        value = np.concatenate([np.ones(k), np.where(root, 1.0, -1.0)])
        self.program.add_columns(np.zeros(k), Entries.of(k, column, row, value))
        self.program.add_alike(-math.inf, 0.0, (self.phi[h, m], 1.0), (self.z[h, m], float(-self.n)))

    def add_arcs(self, h: Ints, m: Ints) -> None:
        """Columns for arcs, and their rows; none of them may be there."""
        k = len(h)
        if not k:
            return
        which = np.arange(k)
        self.z[h, m] = self.program.columns + which
        single = (h == 0) & self.single_root
        # what cuts, that are rows already, say of them
        cut, pair, value = self.cuts.arcs
        of_cut = self.z[tuple(pair.T)] - self.program.columns
        new = of_cut >= 0
        column = np.concatenate([which, which[single], of_cut[new]])
        row = np.concatenate([m - 1, np.full(int(single.sum()), self._root), self._cut_rows[cut[new]]])
        values = np.concatenate([np.ones(k + int(single.sum())), value[new]])
        self.program.add_columns(self.scores[h, m], Entries.of(k, column, row, values))
        if self.has_flow:
            self._add_flow_of(h, m)
        for pairs in self.pairs:
            pairs.add_arcs(h, m, self.z)

    def add_triples(self, pairs: PairRows, triples: Ints, scores: Doubles) -> None:
        """Columns for triples [T, 3] of a kind, whose arcs are there; none of the triples may be."""
        pairs.add(triples, scores, self.cuts.of(pairs.kind), self._cut_rows)

    def add_cuts(self, cuts: Cuts) -> None:
        """Rows of cuts."""
        row, column, value = (np.concatenate(pair) for pair in zip(*self._entries(cuts), strict=True))
        count = len(cuts.high)
        entries = Entries.of(count, row, column, value)
        self._cut_rows = np.concatenate([self._cut_rows, self.program.rows + np.arange(count)])
        self.program.add_rows(np.full(count, -np.inf), cuts.high, entries)
        self.cuts = self.cuts + cuts
        self._known_cuts.update(cuts.keys())

    def _entries(self, cuts: Cuts) -> Iterator[tuple[Ints, Ints, Doubles]]:
        """Row, column and value of what there is of arcs, and of triples."""
        triples = [(cuts.of(pairs.kind), pairs.y) for pairs in self.pairs]
        for (row, at, value), columns in [(cuts.arcs, self.z), *triples]:
            column = columns[tuple(at.T)]
            yield row[column >= 0], column[column >= 0], value[column >= 0]

    def new_cuts(self, z: Doubles, values: Doubles, least: float) -> Cuts:
        """Cuts that a solution violates by more than ``least``: NoCross, or if there are none NoCycle, or if there are
        none the others."""
        found, pairs = self.crossing(z, least), self.grandparents
        if not len(found.high):
            found = no_cycle(z, least).without(self._known_cuts)
        if not len(found.high) and pairs is not None:
            y = pairs.cube(values, least)
            triples = np.argwhere(y > 0)
            found = no_cycle_gp(z, y, triples, least) + triangle(z, y, triples, least)
            for other in self.pairs:
                if other is not pairs:
                    found = found + one_star(z, y, other.cube(values, least), least)
        return found.without(self._known_cuts)

    def crossing(self, z: Doubles, least: float) -> Cuts:
        """Rows NoCross that a solution violates, for projective trees, and that are not there."""
        return no_cross(z, least).without(self._known_cuts) if self.projective else Cuts.none()

    def solve(self, seconds: float) -> Solution:
        return self.program.solve(seconds)

    def weights(self, values: Doubles) -> Doubles:
        """z [N, N], 0 where there is no column."""
        return np.where(self.z >= 0, values[self.z], 0.0)

    def duals(self, prices: Doubles) -> Duals:
        """The prices of a solution by the names of the rows."""
        n, N = self.n, self.N
        one_head, consume = np.zeros(N), np.zeros(N)
        one_head[1:] = prices[:n]
        if self.has_flow:
            consume[1:] = prices[self._source + 1 : self._source + 1 + n]
        return Duals(
            one_head,
            float(prices[self._root]) if self.single_root else 0.0,
            float(prices[self._source]) if self.has_flow else 0.0,
            consume,
            np.maximum(prices[self._cut_rows], 0.0),
            tuple(pairs.duals(prices) for pairs in self.pairs),
        )

    def _terms(self, duals: Duals) -> Doubles:
        """What the value of duals is the sum of."""
        of_words = duals.one_head, [duals.one_root, self.n * duals.source], duals.consume
        return np.concatenate([*of_words, *(own.worth for own in duals.pairs), duals.cuts * self.cuts.high])

    def objective(self, duals: Duals) -> float:
        """What duals are worth."""
        return float(self._terms(duals).sum())

    def objective_rounding(self, duals: Duals) -> float:
        """What ``objective`` may be off."""
        exact = math.fsum(self._terms(duals))
        return abs(exact - self.objective(duals)) + certificates.rounding(0, abs(exact) + self.n * abs(duals.source))

    def size(self, duals: Duals) -> float:
        """The sizes of all duals that an objective or a reduced cost is made of."""
        size = np.abs(duals.one_head).sum() + abs(duals.one_root)
        if self.has_flow:
            size += self.n * abs(duals.source) + np.abs(duals.consume).sum()
        size += sum(row.sum() for own in duals.pairs for row in (own.outer, *own.rows))  # none below 0
        return float(size + np.abs(duals.cuts) @ np.maximum(np.abs(self.cuts.high), 1.0))

    def budgets(self, duals: Duals) -> Doubles:
        """What each arc's own dual constraint leaves for the duals of its rows One, or its slack where it has none
        [N, N]."""
        # Flow: the dual of NoFlow is as small as phi's constraint lets it be.
        potential = duals.consume.copy()
        potential[0] = -duals.source
        no_flow = np.maximum(potential[:, None] - potential[None, :], 0.0)
        budget = duals.one_head[None, :] - self.scores - self.n * no_flow
        for pairs, own in zip(self.pairs, duals.pairs, strict=True):
            budget -= pairs.paid(own)
        budget[0] += duals.one_root
        for at, values in self._of_rows(duals):
            np.add.at(budget, at, values)
        return budget

    def budget_rounding(self, duals: Duals) -> Doubles:
        """What each of ``budgets`` may be off [N, N]."""
        potential = np.abs(duals.consume)
        potential[0] = abs(duals.source)
        size = np.abs(duals.one_head) + np.abs(np.where(np.isfinite(self.scores), self.scores, 0.0))
        size = size + self.n * (potential[:, None] + potential)
        for pairs, own in zip(self.pairs, duals.pairs, strict=True):
            size += pairs.paid(own)
        size[0] += abs(duals.one_root)
        steps = np.full(size.shape, 5 + len(self.pairs))  # before rows; to add 0 is none
        for at, values in self._of_rows(duals):
            np.add.at(size, at, np.abs(values))
            np.add.at(steps, at, values != 0)
        return certificates.UNIT * steps * size

    def _of_rows(self, duals: Duals) -> Iterator[tuple[tuple[Ints, ...], Doubles]]:
        """What rows of cuts and triples add to budgets: arcs, and how much each gets."""
        cut, pair, value = self.cuts.arcs
        yield tuple(pair.T), duals.cuts[cut] * value
        for pairs, own in zip(self.pairs, duals.pairs, strict=True):
            yield from pairs.rows_of_arcs(own)


def allowed(scores: Doubles) -> npt.NDArray[np.bool_]:
    """Which arcs there are [N, N]; what is no arc is not looked at."""
    here = ~np.eye(len(scores), dtype=bool)
    here[:, 0] = False
    return here & (np.where(here, scores, 0.0) > -np.inf)


def legal_arcs(scores: Doubles) -> tuple[Ints, Ints]:
    """Heads and words of the arcs that are allowed."""
    h, m = np.nonzero(allowed(scores))
    return h.astype(np.int64), m.astype(np.int64)
