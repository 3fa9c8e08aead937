"""What rounding can have done to a bound of parse, price and cut, against the same sums in fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.ppc.asking import Answer
from gpuparse.decoding.ppc.ppc import PricedSentence
from gpuparse.decoding.ppc.program import Duals, PairProgram
from tests.decoding.instances import normal


def _exact_budget(program: PairProgram, duals: Duals, h: int, m: int) -> Fraction:
    F, n = Fraction, program.n
    potential = [-F(duals.source), *(F(x) for x in duals.consume[1:])]
    found = F(duals.one_head[m]) - F(program.scores[h, m]) - n * max(potential[h] - potential[m], F(0))
    if h == 0:
        found += F(duals.one_root)
    cut, pair, value = program.cuts.arcs
    for k, at, x in zip(cut.tolist(), pair.tolist(), value.tolist(), strict=True):
        found += F(duals.cuts[k]) * F(x) if at == [h, m] else 0
    for pairs, own in zip(program.pairs, duals.pairs, strict=True):
        found -= F(own.outer[h, m]) * (n if pairs.kind == "grandparents" else 1)
        if (grandparents := program.grandparents) is pairs:
            gp_arc, _, arc_gp = own.rows
            for (g, p, c), price in zip(grandparents.arc_gp.tolist(), arc_gp.tolist(), strict=True):
                found += F(price) * (((g, p) == (h, m)) + ((p, c) == (h, m)))
            for (g, p, _), price in zip(grandparents.gp_arc.tolist(), gp_arc.tolist(), strict=True):
                found -= F(price) * ((g, p) == (h, m))
    return found


@pytest.mark.parametrize("kinds", [("grandparents",), ("siblings",), ("grandparents", "siblings")], ids="+".join)
@pytest.mark.parametrize("polytope", ["tight", "all"])
def test_budgets_and_objectives_are_off_by_no_more(
    polytope: str, kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    update = PricedSentence.update

    def spy(sentence: PricedSentence, answers: Sequence[Answer]) -> Any:
        nonlocal looked
        program, duals = sentence.program, sentence._duals
        assert duals is not None
        budgets, off = program.budgets(duals), program.budget_rounding(duals)
        for h, m in np.argwhere(sentence.arcs > -np.inf).tolist():
            assert abs(Fraction(budgets[h, m]) - _exact_budget(program, duals, h, m)) <= Fraction(off[h, m])
            assert off[h, m] <= 1e-11 * (1 + program.size(duals) + abs(program.scores[h, m])) * (1 + program.n)
        terms = [*duals.one_head, duals.one_root, *duals.consume, *(x for own in duals.pairs for x in own.worth)]
        exact = sum(map(Fraction, terms)) + program.n * Fraction(duals.source)
        exact += sum(Fraction(a) * Fraction(b) for a, b in zip(duals.cuts, program.cuts.high, strict=True))
        assert abs(exact - Fraction(program.objective(duals))) <= Fraction(program.objective_rounding(duals))
        largest = 1 + program.size(duals) + abs(budgets).max(where=np.isfinite(budgets), initial=0)
        for pairs, own, ceiling in zip(program.pairs, duals.pairs, sentence._ceilings, strict=True):
            of_pairs = sentence._pair_rounding(pairs, own, ceiling)
            columns, outer = sentence._column_costs(pairs, own, ceiling), pairs.outer_of(own, pairs.triples)
            for k, (_, p, c) in enumerate(pairs.triples.tolist()):
                if np.isfinite(ceiling[p, c]):
                    cost = Fraction(pairs.scores[k]) - Fraction(min(own.one[p, c], ceiling[p, c])) - Fraction(outer[k])
                    for at, values in sentence._of_rows(pairs, own):
                        cost += sum(map(Fraction, values[at == k]))
                    assert abs(cost - Fraction(columns[k])) <= Fraction(of_pairs[p, c])
                    assert of_pairs[p, c] <= 1e-11 * largest
        looked += 1
        return update(sentence, answers)

    monkeypatch.setattr(PricedSentence, "update", spy)
    for seed in range(6):
        arcs, *pairs = (
            x * 10.0**seed for x in normal(seed, (2, 8, 8), *[(2, 8, 8, 8)] * len(kinds), dtype=torch.float32)
        )
        scores = gp.Scores(arcs, **dict(zip(kinds, pairs, strict=True)))
        gp.decode(scores, "ppc", polytope=polytope, threads=1)
    assert looked > 20


def test_shares_are_not_more_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both kinds together, in fractions; only of arcs that are no columns something is left over."""
    seen = 0
    update = PricedSentence.update

    def spy(sentence: PricedSentence, answers: Sequence[Answer]) -> Any:
        nonlocal seen
        one, other = sentence._ceilings
        for h, m in np.argwhere(np.isfinite(sentence._budget)).tolist():
            assert Fraction(one[h, m]) + Fraction(other[h, m]) <= Fraction(sentence._budget[h, m])
        assert sentence._duals is not None
        assert not sentence._unshared[sentence._duals.pairs[1].one > -np.inf].any()
        seen += int((sentence._unshared > 1e-9).sum())
        return update(sentence, answers)

    monkeypatch.setattr(PricedSentence, "update", spy)
    for seed in range(6):
        arcs, one, other = normal(seed, (2, 9, 9), (2, 9, 9, 9), (2, 9, 9, 9))
        gp.decode(gp.Scores(2 * arcs, grandparents=one, siblings=other), "ppc", threads=1)
    assert seen > 20


def test_noise_that_decides_is_looked_at_term_by_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a crude noise that proves nothing the precise one does; without it sentences are branched."""
    arcs, pairs = normal(3, (12, 7, 7), (12, 7, 7, 7), dtype=torch.float32)
    scores = gp.Scores(arcs, grandparents=pairs)
    first = gp.decode(scores, "ppc", exact=True)
    monkeypatch.setattr(PairProgram, "size", lambda self, duals: 1e3)
    again = gp.decode(scores, "ppc", exact=True)
    assert again.certified.all() and (again.heads == first.heads).all()
    assert int(again.stats["branches"].sum()) == int(first.stats["branches"].sum())
    monkeypatch.setattr(PricedSentence, "_precise_noise", lambda self: self._noise)
    without = gp.decode(scores, "ppc", exact=True)
    assert int(without.stats["branches"].sum()) > int(first.stats["branches"].sum())
