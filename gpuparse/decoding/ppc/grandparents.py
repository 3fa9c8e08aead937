"""The linear program of the grandparent model (Riedel, Smith and McCallum 2012, section 3), with some or all columns.

Columns: z of arcs, phi of their flow, z^gp of grandparents (g, p, c). Rows, under the paper's names:

    OneHead(m)      sum over h of z(h, m) = 1
    OneRoot         sum over m of z(0, m) = 1, for trees with a single root
    Source          sum over m of phi(0, m) = n
    Consume(t)      sum over h of phi(h, t) - sum over m of phi(t, m) = 1
    NoFlow(h, m)    phi(h, m) <= n z(h, m)
    OneGP(p, c)     sum over g of z^gp(g, p, c) = z(p, c), for p > 0
    NoGP(g, p)      sum over c of z^gp(g, p, c) <= n z(g, p)
    GPArc(g, p, c)  z^gp(g, p, c) <= z(g, p); also <= z(p, c) where OneGP does not say so
    ArcGP(g, p, c)  z(g, p) + z(p, c) - z^gp(g, p, c) <= 1

Cuts (``gpuparse.decoding.ppc.cuts``) may join, which the paper does not have; flow is not needed then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuparse.decoding import certificates
from gpuparse.decoding.ppc.cuts import Cuts, no_cycle, no_cycle_gp, triangle
from gpuparse.decoding.solver import Entries, Program, Solution

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Polytope = Literal["arcgp", "onegp", "all", "tight"]
POLYTOPES: tuple[Polytope, ...] = ("arcgp", "onegp", "all", "tight")  # tight: all, with cuts in place of flow
PRICED: tuple[Polytope, ...] = ("all", "tight")  # those whose columns can be priced


class Duals(NamedTuple):
    """Prices of the rows, those of inequalities not below 0; 0 where a row is not there.

    one_gp is -inf where its row is not there; gp_arc (with child_arc, the second of its rows) and arc_gp are of the
    triples ``GrandparentProgram.gp_arc`` and ``arc_gp``, and cuts of ``cuts``, in their order.
    """

    one_head: Doubles  # [N], 0 at node 0
    one_root: float
    source: float
    consume: Doubles  # [N], 0 at node 0
    one_gp: Doubles  # [N, N]
    no_gp: Doubles  # [N, N]
    gp_arc: Doubles
    child_arc: Doubles
    arc_gp: Doubles
    cuts: Doubles


class GrandparentProgram:
    """A live program for one sentence of n words; arcs and triples are given as arrays of their nodes.

    Args:
        arcs: scores [N, N].
        no_gp: whether there are rows NoGP, where ``polytope`` says nothing of them.
        penalty: what artificial columns cost, with which there is always a solution; 0: there are none.
        flow: whether flow and its rows are there from the start; ``add_flow`` adds them later.

    Attributes:
        z, phi: columns of the arcs [N, N], -1 where there is none; z_gp: those of triples [N, N, N].
        gp_arc, arc_gp: triples [R, 3] that have those rows. Without OneGP, GPArc has two: z^gp <= z(g, p), and
            <= z(p, c).
        cuts: those that are rows.
    """

    def __init__(
        self,
        arcs: Doubles,
        *,
        single_root: bool,
        polytope: Polytope = "all",
        no_gp: bool = True,
        penalty: float = 0.0,
        flow: bool = True,
    ) -> None:
        self.scores = arcs
        self.N = N = len(arcs)
        self.n = n = N - 1
        self.single_root = single_root
        self.has_one_gp = polytope != "arcgp"
        self.has_no_gp = polytope == "onegp" or (polytope != "arcgp" and no_gp)
        self.program = Program()
        self.z, self.phi, self._one_gp, self._no_gp = (np.full((N, N), -1) for _ in range(4))
        self.z_gp = np.full((N, N, N), -1)
        self.g = self.p = self.c = np.zeros(0, dtype=np.int64)  # the triples, as they were added
        self.gp_arc, self.arc_gp = (np.zeros((0, 3), dtype=np.int64) for _ in range(2))
        self._gp_arc_rows, self._child_arc_rows, self._arc_gp_rows = (np.zeros(0, dtype=np.int64) for _ in range(3))
        self.cuts, self._cut_rows = Cuts.none(), np.zeros(0, dtype=np.int64)
        ones, none = np.ones(n + single_root), np.zeros(0, dtype=np.int64)
        self.program.add_rows(ones, ones, Entries.of(len(ones), none, none, np.zeros(0)))
        self._root = n  # OneRoot, where there is one
        self._source = -1  # Source, and Consume behind it
        self.artificial = none
        if penalty:
            self._add_artificial(penalty)
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
        self._add(-math.inf, 0.0, (self.phi[h, m], 1.0), (self.z[h, m], float(-self.n)))

    def add_arcs(self, h: Ints, m: Ints) -> None:
        """Columns for arcs, and their rows; none of them may be there."""
        k, n = len(h), self.n
        if not k:
            return
        which = np.arange(k)
        root, inner = h == 0, h > 0
        self.z[h, m] = self.program.columns + which
        single = root & self.single_root
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
        if self.has_one_gp:
            h_, m_ = h[inner], m[inner]
            self._one_gp[h_, m_] = self._add(0.0, 0.0, (self.z[h_, m_], -1.0))
        if self.has_no_gp:
            self._no_gp[h, m] = self._add(-math.inf, 0.0, (self.z[h, m], float(-n)))

    def add_triples(self, g: Ints, p: Ints, c: Ints, scores: Doubles) -> None:
        """Columns for triples whose arcs are there; none of the triples may be."""
        k = len(g)
        if not k:
            return
        which = np.arange(k)
        self.z_gp[g, p, c] = self.program.columns + which
        column, row = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        if self.has_one_gp:
            column, row = which, self._one_gp[p, c]
        if self.has_no_gp:
            column, row = np.concatenate([column, which]), np.concatenate([row, self._no_gp[g, p]])
        cut, triples, _ = self.cuts.triples
        of_cut = self.z_gp[tuple(triples.T)] - self.program.columns
        new = of_cut >= 0
        column, row = np.concatenate([column, of_cut[new]]), np.concatenate([row, self._cut_rows[cut[new]]])
        self.program.add_columns(scores, Entries.of(k, column, row, np.ones(len(row))))
        self.g, self.p, self.c = (np.concatenate(pair) for pair in ((self.g, g), (self.p, p), (self.c, c)))

    def add_gp_arc(self, g: Ints, p: Ints, c: Ints) -> None:
        """Rows GPArc of triples that are columns."""
        y = self.z_gp[g, p, c]
        rows = self._add(-math.inf, 0.0, (y, 1.0), (self.z[g, p], -1.0))
        if not self.has_one_gp:
            child = self._add(-math.inf, 0.0, (y, 1.0), (self.z[p, c], -1.0))
            self._child_arc_rows = np.concatenate([self._child_arc_rows, child])
        self.gp_arc = np.concatenate([self.gp_arc, np.stack([g, p, c], 1)])
        self._gp_arc_rows = np.concatenate([self._gp_arc_rows, rows])

    def add_arc_gp(self, g: Ints, p: Ints, c: Ints) -> None:
        """Rows ArcGP of triples whose arcs are there; those that are no columns are 0."""
        rows = self._add(-math.inf, 1.0, (self.z[g, p], 1.0), (self.z[p, c], 1.0), (self.z_gp[g, p, c], -1.0))
        self.arc_gp = np.concatenate([self.arc_gp, np.stack([g, p, c], 1)])
        self._arc_gp_rows = np.concatenate([self._arc_gp_rows, rows])

    def add_cuts(self, cuts: Cuts) -> None:
        """Rows of cuts."""
        row, column, value = (np.concatenate(pair) for pair in zip(*self._entries(cuts), strict=True))
        count = len(cuts.high)
        entries = Entries.of(count, row, column, value)
        self._cut_rows = np.concatenate([self._cut_rows, self.program.rows + np.arange(count)])
        self.program.add_rows(np.full(count, -np.inf), cuts.high, entries)
        self.cuts = self.cuts + cuts

    def _entries(self, cuts: Cuts) -> Iterator[tuple[Ints, Ints, Doubles]]:
        """Row, column and value of what there is of arcs, and of triples."""
        for (row, at, value), columns in ((cuts.arcs, self.z), (cuts.triples, self.z_gp)):
            column = columns[tuple(at.T)]
            yield row[column >= 0], column[column >= 0], value[column >= 0]

    def new_cuts(self, z: Doubles, values: Doubles, least: float) -> Cuts:
        """Cuts that a solution violates by more than ``least``: NoCycle, or if there are none the others."""
        found = no_cycle(z, least)
        if not len(found.high):
            weight = self.triple_weights(values, self.g, self.p, self.c)
            some = weight > least
            triples = np.stack([self.g, self.p, self.c], 1)[some]
            y = np.zeros(self.z_gp.shape)
            y[tuple(triples.T)] = weight[some]
            found = no_cycle_gp(z, y, triples, least) + triangle(z, y, triples, least)
        return found.without(self.cuts)

    def _add(self, low: float, high: float, *parts: tuple[Ints, float]) -> Ints:
        """Rows alike, of columns (one for each row, -1 where there is none) and their value; the rows' numbers."""
        columns = np.array([column for column, _ in parts]).T
        first, count = self.program.rows, len(columns)
        entries = Entries.alike(columns, np.array([value for _, value in parts]))
        self.program.add_rows(np.full(count, low), np.full(count, high), entries)
        return first + np.arange(count)

    def solve(self, seconds: float) -> Solution:
        return self.program.solve(seconds)

    def weights(self, values: Doubles) -> Doubles:
        """z [N, N], 0 where there is no column."""
        return np.where(self.z >= 0, values[self.z], 0.0)

    def triple_weights(self, values: Doubles, g: Ints, p: Ints, c: Ints) -> Doubles:
        """z^gp of triples, 0 of those that are no columns."""
        at = self.z_gp[g, p, c]
        return np.where(at >= 0, values[at], 0.0)

    def duals(self, prices: Doubles) -> Duals:
        """The prices of a solution by the names of the rows."""
        n, N = self.n, self.N
        one_head, consume = np.zeros(N), np.zeros(N)
        one_head[1:] = prices[:n]
        if self.has_flow:
            consume[1:] = prices[self._source + 1 : self._source + 1 + n]
        one_gp = np.where(self._one_gp >= 0, prices[self._one_gp], -np.inf)
        no_gp = np.where(self._no_gp >= 0, np.maximum(prices[self._no_gp], 0.0), 0.0)
        return Duals(
            one_head,
            float(prices[self._root]) if self.single_root else 0.0,
            float(prices[self._source]) if self.has_flow else 0.0,
            consume,
            one_gp,
            no_gp,
            np.maximum(prices[self._gp_arc_rows], 0.0),
            np.maximum(prices[self._child_arc_rows], 0.0),
            np.maximum(prices[self._arc_gp_rows], 0.0),
            np.maximum(prices[self._cut_rows], 0.0),
        )

    def objective(self, duals: Duals) -> float:
        """What duals are worth."""
        of_words = duals.one_head.sum() + duals.one_root + self.n * duals.source + duals.consume.sum()
        return float(of_words + duals.arc_gp.sum() + duals.cuts @ self.cuts.high)

    def objective_rounding(self, duals: Duals) -> float:
        """What ``objective`` may be off."""
        terms = (duals.one_head, [duals.one_root, self.n * duals.source], duals.consume, duals.arc_gp)
        exact = math.fsum(np.concatenate([*terms, duals.cuts * self.cuts.high]))
        return abs(exact - self.objective(duals)) + certificates.rounding(0, abs(exact) + self.n * abs(duals.source))

    def size(self, duals: Duals) -> float:
        """The sizes of all duals that an objective or a reduced cost is made of."""
        size = np.abs(duals.one_head).sum() + abs(duals.one_root)
        if self.has_flow:
            size += self.n * abs(duals.source) + np.abs(duals.consume).sum()
        for row in (duals.no_gp, duals.gp_arc, duals.child_arc, duals.arc_gp):  # none below 0
            size += row.sum()
        return float(size + np.abs(duals.cuts) @ np.abs(self.cuts.high))

    def budgets(self, duals: Duals) -> Doubles:
        """What each arc's own dual constraint leaves for its dual of OneGP, or its slack where it has none [N, N]."""
        # Flow: the dual of NoFlow is as small as phi's constraint lets it be.
        potential = duals.consume.copy()
        potential[0] = -duals.source
        no_flow = np.maximum(potential[:, None] - potential[None, :], 0.0)
        budget = duals.one_head[None, :] - self.scores - self.n * (no_flow + duals.no_gp)
        budget[0] += duals.one_root
        for at, values in self._of_rows(duals):
            np.add.at(budget, at, values)
        return budget

    def budget_rounding(self, duals: Duals) -> Doubles:
        """What each of ``budgets`` may be off [N, N]."""
        potential = np.abs(duals.consume)
        potential[0] = abs(duals.source)
        size = np.abs(duals.one_head) + np.abs(np.where(np.isfinite(self.scores), self.scores, 0.0))
        size += self.n * (potential[:, None] + potential + duals.no_gp)
        size[0] += abs(duals.one_root)
        steps = np.full(size.shape, 6)  # before rows; to add 0 is none
        for at, values in self._of_rows(duals):
            np.add.at(size, at, np.abs(values))
            np.add.at(steps, at, values != 0)
        return certificates.UNIT * steps * size

    def _of_rows(self, duals: Duals) -> Iterator[tuple[tuple[Ints, ...], Doubles]]:
        """What rows of cuts and triples add to budgets: arcs, and how much each gets."""
        cut, pair, value = self.cuts.arcs
        yield tuple(pair.T), duals.cuts[cut] * value
        g, p, c = self.arc_gp.T
        yield (g, p), duals.arc_gp
        yield (p, c), duals.arc_gp
        g, p, c = self.gp_arc.T
        yield (g, p), -duals.gp_arc
        if len(duals.child_arc):
            yield (p, c), -duals.child_arc


def allowed(scores: Doubles) -> npt.NDArray[np.bool_]:
    """Which arcs there are [N, N]; what is no arc is not looked at."""
    here = ~np.eye(len(scores), dtype=bool)
    here[:, 0] = False
    return here & (np.where(here, scores, 0.0) > -np.inf)


def legal_arcs(scores: Doubles) -> tuple[Ints, Ints]:
    """Heads and words of the arcs that are allowed."""
    h, m = np.nonzero(allowed(scores))
    return h.astype(np.int64), m.astype(np.int64)


def legal_triples(scores: Doubles) -> tuple[Ints, Ints, Ints]:
    """Triples both of whose arcs are allowed, forbidden ones among them."""
    here = allowed(scores)
    both = here[:, :, None] & here[None]
    node = np.arange(len(scores))
    both[node, :, node] = False  # g = c
    g, p, c = np.nonzero(both)
    return g.astype(np.int64), p.astype(np.int64), c.astype(np.int64)
