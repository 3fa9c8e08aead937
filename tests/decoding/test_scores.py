"""Scores of trees against sums over their parts one by one; the checks; folding of labels."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from gpuparse.decoding.parts import DenseParts, Kind
from gpuparse.decoding.scores import Scores
from tests.decoding.refusals import refuses
from tests.oracle import all_trees, never_read
from tests.scores_oracle import NAN, generator, random_scores, score_by_hand

# ---------------------------------------------------------------------------------------------- scores of trees


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("given", [True, False], ids=["labels given", "best labels"])
def test_tree_scores(seed: int, given: bool) -> None:
    """All trees of a ragged batch, several at once, under all parts; nothing that is never read leaks in."""
    scores = random_scores(seed)
    g = generator(seed)
    for b, n in enumerate(scores.lengths.tolist()):
        trees = all_trees(n, single_root=False, projective=False)
        trees = trees[torch.randperm(len(trees), generator=g)[:40]]
        heads = torch.full((len(trees), *scores.arcs.shape[:2]), -1)
        for other, length in enumerate(scores.lengths.tolist()):
            heads[:, other, 1 : length + 1] = torch.arange(length)
        heads[:, b, : n + 1] = trees
        labels = torch.randint(3, heads.shape, generator=g) if given else None
        found = scores.tree_score(heads, labels)
        assert found.shape == (len(trees), len(scores.lengths))
        assert found.dtype == torch.float64
        for t, tree in enumerate(trees.tolist()):
            want = score_by_hand(scores, b, tree, None if labels is None else labels[t, b].tolist())
            assert math.isclose(float(found[t, b]), want, rel_tol=1e-12, abs_tol=1e-12)  # sums in another order
        alone = scores.tree_score(heads[0], None if labels is None else labels[0])
        assert torch.equal(alone, found[0])


def test_siblings_go_outward() -> None:
    """Word 3 heads all others: 2 and 4 are first children, 1 follows 2, 6 follows 5."""
    values = torch.zeros(1, 7, 7, 7)
    triples = [(3, 3, 2), (3, 2, 1), (3, 3, 4), (3, 4, 5), (3, 5, 6), (0, 0, 3)]
    for bit, (h, s, m) in enumerate(triples):
        values[0, h, s, m] = 2.0**bit
    scores = Scores(torch.zeros(1, 7, 7), siblings=values)
    heads = torch.tensor([[-1, 3, 3, 0, 3, 3, 3]])
    assert float(scores.tree_score(heads)) == 63.0
    assert float(scores.tree_score(torch.tensor([[-1, 3, 3, 0, 3, 3, 5]]))) == 63.0 - 16.0


def test_grandparents_need_a_word_between() -> None:
    values = torch.full((1, 4, 4, 4), 100.0)
    values[0, 0, 2, 1], values[0, 0, 2, 3], values[0, 2, 3, 1] = 1.0, 2.0, 4.0
    scores = Scores(torch.zeros(1, 4, 4), grandparents=values)
    assert float(scores.tree_score(torch.tensor([[-1, 2, 0, 2]]))) == 3.0
    assert float(scores.tree_score(torch.tensor([[-1, 3, 0, 2]]))) == 6.0


def test_gradient_is_the_parts_of_the_tree() -> None:
    N = 4
    leaves = [torch.zeros(1, *[N] * 2), torch.zeros(1, *[N] * 2, 2), torch.zeros(1, *[N] * 3), torch.zeros(1, *[N] * 3)]
    arcs, labels, siblings, grandparents = (leaf.double().requires_grad_() for leaf in leaves)
    scores = Scores(arcs, labels=labels, siblings=siblings, grandparents=grandparents)
    scores.tree_score(torch.tensor([[-1, 2, 0, 2]]), torch.tensor([[-1, 1, 0, 1]])).sum().backward()
    assert arcs.grad.nonzero().tolist() == [[0, 0, 2], [0, 2, 1], [0, 2, 3]]
    assert labels.grad.nonzero().tolist() == [[0, 0, 2, 0], [0, 2, 1, 1], [0, 2, 3, 1]]
    assert siblings.grad.nonzero().tolist() == [[0, 0, 0, 2], [0, 2, 2, 1], [0, 2, 2, 3]]
    assert grandparents.grad.nonzero().tolist() == [[0, 0, 2, 1], [0, 0, 2, 3]]


def test_gradient_past_the_end_is_zero() -> None:
    scores = random_scores(1)
    arcs = torch.where(scores.arcs.isneginf(), 0.0, scores.arcs).requires_grad_()
    some = Scores(
        arcs, scores.lengths, labels=scores.labels, siblings=scores.siblings, grandparents=scores.grandparents
    )
    heads = torch.arange(-1, 5).expand(4, 6)
    some.tree_score(torch.where(torch.arange(6) <= scores.lengths[:, None], heads, -1)).sum().backward()
    assert arcs.grad is not None and bool(arcs.grad.isfinite().all())
    assert bool((arcs.grad[never_read(scores.lengths, 6)] == 0).all())


# --------------------------------------------------------------------------------------------------- making others


def test_fold_labels() -> None:
    """Folded arcs score a tree as its best labels do, in float64; and the labels found are those."""
    for seed in range(3):
        scores = random_scores(seed, dtype=torch.float32).first_order()
        folded = scores.fold_labels()
        assert folded.labels is None and folded.arcs.dtype == torch.float64
        assert folded.fold_labels() is folded
        heads = torch.arange(-1, 5).expand(4, 6)
        heads = torch.where(torch.arange(6) <= scores.lengths[:, None], heads, -1)
        labels = scores.best_labels(heads)
        assert torch.equal(labels >= 0, heads >= 0)
        want = scores.tree_score(heads, labels)
        assert torch.equal(scores.tree_score(heads), want)
        torch.testing.assert_close(folded.tree_score(heads), want, rtol=1e-13, atol=1e-13)  # another order


def test_first_order_and_to() -> None:
    scores = random_scores(0)
    assert scores.second_order == ("siblings", "grandparents")
    first = scores.first_order()
    assert first.second_order == () and first.siblings is None and first.grandparents is None
    assert first.arcs is scores.arcs and first.labels is scores.labels
    moved = scores.to("cpu")
    heads = torch.where(torch.arange(6) <= scores.lengths[:, None], torch.arange(-1, 5), -1)
    assert torch.equal(moved.tree_score(heads), scores.tree_score(heads))
    meta = scores.to("meta")
    assert meta.arcs.is_meta and meta.lengths.is_meta and meta.labels is not None and meta.labels.is_meta
    assert meta.siblings is not None and meta.siblings.device.type == "meta"


def test_lengths_are_int64() -> None:
    arcs = torch.zeros(2, 4, 4)
    assert Scores(arcs).lengths.tolist() == [3, 3]
    for lengths in ([3, 1], torch.tensor([3, 1], dtype=torch.int32)):
        found = Scores(arcs, lengths).lengths
        assert found.dtype == torch.int64 and found.tolist() == [3, 1]


def test_fixed_and_shown() -> None:
    scores = random_scores(0)
    with pytest.raises(AttributeError, match="fixed once made"):
        scores.arcs = torch.zeros(1, 2, 2)  # type: ignore[misc]
    with pytest.raises(AttributeError, match="fixed once made"):
        del scores.arcs
    assert repr(scores) == "Scores(sentences: 4, words: 5, labels: 3, siblings, grandparents)"
    with pytest.raises(TypeError):
        Scores(scores.arcs, None, scores.labels)  # type: ignore[misc]


def test_no_sentences() -> None:
    empty = Scores(torch.empty(0, 3, 3), labels=torch.empty(0, 3, 3, 2), grandparents=torch.empty(0, 3, 3, 3))
    assert empty.tree_score(torch.empty(0, 3, dtype=torch.int64)).shape == (0,)


# ---------------------------------------------------------------------------------------------------- bad input


def arcs_and_lengths() -> tuple[Tensor, Tensor]:
    return torch.zeros(2, 5, 5), torch.tensor([4, 2])


@pytest.mark.parametrize("bad", [NAN, math.inf])
def test_bad_values(bad: float) -> None:
    arcs, lengths = arcs_and_lengths()
    wrong = arcs.clone()
    wrong[1, 2, 1] = bad
    refuses(r"^arcs\[1, 2, 1\] is (nan|inf) \(sentence 1, head 2, modifier 1\)", Scores, wrong, lengths)
    labels = torch.zeros(2, 5, 5, 3)
    labels[1, 3, 1] = labels[1, :, 0] = bad  # not read
    Scores(arcs, lengths, labels=labels)
    labels[1, 2, 1, 1] = bad
    where = r"\(sentence 1, head 2, modifier 1\)"
    refuses(rf"^labels\[1, 2, 1, 1\] is (nan|inf) {where}", Scores, arcs, lengths, labels=labels)
    triples = torch.zeros(2, 5, 5, 5)
    triples[1, 1, 1, 2] = bad
    Scores(arcs, lengths, grandparents=triples)  # a word is no grandparent of its own
    where = r"\(sentence 1, head 1, sibling 1, mod"
    refuses(rf"^siblings\[1, 1, 1, 2\] is (nan|inf) {where}", Scores, arcs, lengths, siblings=triples)
    triples[0, 0, 3, 4] = bad
    where = r"\(sentence 0, grandparent 0, par"
    refuses(rf"^grandparents\[0, 0, 3, 4\] is (nan|inf) {where}", Scores, arcs, lengths, grandparents=triples)
    Scores(wrong, lengths, labels=labels, siblings=triples, grandparents=triples, validate_args=False)


def test_bad_shapes() -> None:
    arcs, lengths = arcs_and_lengths()
    refuses(r"^arcs must have shape", Scores, torch.zeros(2, 5, 4))
    refuses(r"^lengths\[1\] is 5, but sentence 1 must have 1 to 4 words", Scores, arcs, [4, 5])
    of_kind, smaller = partial(torch.zeros, 2, 5, 5), torch.zeros(2, 4, 4, 4)
    for labels, message in (
        (arcs, r"must have shape \[2, 5, 5, L\] to fit arcs, got \[2, 5, 5\]"),
        (of_kind(2, dtype=torch.int64), "must be float32 or float64, got int64"),
        ([], "must be a tensor, got list"),
        (of_kind(2, device="meta"), "must have values, got a tensor on the device meta"),
    ):
        refuses(f"^labels {message}", Scores, arcs, lengths, labels=labels)
    kinds: tuple[Kind, ...] = ("siblings", "grandparents")
    for kind, other in zip(kinds, reversed(kinds), strict=True):
        for parts, message in (
            (smaller, r"must have shape \[2, 5, 5, 5\] to fit arcs, got \[2, 4, 4, 4\]"),
            ("none", "must be a tensor or lazily scored parts, got str"),
            (of_kind(5, dtype=torch.complex64), "must be float32 or float64, got complex64"),
            (DenseParts(of_kind(5), [4, 3], kind=kind), r"of sentence 1 have 3 words, but lengths\[1\] is 2"),
            (DenseParts(smaller, kind=kind), "must be of 2 sentences and 4 words to fit arcs, got 2 and 3"),
            (DenseParts(of_kind(5), lengths, kind=other), f"must be parts of kind '{kind}', got '{other}'"),
        ):
            refuses(f"^{kind} {message}", Scores, arcs, lengths, **{kind: parts})


def test_bad_trees() -> None:
    arcs, lengths = arcs_and_lengths()
    scores = Scores(arcs, lengths, labels=torch.zeros(2, 5, 5, 3))
    heads = torch.tensor([[-1, 0, 1, 2, 3], [-1, 0, 1, -1, -1]])
    cycle = torch.tensor([[-1, 0, 1, 2, 3], [-1, 0, 3, -1, -1]])
    for trees, message in (
        ((heads[:, :4],), "heads must have shape"),
        ((cycle,), r"heads of sentence 1: word 2 has head 3, not in 0..2"),
        ((heads, torch.tensor([[0] * 5, [9, 1, 3, 9, 9]])), "labels of sentence 1: word 2 has label 3, not in 0..2"),
        ((heads, heads[:1]), "labels must have the shape of heads"),
        ((heads, heads.double()), "labels must be an integer tensor"),
    ):
        refuses(f"^{message}", scores.tree_score, *trees)
    plain = Scores(arcs, lengths)
    refuses(r"^labels were given, but these scores have none", plain.tree_score, heads, heads)
    refuses(r"^best_labels: these scores have no labels", plain.best_labels, heads)
