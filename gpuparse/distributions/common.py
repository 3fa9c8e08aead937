"""Small things that the distributions over chains need."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_K = 64


def may_keep() -> bool:
    """What is computed in inference mode cannot be used outside it."""
    return torch.compiler.is_compiling() or not torch.is_inference_mode_enabled()


def not_negative(value: Tensor) -> Tensor:
    """Without the rounding that put it below 0; the gradient is left as it is."""
    return value + (-value.detach()).clamp(min=0)
