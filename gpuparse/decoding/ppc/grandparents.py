"""Grandparents (g, p, c) in the linear program (Riedel, Smith and McCallum 2012, section 3), under the paper's names:

OneGP(p, c)     sum over g of z^gp(g, p, c) = z(p, c), for p > 0
NoGP(g, p)      sum over c of z^gp(g, p, c) <= n z(g, p)
GPArc(g, p, c)  z^gp(g, p, c) <= z(g, p); also <= z(p, c) where OneGP does not say so
ArcGP(g, p, c)  z(g, p) + z(p, c) - z^gp(g, p, c) <= 1
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gpuparse.decoding.ppc.pairs import NONE, Bools, Doubles, Ints, PairDuals, PairRows
from gpuparse.decoding.solver import Program


class Grandparents(PairRows):
    """Grandparents in a live program.

    Attributes:
        gp_arc, arc_gp: triples [R, 3] that have those rows. Without OneGP, GPArc has two: z^gp <= z(g, p), and
            <= z(p, c). Their prices are ``PairDuals.rows``: GPArc, the second of its rows, ArcGP.
    """

    kind = "grandparents"

    def __init__(self, program: Program, N: int, *, has_one_gp: bool = True, has_no_gp: bool = True) -> None:
        super().__init__(program, N)
        self.has_one_gp, self.has_no_gp = has_one_gp, has_no_gp
        self._no_gp = np.full((N, N), -1)
        self.gp_arc = self.arc_gp = NONE
        self._gp_arc_rows = self._child_arc_rows = self._arc_gp_rows = np.zeros(0, dtype=np.int64)

    def add_arcs(self, h: Ints, m: Ints, z: Ints) -> None:
        inner = h > 0
        if self.has_one_gp:
            h_, m_ = h[inner], m[inner]
            self._one[h_, m_] = self.program.add_alike(0.0, 0.0, (z[h_, m_], -1.0))
        if self.has_no_gp:
            self._no_gp[h, m] = self.program.add_alike(-math.inf, 0.0, (z[h, m], float(-self.n)))

    def _rows(self, triples: Ints) -> tuple[Ints, Ints]:
        g, p, c = triples.T
        rows = [self._one[p, c]] * self.has_one_gp + [self._no_gp[g, p]] * self.has_no_gp
        return np.tile(np.arange(len(g)), len(rows)), np.concatenate([g[:0], *rows])

    def add_gp_arc(self, triples: Ints, z: Ints) -> None:
        """Rows GPArc of triples [T, 3] that are columns."""
        y, (g, p, c) = self.y[tuple(triples.T)], triples.T
        rows = self.program.add_alike(-math.inf, 0.0, (y, 1.0), (z[g, p], -1.0))
        if not self.has_one_gp:
            child = self.program.add_alike(-math.inf, 0.0, (y, 1.0), (z[p, c], -1.0))
            self._child_arc_rows = np.concatenate([self._child_arc_rows, child])
        self.gp_arc = np.concatenate([self.gp_arc, triples])
        self._gp_arc_rows = np.concatenate([self._gp_arc_rows, rows])

    def add_arc_gp(self, triples: Ints, z: Ints) -> None:
        """Rows ArcGP of triples [T, 3] whose arcs are there; those that are no columns are 0."""
        g, p, c = triples.T
        parts = (z[g, p], 1.0), (z[p, c], 1.0), (self.y[g, p, c], -1.0)
        rows = self.program.add_alike(-math.inf, 1.0, *parts)
        self.arc_gp = np.concatenate([self.arc_gp, triples])
        self._arc_gp_rows = np.concatenate([self._arc_gp_rows, rows])

    def duals(self, prices: Doubles) -> PairDuals:
        no_gp = np.where(self._no_gp >= 0, np.maximum(prices[self._no_gp], 0.0), 0.0)
        rows = self._gp_arc_rows, self._child_arc_rows, self._arc_gp_rows
        gp_arc, child_arc, arc_gp = (np.maximum(prices[row], 0.0) for row in rows)
        return PairDuals(self._one_of(prices), no_gp, (gp_arc, child_arc, arc_gp), arc_gp)

    def paid(self, duals: PairDuals) -> Doubles:
        return self.n * duals.outer

    def rows_of_arcs(self, duals: PairDuals) -> Iterator[tuple[tuple[Ints, ...], Doubles]]:
        gp_arc, child_arc, arc_gp = duals.rows
        g, p, c = self.arc_gp.T
        yield (g, p), arc_gp
        yield (p, c), arc_gp
        g, p, c = self.gp_arc.T
        yield (g, p), -gp_arc
        if len(child_arc):
            yield (p, c), -child_arc

    def rows_of_triples(self, duals: PairDuals) -> Iterator[tuple[Ints, Doubles]]:
        gp_arc, child_arc, arc_gp = duals.rows
        yield self.gp_arc, -gp_arc
        if len(child_arc):
            yield self.gp_arc, -child_arc
        yield self.arc_gp, arc_gp

    def outer_of(self, duals: PairDuals, triples: Ints) -> Doubles:
        return duals.outer[triples[:, 0], triples[:, 1]]

    @staticmethod
    def arcs_of(triples: Ints) -> Ints:
        return triples[:, :2]

    @staticmethod
    def has_arcs(here: Bools, triples: Ints) -> Bools:
        g, p, c = triples.T
        return here[g, p] & here[p, c]

    @staticmethod
    def of_tree(heads: Ints) -> Ints:
        c = np.nonzero(heads > 0)[0]
        p = heads[c]
        return np.stack([heads[p], p, c], 1)

    @staticmethod
    def legal(here: Bools) -> Ints:
        both = here[:, :, None] & here[None]
        node = np.arange(len(here))
        both[node, :, node] = False  # g = c
        return np.argwhere(both)

    @staticmethod
    def likely(z: Doubles, arcs: Ints) -> Ints:
        """The heads that the weights give the arcs' heads; none that is the child."""
        p, c = arcs[arcs[:, 0] > 0].T
        g = z[:, p].argmax(0)
        return np.stack([g, p, c], 1)[g != c]
