"""Grandsiblings: projective trees and dual decomposition against all trees of short sentences; what refuses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import gpuparse as gp
from gpuparse import dual
from gpuparse.train.objectives import negative_log_likelihood, structured_hinge
from tests.decoding.refusals import refuses
from tests.oracle import all_trees

F64, INF = torch.float64, torch.inf
CASES = [((), True), (("siblings",), False), (("grandparents",), True), (("siblings", "grandparents"), False)]
cases = pytest.mark.parametrize(("kinds", "single_root"), CASES)
WORDS = 4


def instance(seed: int, kinds: tuple[str, ...], forbidden: float, never: float = -INF) -> gp.Scores:
    """A ragged batch; some grandsiblings are ``never``, none of a chain; those of the root are NaN."""
    g, (B, N) = torch.Generator().manual_seed(seed), (4, WORDS + 1)

    def some(dims: int) -> Tensor:
        return torch.randn(B, *[N] * dims, generator=g, dtype=F64)

    barred, h = torch.rand(B, *[N] * 4, generator=g) < forbidden, torch.arange(1, N - 1)
    barred[:, h - 1, h, h, h + 1] = False
    third = torch.where(barred, never, some(4))
    third[:, :, 0] = torch.nan
    given: dict[str, Any] = {kind: some(3) for kind in kinds}
    labels = some(2)[..., None] + torch.tensor([0.0, 0.5], dtype=F64)
    return gp.Scores(some(2), [4, 3, 2, 1], labels=labels, **given, grandsiblings=third)


def score_by_hand(scores: gp.Scores, b: int, heads: list[int]) -> float:
    tables = {name: x[b] for name, x in scores.tensors().items()}
    total = 0.0
    for m in range(1, len(heads)):
        h = heads[m]
        inner = range(h + 1, m) if h < m else range(h - 1, m, -1)
        s = next((k for k in reversed(inner) if heads[k] == h), h)
        total += float(scores.arcs[b, h, m] + scores.labels[b, h, m].max())  # type: ignore[index]
        parts = {"siblings": (h, s, m), "grandparents": (heads[h], h, m), "grandsiblings": (heads[h], h, s, m)}
        for name, table in tables.items():
            total += float(table[parts[name]]) if h > 0 or name == "siblings" else 0.0
    return total


def best_of_all(scores: gp.Scores, projective: bool, single_root: bool) -> Tensor:
    found = []
    for b, n in enumerate(scores.lengths.tolist()):
        trees = all_trees(n, single_root=single_root, projective=projective).tolist()
        found.append(max(score_by_hand(scores, b, heads) for heads in trees))
    return torch.tensor(found, dtype=F64)


def check(scores: gp.Scores, parse: gp.Parse, projective: bool, single_root: bool, all_certified: bool = True) -> None:
    """To 1e-9: other orders of sums of some twenty numbers, the largest about 1e3 times as far away as the rest."""
    want = best_of_all(scores, projective, single_root)
    assert bool((parse.bound >= want - 1e-9).all())
    assert bool(((parse.score - want).abs() <= 1e-9)[parse.certified].all())
    assert bool(parse.certified.all()) or not all_certified
    for b, n in enumerate(scores.lengths.tolist()):
        by_hand = score_by_hand(scores, b, parse.heads[b, : n + 1].tolist())
        assert float(parse.score[b]) == pytest.approx(by_hand, abs=1e-9)


@cases
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_best_projective_trees(kinds: tuple[str, ...], single_root: bool, forbidden: float) -> None:
    for seed in range(5):
        scores = instance(seed, kinds, forbidden)
        parse = gp.decode(scores, projective=True, single_root=single_root)
        check(scores, parse, True, single_root)
    far = instance(9, kinds, 0.3, -1e30)  # which no best tree has
    check(far, gp.decode(far, "eisner", single_root=single_root), True, single_root)


@cases
def test_dual_decomposition(kinds: tuple[str, ...], single_root: bool) -> None:
    for seed, forbidden in ((0, 0.0), (1, 0.3)):
        scores = instance(seed, kinds, forbidden)
        some = gp.decode(scores, iterations=20, single_root=single_root)
        check(scores, some, False, single_root, all_certified=False)
        parse = gp.decode(scores, "dd", iterations=20, exact=True, single_root=single_root)
        check(scores, parse, False, single_root)
    far = instance(9, kinds, 0.3, -1e30)
    check(far, gp.decode(far, "dd", iterations=20, exact=True, single_root=single_root), False, single_root)


@pytest.mark.exhaustive
@cases
@pytest.mark.parametrize("projective", [True, False])
def test_thousands(kinds: tuple[str, ...], single_root: bool, projective: bool) -> None:
    for seed in range(1000 if projective else 100):
        scores = instance(seed, kinds, 0.1 * (seed % 6), -INF if seed % 2 else -1e6)
        options: dict[str, Any] = {} if projective else {"iterations": 50, "exact": True}
        parse = gp.decode(scores, projective=projective, single_root=single_root, **options)
        check(scores, parse, projective, single_root)


def test_no_tree() -> None:
    third = torch.full((1, 3, 3, 3, 3), -INF)
    arcs = torch.zeros(1, 3, 3)
    refuses(
        "arcs with their best grandsiblings of sentence 0 allow no projective tree",
        gp.decode,
        gp.Scores(arcs, grandsiblings=third),
        projective=True,
    )
    none = gp.Scores(arcs, grandsiblings=third)
    refuses("grandsiblings of sentence 0: every tree has a forbidden part", gp.decode, none)
    many = gp.decode(none, projective=True, single_root=False)
    assert many.heads.tolist() == [[-1, 0, 0]]


def test_training() -> None:
    """A likelihood and a hinge of projective trees, with gradients in grandsiblings."""
    scores, heads = instance(2, ("siblings",), 0.0), torch.full((4, WORDS + 1), -1)
    for b, n in enumerate(scores.lengths.tolist()):
        heads[b, 1 : n + 1] = torch.arange(n)
    assert scores.grandsiblings is not None
    third = scores.grandsiblings.nan_to_num(0.0).requires_grad_()
    given = gp.Scores(scores.arcs, scores.lengths, siblings=scores.siblings, grandsiblings=third)
    for loss in (negative_log_likelihood, lambda *x, **y: structured_hinge(*x, **y, margin=1.0)):
        value = loss(given, heads, projective=True, single_root=True)
        (by,) = torch.autograd.grad(value.sum(), third)
        assert bool((value > 0).any()) and bool((by[0] != 0).any()) and not bool(by[:, :, 0].any())


def test_scores_carry_them() -> None:
    scores = instance(3, ("grandparents",), 0.0)
    assert scores.kinds == ("grandparents", "grandsiblings") and scores.second_order == ("grandparents",)
    assert repr(scores) == "Scores(sentences: 4, words: 4, labels: 2, grandparents, grandsiblings)"
    heads = gp.decode(scores, projective=True).heads
    want = scores.tree_score(heads)
    for same in (scores.to("cpu"), scores.fold_labels(), scores.dense()):
        torch.testing.assert_close(same.tree_score(heads), want)
    torch.testing.assert_close(scores.take(torch.tensor([2, 0])).tree_score(heads[[2, 0]]), want[[2, 0]])
    assert scores.first_order().kinds == () and scores.with_parts(None, None).kinds == ("grandsiblings",)
    assert gp.Scores(torch.zeros(1, 3, 3), grandsiblings=torch.zeros(1, 3, 3, 3, 3, dtype=F64)).dtype == F64


def test_what_refuses_them() -> None:
    scores = instance(4, (), 0.0)
    for method, takes in (("mst", "is first-order"), ("ppc", "takes grandparents and siblings"), ("bp", "takes")):
        refuses(f'method "{method}" {takes}', gp.decode, scores, method)
    taken = "takes siblings and grandparents, but scores have grandsiblings; leave these out"
    refuses(f"proof=True {taken}", gp.decode, scores, projective=True, proof=True)
    refuses(f"softly {taken}", dual.softly, scores)
    plain = gp.decode(scores.first_order(), projective=True, proof=True)
    refuses(f"verify {taken}", gp.verify, scores, plain, projective=True)
    options = {"projective": False, "single_root": True}
    refuses("under grandsiblings probabilities are known of projective trees", scores.trees, **options)


def test_checks() -> None:
    arcs, third = torch.zeros(2, 3, 3), torch.zeros(2, 3, 3, 3, 3)
    refuses("grandsiblings must be a tensor, got list", gp.Scores, arcs, grandsiblings=[0.0])
    refuses("grandsiblings must have shape", gp.Scores, arcs, grandsiblings=third[:1])
    third[1, 0, 1, 1, 2] = torch.nan
    refuses(
        r"grandsiblings\[1, 0, 1, 1, 2\] is nan \(sentence 1, grandparent 0, head 1, sibling 1, modifier 2\)",
        gp.Scores,
        arcs,
        grandsiblings=third,
    )
    gp.Scores(arcs, [2, 1], grandsiblings=third)  # past the end
