"""Belief propagation for parsers: beliefs, trees and losses of first and second order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd import gradcheck

from gpuparse.decoding import methods as decoding
from gpuparse.decoding.bp.parsing import beliefs_of, best_trees, log_partition, squared_loss
from gpuparse.decoding.methods import decode
from gpuparse.decoding.scores import Scores
from gpuparse.distributions import NonProjectiveTrees, ProjectiveTrees
from tests.decoding.instances import tensors
from tests.decoding.refusals import refuses

LENGTHS = torch.tensor([5, 3, 4, 1])
projectives = pytest.mark.parametrize("projective", [True, False])
roots = pytest.mark.parametrize("single_root", [True, False])


def scores_of(seed: int, strength: float = 0.5, **kinds: bool) -> Scores:
    arcs, *parts = tensors(seed, 4, 5, list(kinds)).values()
    return Scores(arcs, LENGTHS, **{name: strength * x for name, x in zip(kinds, parts, strict=True)})


@projectives
@roots
def test_first_order_is_exact(projective: bool, single_root: bool) -> None:
    scores = scores_of(0)
    arcs = scores.arcs.requires_grad_()
    family = {"projective": projective, "single_root": single_root}
    exact = (ProjectiveTrees if projective else NonProjectiveTrees)(arcs, LENGTHS, single_root=single_root)
    estimate = log_partition(scores, **family)
    torch.testing.assert_close(estimate, exact.log_partition)
    (gradient,) = torch.autograd.grad(estimate.sum(), arcs)
    torch.testing.assert_close(gradient, exact.marginals)
    torch.testing.assert_close(beliefs_of(scores, **family).links, exact.marginals)


@projectives
def test_gradient_of_the_estimate_is_what_factors_believe(projective: bool) -> None:
    """Of grandparents: the belief that both links are there, which is at most that in each of them."""
    scores = scores_of(1, siblings=True, grandparents=True)
    given = [scores.grandparents.dense().requires_grad_(), scores.siblings.dense().requires_grad_()]
    estimate = log_partition(scores, projective=projective, iterations=200, tolerance=1e-12)
    pairs, siblings = torch.autograd.grad(estimate.sum(), given)
    links = beliefs_of(scores, projective=projective, iterations=200, tolerance=1e-12).links.detach()
    assert float(pairs.min()) >= 0 and float(siblings.min()) >= 0
    torch.testing.assert_close(siblings.sum(2), links, rtol=0, atol=1e-6)  # a child has one previous sibling
    assert bool((pairs <= torch.minimum(links[..., None], links[:, None]) + 1e-6).all())


@pytest.mark.parametrize("options", [{}, {"temperatures": (2.0, 0.5)}, {"schedule": "serial", "tolerance": 0.3}])
def test_the_estimate_is_that_of_a_run(options: dict[str, Any]) -> None:
    """Also where sentences leave at different times, and at a temperature."""
    scores = scores_of(4, siblings=True, grandparents=True)
    expected = beliefs_of(scores, iterations=4, **options).log_partition
    torch.testing.assert_close(log_partition(scores, iterations=4, **options), expected)


@pytest.mark.parametrize("options", [{}, {"schedule": "serial", "recompute": True}])  # the second is how parsers learn
def test_gradient_through_the_iterations(options: dict[str, Any]) -> None:
    scores = scores_of(2, siblings=True, grandparents=True)
    heads = decode(scores, "ilp").heads
    leaves = [scores.arcs, *(parts.dense() for parts in scores.parts)]

    def loss(arcs: torch.Tensor, siblings: torch.Tensor, grandparents: torch.Tensor) -> torch.Tensor:
        given = Scores(arcs, LENGTHS, siblings=siblings, grandparents=grandparents, validate_args=False)
        return squared_loss(given, heads, iterations=3, tolerance=0.0, **options)

    assert gradcheck(loss, [each.detach().clone().requires_grad_() for each in leaves], fast_mode=True)


@projectives
def test_trees_of_least_risk(projective: bool) -> None:
    """Of first order they are those of the exact marginals; a forbidden arc is in none."""
    scores = scores_of(3)
    arcs = scores.arcs.clone()
    arcs[0, 2, 1] = -torch.inf
    given = Scores(arcs, LENGTHS)
    marginals = (ProjectiveTrees if projective else NonProjectiveTrees)(arcs, LENGTHS).marginals
    risk = Scores(marginals.masked_fill(arcs == -torch.inf, -torch.inf), LENGTHS)
    expected = decode(risk, "eisner" if projective else "mst").heads
    assert torch.equal(best_trees(beliefs_of(given, projective=projective), given, projective=projective), expected)
    found = decode(given, "bp", projective=projective)
    assert torch.equal(found.heads, expected) and found.stats["converged"].all()
    best = decode(given, "eisner" if projective else "mst")
    assert bool((found.bound >= best.score - 1e-9).all()) and bool((found.score <= best.score + 1e-9).all())


def test_forbidden_pairs_are_left_to_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only in the sentences whose tree has one; these come with the program's bound and certificate."""
    scores = scores_of(5, strength=1.0, grandparents=True)
    before = decode(scores, "bp")
    pairs = scores.grandparents.dense().clone()
    heads = before.heads[1].tolist()
    for c in range(1, 4):  # every chain of the tree of sentence 1
        if heads[c] > 0:
            pairs[1, heads[heads[c]], heads[c], c] = -torch.inf
    given = Scores(scores.arcs, LENGTHS, grandparents=pairs)
    solve, solved = decoding.solve_batch, []

    def watched(scores: Scores, first: Any, *rest: Any, **options: Any) -> Any:
        solved.append(first.certified.tolist())
        return solve(scores, first, *rest, **options)

    best = decode(given, "ilp")
    monkeypatch.setattr(decoding, "best_trees", lambda *_, **__: before.heads.clone())
    monkeypatch.setattr(decoding, "solve_batch", watched)
    found = decode(given, "bp")
    assert solved == [[False, True, False, False]]
    torch.testing.assert_close(found.score[1], best.score[1])
    assert found.certified[1] and found.bound[1] == found.score[1]
    keep = torch.tensor([0, 2, 3])
    assert torch.equal(found.heads[keep], before.heads[keep]) and torch.equal(found.score[keep], before.score[keep])
    in_no_time = decode(given, "bp", time_limit=0)
    assert not in_no_time.certified[1] and in_no_time.bound[1] >= best.score[1]


def test_options_are_checked() -> None:
    wrong: dict[str, Any]
    for wrong in ({"tolerance": "x"}, {"iterations": 2.5}, {"time_limit": -1}, {"time_limit": "x"}):
        refuses(f"^{next(iter(wrong))} must be", decode, scores_of(0), "bp", **wrong)
    refuses("iterations must be 1 or more, got 0", decode, scores_of(0), "bp", iterations=0)
    refuses("method \"bp\" has no option 'words'", decode, scores_of(0), "bp", words=[])
