"""Whether scores of arcs are numbers that inference takes: one kernel looks at all of them."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpuparse.ops import launch, plain
from gpuparse.ops.library import define, takes_kernels
from gpuparse.structures.masks import arc_mask

_check = define(
    "check(Tensor arcs, Tensor lengths) -> Tensor",
    launch.check,
    lambda arcs, lengths: arcs.new_empty(arcs.shape[0], dtype=torch.int32),
)


def check_flags(arcs: Float[Tensor, "B N N"], lengths: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """For each sentence, among what is read: 1 a NaN or +inf, 2 a -inf, 4 its length is out of range, 8 a finite
    one of 2^20 or more in size (or +inf); their sum."""
    return _check(arcs, lengths) if takes_kernels(arcs, "check") else plain.check.flags(arcs, lengths)


def check_scores(arcs: Float[Tensor, "B N N"], lengths: Int[Tensor, " B"], name: str = "arcs") -> tuple[bool, bool]:
    """Raise ValueError at a NaN or +inf among the scores that are read; return whether any is -inf, and whether any is
    large (``gpuparse.ops.shifts``)."""
    flags = check_flags(arcs.detach(), lengths)
    found = int(flags.max()) if flags.shape[0] else 0  # flags are a few bits: the maximum tells whether all are zero
    if found == 0:
        return False, False
    wrong = (flags & 1).nonzero()
    if len(wrong):
        b = int(wrong[0])
        read = arc_mask(lengths[b : b + 1], arcs.shape[1])[0]
        h, m = (read & (arcs[b].isnan() | arcs[b].isposinf())).nonzero()[0].tolist()
        raise ValueError(
            f"{name}[{b}, {h}, {m}] is {float(arcs[b, h, m].detach())} (sentence {b}, head {h}, modifier {m}); "
            "scores must be finite, or -inf for a forbidden arc"
        )
    return bool((flags & 2).any()), bool((flags & 8).any())
