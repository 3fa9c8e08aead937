"""Small things that all the distributions need."""

from __future__ import annotations

import math
import operator
from typing import Any, SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor

from gpuparse.structures.trees import short

MAX_K = 64


def as_k(k: SupportsIndex) -> int:
    """How many of the best are wanted, if that can be."""
    try:
        number = 0 if isinstance(k, bool) else operator.index(k)
    except (TypeError, RuntimeError):  # a tensor that is not a number, or one past 2^63
        number = 0
    if not 1 <= number <= MAX_K:
        raise ValueError(f"k must be a whole number from 1 to {MAX_K}, got {short(k)}")
    return number


MOST_DRAWS = 2**31 - 1  # what the kernels count to


def as_sample_shape(sample_shape: Any) -> torch.Size:
    """The shape of a number of draws, if it is one."""
    shape = _as_size(sample_shape, "sample_shape", "(3,)")
    if math.prod(shape) > MOST_DRAWS:
        raise ValueError(f"sample_shape must be of {MOST_DRAWS} draws at most, got {tuple(shape)}")
    return shape


def as_batch_shape(batch_shape: Any, sentences: int) -> torch.Size:
    """[B] of more sentences, if those there are can become them: one any number, several just themselves."""
    shape = _as_size(batch_shape, "batch_shape", "(3,)")
    if len(shape) != 1 or sentences not in (1, shape[0]):
        raise ValueError(f"batch_shape must be [B], and a batch of {sentences} cannot become {list(shape)}")
    return shape


def _as_size(shape: Any, name: str, such_as: str) -> torch.Size:
    whole = isinstance(shape, tuple | list) and all(isinstance(x, SupportsIndex) and int(x) >= 0 for x in shape)
    if not whole or any(isinstance(x, bool | Tensor) or int(x) >= 2**63 for x in shape):
        raise ValueError(
            f"{name} must be a tuple of whole numbers, none below 0, such as {such_as}, got {short(shape)}"
        )
    return torch.Size([int(x) for x in shape])


def may_keep() -> bool:
    """What is computed in inference mode cannot be used outside it."""
    return torch.compiler.is_compiling() or not torch.is_inference_mode_enabled()


def not_negative(value: Tensor) -> Tensor:
    """Without the rounding that put it below 0; the gradient is left as it is."""
    return value + (-value.detach()).clamp(min=0)


def expected(marginals: Float[Tensor, " B *shape"], scores: Float[Tensor, "*dims"]) -> Float[Tensor, " B"]:
    """Sum of marginal * score over the parts that are possible."""
    return (marginals * torch.where(scores.isfinite(), scores, 0.0)).flatten(1).sum(1)
