"""How operators are registered with torch (``torch.library.custom_op`` costs about a hundred microseconds a call)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import Function

from gpuparse.ops.backend import has_kernel
from gpuparse.ops.launch import NUMBERS

LIBRARY = torch.library.Library("gpuparse", "DEF")


def takes_kernels(scores: Tensor, kernel: str) -> bool:
    """Whether this kernel's operator serves this tensor (or would, for a fake one), or the plain torch path does."""
    return isinstance(scores, FakeTensor) or has_kernel(scores.device, kernel, NUMBERS[scores.dtype])


@contextmanager
def plain_torch() -> Iterator[None]:
    """Within it plain torch serves everything: what kernels are compared with."""
    global has_kernel
    kept, has_kernel = has_kernel, lambda *_: False
    try:
        yield
    finally:
        has_kernel = kept


class Operator:
    """A torch operator. Where nobody but the caller and autograd is interested, what is behind it is called at once,
    which saves tens of microseconds."""

    def __init__(self, overload: Callable[..., Any], run: Callable[..., Any]) -> None:
        self.overload, self.run = overload, run
        self.apply: Callable[..., Any] = overload
        """With a gradient."""

    def __call__(self, *args: Any) -> Any:
        if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
            return self.overload(*args)
        call = self.run
        for x in args:
            if isinstance(x, FakeTensor):
                return self.overload(*args)
            if isinstance(x, Tensor) and x.requires_grad:
                call = self.apply
        return call(*args) if torch.is_grad_enabled() else self.run(*args)


def define(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Operator:
    name = schema.split("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, run, "CPU")
    LIBRARY.impl(name, run, "CUDA")
    torch.library.register_fake(f"gpuparse::{name}", fake, lib=LIBRARY)
    return Operator(getattr(torch.ops.gpuparse, name).default, run)


def differentiable(op: Operator, setup: Callable[..., None], backward: Callable[..., Any]) -> None:
    torch.library.register_autograd(op.overload, backward, setup_context=setup, lib=LIBRARY)  # type: ignore[arg-type]

    def forward(ctx: Any, *args: Any) -> Any:  # one with setup_context would have its arguments bound to names first
        output = op.run(*args)
        setup(ctx, args, output)
        return output

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    name = op.overload.name().replace("::", "_")  # type: ignore[attr-defined]
    op.apply = type(name, (Function,), members).apply  # type: ignore[attr-defined]
