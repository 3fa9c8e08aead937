"""Grandparents or siblings with positive reduced cost: all triples looked at, as simply as it can be."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

Score = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # exact scores of a list: sentence, g, p, c
Square = Float64[Tensor, "B N N"]
Cube = Float64[Tensor, "B N N N"]


@torch.no_grad()
def price(
    score: Score | None,
    lengths: Int64[Tensor, " B"],
    ceiling: Square,
    floor: Square,
    kappa: Square,
    over_g: Square,
    over_c: Square,
    known: Cube,
    tolerance: float,
    room: int,
    siblings: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """As ``gpuparse.ops.pricing.price``, and waits for the device. Without ``score``, what would be scored is found."""
    B, N = ceiling.shape[:2]
    known = known.permute(0, 3, 1, 2)  # [B, g, p, c] like all here
    node = torch.arange(N, device=ceiling.device)
    n = lengths.clamp(0, N - 1)[:, None, None, None]
    g, p, c = node[:, None, None], node[:, None], node
    legal = (g <= n) & (p <= n) & (c <= n) & (c >= 1) & (p != c)
    settled = over_g <= ceiling
    spare = torch.where(settled, ceiling - torch.maximum(over_g, floor), 0.0)
    there = ceiling < torch.inf
    if siblings:  # the arc of g is (p, g); none where g = p, whose dual depends on the side
        legal &= (g == p) | ((p < g) & (g < c)) | ((c < g) & (g < p))
        diagonal = (node[:, None] == node)[None]
        there, spare, over_c = (x.mT for x in (there | diagonal, spare.masked_fill(diagonal, 0.0), over_c))
        dual = torch.where((g == p) & (c < p), kappa[:, None, :, :1], kappa.mT[:, :, :, None])
    else:
        legal &= (p >= 1) & (g != p) & (g != c)
        spare[:, 0] = ceiling[:, 0].clamp(min=0.0)
        dual = kappa[:, :, :, None]
    legal = legal & there[:, :, :, None] & ~settled[:, None]
    bound = torch.minimum(over_c[:, :, :, None], over_g[:, None])

    def reduced() -> Cube:
        """The reduced cost (8) of what is known, else its bound (11); -inf for no triple."""
        value = torch.where(known.isnan(), bound, known) - ceiling[:, None] - dual
        return torch.where(legal, value, -torch.inf)

    def positive(r: Cube) -> Bool[Tensor, "B N N N"]:
        """Those above the tolerance, but where the arc of g can pay for them all, or for the dearest sibling."""
        above = r > tolerance
        total = torch.zeros_like(ceiling)
        for child in range(N):  # in this order: sums are the kernel's to the last bit
            more = torch.maximum(total, r[..., child]) if siblings else total + r[..., child]
            total = torch.where(above[..., child], more, total)
        return above & ~(total <= spare)[..., None]

    scored = torch.zeros_like(lengths)
    found = positive(reduced())
    if score is not None:
        new = (found & known.isnan()).nonzero()
        known[tuple(new.T)] = score(*new.T).double()
        scored = torch.bincount(new[:, 0], minlength=B)
        found &= positive(reduced())
    r = reduced()
    count = found.sum((1, 2, 3))
    b, p, c, g = found.permute(0, 2, 3, 1).nonzero().T  # in the order p, c, g
    place = torch.arange(len(b), device=b.device) - (count.cumsum(0) - count)[b]
    b, p, c, g, place = (x[place < room] for x in (b, p, c, g, place))
    triples = torch.full((B, room, 3), -1, dtype=torch.int32, device=b.device)
    triples[b, place] = torch.stack((g, p, c), 1).int()
    scores, costs = ceiling.new_zeros(B, room), ceiling.new_zeros(B, room)
    scores[b, place], costs[b, place] = known[b, g, p, c], r[b, g, p, c]
    worst = torch.where(found, r, 0.0).amax((1, 2))
    return triples, scores, costs, worst, count, legal.sum((1, 2, 3)), scored
