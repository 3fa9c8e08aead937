"""Proofs of trees under constraints: rows are paid for at their prices, and only rows that constraints have."""

from __future__ import annotations

from typing import Any

import pytest

import gpuparse as gp
from gpuparse import lp
from tests.decoding.instances import normal

WORDS = [lp.Words.of(list("abcde"), ["N", "V", "N", "V", "N"], ["x", "y"])]
HARD: list[lp.Constraint] = [lp.Unique(frozenset({"x"})), lp.Projective()]
SOFT: list[lp.Constraint] = [lp.Soft(lp.Unique(frozenset({"x"})), 0.7)]


def _scores(seed: int, second_order: bool) -> gp.Scores:
    arcs, labels, pairs = normal(seed, (1, 6, 6), (1, 6, 6, 2), (1, 6, 6, 6))
    return gp.Scores(arcs, labels=labels, grandparents=pairs if second_order else None)


@pytest.mark.parametrize("second_order", (False, True))
@pytest.mark.parametrize("constraints", (HARD, SOFT), ids=("hard", "soft"))
def test_accepted_with_its_constraints_alone(constraints: list[lp.Constraint], second_order: bool) -> None:
    refused = 0
    for seed in range(10):
        scores = _scores(seed, second_order)
        asked: dict[str, Any] = {"constraints": constraints, "words": WORDS}
        parse = gp.decode(scores, "ilp", proof=True, **asked)
        assert bool(parse.certified[0])
        gp.verify(scores, parse, **asked)
        if any(len(leaf.rows) for leaf in parse.proof.leaves[0]):
            with pytest.raises(ValueError, match="proof of sentence 0"):
                gp.verify(scores, parse)
            refused += 1
    assert refused > 0
