"""What is reached before there is a program, against enumeration and against the program."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.ppc import descent, ppc, work
from gpuparse.decoding.ppc.program import PairProgram
from gpuparse.decoding.ppc.work import First
from gpuparse.nn.trilinear import TrilinearParts
from tests.decoding.instances import LENGTHS, best, check_sound, instance, normal


@pytest.fixture(autouse=True)
def _any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sentences, not only of many."""
    for module in (descent, work):
        monkeypatch.setattr(module, "FEW", 1)


def without_programs(monkeypatch: pytest.MonkeyPatch) -> list[First]:
    """Nothing but what is reached without; those it is reached by."""
    seen: list[First] = []
    reach = First.reach

    def spy(first: First, *args: Any) -> None:
        reach(first, *args)
        seen.append(first)

    monkeypatch.setattr(First, "reach", spy)
    return seen


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("projective", [False, True], ids=["crossing", "projective"])
@pytest.mark.parametrize("mask", [0.0, -math.inf, -1e30])
def test_bounds_hold(mask: float, projective: bool, single_root: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With parts that are forbidden or masked; what is proven is best, and what proves it is a proof."""
    seen, proven, trees = without_programs(monkeypatch), 0, {"single_root": single_root, "projective": projective}
    for seed in range(5):
        plain = instance(seed)
        arcs, pairs = plain.arcs.clone(), plain.grandparents.dense().clone()
        if mask:
            g = torch.Generator().manual_seed(seed)
            arcs[:, 1:][torch.rand(arcs[:, 1:].shape, generator=g) < 0.1] = mask
            pairs[torch.rand(pairs.shape, generator=g) < 0.15] = mask
        scores = gp.Scores(arcs, LENGTHS, grandparents=pairs)
        expected = best(scores, **trees)
        if not bool((expected > -math.inf).all()):
            continue
        found = gp.decode(scores, "ppc", **trees, proof=True)
        close = (found.score - expected).abs() <= 1e-9 * expected.abs().clamp(min=1.0)
        assert bool((close | ~found.certified).all())
        gp.verify(scores, found, **trees)
        for first in seen:
            for b, (units, reached) in first.reached.items():
                off = 1e-9 * max(1.0, abs(float(expected[b])))
                assert units.score(reached.bound) >= float(expected[b]) - off
                assert units.score(reached.score) <= float(expected[b]) + off
        seen.clear()
        proven += int((found.certified & (found.iterations == 0)).sum())
    assert proven >= 5


def test_no_program_is_made_where_none_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[PairProgram] = []
    monkeypatch.setattr(
        ppc, "PairProgram", lambda *args, **more: (made.append(PairProgram(*args, **more)), made[-1])[1]
    )
    arcs, pairs = normal(3, (8, 10, 10), (8, 10, 10, 10))
    found = gp.decode(gp.Scores(arcs, grandparents=0.8 * pairs), "ppc")
    assert 0 < len(made) == int((found.iterations > 0).sum()) == int((found.stats["rows"] > 0).sum()) < 8


def test_the_same_as_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its value, wherever it was reached; with few pairs scored, and each of them once."""
    g = torch.Generator().manual_seed(0)
    factors = [0.4 * torch.randn(6, 16, 4, generator=g) for _ in range(3)]
    lengths = torch.tensor([15, 14, 15, 3, 1, 12])
    scores = gp.Scores(
        3 * torch.randn(6, 16, 16, generator=g),
        lengths,
        grandparents=TrilinearParts(*factors, lengths, kind="grandparents"),
    )
    found = gp.decode(scores, "ppc")
    whole = gp.decode(scores, "lp")
    assert int((found.iterations == 0).sum()) >= 3
    torch.testing.assert_close(found.stats["relaxed"], whole.stats["relaxed"], rtol=0, atol=1e-6)
    assert int(found.stats["scored"].sum()) < 0.4 * int(whole.stats["scored"].sum())
    monkeypatch.setattr(First, "reach", lambda *_: None)
    torch.testing.assert_close(gp.decode(scores, "ppc").stats["relaxed"], found.stats["relaxed"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [1e-11, 1e9, 1e-300, 1e150])
def test_scores_of_any_size(size: float) -> None:
    for seed in range(4):
        scores = instance(seed)
        large = gp.Scores(size * scores.arcs, LENGTHS, grandparents=size * scores.grandparents.dense())
        found = gp.decode(large, "ppc", exact=True)
        torch.testing.assert_close(found.score, size * best(scores), rtol=1e-9, atol=0)
        assert bool(found.certified.all())


def test_it_is_left_to_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the paper's polytope, with siblings, where there is no time, and of few sentences."""
    seen = without_programs(monkeypatch)
    scores, both = instance(0), instance(0, ("grandparents", "siblings"))
    for given, options in ((scores, {"polytope": "all"}), (both, {})):
        check_sound(gp.decode(given, "ppc", **options), best(given))
        assert not seen[-1].reached
    gp.decode(scores, "ppc", time_limit=0.0)
    assert all(reached.bound == math.inf for _, reached in seen[-1].reached.values())
    monkeypatch.setattr(work, "FEW", 5)
    gp.decode(scores, "ppc")
    assert not seen[-1].reached


def test_ties_and_one_word() -> None:
    """All trees the same; no word has a choice."""
    zeros = gp.Scores(torch.zeros(3, 5, 5), [4, 1, 2], grandparents=torch.zeros(3, 5, 5, 5))
    found = gp.decode(zeros, "ppc", exact=True, proof=True)
    assert bool(found.certified.all()) and not found.score.any()
    gp.verify(zeros, found)


def test_steps_come_to_an_end() -> None:
    """Of a hard batch nothing goes on for ever."""
    arcs, pairs = normal(0, (4, 9, 9), (4, 9, 9, 9))
    scores = gp.Scores(arcs, grandparents=3 * pairs)
    found = gp.decode(scores, "ppc", exact=True)
    assert bool(found.certified.all()) and int((found.iterations > 0).sum()) > 0
