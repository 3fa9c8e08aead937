"""Head automata: the best head and the best children of every node, all heads looked at, as simply as it can be."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from gpuparse.ops.plain.semiring import NEG_INF
from gpuparse.structures.masks import arc_mask, sibling_mask, word_mask

SUMS = 8  # of automata.cuh
Arcs = Float[Tensor, "B N N"]
Pairs = Float[Tensor, "B N N N"] | None


@torch.no_grad()
def automata(
    down: Arcs, up: Arcs | None, siblings: Pairs, grandparents: Pairs, lengths: Int64[Tensor, " B"], single_root: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """As ``gpuparse.ops.automata.automata``: children, heads and values."""
    B, N = down.shape[:2]
    n = lengths.clamp(0, N - 1)
    node = torch.arange(N, device=down.device)
    arc, word = arc_mask(n, N), word_mask(n, N)
    single = torch.where(arc, down.double(), NEG_INF)[:, :, None]
    # the weights of children and the scores of the heads: choices [B, p, g]; those of node 0 and without heads: g = 0
    heads = single.new_zeros(B, N, 1)
    weights = single
    if up is not None or grandparents is not None:
        heads = torch.where(arc, 0.0 if up is None else up.double(), NEG_INF).transpose(1, 2)
        weights = single.expand(B, N, N, N)
        if grandparents is not None:
            read = arc[:, :, :, None] & arc[:, None] & (node[:, None, None] != node)
            more = torch.where(read, grandparents.double(), NEG_INF).transpose(1, 2)
            weights = weights + torch.where(node[:, None, None] == 0, 0.0, more)
        weights = torch.where((node[:, None] == node) & (node[:, None, None] > 0), NEG_INF, weights)
        heads = torch.where(node[:, None] > 0, heads, torch.where(node == 0, 0.0, NEG_INF))
    if siblings is None:
        gains = _sum(weights.clamp(min=0.0))
        chains = weights
    else:
        beside = torch.where(sibling_mask(n, N), siblings.double(), NEG_INF)
        chains, before = _chains(weights, beside)
        left, right = (chains.where(side, NEG_INF).amax(-1).clamp(min=0.0) for side in _sides(node))
        gains = left + right
    values = heads + gains
    best = values.amax(-1)
    chosen = torch.where(values == best[..., None], node[: values.shape[2]], N).amin(-1)
    place = chosen[..., None, None].expand(B, N, 1, N)
    if siblings is None:
        children = weights.gather(2, place).squeeze(2) > 0
    else:
        children = _unwind(chains.gather(2, place).squeeze(2), before.gather(2, place).squeeze(2))
    if single_root:
        root = single[:, 0, 0] + (0.0 if siblings is None else beside[:, 0, 0])
        best[:, 0] = root.amax(-1)
        first = torch.where(root == best[:, :1], node, N).amin(-1)
        children[:, 0] = node == first[:, None]
    there = (word | (node == 0)) & (n > 0)[:, None]
    possible = there & (best > NEG_INF)
    headed = possible & word & (up is not None or grandparents is not None)
    return children & possible[..., None], torch.where(headed, chosen, -1), torch.where(there, best, 0.0)


def _sum(x: Float64[Tensor, "*some N"]) -> Float64[Tensor, "*some"]:
    """Over the last dimension, in the order of the kernel: equal to the last bit."""
    x = torch.nn.functional.pad(x, (0, -x.shape[-1] % SUMS)).unflatten(-1, (-1, SUMS))
    total = torch.zeros_like(x[..., 0, :])
    for part in x.unbind(-2):
        total = total + part
    while total.shape[-1] > 1:
        low, high = total.chunk(2, -1)
        total = low + high
    return total.squeeze(-1)


def _sides(node: Int64[Tensor, " N"]) -> tuple[Tensor, Tensor]:
    """Which nodes c are on the left and on the right of p, [p, 1, c]."""
    p = node[:, None, None]
    return node < p, node > p


def _chains(
    weights: Float64[Tensor, "B N G N"], beside: Float64[Tensor, "B N N N"]
) -> tuple[Float64[Tensor, "B N G N"], Int64[Tensor, "B N G N"]]:
    """The best chain of children of p on a side that ends in m, and the child before m in it (p: none)."""
    N = weights.shape[1]
    node = torch.arange(N, device=weights.device)
    p, s = node[:, None, None], node
    chains, before = torch.full_like(weights, NEG_INF), torch.zeros_like(weights, dtype=torch.int64)
    start = torch.where(s == p, 0.0, NEG_INF)  # of p itself
    for right, order in ((False, range(N - 1, 0, -1)), (True, range(1, N))):
        for m in order:
            between = (s > p) & (s < m) if right else (s < p) & (s > m)
            ways = torch.where(between, chains, start) + beside[:, :, None, :, m]
            most = ways.amax(-1)
            equal = ways == most[..., None]
            nearest = torch.where(equal, s, N).amin(-1) if right else torch.where(equal, s, -1).amax(-1)
            here = (node < m if right else node > m)[:, None]
            chains[..., m] = torch.where(here, weights[..., m] + most, chains[..., m])
            before[..., m] = torch.where(here, nearest, before[..., m])
    return chains, before


def _unwind(chains: Float64[Tensor, "B N N"], before: Int64[Tensor, "B N N"]) -> Tensor:
    """The children [B, p, c] of the best chains of both sides."""
    N = chains.shape[-1]
    node = torch.arange(N, device=chains.device)
    p = node[:, None]
    children = torch.zeros_like(chains, dtype=torch.bool)
    for right in (False, True):
        side = torch.where(node > p if right else node < p, chains, NEG_INF)
        top = side.amax(-1)
        equal = side == top[..., None]
        last = torch.where(equal, node, N).amin(-1) if right else torch.where(equal, node, -1).amax(-1)
        last = torch.where(top > 0, last, node)
        for _ in range(N):
            children |= (node == last[..., None]) & (last != node)[..., None]
            back = before.gather(-1, last[..., None]).squeeze(-1)
            last = torch.where(last == node, node, back)
    return children
