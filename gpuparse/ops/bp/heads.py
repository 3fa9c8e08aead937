"""Heads as variables (``plain/bp_heads.py``): GRAND by bp_grand_heads.cu."""

from __future__ import annotations

import torch
from jaxtyping import Int64
from torch import Tensor

from gpuparse.ops.backend import Backend
from gpuparse.ops.bp.propagators import Frozen, Links, Totals, Triples, like, run_kernel, takes
from gpuparse.ops.library import define
from gpuparse.ops.plain import bp_heads
from gpuparse.ops.plain.bp_heads import head_odds, head_weights
from gpuparse.ops.plain.links import Graph

__all__ = ["grand_of_heads", "head_odds", "head_weights", "launch_grand_of_heads"]


def launch_grand_of_heads(
    totals: Tensor,
    odds: Tensor,
    means: Tensor,
    made_of: Tensor,
    scores: Tensor,
    frozen: Tensor | None,
    lengths: Tensor,
    excludes: int,
    maximise: bool,
    share: float,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run bp_grand_heads.cu."""
    found = torch.empty_like(odds), torch.empty_like(means), torch.empty_like(totals)
    args = [totals, odds, means, made_of, scores, frozen, lengths, *found]
    flags = float(share), int(excludes), int(maximise)
    run_kernel("bp_grand_heads", None, args, flags, doubles=lambda N, _: 5 * N**2, work=4, backend=backend)
    return found


_op = define(
    "bp_grand_heads(Tensor totals, Tensor odds, Tensor means, Tensor made_of, Tensor scores, Tensor? frozen, "
    "Tensor lengths, int excludes, bool maximise, float share) -> (Tensor, Tensor, Tensor)",
    launch_grand_of_heads,
    like(1, 2, 0),
)


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
) -> tuple[Links, Links, Totals]:
    """GRAND: the numbers that new messages are made of, and their part. By plain torch where there is a gradient."""
    given = totals, odds, means, made_of, scores
    again = torch.is_grad_enabled() and any(x.requires_grad for x in given)
    if again or not takes(totals, "bp_grand_heads"):
        return bp_heads.grand(head_weights(totals, graph)[0], odds, means, made_of, scores, frozen, share, graph)
    excludes = 0 if graph.maximise or not graph.tree else 2 if graph.projective else 1
    return _op(*given, frozen, lengths, excludes, graph.maximise, share)
