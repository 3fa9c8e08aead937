"""Small things that all the distributions need."""

from __future__ import annotations

import operator
from typing import SupportsIndex

import torch
from torch import Tensor

MAX_K = 64


def as_k(k: SupportsIndex) -> int:
    """How many of the best are wanted, if that can be."""
    if isinstance(k, bool) or not isinstance(k, SupportsIndex) or not 1 <= (number := operator.index(k)) <= MAX_K:
        raise ValueError(f"k must be a whole number from 1 to {MAX_K}, got {k!r}")
    return number


def may_keep() -> bool:
    """What is computed in inference mode cannot be used outside it."""
    return torch.compiler.is_compiling() or not torch.is_inference_mode_enabled()


def not_negative(value: Tensor) -> Tensor:
    """Without the rounding that put it below 0; the gradient is left as it is."""
    return value + (-value.detach()).clamp(min=0)
