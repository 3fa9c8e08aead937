"""GRAND: bp_grand.cu."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Int64
from torch import Tensor

from gpuparse.ops.backend import Backend
from gpuparse.ops.bp.propagators import Propagator, Totals, Triples, run_kernel, takes
from gpuparse.ops.library import define
from gpuparse.ops.plain.links import Graph, pair_message


def _room(order: int, N: int, gpu: bool) -> int:
    return 2 * N**3 if order else 0


def _plain(graph: Graph, scores: Tensor) -> Callable[[Tensor, Tensor], list[Tensor]]:
    return lambda above, below: [pair_message(below, scores, graph), pair_message(above, scores, graph)]


def _spread(x: Tensor) -> list[Tensor]:
    N = x.shape[-1]
    return [x[:, :, :, None].expand(-1, N, N, N), x[:, None].expand(-1, N, N, N)]


def _collect(upper: Tensor, lower: Tensor) -> Tensor:
    return upper.sum(3) + lower.sum(1)


grand = Propagator("bp_grand", ["upper", "lower"], ["scores"], [], _room, (8, 16), _plain, _spread, _collect)
"""GRAND: messages to g -> p and p -> c of all triples."""


def launch_grand_odds(
    totals: Tensor, upper: Tensor, lower: Tensor, scores: Tensor, lengths: Tensor, backend: Backend | None = None
) -> Tensor:
    """Run bp_grand_odds.cu: messages are changed in their place."""
    assert upper.is_contiguous() and lower.is_contiguous()
    part = torch.empty_like(totals)
    args = [totals, upper, lower, scores, lengths, part]
    run_kernel("bp_grand_odds", None, args, [], doubles=lambda N, _: 3 * N**2, work=2, backend=backend)
    return part


_odds_op = define(
    "bp_grand_odds(Tensor totals, Tensor(a!) upper, Tensor(b!) lower, Tensor scores, Tensor lengths) -> Tensor",
    launch_grand_odds,
    lambda totals, *_: torch.empty_like(totals),
)


def grand_odds(totals: Totals, upper: Triples, lower: Triples, scores: Triples, lengths: Int64[Tensor, " B"]) -> Totals:
    """The same with messages that are odds: they are changed in their place, and their part, of logs, is returned. Sums
    alone, without a gradient; no score may be further from 0 than 100, and messages must be contiguous."""
    if takes(totals, "bp_grand_odds"):
        return _odds_op(totals, upper, lower, scores, lengths)
    *new, part = grand.plainly(totals, upper.log(), lower.log(), scores, None, lengths, False, 0.0)
    for messages, logs in zip((upper, lower), new, strict=True):
        messages.copy_(logs.exp())
    return part
