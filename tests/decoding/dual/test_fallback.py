"""Dual decomposition that hands over what it leaves open, and its limits of time; against all trees."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.dual import fallback, multipliers
from gpuparse.decoding.dual.fallback import FIRST, OUT_OF_TIME, SOLVER, SPLITS
from gpuparse.decoding.ppc import ppc
from gpuparse.decoding.ppc.batch import parse_price_cut
from gpuparse.decoding.ppc.rounding import REMARKS
from gpuparse.decoding.solver import Status
from tests.decoding.instances import LENGTHS, best, check_best, check_sound, instance

KINDS = [("grandparents",), ("siblings",), ("grandparents", "siblings")]
kinds = pytest.mark.parametrize("parts", KINDS, ids="+".join)


@kinds
@pytest.mark.parametrize("fallback", [False, True])
def test_no_time_at_all(parts: tuple[str, ...], fallback: bool) -> None:
    """One iteration, and then what is known: a tree, a bound, and why there is no more."""
    open_ = 0
    for seed in range(4):
        scores = instance(seed, parts, strength=3.0)
        found = gp.decode(scores, "dd", exact=True, fallback=fallback, time_limit=0.0)
        check_sound(found, best(scores))
        left = (~found.certified).nonzero()[:, 0].tolist()
        assert found.remarks == dict.fromkeys(left, OUT_OF_TIME)
        assert int(found.iterations.max()) <= 1 and not int(found.stats["branches"].sum())
        assert bool((found.heads[:, 1] >= 0).all()) and bool(found.bound.isfinite().all())
        open_ += len(left)
    assert open_ > 0


@kinds
def test_time_for_some_of_it(parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by a second whenever it is looked at: iterations and branches stop where it says."""
    now = [0.0]

    def tick() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(multipliers.time, "monotonic", tick)
    scores = instance(1, parts, strength=4.0).take(torch.tensor([0]))
    for limit, most in ((3.0, 3), (30.0, 30)):
        found = gp.decode(scores, "dd", exact=True, iterations=10, time_limit=limit)
        check_sound(found, best(scores))
        assert bool(found.certified[0]) or found.remarks == {0: OUT_OF_TIME}
        assert int(found.iterations[0]) + int(found.stats["branches"][0]) <= most
    now[0] = 0.0
    check_best(gp.decode(scores, "dd", exact=True, iterations=10, time_limit=1e9), best(scores))


@kinds
@pytest.mark.parametrize("mask", [-math.inf, -1e30, torch.finfo(torch.float64).min])
@pytest.mark.parametrize("single_root", [True, False])
def test_all_is_certified_under_masks(parts: tuple[str, ...], mask: float, single_root: bool) -> None:
    handed = 0
    for seed in range(6):
        every = instance(seed, parts, 0.08, strength=3.0)
        arcs = torch.where(every.arcs.isneginf(), mask, every.arcs)
        pairs: dict[str, Any] = {x.kind: torch.where(x.dense().isneginf(), mask, x.dense()) for x in every.parts}
        scores = gp.Scores(arcs, LENGTHS, **pairs)
        expected = best(scores, single_root)
        rows = (expected > -1e20).nonzero()[:, 0]
        if len(rows):
            found = gp.decode(scores.take(rows), exact=True, iterations=5, single_root=single_root)
            check_best(found, expected[rows])
            handed += int(found.stats["fallback"].sum())
    assert handed > 0


def test_where_the_solver_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dual decomposition proves what no program could."""
    scores = instance(0, ("grandparents", "siblings"), strength=4.0)
    expected = best(scores)
    solve = ppc.PairProgram.solve

    def fail(program: Any, seconds: float) -> Any:
        result = solve(program, seconds)
        return type(result)(Status.FAILED, None, None, math.inf)

    monkeypatch.setattr(ppc.PairProgram, "solve", fail)
    alone = gp.decode(scores, "ppc", exact=True)
    found = gp.decode(scores, exact=True)
    assert not bool(alone.certified.all()) and set(alone.remarks.values()) == {SOLVER}
    check_best(found, expected)
    assert not found.remarks


@kinds
def test_a_split_or_two_without_being_asked(parts: tuple[str, ...]) -> None:
    """More is proven than by the Lagrangian alone; no more nodes than that."""
    counts = [0, 0]
    for seed in range(6):
        scores = instance(seed, parts, strength=4.0)
        for nodes in (0, None):
            found = gp.decode(scores, "dd", nodes=nodes, iterations=100)
            check_sound(found, best(scores))
            counts[nodes is None] += int(found.certified.sum())
            assert int(found.stats["branches"].max()) <= (0 if nodes == 0 else SPLITS) and not found.remarks
    assert counts[1] > counts[0]


@kinds
def test_many_short_sentences_begin_together(parts: tuple[str, ...]) -> None:
    """With iterations that they share; a few, or a long one among them, with programs."""
    scores = instance(2, parts, strength=3.0)
    many = scores.take(torch.arange(4).repeat(8))
    found = gp.decode(many, exact=True)
    check_best(found, best(scores).repeat(8))
    begun, handed = found.stats["dual_iterations"], found.stats["fallback"].bool()
    assert int(begun.min()) > 0 and bool((begun[handed] <= FIRST).all())
    few = gp.decode(scores, exact=True)
    check_best(few, best(scores))
    assert not int(few.stats["dual_iterations"].sum())


@pytest.mark.parametrize("search", [1, 60])
def test_programs_that_take_many_rounds(search: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stop after some; iterations go on, and what these leave open programs, to their end."""
    monkeypatch.setattr(fallback, "ROUNDS", 1)
    monkeypatch.setattr(fallback, "SEARCH", search)
    solved: list[tuple[str, int]] = []

    def noted(name: str) -> None:
        solve = getattr(fallback, name)

        def run(scores: gp.Scores, *args: Any, **options: Any) -> gp.Parse:
            solved.append((name, len(scores.lengths)))
            return solve(scores, *args, **options)

        monkeypatch.setattr(fallback, name, run)

    for name in ("parse_price_cut", "second_order"):
        noted(name)
    for seed in range(6):
        scores = instance(seed, ("grandparents", "siblings"), strength=4.0)
        before = len(solved)
        check_best(gp.decode(scores, "auto", exact=True), best(scores))
        assert solved[before] == ("parse_price_cut", len(scores.lengths))
    names = [name for name, _ in solved]
    assert "second_order" in names and (search > 1 or names.count("parse_price_cut") > 6)
    left = parse_price_cut(instance(1, ("siblings",), strength=4.0), exact=True, rounds=1)
    assert set(left.remarks.values()) <= {REMARKS[Status.LEFT]} and int(left.iterations.max()) <= 1
    check_sound(left, best(instance(1, ("siblings",), strength=4.0)))
