"""Siblings in the linear program: the children of a head on one side are a path, from the first to the last.

A sibling (s, h, m) is the arc h -> m with s the child of h before m, going outward, or s = h if m is the first. Its
rows are those of a flow along the path. For one head, and scores of its arcs, they have integral solutions:

    OneSib(h, m)        sum over s of z^sib(s, h, m) = z(h, m)
    NextSib(h, s)       sum over m of z^sib(s, h, m) <= z(h, s)
    FirstSib(h, side)   sum over m on that side of z^sib(h, h, m) <= 1
"""

from __future__ import annotations

import math

import numpy as np

from gpuparse.decoding.ppc.pairs import Bools, Doubles, Ints, PairDuals, PairRows
from gpuparse.decoding.solver import Entries, Program


class Siblings(PairRows):
    """Siblings in a live program; ``PairDuals.outer`` has NextSib(h, s) at [h, s], FirstSib at [h, h] for the right
    side and at [h, 0], where no arc is, for the left."""

    kind = "siblings"

    def __init__(self, program: Program, N: int) -> None:
        super().__init__(program, N)
        node, none = np.arange(N), np.zeros(0, dtype=np.int64)
        self._outer = np.full((N, N), -1)
        self._outer[node, 0] = program.rows + node  # of the root there is no left side: that row is the right one's
        self._outer[node[1:], node[1:]] = program.rows + N + node[:-1]
        rows = 2 * N - 1
        program.add_rows(np.full(rows, -math.inf), np.ones(rows), Entries.of(rows, none, none, np.zeros(0)))
        self._first = program.rows - rows + np.arange(rows)

    def add_arcs(self, h: Ints, m: Ints, z: Ints) -> None:
        self._one[h, m] = self.program.add_alike(0.0, 0.0, (z[h, m], -1.0))
        self._outer[h, m] = self.program.add_alike(-math.inf, 0.0, (z[h, m], -1.0))

    def _rows(self, triples: Ints) -> tuple[Ints, Ints]:
        s, h, m = triples.T
        which = np.arange(len(s))
        return np.concatenate([which, which]), np.concatenate([self._one[h, m], self._outer[place_of(triples)]])

    def duals(self, prices: Doubles) -> PairDuals:
        outer = np.where(self._outer >= 0, np.maximum(prices[self._outer], 0.0), 0.0)
        return PairDuals(self._one_of(prices), outer, (), np.maximum(prices[self._first], 0.0))

    def paid(self, duals: PairDuals) -> Doubles:
        paid = duals.outer.copy()
        paid[:, 0] = 0.0
        np.fill_diagonal(paid, 0.0)
        return paid

    def outer_of(self, duals: PairDuals, triples: Ints) -> Doubles:
        return duals.outer[place_of(triples)]

    @staticmethod
    def arcs_of(triples: Ints) -> Ints:
        some = triples[triples[:, 0] != triples[:, 1]]
        return np.stack([some[:, 1], some[:, 0]], 1)

    @staticmethod
    def has_arcs(here: Bools, triples: Ints) -> Bools:
        s, h, m = triples.T
        return here[h, m] & (here[h, s] | (s == h))

    @staticmethod
    def of_tree(heads: Ints) -> Ints:
        words = np.arange(1, len(heads))
        children = np.zeros((len(heads), len(heads)))
        children[heads[1:], words] = 1.0
        return Siblings.likely(children, np.stack([heads[1:], words], 1))

    @staticmethod
    def legal(here: Bools) -> Ints:
        node = np.arange(len(here))
        s, h, m = node[:, None, None], node[:, None], node
        between = ((h < s) & (s < m)) | ((m < s) & (s < h))
        return np.argwhere(here[None] & ((s == h) | (between & here.T[:, :, None])))

    @staticmethod
    def likely(z: Doubles, arcs: Ints) -> Ints:
        """The nearest node before the child that is rather a child than not."""
        h, m = arcs.T
        node = np.arange(len(z))
        chosen = z[h] > 0.5  # [K, N]
        right = chosen & (h[:, None] < node) & (node < m[:, None])
        left = chosen & (m[:, None] < node) & (node < h[:, None])
        before = np.where(right, node, -1).max(1, initial=-1)
        after = np.where(left, node, len(z)).min(1, initial=len(z))
        s = np.where(before >= 0, before, np.where(after < len(z), after, h))
        return np.stack([s, h, m], 1)


def place_of(triples: Ints) -> tuple[Ints, Ints]:
    """Where the price of each triple's other row is."""
    s, h, m = triples.T
    return h, np.where((s == h) & (m < h), 0, s)
