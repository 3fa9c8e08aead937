"""CHILDSEQ: bp_children.cu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from gpuparse.ops.backend import Backend
from gpuparse.ops.bp.propagators import Frozen, Links, Totals, Triples, like, plainly, run_kernel, way_back
from gpuparse.ops.launch import PAD
from gpuparse.ops.library import define, differentiable
from gpuparse.ops.operators import plain_gradients
from gpuparse.ops.plain import bp_children
from gpuparse.ops.plain.links import Graph


def _room(order: int) -> Callable[[int, bool], int]:
    def doubles(N: int, gpu: bool) -> int:
        room = (order + 1) * 2 * (2 * (N + 1) + 6) * -(-N // 8) * 8
        return 3 * N * N + PAD + (2 * N if gpu else 1) * room

    return doubles


def launch_children(
    totals: Tensor,
    own: Tensor,
    scores: Tensor,
    frozen: Tensor | None,
    lengths: Tensor,
    maximise: bool,
    share: float,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor]:
    """Run bp_children.cu."""
    out, part = torch.empty_like(own), torch.empty_like(totals)
    args = [totals, own, scores, frozen, lengths, out, part, None, None, None, None]
    flags = float(share), int(maximise)
    run_kernel("bp_children", 0, args, flags, doubles=_room(0), work=4, backend=backend)
    return out, part


def launch_children_back(
    g: Tensor,
    g_part: Tensor,
    totals: Tensor,
    own: Tensor,
    scores: Tensor,
    frozen: Tensor | None,
    lengths: Tensor,
    share: float,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in totals, own messages and scores."""
    found = torch.empty_like(totals), torch.empty_like(own), torch.empty_like(scores)
    args = [totals, own, scores, frozen, lengths, g, g_part, *found, None]
    run_kernel("bp_children", 1, args, [float(share), 0], doubles=_room(1), work=16, backend=backend)
    return found


def launch_children_sum(
    odds: Tensor, scores: Tensor, lengths: Tensor, backend: Backend | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """log Z of all sequences [B], and its derivatives by log-odds and scores."""
    found = odds.new_empty(odds.shape[0]), torch.empty_like(odds), torch.empty_like(scores)
    args = [odds, None, scores, None, lengths, None, None, found[1], None, found[2], found[0]]
    run_kernel("bp_children", 0, args, [0.0, 0], doubles=_room(0), work=8, backend=backend)
    return found


def _plain(
    totals: Tensor,
    own: Tensor,
    scores: Tensor,
    frozen: Tensor | None,
    lengths: Tensor,
    maximise: bool,
    share: float,
) -> list[Tensor]:
    graph = Graph(lengths, scores.shape[1], 0, maximise)
    run = lambda q: [bp_children.propagate(q, scores, graph)]  # noqa: E731
    return plainly(totals, [own], frozen, share, lambda x: [x], run, lambda x: x)


_ARGUMENTS = "Tensor totals, Tensor own, Tensor scores, Tensor? frozen, Tensor lengths"
_op = define(f"bp_children({_ARGUMENTS}, bool maximise, float share) -> (Tensor, Tensor)", launch_children, like(1, 0))
_back_op = define(
    f"bp_children_back(Tensor g, Tensor g_part, {_ARGUMENTS}, float share) -> (Tensor, Tensor, Tensor)",
    launch_children_back,
    like(2, 3, 4),
)
_sum_op = define(
    "bp_children_sum(Tensor odds, Tensor scores, Tensor lengths) -> (Tensor, Tensor, Tensor)",
    launch_children_sum,
    lambda odds, scores, _: (odds.new_empty(odds.shape[0]), torch.empty_like(odds), torch.empty_like(scores)),
)
way_back(_op, _back_op, _plain, 3, 5)


def _sum_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs, *output[1:])
    ctx.set_materialize_grads(False)


def _sum_backward(ctx: Any, g: Tensor | None, *_: Tensor) -> tuple[Any, ...]:
    odds, scores, lengths, by_odds, by_scores = ctx.saved_tensors
    if g is None:
        return None, None, None
    if torch.is_grad_enabled():
        graph = Graph(lengths, odds.shape[1])
        run = lambda x: [bp_children.log_z(x[0], x[1], graph)]  # noqa: E731
        return *plain_gradients(run, [odds, scores], [g]), None
    return g[:, None, None] * by_odds, g[:, None, None, None] * by_scores, None


differentiable(_sum_op, _sum_setup, _sum_backward)


def children(
    totals: Totals,
    own: Links,
    scores: Triples,
    frozen: Frozen,
    lengths: Int64[Tensor, " B"],
    maximise: bool,
    share: float,
) -> tuple[Links, Totals]:
    """CHILDSEQ: new messages and their part. ``scores`` [b, h, s, m]; at [b, h, m, h] that m is the last child."""
    return _op(totals, own, scores, frozen, lengths, maximise, share)


def children_sum(odds: Links, scores: Triples, lengths: Int64[Tensor, " B"]) -> Float64[Tensor, " B"]:
    """log of the sum over all sequences of children of all heads."""
    return _sum_op(odds, scores, lengths)[0]
