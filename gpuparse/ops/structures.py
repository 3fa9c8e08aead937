"""Operators over trees, the same for every structure: projective (Eisner) and non-projective (matrix-tree, MST).

Derivatives of log Z by the arcs, each an operator whose backward is the next one:
marginals (with log Z) -> hvp (along u) -> third (along u and v) -> the plain torch path from there on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from gpuparse import plain
from gpuparse.ops import launch
from gpuparse.ops.launch import Batch
from gpuparse.ops.library import define as _define
from gpuparse.ops.library import differentiable as _differentiable
from gpuparse.ops.library import takes_kernels

Arcs = Float[Tensor, "B N N"]
Lengths = Int[Tensor, " B"]


@dataclass(frozen=True)
class Structure:
    """A family of trees and its algorithms. Results follow the dtype and device of ``arcs``."""

    name: str
    sums: Callable[[Batch, int, Tensor | None, Tensor | None, Tensor | None, Tensor | None], None]
    best: Callable[[Batch], Tensor]
    best_k: Callable[[Batch, int], Tensor]
    draw: Callable[[Batch, Tensor, int], Tensor]
    plain_log_partition: Callable[[Tensor, Tensor, bool], Tensor]
    plain_argmax: Callable[[Tensor, Tensor, bool], Tensor]

    def __post_init__(self) -> None:
        for method, op in _operators(self).items():
            object.__setattr__(self, f"_{method}", op)

    _log_partition: Callable[..., Any] = None  # type: ignore[assignment]
    _marginals: Callable[..., Any] = None  # type: ignore[assignment]
    _argmax: Callable[..., Any] = None  # type: ignore[assignment]
    _topk: Callable[..., Any] = None  # type: ignore[assignment]
    _sample: Callable[..., Any] = None  # type: ignore[assignment]

    def log_partition(self, arcs: Arcs, lengths: Lengths, single_root: bool) -> Float64[Tensor, " B"]:
        """log Z in float64, without a gradient; -inf where there is no tree, NaN where a score read is NaN or +inf."""
        if not takes_kernels(arcs, self.name):
            lengths, bad = _plain_check(arcs, lengths)
            return torch.where(bad, torch.nan, self.plain_log_partition(arcs.detach().double(), lengths, single_root))
        return self._log_partition(arcs.detach(), lengths, single_root)

    def marginals(
        self, arcs: Arcs, lengths: Lengths, single_root: bool
    ) -> tuple[Float64[Tensor, " B"], Float[Tensor, "B N N"]]:
        """log Z in float64 and the probability of each arc, both differentiable."""
        if not takes_kernels(arcs, self.name):
            lengths, bad = _plain_check(arcs, lengths)
            mu = plain.generic.marginals(self.plain_log_partition, arcs, lengths, single_root)
            logz = self.plain_log_partition(arcs.double(), lengths, single_root)
            return torch.where(bad, torch.nan, logz), torch.where(bad[:, None, None], torch.nan, mu)
        return self._marginals(arcs, lengths, single_root)

    def argmax(self, arcs: Arcs, lengths: Lengths, single_root: bool) -> Int[Tensor, "B N"]:
        """Heads of a best tree; all -1 where there is none or a score read is NaN or +inf."""
        if not takes_kernels(arcs, self.best.__name__):
            lengths, bad = _plain_check(arcs, lengths)
            return torch.where(bad[:, None], -1, self.plain_argmax(arcs, lengths, single_root))
        return self._argmax(arcs, lengths, single_root)

    def topk(self, arcs: Arcs, lengths: Lengths, single_root: bool, k: int) -> Int[Tensor, "k B N"]:
        """Heads of the k best trees, best first; -1 for ranks that do not exist."""
        if not takes_kernels(arcs, self.best_k.__name__):
            lengths, bad = _plain_check(arcs, lengths)
            heads = plain.generic.topk(self.plain_argmax, arcs, lengths, single_root, k)
            return torch.where(bad[:, None], -1, heads)
        return self._topk(arcs, lengths, single_root, k)

    def sample(self, arcs: Arcs, lengths: Lengths, single_root: bool, num: int) -> Int[Tensor, "num B N"]:
        """Heads of ``num`` trees drawn from each sentence's distribution, by torch's random numbers."""
        if not takes_kernels(arcs, self.draw.__name__):
            lengths, bad = _plain_check(arcs, lengths)
            heads = plain.generic.sample(self.plain_log_partition, arcs, lengths, single_root, num)
            return torch.where(bad[:, None], -1, heads)
        seed = torch.randint(2**62, (1,), device=arcs.device)
        return self._sample(arcs, lengths, seed, single_root, num)


def _plain_check(arcs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """What kernels do with input that nobody checked: lengths within the tensor, and which sentences are bad."""
    lengths = lengths.clamp(0, arcs.shape[1] - 1)
    return lengths, (plain.check.flags(arcs.detach(), lengths) & 1).bool()


def _operators(s: Structure) -> dict[str, Callable[..., Any]]:
    def log_partition(arcs: Tensor, lengths: Tensor, single_root: bool) -> Tensor:
        batch = Batch.of(arcs, lengths, single_root)
        logz = arcs.new_empty(arcs.shape[0], dtype=torch.float64)
        s.sums(batch, 0, None, None, logz, None)
        return logz

    def marginals(arcs: Tensor, lengths: Tensor, single_root: bool) -> tuple[Tensor, Tensor]:
        batch = Batch.of(arcs, lengths, single_root)
        logz, out = arcs.new_empty(arcs.shape[0], dtype=torch.float64), torch.empty_like(batch.arcs)
        s.sums(batch, 0, None, None, logz, out)
        return logz, out

    def derivative(arcs: Tensor, lengths: Tensor, single_root: bool, *directions: Tensor) -> Tensor:
        batch = Batch.of(arcs, lengths, single_root)
        out = torch.empty_like(batch.arcs)
        u, v = (*(d.to(arcs.dtype).contiguous() for d in directions), None)[:2]
        s.sums(batch, len(directions), u, v, None, out)
        return out

    def like_arcs(arcs: Tensor, *_: Any) -> Tensor:
        return arcs.new_empty(arcs.shape)

    def like_logz(arcs: Tensor, *_: Any) -> Tensor:
        return arcs.new_empty(arcs.shape[0], dtype=torch.float64)

    prefix = f"{s.name}_"
    given = "Tensor arcs, Tensor lengths, bool single_root"
    log_partition_op = _define(f"{prefix}log_partition({given}) -> Tensor", log_partition, like_logz)
    marginals_op = _define(
        f"{prefix}marginals({given}) -> (Tensor, Tensor)", marginals, lambda *a: (like_logz(*a), like_arcs(*a))
    )
    hvp_op = _define(f"{prefix}hvp({given}, Tensor u) -> Tensor", derivative, like_arcs)
    third_op = _define(f"{prefix}third({given}, Tensor u, Tensor v) -> Tensor", derivative, like_arcs)

    def keep_marginals(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        arcs, lengths, ctx.single_root = inputs
        ctx.save_for_backward(arcs, lengths, output[1])
        ctx.set_materialize_grads(False)

    def back_marginals(ctx: Any, by_logz: Tensor | None, by_mu: Tensor | None) -> tuple[Any, ...]:
        arcs, lengths, mu = ctx.saved_tensors
        first = None if by_logz is None else by_logz.to(mu.dtype)[:, None, None] * mu
        second = None if by_mu is None else hvp_op(arcs, lengths, ctx.single_root, by_mu)
        return second if first is None else first if second is None else first + second, None, None

    _differentiable(marginals_op, keep_marginals, back_marginals)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        arcs, lengths, ctx.single_root, *directions = inputs
        ctx.save_for_backward(arcs, lengths, *directions)

    def back_hvp(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        arcs, lengths, u = ctx.saved_tensors
        by_arcs = third_op(arcs, lengths, ctx.single_root, u, grad) if ctx.needs_input_grad[0] else None
        by_u = hvp_op(arcs, lengths, ctx.single_root, grad) if ctx.needs_input_grad[3] else None
        return by_arcs, None, None, by_u

    _differentiable(hvp_op, keep, back_hvp)

    def back_third(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        arcs, lengths, u, v = ctx.saved_tensors
        again = torch.is_grad_enabled()  # whether someone will differentiate this too
        with torch.enable_grad():
            # views: u and v may depend on arcs, and here they are inputs of their own
            inputs = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in (arcs, u, v)]
            value = plain.generic.third(s.plain_log_partition, inputs[0], lengths, ctx.single_root, *inputs[1:])
            by = torch.autograd.grad(value, inputs, grad, create_graph=again, allow_unused=True)
        return by[0], None, None, by[1], by[2]

    _differentiable(third_op, keep, back_third)

    def heads_of(shape: Callable[..., tuple[int, ...]]) -> Callable[..., Tensor]:
        return lambda arcs, *rest: arcs.new_empty((*shape(*rest), *arcs.shape[:2]), dtype=torch.int64)

    return {
        "log_partition": log_partition_op,
        "marginals": marginals_op,
        "argmax": _define(
            f"{prefix}argmax({given}) -> Tensor", lambda *a: s.best(Batch.of(*a)), heads_of(lambda *_: ())
        ),
        "topk": _define(
            f"{prefix}topk({given}, int k) -> Tensor",
            lambda arcs, lengths, root, k: s.best_k(Batch.of(arcs, lengths, root), k),
            heads_of(lambda lengths, root, k: (k,)),
        ),
        "sample": _define(
            f"{prefix}sample(Tensor arcs, Tensor lengths, Tensor seed, bool single_root, int num) -> Tensor",
            lambda arcs, lengths, seed, root, num: s.draw(Batch.of(arcs, lengths, root), seed, num),
            heads_of(lambda lengths, seed, root, num: (num,)),
        ),
    }


EISNER = Structure(
    "eisner",
    launch.eisner,
    launch.eisner_argmax,
    launch.eisner_topk,
    launch.eisner_sample,
    plain.eisner.log_partition,
    plain.eisner.argmax,
)
MATRIX_TREE = Structure(
    "matrix_tree",
    launch.matrix_tree,
    launch.mst,
    launch.mst_topk,
    launch.matrix_tree_sample,
    plain.matrix_tree.log_partition,
    plain.mst.mst,
)


_check = _define(
    "check(Tensor arcs, Tensor lengths) -> Tensor",
    launch.check,
    lambda arcs, lengths: arcs.new_empty(arcs.shape[0], dtype=torch.int32),
)


def check_flags(arcs: Arcs, lengths: Lengths) -> Int[Tensor, " B"]:
    """For each sentence, among what is read: 1 a NaN or +inf, 2 a -inf, 4 its length is out of range, 8 a finite
    one of 2^20 or more in size (or +inf); their sum."""
    return _check(arcs, lengths) if takes_kernels(arcs, "check") else plain.check.flags(arcs, lengths)
