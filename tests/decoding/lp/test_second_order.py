"""Second-order scores in integer programs: against all trees, with and without constraints, scoring few parts."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from gpuparse.decoding.ilp.second_order import PairScores
from gpuparse.decoding.methods import decode
from gpuparse.decoding.parts import DenseParts
from gpuparse.decoding.scores import Scores
from gpuparse.lp import Children, Projective, Words
from tests.decoding.instances import tensors
from tests.oracle import all_trees


def random_scores(seed: int, n: int, B: int = 3) -> Scores:
    rng, g = random.Random(seed), torch.Generator().manual_seed(seed)
    kinds = ("grandparents", "siblings")
    kinds = kinds if seed % 3 == 0 else (kinds[2 - seed % 3],)
    scale = rng.choice([1.0, 1.0, 1e3])
    given = {name: scale * x for name, x in tensors(seed, B, n, kinds, labels=2 * (seed % 4 == 0)).items()}
    return Scores(given.pop("arcs"), torch.randint(1, n + 1, (B,), generator=g), **given)


@pytest.mark.parametrize("seed", range(40))
def test_under_constraints(seed: int) -> None:
    """No word has more than one child, or no arcs cross: the best of all trees for which that is so."""
    n = random.Random(seed).choice([3, 4, 5])
    scores = random_scores(seed, n)
    asked = Projective() if seed % 2 else Children(at_most=1)
    found = decode(scores, "ilp", constraints=[asked])
    assert bool(found.certified.all())
    for b, k in enumerate(scores.lengths.tolist()):
        trees = all_trees(k, single_root=True, projective=bool(seed % 2))
        if not seed % 2:
            counts = torch.nn.functional.one_hot(trees[:, 1:].clamp(min=0), k + 1).sum(1)
            trees = trees[(counts[:, 1:] <= 1).all(1)]
        heads = torch.full((len(trees), *scores.arcs.shape[:2]), 0)
        heads[:, b, : k + 1] = trees
        best = float(scores.total(heads)[:, b].max())
        assert float(found.score[b]) == pytest.approx(best, rel=1e-9, abs=1e-9)
        assert float(found.bound[b]) == float(found.score[b])


def test_auto_takes_second_order_scores() -> None:
    scores = random_scores(3, 4)
    best, found = decode(scores, "ilp").score, decode(scores)
    assert torch.equal(decode(scores, exact=True).score, best)
    assert torch.equal(found.score[found.certified], best[found.certified])


def test_few_parts_are_scored() -> None:
    g = torch.Generator().manual_seed(0)
    n = 20
    arcs = 3 * torch.randn(1, n + 1, n + 1, generator=g)
    parts = DenseParts(0.3 * torch.randn(1, n + 1, n + 1, n + 1, generator=g), kind="grandparents")
    found = decode(Scores(arcs, grandparents=parts), "ilp")
    assert bool(found.certified.all())
    assert parts.scored < 0.35 * n**3


def test_no_tree_without_a_forbidden_part() -> None:
    nothing = torch.full((1, 3, 3, 3), -torch.inf)
    nothing[0, 0, 1, 2] = 0.0  # 0 -> 1 -> 2 alone
    arcs = torch.zeros(1, 3, 3)
    found = decode(Scores(arcs, grandparents=nothing), "ilp")
    assert found.heads.tolist() == [[-1, 0, 1]]
    arcs[0, 1, 2] = -torch.inf
    with pytest.raises(ValueError, match="sentence 0"):
        decode(Scores(arcs, grandparents=nothing), "ilp")
    quiet = decode(Scores(arcs, grandparents=nothing, validate_args=False), "ilp")
    assert quiet.heads.tolist() == [[-1, -1, -1]] and not bool(quiet.certified)


def test_impossible_constraints_leave_the_best_second_order_tree() -> None:
    scores = random_scores(0, 4)
    asked = [Children(at_least=5)]
    found, free = decode(scores, "ilp", constraints=asked), decode(scores, "ilp")
    assert torch.equal(found.heads, free.heads) and not found.certified.any()
    assert bool(found.stats["infeasible"].all())


def test_rows_of_forbidden_pairs() -> None:
    """They must hold, of trees with the pair and of no others."""
    part = PairScores("grandparents", lambda g, p, c: np.where((g == 0) & (c == 1), -np.inf, 0.0), np.zeros((4, 4)))
    words = Words.of(["a", "b", "c"], labels=["x"])
    rows = [row for row in part.rows(words) if row.is_hard]
    assert len(rows) == 2  # 0 -> 2 -> 1 and 0 -> 3 -> 1
    labels = [-1, 0, 0, 0]
    for tree in all_trees(3, single_root=False, projective=False).tolist():
        wrong = tree[1] > 0 and tree[tree[1]] == 0
        assert any(row.is_violated(tree, labels) for row in rows) == wrong
        assert any(row.is_hard for row in part.violated(words, tree, labels)) == wrong
