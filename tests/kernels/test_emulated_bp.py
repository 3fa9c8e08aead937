"""The PTX of the propagators, run through the project's own launch code, against the CPU build."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from gpuparse.ops import bp
from gpuparse.ops.plain.links import Graph

from .emulator import INF, SCHEDULED, on_both

pytestmark = pytest.mark.emulated


def some_links(seed: int, infinite: float, size: float) -> dict[str, Any]:
    """Totals, own messages, scores and what comes back, of a ragged batch with a frozen sentence."""
    g, lengths, N = torch.Generator().manual_seed(seed), torch.tensor([7, 4, 1, 5]), 8

    def random(k: int) -> Tensor:
        return torch.randn(4, *[N] * k, generator=g, dtype=torch.float64) * size

    node = torch.arange(N)
    link = (node[:, None] != node) & (node > 0) & (torch.maximum(node[:, None], node) <= lengths[:, None, None])
    q = random(2)
    forbidden = torch.rand(q.shape, generator=g) < infinite
    totals = torch.stack([q, (forbidden | ~link).double(), torch.zeros_like(q)])
    if infinite:
        totals[2, 1, 2, 1], totals[1, 1, 2, 1] = 1.0, 0.0
    scores = random(3)
    scores[torch.rand(scores.shape, generator=g) < infinite / 2] = -INF
    frozen = torch.tensor([False, False, False, True])
    own, triples = ([0.1 * random(k) for _ in range(2 * k - 2)] for k in (2, 3))
    names = "totals", "own", "triples", "scores", "frozen", "lengths"
    return dict(zip(names, (totals, own, triples, scores, frozen, lengths), strict=True))


def compare(run: Any, schedule: str) -> None:
    expected, found = on_both(lambda backend: run(backend=backend), schedule)
    for x, y in zip(found, expected, strict=True):  # exp and log are not rounded alike
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-9, equal_nan=True)


def grand_odds(
    totals: Tensor, upper: Tensor, lower: Tensor, scores: Tensor, lengths: Tensor, backend: Any
) -> list[Tensor]:
    """GRAND's messages as logs, which take the place of the old ones, and their part; none of what is no link."""
    there = Graph(lengths, scores.shape[1]).links[..., None]
    upper, lower = (torch.where(there, x.clamp(-50.0, 50.0), 0.0).exp() for x in (upper, lower))
    part = bp.launch_grand_odds(totals, upper, lower, scores, lengths, backend)
    return [part, upper.log(), lower.log()]


@SCHEDULED
@pytest.mark.parametrize("infinite, size", [(0.0, 1.0), (0.25, 3.0), (0.1, 400.0)])
def test_propagators(infinite: float, size: float, schedule: str) -> None:
    x = some_links(0, infinite, size)
    totals, (own, g), frozen, lengths, scores = x["totals"], x["own"], x["frozen"], x["lengths"], x["scores"]
    part = totals.clone()
    for how in ((False, True, False), (False, False, True), (True, True, False), (True, True, True)):
        compare(partial(bp.tree.launch, totals, own, frozen, lengths, *how, False, 0.2), schedule)
        compare(partial(bp.tree.launch_back, g, part, totals, own, frozen, lengths, *how, 0.2), schedule)
    for heads in (False, True):
        compare(partial(bp.tree.launch, totals, own, frozen, lengths, True, True, heads, True, 0.0), schedule)
    upper, lower, g_upper, g_lower = x["triples"]
    compare(partial(bp.grand.launch, totals, upper, lower, scores, frozen, lengths, False, 0.2), schedule)
    compare(
        partial(bp.grand.launch_back, g_upper, g_lower, part, totals, upper, lower, scores, frozen, lengths, 0.2),
        schedule,
    )
    near = scores.nan_to_num(neginf=0.0).clamp(-100.0, 100.0)
    compare(partial(grand_odds, totals, upper, lower, near, lengths), schedule)
    for maximise in (False, True):
        compare(partial(bp.children.launch, totals, own, scores, frozen, lengths, maximise, 0.2), schedule)
    compare(partial(bp.children.launch_back, g, part, totals, own, scores, frozen, lengths, 0.2), schedule)
    odds = torch.where(totals[1] > 0, -INF, totals[0])
    compare(partial(bp.launch_children_sum, odds, scores, lengths), schedule)
    state = torch.zeros(4, dtype=torch.float64), frozen, lengths
    compare(partial(bp.launch_settle, totals, totals.flip(1), None, *state, 0.5, True), schedule)


@SCHEDULED
@pytest.mark.parametrize("infinite, size", [(0.0, 1.0), (0.25, 3.0), (0.1, 400.0)])
def test_grandparents_of_heads(infinite: float, size: float, schedule: str) -> None:
    """By products and by logs; excluded pairs of arcs; messages that are infinite."""
    x = some_links(1, infinite, size)
    totals, (odds, means), scores, frozen, lengths = (x[k] for k in ("totals", "own", "scores", "frozen", "lengths"))
    there = Graph(lengths, scores.shape[1]).links
    odds, means = torch.where(there, odds, -INF), torch.where(there, means, 0.0)
    if infinite:
        odds[0, 1, 2], odds[0, 3, 4], means[0, 1, 2] = INF, INF, -INF
    for maximise in (False, True):
        compare(lambda backend, maximise=maximise: [bp.launch_head_odds(totals, lengths, maximise, backend)], schedule)
    for excludes in (0, 1, 2):
        near = None if excludes or infinite else scores.exp()
        given = totals, odds, means, scores, scores, near, frozen, lengths, excludes
        compare(partial(bp.launch_grand_of_heads, *given, False, 0.2, 0.5), schedule)
    changed = totals, odds, means, scores / 2, scores, None, None, lengths, 1
    compare(partial(bp.launch_grand_of_heads, *changed, False, 0.0, 1.0), schedule)
    best = totals, odds, means, scores, scores, None, frozen, lengths, 0
    compare(partial(bp.launch_grand_of_heads, *best, True, 0.2, 1.0), schedule)
