"""What is allowed for rounding in parse, price and cut, term by term, and what stands in for heads."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import gpuparse as gp
from gpuparse.decoding.certificates import STEPS, UNIT
from gpuparse.decoding.parts import Kind
from gpuparse.decoding.ppc import brute
from gpuparse.decoding.ppc.cuts import Cuts
from gpuparse.decoding.ppc.ppc import PricedSentence
from gpuparse.decoding.ppc.program import PairProgram
from gpuparse.decoding.ppc.units import SIZE, Units
from tests.decoding.instances import instance, normal

KINDS: tuple[tuple[Kind, ...], ...] = (("grandparents",), ("siblings",), ("grandparents", "siblings"))
kinds = pytest.mark.parametrize("parts", KINDS, ids="+".join)


def allowance(terms: int, size: float) -> Fraction:
    """Four roundings of each of so many terms, and of the steps to one."""
    return 4 * Fraction(UNIT) * (terms + STEPS) * Fraction(size)


@kinds
def test_bounds_allow_for_every_kind(parts: Sequence[Kind], monkeypatch: pytest.MonkeyPatch) -> None:
    """A second kind adds four operations to a reduced cost: its price, its other arc's, its share, and what is left."""
    size, noises, bounds = 1e3, [], []
    update, proven = PricedSentence.update, brute._proven

    def spy(sentence: PricedSentence, answers: Any) -> Any:
        noises.append(sentence._noise)
        return update(sentence, answers)

    def both(program: PairProgram, duals: Any) -> float:
        found = []
        for each in (0.0, size):
            monkeypatch.setattr(PairProgram, "size", lambda *_, each=each: each)
            found.append(proven(program, duals))
        bounds.append(found[1] - found[0])
        return found[0]

    scores = instance(0, parts)
    monkeypatch.setattr(PricedSentence, "update", spy)
    monkeypatch.setattr(brute, "_proven", both)
    gp.decode(scores, "lp")
    monkeypatch.setattr(PairProgram, "size", lambda *_: size)
    gp.decode(scores, "ppc", threads=1)
    expected = float(allowance(4 * (len(parts) - 1), size))
    assert noises and noises == pytest.approx([expected] * len(noises), rel=1e-12)
    assert bounds and bounds == pytest.approx([expected] * len(bounds), abs=1e-13)  # of values of about 100


@kinds
def test_units_allow_for_every_term(parts: Sequence[Kind]) -> None:
    """What is taken from words, what is moved to arcs that are near, and the distance, each where it is the largest."""
    for seed, scales in enumerate(((1e6, 1.0, 1.0), (1.0, 1e6, 1.0), (1.0, 1.0, 1e6))):
        arcs, *over = (x.numpy() for x in normal(seed, (6, 6), *[(6, 6)] * len(parts)))
        arcs = arcs + scales[0]
        moved = dict(zip(parts, (x * scales[1] for x in over), strict=True))
        units = Units.of(arcs, moved).within(1e9)
        cost = -np.ldexp(7.0 * scales[2], units.power)
        terms, near = len(parts), units.total >= -7.0 * scales[2]
        sizes = sum(np.abs(x) for x in units.over.values())
        exact = allowance(len(arcs), 7.0 * scales[2])
        for m in range(1, 6):
            exact += allowance(terms, abs(units.best[m])) + allowance(terms, max(sizes[near[:, m], m], default=0.0))
        assert units.rounding(float(cost)) == pytest.approx(float(np.ldexp(float(exact), units.power)), rel=1e-12)


@kinds
def test_shares_are_off_by_what_they_are_shares_of(parts: Sequence[Kind], monkeypatch: pytest.MonkeyPatch) -> None:
    """An arc's budget, however large, where it is shared."""
    seen, update = 0, PricedSentence.update

    def spy(sentence: PricedSentence, answers: Any) -> Any:
        nonlocal seen
        assert sentence._duals is not None
        budget = sentence._budget
        for pairs, duals, ceiling in zip(
            sentence.program.pairs, sentence._duals.pairs, sentence._ceilings, strict=True
        ):
            before = sentence._pair_rounding(pairs, duals, ceiling)
            sentence._budget = np.where(np.isfinite(budget), np.abs(budget) + 1e9, np.inf)
            more = sentence._pair_rounding(pairs, duals, ceiling) - before
            sentence._budget = budget
            at = np.isfinite(ceiling)
            at[0] &= pairs.kind != "grandparents"
            if len(parts) == 1:
                assert not more[at].any()
            else:
                assert (more[at] >= 7 * UNIT * 1e9).all()  # of eight roundings
            seen += int(at.sum())
        return update(sentence, answers)

    monkeypatch.setattr(PricedSentence, "update", spy)
    gp.decode(instance(0, parts), "ppc", threads=1)
    assert seen > 0


@kinds
def test_no_tree_within_the_horizon_is_impossible(parts: Sequence[Kind]) -> None:
    """A word costs the horizon by its arc and by every kind of pair at most."""
    arcs, n = instance(0).arcs[0].numpy(), 5
    units = Units.of(arcs, {kind: np.zeros((6, 6)) for kind in parts}).within(1e3)
    horizon = Fraction(units.horizon) * Fraction(2) ** units.power
    assert horizon <= 2**SIZE
    sentence = PricedSentence(units, True, float(-n * (1 + len(parts)) * 2**SIZE))
    assert not sentence.impossible
    sentence.bound *= 1.02
    assert sentence.impossible


def test_artificial_heads_are_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts are looked for with one head of every word, be it none that a tree may have."""
    artificial, new_cuts = 0, PairProgram.new_cuts

    def spy(program: PairProgram, z: np.ndarray, values: np.ndarray, least: float) -> Cuts:
        nonlocal artificial
        np.testing.assert_allclose(z[:, 1:].sum(0), 1.0, rtol=0, atol=1e-7)
        artificial += int((values[program.artificial][: program.n] > 1e-6).any())
        return new_cuts(program, z, values, least)

    monkeypatch.setattr(PairProgram, "new_cuts", spy)
    for seed in range(12):
        scores = instance(seed, ("siblings",), forbidden=0.7)
        gp.decode(
            gp.Scores(scores.arcs, scores.lengths, siblings=scores.siblings, validate_args=False), "ppc", threads=1
        )
    assert artificial > 0
