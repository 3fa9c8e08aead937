"""Small things that all the distributions need."""

from __future__ import annotations

import operator
from typing import Any, SupportsIndex

import torch
from torch import Tensor

MAX_K = 64


def as_k(k: SupportsIndex) -> int:
    """How many of the best are wanted, if that can be."""
    if isinstance(k, bool) or not isinstance(k, SupportsIndex) or not 1 <= (number := operator.index(k)) <= MAX_K:
        raise ValueError(f"k must be a whole number from 1 to {MAX_K}, got {k!r}")
    return number


def as_sample_shape(sample_shape: Any) -> torch.Size:
    """The shape of a number of draws, if it is one."""
    wrong = f"sample_shape must be a tuple of whole numbers, none below 0, such as (3,), got {sample_shape!r}"
    try:
        shape = torch.Size(sample_shape)
    except TypeError:
        raise ValueError(wrong) from None
    if any(size < 0 for size in shape):
        raise ValueError(wrong)
    return shape


def may_keep() -> bool:
    """What is computed in inference mode cannot be used outside it."""
    return torch.compiler.is_compiling() or not torch.is_inference_mode_enabled()


def not_negative(value: Tensor) -> Tensor:
    """Without the rounding that put it below 0; the gradient is left as it is."""
    return value + (-value.detach()).clamp(min=0)
