"""What the scores of each sentence hold, among those that are read."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpuparse.structures.masks import arc_mask


def flags(arcs: Float[Tensor, "B N N"], lengths: Int64[Tensor, " B"]) -> Int64[Tensor, " B"]:
    """1: a NaN or +inf, 2: a -inf, 4: the length is out of range, 8: a finite one of 2^20 or more; their sum."""
    words = arcs.shape[1] - 1
    x = torch.where(arc_mask(lengths.clamp(0, words), words + 1), arcs, 0.0)
    bad = (x.isnan() | x.isposinf()).flatten(1).any(1)
    forbidden = x.isneginf().flatten(1).any(1)
    outside = (lengths < 1) | (lengths > words)
    large = ((x >= 2.0**20) | ((x <= -(2.0**20)) & ~x.isneginf())).flatten(1).any(1)
    return bad.long() + 8 * large.long() + 2 * forbidden.long() + 4 * outside.long()
