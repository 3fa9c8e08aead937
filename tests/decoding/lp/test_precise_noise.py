"""What rounding can have done to a bound of parse, price and cut, against the same sums in fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.ppc.grandparents import Duals, GrandparentProgram
from gpuparse.decoding.ppc.ppc import Answer, PricedSentence
from tests.decoding.instances import normal


def _exact_budget(program: GrandparentProgram, duals: Duals, h: int, m: int) -> Fraction:
    F, n = Fraction, program.n
    potential = [-F(duals.source), *(F(x) for x in duals.consume[1:])]
    found = F(duals.one_head[m]) - F(program.scores[h, m])
    found -= n * (max(potential[h] - potential[m], F(0)) + F(duals.no_gp[h, m]))
    if h == 0:
        found += F(duals.one_root)
    cut, pair, value = program.cuts.arcs
    for k, at, x in zip(cut.tolist(), pair.tolist(), value.tolist(), strict=True):
        found += F(duals.cuts[k]) * F(x) if at == [h, m] else 0
    for (g, p, c), price in zip(program.arc_gp.tolist(), duals.arc_gp.tolist(), strict=True):
        found += F(price) * (((g, p) == (h, m)) + ((p, c) == (h, m)))
    for (g, p, _), price in zip(program.gp_arc.tolist(), duals.gp_arc.tolist(), strict=True):
        found -= F(price) * ((g, p) == (h, m))
    return found


@pytest.mark.parametrize("polytope", ["tight", "all"])
def test_budgets_and_objectives_are_off_by_no_more(polytope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    update = PricedSentence.update

    def spy(sentence: PricedSentence, answer: Answer) -> Any:
        nonlocal looked
        program, duals = sentence.program, sentence._duals
        budgets, off = program.budgets(duals), program.budget_rounding(duals)
        for h, m in np.argwhere(sentence.arcs > -np.inf).tolist():
            assert abs(Fraction(budgets[h, m]) - _exact_budget(program, duals, h, m)) <= Fraction(off[h, m])
            assert off[h, m] <= 1e-11 * (1 + program.size(duals) + abs(program.scores[h, m])) * (1 + program.n)
        terms = [*duals.one_head, duals.one_root, *duals.consume, *duals.arc_gp]
        exact = sum(map(Fraction, terms)) + program.n * Fraction(duals.source)
        exact += sum(Fraction(a) * Fraction(b) for a, b in zip(duals.cuts, program.cuts.high, strict=True))
        assert abs(exact - Fraction(program.objective(duals))) <= Fraction(program.objective_rounding(duals))
        of_pairs, columns = sentence._pair_rounding(), sentence._column_costs()
        for k, (g, p, c) in enumerate(zip(program.g, program.p, program.c, strict=True)):
            if np.isfinite(sentence._ceiling[p, c]):
                cost = Fraction(sentence._scores[k]) - Fraction(min(duals.one_gp[p, c], sentence._ceiling[p, c]))
                cost -= Fraction(duals.no_gp[g, p])
                for at, values in sentence._of_rows():
                    cost += sum(map(Fraction, values[at == k]))
                assert abs(cost - Fraction(columns[k])) <= Fraction(of_pairs[p, c])
                assert of_pairs[p, c] <= 1e-11 * (
                    1
                    + program.size(duals)
                    + abs(sentence._ceiling).max(where=np.isfinite(sentence._ceiling), initial=0)
                )
        looked += 1
        return update(sentence, answer)

    monkeypatch.setattr(PricedSentence, "update", spy)
    for seed in range(6):
        arcs, pairs = (x * 10.0**seed for x in normal(seed, (2, 8, 8), (2, 8, 8, 8), dtype=torch.float32))
        gp.decode(gp.Scores(arcs, grandparents=pairs), "ppc", polytope=polytope, threads=1)
    assert looked > 20


def test_noise_that_decides_is_looked_at_term_by_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a crude noise that proves nothing the precise one does; without it sentences are branched."""
    arcs, pairs = normal(3, (12, 7, 7), (12, 7, 7, 7), dtype=torch.float32)
    scores = gp.Scores(arcs, grandparents=pairs)
    first = gp.decode(scores, "ppc", exact=True)
    monkeypatch.setattr(GrandparentProgram, "size", lambda self, duals: 1e3)
    again = gp.decode(scores, "ppc", exact=True)
    assert again.certified.all() and (again.heads == first.heads).all()
    assert int(again.stats["branches"].sum()) == int(first.stats["branches"].sum())
    monkeypatch.setattr(PricedSentence, "_precise_noise", lambda self: self._noise)
    without = gp.decode(scores, "ppc", exact=True)
    assert int(without.stats["branches"].sum()) > int(first.stats["branches"].sum())
