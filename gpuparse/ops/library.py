"""How operators are registered with torch (``torch.library.custom_op`` costs about a hundred microseconds a call)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from gpuparse.ops.backend import has_kernel
from gpuparse.ops.launch import NUMBERS

LIBRARY = torch.library.Library("gpuparse", "DEF")


def takes_kernels(scores: Tensor, kernel: str) -> bool:
    """Whether this kernel's operator serves this tensor (or would, for a fake one), or the plain torch path does."""
    return isinstance(scores, FakeTensor) or has_kernel(scores.device.type, kernel, NUMBERS[scores.dtype])


@contextmanager
def plain_torch() -> Iterator[None]:
    """Within it plain torch serves everything: what kernels are compared with."""
    global has_kernel
    kept, has_kernel = has_kernel, lambda *_: False
    try:
        yield
    finally:
        has_kernel = kept


def traced(x: Tensor) -> bool:
    """Whether the call is not for now: it has to be an operator then, which else costs some microseconds more."""
    return isinstance(x, FakeTensor) or torch.compiler.is_compiling()


def define(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    name = schema.split("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, run, "CPU")
    LIBRARY.impl(name, run, "CUDA")
    torch.library.register_fake(f"gpuparse::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.gpuparse, name).default


def differentiable(op: Callable[..., Any], setup: Callable[..., None], backward: Callable[..., Any]) -> None:
    torch.library.register_autograd(op, backward, setup_context=setup, lib=LIBRARY)  # type: ignore[arg-type]
