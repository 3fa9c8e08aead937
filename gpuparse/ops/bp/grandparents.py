"""GRAND: bp_grand.cu."""

from __future__ import annotations

import torch
from jaxtyping import Int64
from torch import Tensor

from gpuparse.ops.backend import Backend, Long
from gpuparse.ops.bp.propagators import Frozen, Totals, Triples, like, plainly, run_kernel, takes, way_back
from gpuparse.ops.library import define
from gpuparse.ops.plain.links import Graph, pair_message


def launch_grand(
    totals: Tensor,
    upper: Tensor,
    lower: Tensor,
    scores: Tensor,
    frozen: Tensor | None,
    lengths: Tensor,
    maximise: bool,
    share: float,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run bp_grand.cu."""
    found = torch.empty_like(scores), torch.empty_like(scores), torch.empty_like(totals)
    args = [totals, upper, lower, scores, frozen, lengths, *found, None, None, None, None, None, Long(0)]
    run_kernel("bp_grand", 0, args, [float(share), int(maximise)], doubles=lambda *_: 0, work=8, backend=backend)
    return found


def launch_grand_odds(
    totals: Tensor, upper: Tensor, lower: Tensor, scores: Tensor, lengths: Tensor, backend: Backend | None = None
) -> Tensor:
    """Run bp_grand_odds.cu: messages are changed in their place."""
    assert upper.is_contiguous() and lower.is_contiguous()
    part = torch.empty_like(totals)
    args = [totals, upper, lower, scores, lengths, part]
    run_kernel("bp_grand_odds", None, args, [], doubles=lambda N, _: 3 * N**2, work=2, backend=backend)
    return part


def launch_grand_back(
    g_upper: Tensor,
    g_lower: Tensor,
    g_part: Tensor,
    totals: Tensor,
    upper: Tensor,
    lower: Tensor,
    scores: Tensor,
    frozen: Tensor | None,
    lengths: Tensor,
    share: float,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients in totals, own messages and scores."""
    like = torch.empty_like
    found = like(totals), like(scores), like(scores), like(scores)
    args = [totals, upper, lower, scores, frozen, lengths, g_upper, g_lower, g_part, *found]
    run_kernel("bp_grand", 1, args, [float(share), 0], doubles=lambda N, _: 2 * N**3, work=16, backend=backend)
    return found


def _plain(
    totals: Tensor,
    upper: Tensor,
    lower: Tensor,
    scores: Tensor,
    frozen: Tensor | None,
    lengths: Tensor,
    maximise: bool,
    share: float,
) -> list[Tensor]:
    graph = Graph(lengths, scores.shape[1], 0, maximise)

    def propagate(above: Tensor, below: Tensor) -> list[Tensor]:
        return [pair_message(below, scores, graph), pair_message(above, scores, graph)]

    def spread(x: Tensor) -> list[Tensor]:
        return [x[:, :, :, None].expand_as(scores), x[:, None].expand_as(scores)]

    return plainly(totals, [upper, lower], frozen, share, spread, propagate, lambda a, b: a.sum(3) + b.sum(1))


_ARGUMENTS = "Tensor totals, Tensor upper, Tensor lower, Tensor scores, Tensor? frozen, Tensor lengths"
_op = define(
    f"bp_grand({_ARGUMENTS}, bool maximise, float share) -> (Tensor, Tensor, Tensor)", launch_grand, like(3, 3, 0)
)
_back_op = define(
    f"bp_grand_back(Tensor g_upper, Tensor g_lower, Tensor g_part, {_ARGUMENTS}, float share) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    launch_grand_back,
    like(3, 6, 6, 6),
)
_odds_op = define(
    "bp_grand_odds(Tensor totals, Tensor(a!) upper, Tensor(b!) lower, Tensor scores, Tensor lengths) -> Tensor",
    launch_grand_odds,
    lambda totals, *_: torch.empty_like(totals),
)
way_back(_op, _back_op, _plain, 4, 6)


def grand(
    totals: Totals,
    upper: Triples,
    lower: Triples,
    scores: Triples,
    frozen: Frozen,
    lengths: Int64[Tensor, " B"],
    maximise: bool,
    share: float,
) -> tuple[Triples, Triples, Totals]:
    """GRAND: new messages to g -> p and p -> c of all triples, and their part."""
    return _op(totals, upper, lower, scores, frozen, lengths, maximise, share)


def grand_odds(totals: Totals, upper: Triples, lower: Triples, scores: Triples, lengths: Int64[Tensor, " B"]) -> Totals:
    """The same with messages that are odds: they are changed in their place, and their part, of logs, is returned. Sums
    alone, without a gradient; no score may be further from 0 than 100, and messages must be contiguous."""
    if takes(totals, "bp_grand_odds"):
        return _odds_op(totals, upper, lower, scores, lengths)
    *new, part = _plain(totals, upper.log(), lower.log(), scores, None, lengths, False, 0.0)
    for messages, logs in zip((upper, lower), new, strict=True):
        messages.copy_(logs.exp())
    return part
