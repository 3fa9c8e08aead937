"""Numbers to test distributions with: how close they have to be, how they are drawn, how often they come."""

from __future__ import annotations

import math

import torch
from torch import Tensor

INF, NEG_INF, NAN = math.inf, -math.inf, math.nan
F32, F64 = torch.float32, torch.float64


def close(got: Tensor, want: Tensor, tol: float = 1e-9) -> None:
    """Equal up to `tol`, absolute below 1 and relative above; of any dtype."""
    torch.testing.assert_close(got.double(), want.double(), rtol=tol, atol=tol)


def tolerance(dtype: torch.dtype, magnitude: float = 1.0) -> float:
    """Rounding of the result; in float64 also of the scores, which are worth `magnitude` of their digits."""
    return 3e-7 if dtype == F32 else max(1e-11, 1e-13 * magnitude)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=dtype)


def chi_square(seen: Tensor, probs: Tensor) -> tuple[float, float]:
    """The statistic of counts [T] against probabilities [T], rare ones pooled, and what it hardly exceeds."""
    total = int(seen.sum())
    want, seen = probs * total, seen.double()
    often = want >= 5
    if bool((~often).any()) and float(want[~often].sum()) >= 5:
        want = torch.cat([want[often], want[~often].sum()[None]])
        seen = torch.cat([seen[often], seen[~often].sum()[None]])
    else:
        want, seen = want[often], seen[often]
    freedom = max(1, len(want) - 1)
    return float(((seen - want) ** 2 / want).sum()), freedom + 4 * math.sqrt(2 * freedom) + 8
