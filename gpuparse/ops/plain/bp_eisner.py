"""Eisner's algorithm, inside and outside, over any sum: for each arc the sum over the trees that have it.

Charts [B, N, N] are kept by the two ends of a span (i, j). R and L are complete spans headed at their left and right
end, P and Q incomplete ones, ended by the arc i -> j and j -> i, X what these two have in common (``plain/eisner.py``).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gpuparse.ops.plain.links import Graph
from gpuparse.ops.plain.semiring import NEG_INF


def _put(chart: Tensor, values: Tensor, d: int) -> Tensor:
    """The chart with the spans of width d."""
    return torch.diagonal_scatter(chart, values, d, 1, 2)


def outside(w: Float[Tensor, "B N N"], graph: Graph, single_root: bool) -> Float[Tensor, "B N N"]:
    """For each arc the sum over all projective trees with it of their weight without this arc's; -inf if there are
    none. It does not depend on the arc's own weight."""
    N = w.shape[1]
    w = torch.where(graph.links, w, NEG_INF)
    most = w.detach().amax(1, keepdim=True)  # a constant for each word does not matter within its column
    w = w - torch.where(most == NEG_INF, 0.0, most)
    node = torch.arange(N, device=w.device)
    none = torch.full_like(w, NEG_INF)
    empty = torch.where(node == node[:, None], 0.0, none)
    R, L, P, Q, X = empty, empty, none, none, none
    R_in_X = empty  # R, but of a root that has a child already, which may take no other

    # X(i, j) = sum over i <= k < j of R(i, k) L(k + 1, j);   P(i, j) = w(i, j) X(i, j),   Q(i, j) = w(j, i) X(i, j)
    # R(i, j) = sum over i < k <= j of P(i, k) R(k, j);       L(i, j) = sum over i <= k < j of L(i, k) Q(k, j)
    for d in range(1, N):
        i = node[: N - d, None]
        j, k = i + d, i + torch.arange(d, device=w.device)
        x = graph.sum(R_in_X[:, i, k] + L[:, k + 1, j], 2)
        X = _put(X, x, d)
        P = _put(P, w.diagonal(d, 1, 2) + x, d)
        Q = _put(Q, w.diagonal(-d, 1, 2) + x, d)
        r = graph.sum(P[:, i, k + 1] + R[:, k + 1, j], 2)
        L = _put(L, graph.sum(L[:, i, k] + Q[:, k, j], 2), d)
        R = _put(R, r, d)
        if single_root:
            r = torch.cat([torch.full_like(r[:, :1], NEG_INF), r[:, 1:]], 1)
        R_in_X = _put(R_in_X, r, d)

    goal = (node == 0)[:, None] & (node == graph.lengths[:, None, None])
    # Each sum is over the spans that a span (i, j) is a part of: (k, j) with k < i, and (i, k) with k > j.
    Ro, Lo, Xo = torch.where(goal, 0.0, none), none, none
    Po, Qo = none, none
    for d in range(N - 1, 0, -1):
        i, k = node[: N - d, None], node.expand(N - d, N)
        j = i + d
        if d < N - 1:
            # R(k, j) has P(k, i) R(i, j), X(i, k) has R(i, j) L(j + 1, k)
            left = torch.where(k < i, Ro[:, k, j] + P[:, k, i], NEG_INF)
            right = torch.where(k > j, Xo[:, i, k] + L[:, (j + 1).clamp(max=N - 1), k], NEG_INF)
            if single_root:
                right = torch.where(i == 0, NEG_INF, right)
            ways = torch.cat([Ro.diagonal(d, 1, 2)[..., None], left, right], 2)
            Ro = _put(Ro, graph.sum(ways, 2), d)
            # L(i, k) has L(i, j) Q(j, k), X(k, j) has R(k, i - 1) L(i, j)
            left = torch.where(k < i, Xo[:, k, j] + R_in_X[:, k, (i - 1).clamp(min=0)], NEG_INF)
            right = torch.where(k > j, Lo[:, i, k] + Q[:, j, k], NEG_INF)
            Lo = _put(Lo, graph.sum(torch.cat([left, right], 2), 2), d)
        # R(i, k) has P(i, j) R(j, k), k >= j;  L(k, j) has L(k, i) Q(i, j), k <= i
        p = graph.sum(torch.where(k >= j, Ro[:, i, k] + R[:, j, k], NEG_INF), 2)
        q = graph.sum(torch.where(k <= i, Lo[:, k, j] + L[:, k, i], NEG_INF), 2)
        Po, Qo = _put(Po, p, d), _put(Qo, q, d)
        Xo = _put(Xo, graph.add(p + w.diagonal(d, 1, 2), q + w.diagonal(-d, 1, 2)), d)
    return torch.where(graph.links, torch.where(node > node[:, None], Po + X, (Qo + X).transpose(1, 2)), NEG_INF)
