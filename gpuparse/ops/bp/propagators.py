"""A family of factors, declared once: its messages and scores, its kernel, and the same in plain torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from gpuparse.ops.backend import Argument, Backend, Kernel, Long
from gpuparse.ops.launch import kernels_for, launch
from gpuparse.ops.library import define, differentiable, takes_kernels
from gpuparse.ops.operators import plain_gradients
from gpuparse.ops.plain.links import Graph, damp, freeze, join, parted

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
    doubles: Callable[[int, bool], int] | None = None,
    work: int,
    backend: Backend | None,
) -> None:
    """Launches a kernel of [3, B, N, N] totals, its first argument. ``doubles``: of workspace, by N and whether this is
    a GPU."""
    first = args[0]
    assert isinstance(first, Tensor)
    B, N = first.shape[-3], first.shape[-1]
    backend = backend or kernels_for(first)
    given, room = [x.contiguous() if isinstance(x, Tensor) else x for x in args], 0
    if doubles is not None:
        room = doubles(N, backend.lanes > 1)
        given, tail = given if room else [*given, None], [Long(room), *tail]
    launch(
        backend,
        Kernel(name, "double", order),
        given,
        sentences=B,
        nodes=N * N,
        work=work * N**3,
        doubles=room,
        tail=[*tail, B, N],
    )


def like(*of: int) -> Callable[..., tuple[Tensor, ...]]:
    """Results that are like those arguments."""
    return lambda *args: tuple(torch.empty_like(args[k]) for k in of)


@dataclass(eq=False)
class Propagator:
    """What a family of factors sends in an iteration.

    From a declaration come the operator ``gpuparse::<name>``, its fake, and its gradient, a kernel too but for
    max-product and for gradients of gradients. It is called with the totals, the family's own messages, its scores,
    which sentences are frozen (or None), the lengths, the flags, whether to maximise, and the share of damping; and
    returns the new messages and their part.

    Args:
        name: of the operator and of its kernel, whose arguments are the tensors, what order 0 makes (order 1: the
            gradients in these), the gradients in totals, messages and scores that order 1 makes, the workspace and its
            doubles, the share, the flags and whether to maximise.
        own: names of the messages.
        scores: names of the scores.
        flags: names of the flags.
        room: doubles of workspace by the order, N and whether this is a GPU.
        work: about how many steps by order, in N^3.
        propagate: in plain torch, a function of the graph, the scores and the flags. It makes the function of what
            comes in to each of the messages that gives new ones.
        spread: what each of the messages is about, of something for each link.
        collect: the reverse, added up.
        unused: how many tensors the kernel takes for other uses.
    """

    name: str
    own: Sequence[str]
    scores: Sequence[str]
    flags: Sequence[str]
    room: Callable[[int, int, bool], int]
    work: tuple[int, int]
    propagate: Callable[..., Callable[..., Sequence[Tensor]]]
    spread: Callable[[Tensor], Sequence[Tensor]] = lambda x: [x]
    collect: Callable[..., Tensor] = lambda x: x
    unused: int = 0

    def __post_init__(self) -> None:
        self._sent, leaves = len(self.own) + 1, ["totals", *self.own, *self.scores]
        self._leaves, self._tensors = len(leaves), len(leaves) + 2
        self._like_sent = like(*range(1, self._sent), 0)
        grads = ", ".join(f"Tensor g_{name}" for name in (*self.own, "part"))
        given = [*(f"Tensor {name}" for name in leaves), "Tensor? frozen", "Tensor lengths"]
        inputs = ", ".join([*given, *(f"bool {name}" for name in self.flags)])
        made, found = (f"({', '.join(['Tensor'] * k)})" for k in (self._sent, self._leaves))
        self._op = define(f"{self.name}({inputs}, bool maximise, float share) -> {made}", self.launch, self._like_sent)
        self._back_op = define(
            f"{self.name}_back({grads}, {inputs}, float share) -> {found}",
            self.launch_back,
            like(*range(self._sent, self._sent + self._leaves)),
        )
        differentiable(self._op, self._setup, self._backward)

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        return self._op(*args)

    def launch(self, *args: Any, backend: Backend | None = None) -> tuple[Tensor, ...]:
        """Run the kernel."""
        sent = self._like_sent(*args)
        self._run(0, [*args[: self._tensors], *sent, *[None] * self._leaves], args[self._tensors :], backend)
        return sent

    def launch_back(self, *args: Any, backend: Backend | None = None) -> tuple[Tensor, ...]:
        """Gradients in totals, messages and scores, of those in what was sent, which come first; of sums."""
        grads, given = args[: self._sent], args[self._sent :]
        found = like(*range(self._leaves))(*given)
        *flags, share = given[self._tensors :]
        self._run(1, [*given[: self._tensors], *grads, *found], [*flags, False, share], backend)
        return found

    def _run(self, order: int, tensors: Sequence[Any], others: Sequence[Any], backend: Backend | None) -> None:
        *flags, share = others
        args, tail = [*tensors, *[None] * self.unused], [float(share), *map(int, flags)]
        doubles = partial(self.room, order)
        run_kernel(self.name, order, args, tail, doubles=doubles, work=self.work[order], backend=backend)

    def plainly(self, *args: Any) -> list[Tensor]:
        """The same in plain torch."""
        totals, *own = args[: self._sent]
        scores, (frozen, lengths) = args[self._sent : self._leaves], args[self._leaves : self._tensors]
        *flags, maximise, share = args[self._tensors :]
        propagate = self.propagate(Graph(lengths, totals.shape[-1], 0, maximise), *scores, *flags)
        each = [parted(r) for r in own]
        spreads = [self.spread(x) for x in totals.unbind()]
        incoming = [join(*(s[k] - r for s, r in zip(spreads, each[k], strict=True))) for k in range(len(own))]
        new = [freeze(a, damp(a, b, share), frozen) for a, b in zip(own, propagate(*incoming), strict=True)]
        return [*new, torch.stack([self.collect(*x) for x in zip(*(parted(r) for r in new), strict=True)])]

    def _setup(self, ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*(x for x in inputs if isinstance(x, Tensor)))
        ctx.others = [None if isinstance(x, Tensor) else (x,) for x in inputs]

    def _backward(self, ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        saved = iter(ctx.saved_tensors)
        given = [next(saved) if x is None else x[0] for x in ctx.others]
        leaves, rest = given[: self._leaves], given[self._leaves :]
        if given[-2] or torch.is_grad_enabled():
            found = plain_gradients(lambda x: self.plainly(*x, *rest), leaves, list(grads))
        else:
            found = self._back_op(*grads, *given[:-2], given[-1])
        return *found, *[None] * len(rest)
