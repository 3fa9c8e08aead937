"""Cuts that every tree meets and a solution of the linear program of ``gpuparse.decoding.ppc.program`` may not:

    NoCycle(S)                 sum over h and m in S of z(h, m) <= |S| - 1, for a set S of words
    NoCycleGP(g, p, c)         z^gp(g, p, c) + z(p, g) + z(c, g) <= 1
    Triangle(p, q, c, A)       sum over g in A of [z^gp(g, p, c) + z^gp(g, p, q)] + z^gp(p, q, c)
                                 <= sum over g in A of z(g, p) + z(p, q), for a set A of heads of p
    NoCross(i, j, k)           z(i, j) + z(j, i) + sum over x of z(x, k) <= 1, for projective trees: x on the one side
                                 of an arc between i and j, and k on the other

With all rows NoCycle z is an average of trees, which flow does not see to; sets are found by min cuts. The second:
where p hangs from g and c from p, g hangs from neither. The third: let a say that p hangs from one of A, b that q hangs
from p. If c hangs from p, and a, then b or not; if it hangs from q, and b, it does not hang from p. Either way
(a and c from p) + (b and c from q) + (a and b) <= a + b.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpuparse.decoding.parts import Kind

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Key = tuple[bytes, ...]
Terms = tuple[Ints, Ints, Doubles]  # the number of the cut [K], nodes [K, 2 or 3], coefficient [K]
ENOUGH = 1e-12  # capacity that counts
_WHOLE: Ints = np.zeros(0, dtype=np.int64)
NO_ARCS: Terms = (_WHOLE, _WHOLE.reshape(0, 2), np.zeros(0))
NO_TRIPLES: Terms = (_WHOLE, _WHOLE.reshape(0, 3), np.zeros(0))


class Cuts(NamedTuple):
    """Rows of weights of arcs, and of grandparents (``triples``) and siblings, which are 1."""

    arcs: Terms
    triples: Terms
    high: Doubles
    siblings: Terms = NO_TRIPLES

    @classmethod
    def none(cls) -> Cuts:
        return cls(NO_ARCS, NO_TRIPLES, np.zeros(0))

    def of(self, kind: Kind) -> Terms:
        """What is said of triples of a kind."""
        return self.siblings if kind == "siblings" else self.triples

    def __add__(self, other: object) -> Cuts:
        """Both, those of the other behind."""
        if not isinstance(other, Cuts):
            return NotImplemented
        count = len(self.high)

        def both(one: Terms, two: Terms) -> Terms:
            more = (two[0] + count, two[1], two[2])
            cut, at, value = (np.concatenate([x, y]) for x, y in zip(one, more, strict=True))
            return cut, at, value

        high = np.concatenate([self.high, other.high])
        triples, siblings = both(self.triples, other.triples), both(self.siblings, other.siblings)
        return Cuts(both(self.arcs, other.arcs), triples, high, siblings)

    def without(self, known: Collection[Key]) -> Cuts:
        """Those that are not known: the solver met them as far as it could."""
        if not len(self.high) or not known:
            return self
        new = np.array([key not in known for key in self.keys()])
        place = np.cumsum(new) - 1

        def some(terms: Terms) -> Terms:
            cut, at, value = terms
            kept = new[cut]
            return place[cut[kept]], at[kept], value[kept]

        return Cuts(some(self.arcs), some(self.triples), self.high[new], some(self.siblings))

    def keys(self) -> list[Key]:
        """What tells each from others."""
        found = []
        for cut, at, _ in (self.arcs, self.triples, self.siblings):
            code = at @ (1 << 20) ** np.arange(at.shape[1])
            order = np.lexsort((code, cut))
            ends = np.searchsorted(cut[order], np.arange(len(self.high) + 1)).tolist()
            code = code[order]
            found.append([code[i:j].tobytes() for i, j in pairwise(ends)])
        return list(zip(*found, strict=True))


def no_cycle(z: Doubles, least: float) -> Cuts:
    """Rows NoCycle that are violated by more than ``least``; none if and only if there are none.

    Args:
        z: weights of the arcs [N, N]; those of each word's heads come to 1.
    """
    sets = violated_sets(z, least)
    row, h, m = np.nonzero(sets[:, :, None] & sets[:, None, :] & ~np.eye(len(z), dtype=bool))
    arcs = row, np.stack([h, m], 1), np.ones(len(row))
    return Cuts(arcs, Cuts.none().triples, sets.sum(1) - 1.0)


def no_cross(z: Doubles, least: float) -> Cuts:
    """Rows NoCross that are violated by more than ``least``: of every i < j the worst k within, and the worst beyond;
    none if and only if there are none.

    A word k within has a head from i to j if there is an arc between these; one beyond has none within.
    """
    N = len(z)
    node = np.arange(N)
    i, j, k = node[:, None, None], node[:, None], node
    total = np.concatenate([np.zeros((1, N)), np.cumsum(z, 0)])  # of heads before each node
    from_to, within = total[j + 1, k] - total[i, k], total[j, k] - total[np.minimum(i + 1, j), k]
    inside, outside = (i < k) & (k < j), (i < j) & ((k < i) | (k > j)) & (k > 0)
    over = (z + z.T)[:, :, None] - 1.0
    found = Cuts.none()
    for there, sums in ((inside, z.sum(0) - from_to), (outside, within)):
        amount = np.where(there, over + sums, -np.inf)
        worst = amount.argmax(2)
        one, other = np.nonzero(np.take_along_axis(amount, worst[:, :, None], 2)[:, :, 0] > least)
        word = worst[one, other]
        heads = (node <= other[:, None]) & (node >= one[:, None])
        heads = ~heads if there is inside else heads & (node != one[:, None]) & (node != other[:, None])
        heads &= node != word[:, None]
        row, head = np.nonzero(heads)
        each = np.arange(len(one))
        arcs = np.concatenate([np.stack([head, word[row]], 1), np.stack([one, other], 1), np.stack([other, one], 1)])
        rows = np.concatenate([row, each, each])
        real = arcs[:, 1] > 0
        found = found + Cuts((rows[real], arcs[real], np.ones(int(real.sum()))), Cuts.none().triples, np.ones(len(one)))
    return found


def no_cycle_gp(z: Doubles, y: Doubles, triples: Ints, least: float) -> Cuts:
    """Rows NoCycleGP that are violated by more than ``least``, of triples [T, 3] with weights y [N, N, N]."""
    g, p, c = triples.T
    triples = triples[y[g, p, c] + z[p, g] + z[c, g] > 1 + least]
    row, (g, p, c) = np.arange(len(triples)), triples.T
    pairs = np.concatenate([np.stack([p, g], 1), np.stack([c, g], 1)])
    arcs = np.concatenate([row, row]), pairs, np.ones(len(pairs))
    return Cuts(arcs, (row, triples, np.ones(len(row))), np.ones(len(row)))


def triangle(z: Doubles, y: Doubles, triples: Ints, least: float) -> Cuts:
    """Rows Triangle(p, q, c, A) that are violated by more than ``least``, with A the worst set that there is.

    Args:
        triples: (p, q, c) [T, 3] that are looked at: all of those with a weight.
        y: weights of triples [N, N, N].
    """
    p, q, c = triples[triples[:, 0] > 0].T
    gain = y[:, p, c] + y[:, p, q] - z[:, p]  # [N, T]
    over = np.maximum(gain, 0.0).sum(0) + y[p, q, c] - z[p, q] > least
    p, q, c = p[over], q[over], c[over]
    g, row = np.nonzero(gain[:, over] > 0)
    each = np.arange(len(p))
    of_g = row, np.stack([g, p[row], c[row]], 1), np.stack([g, p[row], q[row]], 1), np.stack([g, p[row]], 1)
    arcs = np.concatenate([of_g[0], each]), np.concatenate([of_g[3], np.stack([p, q], 1)])
    of_triples = np.concatenate([row, row, each]), np.concatenate([*of_g[1:3], np.stack([p, q, c], 1)])
    legal = of_triples[1][:, 0] != of_triples[1][:, 2]
    of_triples = of_triples[0][legal], of_triples[1][legal]
    return Cuts((*arcs, -np.ones(len(arcs[0]))), (*of_triples, np.ones(len(of_triples[0]))), np.zeros(len(p)))


def violated_sets(z: Doubles, least: float) -> Bools:
    """Sets of words [S, N] into which less than 1 - ``least`` comes from outside; none only if there are none."""
    N = len(z)
    # A set with a word and without its only head is not violated, and one with the head and without the word is no
    # more violated than with it: such words and heads are one node.
    group = _united(z > 1 - least / (2 * N))
    count = int(group.max()) + 1
    member = np.zeros((count, N))
    member[group, np.arange(N)] = 1.0
    capacity = member @ np.maximum(z, 0.0) @ member.T
    np.fill_diagonal(capacity, 0.0)
    found: list[Bools] = []
    for target in range(count):
        if target == group[0] or any(outside[target] for outside in found):
            continue
        outside = _cut(capacity, int(group[0]), target, 1 - least)
        if outside is not None:
            found.append(outside)
    return np.array([outside[group] for outside in found], dtype=bool).reshape(len(found), N)


def _united(arcs: Bools) -> Ints:
    """Numbers of the groups of nodes that arcs [N, N] hold together [N]."""
    reach = arcs | arcs.T | np.eye(len(arcs), dtype=bool)
    for _ in range(len(arcs).bit_length()):
        reach = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
    return np.unique(reach.argmax(1), return_inverse=True)[1].astype(np.int64)


def _cut(capacity: Doubles, source: int, target: int, enough: float) -> Bools | None:
    """The nodes on the side of the target in a least cut [K]; None if no less than ``enough`` flows there."""
    left, flow = capacity.copy(), 0.0
    while True:
        before = np.full(len(left), -1)
        before[source] = source
        front = [source]
        while front and before[target] < 0:
            node = front.pop(0)
            new = np.nonzero((left[node] > ENOUGH) & (before < 0))[0]
            before[new] = node
            front.extend(new.tolist())
        if before[target] < 0:
            return before < 0
        path, node = [], target
        while node != source:
            path.append((int(before[node]), node))
            node = int(before[node])
        amount = min(left[edge] for edge in path)
        for one, other in path:
            left[one, other] -= amount
            left[other, one] += amount
        flow += float(amount)
        if flow >= enough:
            return None
