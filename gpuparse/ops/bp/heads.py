"""Heads as variables (``plain/bp_heads.py``): seen as links by bp_heads.cu, GRAND by bp_grand_heads.cu."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from gpuparse.ops.backend import Backend
from gpuparse.ops.bp.propagators import Frozen, Links, Totals, Triples, like, run_kernel, takes
from gpuparse.ops.library import define
from gpuparse.ops.plain import bp_heads
from gpuparse.ops.plain.bp_heads import head_weights
from gpuparse.ops.plain.links import Graph

__all__ = ["grand_of_heads", "head_odds", "head_weights", "launch_grand_of_heads", "launch_head_odds"]


def launch_head_odds(totals: Tensor, lengths: Tensor, maximise: bool, backend: Backend | None = None) -> Tensor:
    """Run bp_heads.cu."""
    odds = torch.empty_like(totals)
    args = [totals, lengths, odds]
    run_kernel("bp_heads", None, args, [int(maximise)], work=1, backend=backend)
    return odds


def launch_grand_of_heads(*given: Any, backend: Backend | None = None) -> tuple[Tensor, ...]:
    """Run bp_grand_heads.cu."""
    *tensors, excludes, maximise, share, counted = given
    found = like(1, 2, 0)(*given)
    flags = float(share), float(counted), int(excludes), int(maximise)
    room = lambda N, _: 5 * N**2  # noqa: E731
    run_kernel("bp_grand_heads", None, [*tensors, *found], flags, doubles=room, work=4, backend=backend)
    return found


_op = define(
    "bp_grand_heads(Tensor totals, Tensor odds, Tensor means, Tensor made_of, Tensor scores, Tensor? factors, "
    "Tensor? frozen, Tensor lengths, int excludes, bool maximise, float share, float counted) "
    "-> (Tensor, Tensor, Tensor)",
    launch_grand_of_heads,
    like(1, 2, 0),
)


_odds_op = define(
    "bp_heads(Tensor totals, Tensor lengths, bool maximise) -> Tensor",
    launch_head_odds,
    lambda x, *_: torch.empty_like(x),
)


def head_odds(totals: Totals, graph: Graph) -> Totals:
    """All messages to heads as variables, as those to each link. By plain torch where there is a gradient."""
    if (torch.is_grad_enabled() and totals.requires_grad) or not takes(totals, "bp_heads"):
        return bp_heads.head_odds(totals, graph)
    return _odds_op(totals, graph.lengths, graph.maximise)


def grand_of_heads(
    totals: Totals,
    odds: Links,
    means: Links,
    made_of: Triples,
    scores: Triples,
    frozen: Frozen,
    lengths: Int64[Tensor, " B"],
    graph: Graph,
    share: float,
    counted: float = 1.0,
    factors: Triples | None = None,
) -> tuple[Links, Links, Totals]:
    """GRAND: the numbers that new messages are made of, and their part, so much of it as is ``counted``. ``factors``:
    exp(scores), if no score is further from 0 than 100. By plain torch where there is a gradient."""
    given = totals, odds, means, made_of, scores
    again = torch.is_grad_enabled() and any(x.requires_grad for x in given)
    if again or not takes(totals, "bp_grand_heads"):
        weights = head_weights(totals, graph)[0]
        return bp_heads.grand(weights, odds, means, made_of, scores, frozen, share, counted, graph)
    excludes = 0 if graph.maximise or not graph.tree else 2 if graph.projective else 1
    return _op(*given, factors, frozen, lengths, excludes, graph.maximise, share, counted)
