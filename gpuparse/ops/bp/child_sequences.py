"""CHILDSEQ: bp_children.cu."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from gpuparse.ops.backend import Backend
from gpuparse.ops.bp.propagators import Links, Propagator, Triples, run_kernel
from gpuparse.ops.launch import PAD
from gpuparse.ops.library import define, differentiable
from gpuparse.ops.operators import plain_gradients
from gpuparse.ops.plain import bp_children
from gpuparse.ops.plain.links import Graph


def _room(order: int, N: int, gpu: bool) -> int:
    room = (order + 1) * 2 * (2 * (N + 1) + 6) * -(-N // 8) * 8
    return 3 * N * N + PAD + (2 * N if gpu else 1) * room


def _plain(graph: Graph, scores: Tensor) -> Callable[[Tensor], list[Tensor]]:
    return lambda q: [bp_children.propagate(q, scores, graph)]


children = Propagator("bp_children", ["own"], ["scores"], [], _room, (4, 16), _plain, unused=1)
"""CHILDSEQ. ``scores`` [b, h, s, m]; at [b, h, m, h] that m is the last child."""


def launch_children_sum(
    odds: Tensor, scores: Tensor, lengths: Tensor, backend: Backend | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """log Z of all sequences [B], and its derivatives by log-odds and scores."""
    found = odds.new_empty(odds.shape[0]), torch.empty_like(odds), torch.empty_like(scores)
    args = [odds, None, scores, None, lengths, None, None, found[1], None, found[2], found[0]]
    run_kernel("bp_children", 0, args, [0.0, 0], doubles=partial(_room, 0), work=8, backend=backend)
    return found


_sum_op = define(
    "bp_children_sum(Tensor odds, Tensor scores, Tensor lengths) -> (Tensor, Tensor, Tensor)",
    launch_children_sum,
    lambda odds, scores, _: (odds.new_empty(odds.shape[0]), torch.empty_like(odds), torch.empty_like(scores)),
)


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


def children_sum(odds: Links, scores: Triples, lengths: Int64[Tensor, " B"]) -> Float64[Tensor, " B"]:
    """log of the sum over all sequences of children of all heads."""
    return _sum_op(odds, scores, lengths)[0]
