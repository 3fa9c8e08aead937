"""Projective trees under pairs of which few are scored: always those of the dense program, and of all trees."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.parts import DenseParts, Kind, Parts, legal_triples
from gpuparse.nn.trilinear import TrilinearParts
from gpuparse.structures.masks import grandparent_mask, sibling_mask
from tests.decoding.instances import best, check_best
from tests.decoding.refusals import refuses
from tests.priced_oracle import FORMS, KINDS, same_scores, some_scores

DTYPES = (torch.float32, torch.float64)
FULL = {"siblings": sibling_mask, "grandparents": grandparent_mask}

forms = pytest.mark.parametrize("form", FORMS)
kinds = pytest.mark.parametrize("kinds", KINDS, ids="+".join)
roots = pytest.mark.parametrize("single_root", (True, False))


def both(scores: gp.Scores, **options: Any) -> tuple[gp.Parse, gp.Parse]:
    """Priced, and by the dense program."""
    priced = gp.decode(scores, "eisner", pricing=True, **options)
    dense = gp.decode(scores, "eisner", pricing=False, **options)
    assert "scored" in priced.stats and not dense.stats
    return priced, dense


@forms
@kinds
@roots
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_trees(form: str, kinds: tuple[Kind, ...], single_root: bool, dtype: torch.dtype) -> None:
    """Of up to five words, with masks by -inf and by large numbers, ragged; hardly and strongly peaked."""
    for seed in range(12):
        more = {"masked": 0.2 * (seed % 3), "peak": 4.0 * (seed % 2), "size": (1.0, 3.0, 0.1)[seed % 3]}
        scores = some_scores(form, kinds, [5, 4, 1, 2, 3, 5], dtype, seed, **more)
        expected = best(scores, single_root, projective=True)
        if bool(expected.isneginf().any()):
            refuses("tree", gp.decode, scores, "eisner", pricing=True, single_root=single_root)
            continue
        found = gp.decode(scores, "eisner", pricing=True, single_root=single_root)
        tolerance = 1e-12 if dtype == torch.float64 else 1e-6
        torch.testing.assert_close(found.score.detach(), expected, rtol=tolerance, atol=tolerance)
        assert found.certified.all() and torch.equal(found.bound, found.score.detach())


@kinds
@roots
def test_hundreds_of_instances(kinds: tuple[Kind, ...], single_root: bool) -> None:
    """In batches, against all trees: some proven before the exact program, some after."""
    exact = torch.zeros(0, dtype=torch.bool)
    for seed in range(15):
        lengths = [1 + (seed + b) % 5 for b in range(16)]
        scores = some_scores("trilinear", kinds, lengths, torch.float64, seed, peak=seed % 5, size=1.0)
        found = gp.decode(scores, "eisner", pricing=True, single_root=single_root)
        check_best(found, best(scores, single_root, projective=True))
        exact = torch.cat([exact, found.stats["exact"]])
    assert len(exact) == 240 and exact.any() and not exact.all()


@forms
@kinds
@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes(form: str, kinds: tuple[Kind, ...], dtype: torch.dtype) -> None:
    """Up to sixty words, as the dense program: all arcs alive, a few, or none but those of the tree."""
    for seed, lengths in enumerate(([60, 33, 1], [7, 8, 9, 15, 16, 17, 2], [24, 31, 32])):
        for peak, single_root in ((0.0, True), (5.0, False), (5.0, True), (40.0, False)):
            if form == "templates" and lengths[0] == 60 and peak != 5.0:
                continue
            scores = some_scores(form, kinds, lengths, dtype, seed, peak=peak)
            priced, dense = both(scores, single_root=single_root)
            same_scores(scores, priced.heads, dense.heads)
            assert torch.equal(priced.bound, priced.score.detach()) and priced.certified.all()


@forms
@kinds
def test_few_are_scored(form: str, kinds: tuple[Kind, ...]) -> None:
    """Peaked arcs: of forty words' pairs few are scored, each once, and those that are say so."""
    scores = some_scores(form, kinds, [40, 40, 25], torch.float32, 3, peak=12.0, size=0.5)
    for parts in scores.parts:
        parts.scored = 0
    found = gp.decode(scores, "eisner", pricing=True)
    all_pairs = sum(FULL[kind](scores.lengths, 41).flatten(1).sum(1) for kind in kinds)
    assert (found.stats["scored"] <= 0.08 * all_pairs).all()
    looked_at = len(kinds) * 3 * 41  # for the score of the answer
    assert sum(parts.scored for parts in scores.parts) == int(found.stats["scored"].sum()) + looked_at
    assert (found.stats["arcs"] <= 0.2).all() and (found.iterations <= 8).all()


def test_counts() -> None:
    """What is done, on a fixed seed."""
    scores = some_scores("trilinear", KINDS[2], [30, 20, 10, 1], torch.float64, 5, peak=6.0, size=0.4)
    found = gp.decode(scores, "eisner", pricing=True)
    assert found.stats["scored"].tolist() == [1053, 186, 21, 1]  # of 18,030, 5,540, 770 and 1
    assert found.iterations.tolist() == [5, 2, 1, 1] and not found.stats["exact"].any()
    torch.testing.assert_close(found.stats["arcs"], torch.tensor([71 / 900, 20 / 400, 10 / 100, 1.0]).double())


@kinds
def test_ties(kinds: tuple[Kind, ...]) -> None:
    """All trees alike; and a few values only, so that many are."""
    zeros = [torch.zeros(2, 9, 4) for _ in range(3)]
    families = {kind: TrilinearParts(*zeros, kind=kind) for kind in kinds}
    found = gp.decode(gp.Scores(torch.zeros(2, 9, 9), **families), "eisner", pricing=True)
    assert found.score.tolist() == [0.0, 0.0] and found.certified.all()
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        factors = [torch.randint(-1, 2, (6, 8, 3), generator=generator).double() for _ in range(3)]
        lengths = torch.tensor([7, 6, 5, 4, 3, 2])
        families = {kind: TrilinearParts(*factors, lengths, kind=kind) for kind in kinds}
        arcs = torch.randint(-1, 2, (6, 8, 8), generator=generator).double()
        priced, dense = both(gp.Scores(arcs, lengths, **families))
        assert torch.equal(priced.score, dense.score)  # whole numbers


@kinds
@roots
def test_all_but_one_tree_forbidden(kinds: tuple[Kind, ...], single_root: bool) -> None:
    """By arcs, and by pairs; and all of them, which is refused as the dense program does."""
    arcs = torch.full((1, 6, 6), -math.inf)
    for m in range(1, 6):
        arcs[0, m - 1, m] = 0.5
    chain = {kind: DenseParts(torch.ones(1, 6, 6, 6), kind=kind) for kind in kinds}
    found = gp.decode(gp.Scores(arcs, **chain), "eisner", pricing=True, single_root=single_root)
    assert found.heads.tolist() == [[-1, 0, 1, 2, 3, 4]]
    values = torch.full((1, 6, 6, 6), -math.inf)
    if "grandparents" in kinds:
        for c in range(2, 6):
            values[0, c - 2, c - 1, c] = 1.0
        pairs: dict[str, Any] = {"grandparents": values}
        found = gp.decode(gp.Scores(torch.zeros(1, 6, 6), **pairs), "eisner", pricing=True, single_root=True)
        assert found.heads.tolist() == [[-1, 0, 1, 2, 3, 4]]
    no_pairs: dict[str, Any] = {kind: torch.full((1, 6, 6, 6), -math.inf) for kind in kinds}
    message = "no projective tree|every"
    if single_root:
        refuses(message, gp.decode, gp.Scores(torch.zeros(1, 6, 6), **no_pairs), "eisner", pricing=True)


def test_labels_and_gradients() -> None:
    """Labels count as they do without pairs; the score's gradient is the tree's parts."""
    generator = torch.Generator().manual_seed(2)
    arcs, labels = torch.randn(2, 7, 7, generator=generator), torch.randn(2, 7, 7, 3, generator=generator)
    factors = torch.randn(3, 2, 7, 4, generator=generator).requires_grad_()
    scores = gp.Scores(arcs.requires_grad_(), labels=labels, grandparents=TrilinearParts(*factors, kind="grandparents"))
    priced, dense = both(scores)
    assert torch.equal(priced.heads, dense.heads)
    assert priced.labels is not None and dense.labels is not None and torch.equal(priced.labels, dense.labels)
    of_priced, of_dense = (torch.autograd.grad(p.score.sum(), (arcs, factors)) for p in (priced, dense))
    for one, other in zip(of_priced, of_dense, strict=True):
        assert torch.equal(one, other) and bool(one.any())


@kinds
def test_proofs(kinds: tuple[Kind, ...]) -> None:
    scores = some_scores("trilinear", kinds, [5, 3, 6], torch.float64, 1, peak=3.0)
    gp.verify(scores, gp.decode(scores, "eisner", proof=True), projective=True)


class Own(Parts):
    """Zeros, by a family that no kernel knows."""

    def bound(self, axis: int) -> torch.Tensor:
        legal = legal_triples(self.kind, self.lengths, self.nodes).any(axis + 1)
        return torch.where(legal, 0.0, -math.inf)

    def to(self, device: Any) -> Own:
        return self

    def _score(self, sentence: Any, i: Any, j: Any, k: Any) -> torch.Tensor:
        return torch.zeros(len(i))

    def _dense(self) -> torch.Tensor:
        return torch.zeros(len(self.lengths), self.nodes, self.nodes, self.nodes)


def test_when_it_prices() -> None:
    """By default what is scored lazily, and where kernels know how."""
    lazy = some_scores("trilinear", KINDS[1], [4], torch.float32, 0)
    assert "scored" in gp.decode(lazy, "eisner").stats and "scored" in gp.decode(lazy, projective=True).stats
    assert "scored" in gp.decode(lazy.take(torch.tensor([0])), "eisner").stats
    for form, priced in (("trilinear", False), ("templates", True)):  # siblings that are products are scored at once
        beside = some_scores(form, KINDS[2], [4], torch.float32, 0)
        assert ("scored" in gp.decode(beside, "eisner").stats) == priced
        assert "scored" in gp.decode(beside, "eisner", pricing=True).stats
    dense = lazy.dense()
    assert not gp.decode(dense, "eisner").stats and "scored" in gp.decode(dense, "eisner", pricing=True).stats
    own = Own("siblings", torch.tensor([4]), 5, torch.float32, torch.device("cpu"))
    for pricing in (True, "auto"):
        assert not gp.decode(gp.Scores(lazy.arcs, siblings=own), "eisner", pricing=pricing).stats
    wide = some_scores("trilinear", KINDS[0], [4], torch.float64, 0)
    mixed = gp.Scores(lazy.arcs, siblings=wide.siblings, grandparents=lazy.grandparents)
    assert not gp.decode(mixed, "eisner", pricing=True).stats
    refuses('^pricing must be True, False or "auto", got 1$', gp.decode, lazy, "eisner", pricing=1)
    refuses("has no option 'pricing'", gp.decode, lazy.first_order(), "mst", pricing=True)
