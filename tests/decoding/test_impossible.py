"""Pairs that no best tree has are forbidden, and only those."""

from __future__ import annotations

import math

import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.impossible import without_impossible
from tests.decoding.instances import best, tensors
from tests.oracle import all_trees

MASKS = (-math.inf, -1e20, torch.finfo(torch.float32).min)


def _scores(seed: int, mask: float, kind: str, words: int = 4) -> tuple[gp.Scores, tuple[int, int]]:
    """Random scores with a masked arc, whose pairs are large."""
    arcs, pairs = tensors(seed, 1, words, [kind]).values()
    h, m = 1 + seed % words, 1 + (seed + 1 + seed // words % (words - 1)) % words
    arcs[0, h, m] = mask
    if kind == "grandparents":
        pairs[0, h, m] = 1e12  # (g, h, m): the masked arc is g -> h
    else:
        pairs[0, h, m, :] = 1e12
        pairs[0, h, :, m] = 1e12
    return gp.Scores(arcs, **{kind: pairs}), (h, m)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ["grandparents", "siblings"])
@pytest.mark.parametrize("projective", [False, True])
def test_pairs_of_masked_arcs_are_forbidden(mask: float, kind: str, projective: bool) -> None:
    for seed in range(12):
        scores, (h, m) = _scores(seed, mask, kind)
        found = without_impossible(scores, projective=projective, single_root=True)
        (parts,) = found.parts
        values = parts.dense()
        assert values[0, h, m].isneginf().all()  # no pair of the arc h -> m with anything
        assert not (values == 1e12).any()
        assert torch.equal(found.arcs, scores.arcs)  # arcs stay: which trees there are does not change


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ppc", "dd", "auto", "ilp"])
def test_certificates_are_as_fine_as_without_the_mask(method: str) -> None:
    options = {} if method == "ilp" else {"exact": True}
    for seed in range(8):
        scores, _ = _scores(seed, -1e20, "grandparents")
        expected = float(best(scores))
        found = gp.decode(scores, method, proof=True, **options)
        assert bool(found.certified[0])
        assert float(found.score[0]) == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert float(gp.verify(scores, found)[0]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_moderate_scores_keep_their_pairs() -> None:
    scores = gp.Scores(**tensors(0, 2, 4, ["grandparents"]))
    found = without_impossible(scores, projective=False, single_root=True)
    assert torch.equal(found.grandparents.dense(), scores.grandparents.dense())


def test_a_mask_that_a_constraint_may_ask_for_stays() -> None:
    scores, (h, m) = _scores(3, -1e20, "grandparents")
    found = without_impossible(scores, projective=False, single_root=True, every_tree=False)
    assert (found.grandparents.dense()[0, h, m] == 1e12).all()


def test_lazily_scored_pairs_are_left_alone() -> None:
    scores = gp.Scores(torch.zeros(1, 3, 3))
    assert without_impossible(scores, projective=False, single_root=True) is scores


def test_a_tree_that_is_found_rules_out_more() -> None:
    """The first tree has a pair that is masked: only with the best one is it known what cannot matter."""
    generator = torch.Generator().manual_seed(14)
    arcs = torch.randn(1, 4, 4, generator=generator, dtype=torch.float64)
    pairs = torch.randn(1, 4, 4, 4, generator=generator, dtype=torch.float64)
    pairs[torch.rand(1, 4, 4, 4, generator=generator) < 0.6] = -1e300
    arcs[0, 1, 2] = -1e20
    pairs[0, 1, 2, :] = pairs[0, 1, :, 2] = 1e12
    scores = gp.Scores(arcs, siblings=pairs)
    trees = all_trees(3, single_root=True, projective=False)
    every = scores.tree_score(trees[:, None])[:, 0]
    asked = {"projective": False, "single_root": True}
    first = without_impossible(scores, **asked)
    then = without_impossible(first, **asked, known=trees[every.argmax()][None])
    assert first.siblings is not None and (first.siblings.dense() == 1e12).any()
    assert then.siblings is not None and not (then.siblings.dense() == 1e12).any()
    found = gp.decode(scores, "ilp")
    assert bool(found.certified[0])
    assert float(found.score[0]) == pytest.approx(float(every.max()), rel=1e-12)
