"""The losses against enumeration and plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from gpuparse.decoding.scores import Scores
from gpuparse.train.objectives import (
    head_selection,
    label_loss,
    negative_log_likelihood,
    structured_hinge,
    tree_objective,
)
from tests.oracle import Enumeration, all_trees, never_read, random_instance

EXACT = {"rtol": 0.0, "atol": 1e-10}  # float64 sums of some thousand trees
kinds = pytest.mark.parametrize("single_root", [True, False])
families = pytest.mark.parametrize("projective", [True, False])


def instance(seed: int, *, projective: bool, single_root: bool = True, **options) -> tuple[Tensor, Tensor, Tensor]:
    """A ragged batch with NaN where nothing is read, and a tree of each sentence."""
    arcs, lengths = random_instance(seed, forbidden=0.0, batch=5, magnitude=2.0, **options)
    g = torch.Generator().manual_seed(seed)
    heads = torch.full(arcs.shape[:2], -1)
    for row, n in zip(heads, lengths.tolist(), strict=True):
        trees = all_trees(n, single_root=single_root, projective=projective)
        row[: n + 1] = trees[int(torch.randint(len(trees), (), generator=g))]
    return arcs, lengths, heads


def of(arcs: Tensor, lengths: Tensor, **parts: Tensor) -> Scores:
    return Scores(arcs, lengths, validate_args=False, **parts)


def enumerations(arcs, lengths, **family):
    return [Enumeration(one[: n + 1, : n + 1], **family) for one, n in zip(arcs, lengths.tolist(), strict=True)]


@kinds
@families
@pytest.mark.parametrize("seed", range(3))
def test_likelihood_is_that_of_the_enumeration(seed, projective, single_root):
    family = {"projective": projective, "single_root": single_root}
    arcs, lengths, heads = instance(seed, **family)
    loss = negative_log_likelihood(of(arcs, lengths), heads, **family)
    listed = enumerations(arcs, lengths, **family)
    want = [-one.log_prob(tree[: n + 1]) for one, tree, n in zip(listed, heads, lengths.tolist(), strict=True)]
    torch.testing.assert_close(loss, torch.stack(want), **EXACT)
    assert bool((loss > 0)[lengths > 1].all())


@pytest.mark.parametrize("seed", range(3))
def test_head_selection_is_a_plain_loop(seed):
    arcs, lengths, heads = instance(seed, projective=False, single_root=False)
    loss = head_selection(of(arcs, lengths), heads)
    for b, n in enumerate(lengths.tolist()):
        want = 0.0
        for m in range(1, n + 1):
            total = sum(math.exp(arcs[b, h, m]) for h in range(n + 1) if h != m)
            want += math.log(total) - float(arcs[b, heads[b, m], m])
        assert math.isclose(float(loss[b]), want, abs_tol=1e-10)
    for row, n in zip(
        heads, lengths.tolist(), strict=True
    ):  # a cycle, and two words under the root, are heads like any
        row[1 : n + 1] = torch.tensor([2, 1, 0, 0, 3])[:n] if n > 1 else 0
    assert bool(head_selection(of(arcs, lengths), heads).isfinite().all())


@kinds
@families
@pytest.mark.parametrize("margin", [0.0, 0.5, 2.0])
def test_hinge_is_the_best_of_the_enumeration(margin, projective, single_root):
    family = {"projective": projective, "single_root": single_root}
    arcs, lengths, heads = instance(4, **family)
    loss = structured_hinge(of(arcs, lengths), heads, margin=margin, **family)
    for one, tree, n, got in zip(enumerations(arcs, lengths, **family), heads, lengths.tolist(), loss, strict=True):
        wrong = (one.trees[:, 1:] != tree[1 : n + 1]).sum(1)
        want = (one.scores + margin * wrong).max() - one.score(tree[: n + 1])
        assert math.isclose(float(got), float(want), abs_tol=1e-10)
    assert float(loss.max()) > 0


@families
def test_hinge_is_nothing_where_the_tree_wins_by_more_than_its_cost(projective):
    arcs, lengths, heads = instance(5, projective=projective, poison=False)
    chosen = torch.zeros_like(arcs).scatter_(1, heads.clamp(min=0)[:, None], 1.0)

    def loss(lead: float) -> tuple[Tensor, Tensor]:
        scores = (arcs.clamp(-1, 1) + lead * chosen).requires_grad_()
        value = structured_hinge(of(scores, lengths), heads, projective=projective, single_root=True, margin=1.0)
        (gradient,) = torch.autograd.grad(value.sum(), scores)
        return value.detach(), gradient

    # Another tree's arc scores at most 2 more of its own, and costs 1.
    value, gradient = loss(3.1)
    assert torch.equal(value, torch.zeros_like(value))
    assert not gradient.any()
    value, gradient = loss(0.0)
    assert float(value.max()) > 0
    assert gradient.any()


OBJECTIVES = {
    "nll": {},
    "nll, many roots": {"single_root": False},
    "nll, projective": {"projective": True},
    "nll, projective, many roots": {"projective": True, "single_root": False},
    "local": {},
    "hinge": {},
    "hinge, projective": {"projective": True},
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients(name):
    """By finite differences, where nothing that is not read has any part in them."""
    family = {"projective": False, "single_root": True, **OBJECTIVES[name]}
    arcs, lengths, heads = instance(6, **family, words=4)
    objective = tree_objective(name.partition(",")[0], margin=1.0, **family)
    unread = never_read(lengths, arcs.shape[1])
    (gradient,) = torch.autograd.grad(objective(of(arcs.requires_grad_(), lengths), heads).sum(), arcs)
    assert bool(gradient.isfinite().all())
    assert not gradient[unread].any()
    finite = arcs.detach().masked_fill(unread, 0.0).requires_grad_()
    assert gradcheck(lambda x: objective(of(x, lengths), heads), (finite,))


def test_labels_of_minus_one_do_not_count():
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 5, 4, generator=g, dtype=torch.float64)
    labels = torch.randint(0, 4, (3, 5), generator=g)
    labels[:, 0] = -1
    labels[1, 3:] = -1
    labels[2] = -1
    total = label_loss(scores.requires_grad_(), labels)
    loss = total.detach()
    for b, row in enumerate(scores.tolist()):
        want = sum(
            math.log(sum(math.exp(x) for x in row[m])) - row[m][label]
            for m, label in enumerate(labels[b].tolist())
            if label >= 0
        )
        assert math.isclose(float(loss[b]), want, abs_tol=1e-12)
    assert float(loss[2]) == 0
    (gradient,) = torch.autograd.grad(total.sum(), scores)
    assert torch.equal(gradient.any(-1), labels >= 0)
    assert gradcheck(lambda x: label_loss(x, labels), (scores,))


@pytest.mark.parametrize("name", ["nll", "local", "hinge"])
def test_one_word(name):
    """Its only head is the root: nothing to lose, nothing to learn."""
    arcs = torch.randn(2, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    objective = tree_objective(name, projective=False, single_root=True, margin=1.0)
    loss = objective(of(arcs, torch.tensor([1, 1])), torch.tensor([[-1, 0], [-1, 0]]))
    torch.testing.assert_close(loss.detach(), torch.zeros(2, dtype=torch.float64), atol=1e-14, rtol=0)
    (gradient,) = torch.autograd.grad(loss.sum(), arcs)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-14, rtol=0)


@kinds
@pytest.mark.parametrize("kind", [("siblings",), ("grandparents",), ("siblings", "grandparents")])
def test_second_order_is_that_of_all_projective_trees(kind, single_root):
    g = torch.Generator().manual_seed(5)
    n, family = 4, {"projective": True, "single_root": single_root}
    trees = all_trees(n, **family)
    arcs = torch.randn(1, n + 1, n + 1, generator=g, dtype=torch.float64)
    parts = {name: torch.randn(1, *[n + 1] * 3, generator=g, dtype=torch.float64) for name in kind}
    scores = of(arcs, torch.tensor([n]), **parts)
    totals = scores.total(trees[:, None])[:, 0]
    gold = trees[7:8]
    likelihood = negative_log_likelihood(scores, gold, **family)
    torch.testing.assert_close(likelihood, (totals.logsumexp(0) - totals[7])[None], **EXACT)
    wrong = (trees[:, 1:] != gold[:, 1:]).sum(1)
    hinge = structured_hinge(scores, gold, margin=0.5, **family)
    torch.testing.assert_close(hinge, (totals + 0.5 * wrong).max()[None] - totals[7], **EXACT)
    leaves = [arcs, *parts.values()]
    for loss in (tree_objective(name, margin=0.5, **family) for name in ("nll", "hinge")):

        def of_leaves(x, *y, loss=loss):
            return loss(of(x, torch.tensor([n]), **dict(zip(kind, y, strict=True))), gold)

        assert gradcheck(of_leaves, [each.clone().requires_grad_() for each in leaves])
