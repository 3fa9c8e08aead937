"""What the families of factors have in common: how their kernels are launched, the same in plain torch, gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from gpuparse.ops.backend import Argument, Backend, Kernel, Long
from gpuparse.ops.launch import kernels_for, launch
from gpuparse.ops.library import Operator, differentiable, takes_kernels
from gpuparse.ops.operators import plain_gradients
from gpuparse.ops.plain.links import damp, freeze, join, parted

Totals = Float64[Tensor, "3 B N N"]
Links = Float64[Tensor, "B N N"]
Triples = Float64[Tensor, "B N N N"]
Frozen = Bool[Tensor, " B"] | None


def takes(tensor: Tensor, kernel: str) -> bool:
    """Whether the kernel serves here."""
    return takes_kernels(tensor, kernel)


def as_totals(message: Links) -> Totals:
    """The only message to each link, as all of them."""
    return torch.stack(parted(message))


def run_kernel(
    name: str,
    order: int | None,
    args: Sequence[Argument],
    tail: Sequence[Argument],
    *,
    doubles: Callable[[int, bool], int],
    work: int,
    backend: Backend | None,
) -> None:
    """Launches a kernel of [3, B, N, N] totals, its first argument; ``doubles`` by N and whether this is a GPU."""
    first = args[0]
    assert isinstance(first, Tensor)
    B, N = first.shape[-3], first.shape[-1]
    backend = backend or kernels_for(first)
    room = doubles(N, backend.lanes > 1)
    launch(
        backend,
        Kernel(name, "double", order),
        [x.contiguous() if isinstance(x, Tensor) else x for x in args],
        sentences=B,
        nodes=N * N,
        work=work * N**3,
        doubles=room,
        tail=[*([Long(room)] if room else []), *tail, B, N],
    )


def like(*of: int) -> Callable[..., tuple[Tensor, ...]]:
    """Results that are like those arguments."""
    return lambda *args: tuple(torch.empty_like(args[k]) for k in of)


def plainly(
    totals: Tensor,
    own: Sequence[Tensor],
    frozen: Tensor | None,
    share: float,
    spread: Callable[[Tensor], Sequence[Tensor]],
    propagate: Callable[..., Sequence[Tensor]],
    collect: Callable[..., Tensor],
) -> list[Tensor]:
    """The new messages and their part, in plain torch."""
    each = [parted(r) for r in own]
    spreads = [spread(x) for x in totals.unbind()]
    incoming = [join(*(s[k] - r for s, r in zip(spreads, each[k], strict=True))) for k in range(len(own))]
    new = [freeze(a, damp(a, b, share), frozen) for a, b in zip(own, propagate(*incoming), strict=True)]
    return [*new, torch.stack([collect(*x) for x in zip(*(parted(r) for r in new), strict=True)])]


def way_back(
    op: Operator,
    back: Operator,
    plain: Callable[..., list[Tensor]],
    leaves: int,
    maximise: int,
) -> None:
    """Gradients in the first ``leaves`` arguments; the one at ``maximise`` says whether it is max-product."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*(x for x in inputs if isinstance(x, Tensor)))
        ctx.others = [None if isinstance(x, Tensor) else (x,) for x in inputs]

    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        saved = iter(ctx.saved_tensors)
        given = [next(saved) if x is None else x[0] for x in ctx.others]
        rest = [None] * (len(given) - leaves)
        if given[maximise] or torch.is_grad_enabled():
            return *plain_gradients(lambda x: plain(*x, *given[leaves:]), given[:leaves], list(grads)), *rest
        return *back(*grads, *given[:maximise], *given[maximise + 1 :]), *rest

    differentiable(op, setup, backward)
