"""Beam search for a good chain of tags."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from gpuparse.ops.plain.semiring import NEG_INF


@torch.no_grad()
def search(
    unary: Float[Tensor, "B n T"], pairs: Float[Tensor, "b p T T"], lengths: Int64[Tensor, " B"], beam: int
) -> tuple[Int64[Tensor, "B n"], Float64[Tensor, " B"]]:
    """Tags, -1 past the end and everywhere where no chain was found; and a bound of all chains."""
    B, n, T = unary.shape
    word = torch.arange(n, device=lengths.device) < lengths[:, None]
    theta = torch.where(word[:, :, None], unary.double(), 0.0)
    tau = pairs.double().expand(B, max(1, n - 1) if pairs.shape[1] else 0, T, T)
    s, bound = theta[:, 0], theta[:, 0].amax(1)
    back = []
    for i in range(1, n):
        kept = s.topk(min(beam, T), 1).indices
        inside = torch.full_like(s, NEG_INF).scatter(1, kept, s.gather(1, kept))
        best, source = (inside[:, :, None] + tau[:, i - 1]).max(1)
        own = torch.arange(T, device=s.device).expand_as(s)
        here = word[:, i, None]
        back.append(torch.where(here, source, own))
        s = torch.where(here, best + theta[:, i], s)
        way_in = (theta[:, i] + tau[:, i - 1].amax(1)).amax(1)
        bound = bound + torch.where(word[:, i], way_in, 0.0)
    score, tag = s.max(1)
    tags = [tag]
    for source in reversed(back):
        tags.append(source.gather(1, tags[-1][:, None])[:, 0])
    found = torch.stack(tags[::-1], 1)
    return torch.where(word & (score > NEG_INF)[:, None], found, -1), bound
