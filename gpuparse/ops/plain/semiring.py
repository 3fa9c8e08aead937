"""Sums that are safe at -inf, and the masks that say which scores are read."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpuparse.structures.masks import arc_mask

NEG_INF = float("-inf")


def logsumexp(x: Float[Tensor, "*dims"], dim: int) -> Float[Tensor, "*less"]:
    """Log of the sum of exp(x) over `dim`: -inf with zero derivatives of every order where all of x is -inf.

    The maximum m is a constant of the derivative: log(sum exp(x - m)) + m is the same function for every m.
    """
    m = x.detach().amax(dim, keepdim=True)
    m = torch.where(m == NEG_INF, 0.0, m)
    y = torch.exp(x - m).sum(dim)
    some = y > 0
    return torch.where(some, torch.log(torch.where(some, y, 1.0)) + m.squeeze(dim), NEG_INF)


def logaddexp(x: Float[Tensor, "*dims"], y: Float[Tensor, "*dims"]) -> Float[Tensor, "*dims"]:
    """Log of exp(x) + exp(y), safe as `logsumexp` is. x and y have the same shape."""
    return logsumexp(torch.stack([x, y]), 0)


def maximum(x: Float[Tensor, "*dims"], dim: int) -> Float[Tensor, "*less"]:
    """The largest of x over `dim`; its derivative goes to the first of equals only."""
    return x.max(dim).values


def clean(arcs: Float[Tensor, "B N N"], lengths: Int64[Tensor, " B"]) -> Float[Tensor, "B N N"]:
    """The scores in float64, -inf wherever they must not be read."""
    return torch.where(arc_mask(lengths, arcs.shape[-1]), arcs.double(), NEG_INF)


def centre(w: Float[Tensor, "B N N"]) -> tuple[Float[Tensor, "B N N"], Float[Tensor, " B"]]:
    """Shift every modifier's scores so that its best head scores 0; also the sum of the shifts, [B].

    A tree has one head for every word, so log Z(w) = log Z(w - c) + sum of c for any constant c; sums of
    scores near 0 keep digits that a common offset of the scores would cost.
    """
    c = w.detach().amax(1)
    c = torch.where(c == NEG_INF, 0.0, c)
    return w - c[:, None, :], c.sum(1)
