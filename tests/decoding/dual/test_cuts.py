"""Cuts in dual decomposition: whatever their prices are, the dual is a bound; and they close gaps."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.dual import cuts, multipliers
from gpuparse.decoding.dual.parsing import TreesAndStars, second_order
from tests.decoding.instances import LENGTHS, best, check_sound, instance
from tests.decoding.loose import loose

SETS = (("grandparents",), ("grandparents", "siblings"))
sets = pytest.mark.parametrize("parts", SETS, ids="+".join)


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short sentences get to see them, and none leaves."""
    monkeypatch.setattr(multipliers, "LEAVE", 1.0)
    for name, value in (("FIRST", 10), ("EVERY", 5), ("VIOLATED", 0.02)):
        monkeypatch.setattr(cuts, name, value)


def cuts_of(made: gp.DualDecomposition) -> cuts.PricedCuts:
    assert isinstance(made.together, TreesAndStars) and made.together.cuts is not None
    return made.together.cuts


@sets
@pytest.mark.parametrize("lazy", [False, True])
def test_the_dual_is_a_bound_at_any_price(parts: tuple[str, ...], lazy: bool, early: None) -> None:
    rows = 0
    for seed in range(6):
        scores = instance(seed, parts, strength=4.0)
        expected = best(scores)
        made = second_order(loose(scores) if lazy else scores, iterations=60, cuts=True)
        found = made.run()
        assert bool(((found.duals >= expected - 1e-9) | found.duals.isnan()).all())
        check_sound(found, expected)
        own = cuts_of(made)
        rows += len(own)
        g = torch.Generator().manual_seed(seed)
        own.price = 3 * torch.rand(own.price.shape, generator=g, dtype=torch.float64)
        own.same = False
        again = second_order(scores, iterations=1, cuts=True)
        assert isinstance(again.together, TreesAndStars)
        again.together.cuts = own
        assert bool((again.run().duals[0] >= expected - 1e-9).all())
    assert rows > 0


@sets
def test_gaps_are_closed(parts: tuple[str, ...], early: None) -> None:
    """More is proven with them than without, and bounds are lower."""
    counts, bounds = [0, 0], [0.0, 0.0]
    for seed in range(12):
        scores = instance(seed, parts, strength=4.0)
        for with_cuts in (False, True):
            found = second_order(scores, iterations=400, cuts=with_cuts).run()
            check_sound(found, best(scores))
            counts[with_cuts] += int(found.certified.sum())
            bounds[with_cuts] += float(found.bound.sum())
    assert counts[1] > counts[0] and bounds[1] < bounds[0]


@sets
@pytest.mark.parametrize("mask", [-math.inf, -1e30, torch.finfo(torch.float64).min])
@pytest.mark.parametrize("lazy", [False, True])
def test_certified_is_best_under_masks(parts: tuple[str, ...], mask: float, lazy: bool, early: None) -> None:
    certified = 0
    for seed in range(8):
        every = instance(seed, parts, 0.1, strength=3.0)
        arcs = torch.where(every.arcs.isneginf(), mask, every.arcs)
        pairs: dict[str, Any] = {x.kind: torch.where(x.dense().isneginf(), mask, x.dense()) for x in every.parts}
        scores = gp.Scores(arcs, LENGTHS, **pairs)
        expected = best(scores)
        rows = (expected > -1e20).nonzero()[:, 0]
        if len(rows):
            found = gp.decode((loose(scores) if lazy else scores).take(rows), "dd", iterations=120)
            check_sound(found, expected[rows])
            certified += int(found.certified.sum())
    assert certified >= 8
