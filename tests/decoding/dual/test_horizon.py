"""How far arcs may be away in dual decomposition, and what is said of sentences that stay open."""

from __future__ import annotations

import math

import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.dual.fallback import NOT_PROVEN, decompose
from gpuparse.decoding.dual.horizon import MOST, Whole
from gpuparse.structures.masks import arc_mask
from tests.decoding.instances import LENGTHS, best, check_sound, instance


@pytest.mark.parametrize("parts", (("siblings",), ("grandparents",), ("siblings", "grandparents")))
def test_every_arc_is_as_far_away_as_with_its_best_pairs(parts: tuple[str, ...]) -> None:
    scores = instance(0, parts)
    whole = Whole.of(scores)
    assert torch.equal(whole.total.isfinite(), arc_mask(LENGTHS, 6))
    assert bool((whole.total.amax(1)[arc_mask(LENGTHS, 6).any(1)] == 0).all())


def test_the_first_horizon_without_a_tree() -> None:
    """By what most arcs are away: as far as doubles go, everything would count as near."""
    whole = Whole.of(instance(1))
    one, none = (whole.first_horizon(torch.full((len(LENGTHS),), x, dtype=torch.float64)) for x in (-50.0, -math.inf))
    away = -whole.total[whole.total.isfinite() & (whole.total < 0)]
    assert bool((none > 0).all()) and bool((none[LENGTHS > 1] < 1e6 * float(away.max())).all())
    assert bool((one > 0).all()) and bool((one < MOST).all())


def test_only_open_sentences_have_a_remark() -> None:
    """Some are proven best and some are not; that limits were reached is said of these, where a proof was asked for."""
    proven = open_ = 0
    for seed in range(12):
        scores = instance(seed, ("siblings", "grandparents"), strength=4.0)
        for exact in (False, True):
            found = decompose(scores, torch.ones(len(LENGTHS), dtype=torch.bool), iterations=3, exact=exact, nodes=0)
            check_sound(found, best(scores))
            left = (~found.certified).nonzero()[:, 0].tolist()
            assert found.remarks == (dict.fromkeys(left, NOT_PROVEN) if exact else {})
            proven, open_ = proven + len(LENGTHS) - len(left), open_ + len(left)
    assert proven > 10 and open_ > 10
    nothing = gp.Scores(torch.full((1, 4, 4), -math.inf), grandparents=torch.zeros(1, 4, 4, 4))
    found = decompose(nothing, torch.zeros(1, dtype=torch.bool), exact=True)
    assert found.remarks == {} and found.score.item() == -math.inf
