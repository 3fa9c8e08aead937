"""KL(p || q) of any two distributions over the same structures, by ``torch.distributions.kl_divergence``."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions.kl import register_kl

from gpuparse.distributions.base import LOG_Z, StructuredDistribution
from gpuparse.distributions.common import not_negative
from gpuparse.structures.trees import can_validate


def _check_same(p: StructuredDistribution, q: StructuredDistribution) -> None:
    """Raise ValueError if p and q are not over the same structures of the same sentences."""
    if type(p) is not type(q) or not p._is_over_the_same(q):
        raise ValueError(f"KL needs two distributions over the same {p.what}, got {p} and {q}")
    name = next(iter(p.parts))
    shapes = [list(getattr(x, name).shape) for x in (p, q)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{name} of p and q must have the same shape, got {shapes[0]} and {shapes[1]}")
    if can_validate(p.lengths, p._validates) and not torch.equal(p.lengths, q.lengths):
        i = int((p.lengths != q.lengths).nonzero()[0])
        raise ValueError(f"lengths of sentence {i} must be the same in p and q, got {p.lengths[i]} and {q.lengths[i]}")


@register_kl(StructuredDistribution, StructuredDistribution)
def _kl(p: StructuredDistribution, q: StructuredDistribution) -> Float[Tensor, " B"]:
    """sum p log(p / q), exactly; inf where p has a structure that q forbids, 0 where p has none."""
    _check_same(p, q)
    a, b = p._centred(), q._centred()
    log_z, more = a._difference(b, p._large or q._large)
    value = torch.where(log_z.detach().isneginf(), 0.0, b._sums(LOG_Z) - log_z + more)
    return torch.where(a._leaves(b, p._validates), torch.inf, not_negative(value)).to(p._dtype)
