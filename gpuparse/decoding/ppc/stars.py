"""Cuts for grandparents and siblings together: the children of a node with each of its heads are paths of their own.

    Next(g, p, s, V)    z^gp(g, p, s) + sum over c in V of [z^sib(s, p, c) + sum over x other than g of z^gp(x, p, c)]
                          <= z(p, s) + sum over c in V of z(p, c), for a set V of words
    Before(g, p, c, U)  likewise of z^gp(g, p, c) and z(p, c), with the sum over s in U
    First(g, p, V)      z(g, p) + sum over c in V of [z^sib(p, p, c) + sum over x other than g of z^gp(x, p, c)]
                          <= 1 + sum over c in V of z(p, c), for a set V of words on one side of p

If p does not hang from g, the left side has the children in V, and z(p, s) or 1 counts the one next to s. If it does,
the left side has s and, of V, no more than the one next to it, which is a child in V. So with the others.
"""

from __future__ import annotations

import numpy as np

from gpuparse.decoding.ppc.cuts import Bools, Cuts, Doubles, Ints


def one_star(z: Doubles, y: Doubles, x: Doubles, least: float) -> Cuts:
    """Rows Next, Before and First that are violated by more than ``least``, with the worst sets that there are.

    Args:
        z: weights of arcs [N, N]; y: of grandparents (g, p, c), x: of siblings (s, p, c) [N, N, N].
    """
    node = np.arange(len(z))
    g, p = np.nonzero((z > least) & (z < 1 - least) & (node > 0))
    ours, pairs, each = y[g, p], x[:, p].swapaxes(0, 1), np.arange(len(g))  # [K, N], [K, s, c]
    after = np.maximum(pairs - ours[:, None], 0.0)
    before = np.maximum(pairs - ours[:, :, None], 0.0).swapaxes(1, 2)  # [K, c, s]
    before[each, :, p] = 0.0
    first, after[each, p] = after[each, p], 0.0
    found, missing = Cuts.none(), ours - z[p]
    for is_next, members in ((True, after), (False, before)):
        k, own = np.nonzero(missing + members.sum(2) > least)
        found = found + _rows(g[k], p[k], own, members[k, own] > 0, is_next)
    for side in (node < p[:, None], node > p[:, None]):
        members = np.where(side, first, 0.0)
        k = np.nonzero(z[g, p] - 1 + members.sum(1) > least)[0]
        found = found + _rows(g[k], p[k], p[k], members[k] > 0, True)
    return found


def _rows(g: Ints, p: Ints, own: Ints, members: Bools, is_next: bool) -> Cuts:
    """Rows Next or Before of g, p and another node, First where that is p, with their sets [R, N]."""
    is_first, node = own == p, np.arange(members.shape[1])
    row, word = np.nonzero(members)
    pairs = (own[row], p[row], word) if is_next else (word, p[row], own[row])
    others = (node != g[row, None]) & (node != p[row, None]) & (node != word[:, None])
    entry, other = np.nonzero(others)
    of_others = np.stack([other, p[row[entry]], word[entry]], 1)
    rest = np.nonzero(~is_first)[0]
    children = np.concatenate([np.stack([p[row], word], 1), np.stack([p, own], 1)[rest]])
    above = np.stack([g, p], 1)[is_first]
    value = np.concatenate([-np.ones(len(children)), np.ones(len(above))])
    arcs = np.concatenate([row, rest, np.nonzero(is_first)[0]]), np.concatenate([children, above]), value
    triples = np.concatenate([np.stack([g, p, own], 1)[rest], of_others])
    of_grandparents = np.concatenate([rest, row[entry]]), triples, np.ones(len(triples))
    return Cuts(arcs, of_grandparents, is_first.astype(np.float64), (row, np.stack(pairs, 1), np.ones(len(row))))
