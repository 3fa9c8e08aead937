"""What is special about projective trees with scores of pairs of arcs: some may be missing, or scored lazily."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributions import kl_divergence

import gpuparse as gp
from gpuparse.decoding.parts import DenseParts
from gpuparse.nn.trilinear import TrilinearParts
from gpuparse.ops import second_order as ops
from tests.distributions.families import FAMILIES, enumerate_all, leaves_of
from tests.distributions.numeric import F64, NAN, NEG_INF, close

NAMES = ("siblings", "siblings, many roots", "grandparents", "grandparents, many roots", "siblings and grandparents")


@pytest.mark.parametrize(("one", "other"), [("siblings", "grandparents"), ("no pairs", "siblings")])
def test_kl_of_other_pairs(one: str, other: str) -> None:
    """Where only one of two has scores of a kind, the other's are 0."""
    for seed, forbidden in ((0, 0.0), (1, 0.1)):
        batches = [FAMILIES[name].scores(seed, forbidden=forbidden, poison=False) for name in (one, other)]
        lengths = batches[0][1]
        zeros = {name: torch.zeros(3, 5, 5, 5, dtype=F64) for name in ("siblings", "grandparents")}
        mine, theirs = (zeros | scores for scores, _ in batches)
        p, q = (gp.SecondOrderTrees(lengths=lengths, **scores, validate_args=False) for scores, _ in batches)
        a, b = (enumerate_all(FAMILIES["siblings and grandparents"], x, lengths) for x in (mine, theirs))
        close(kl_divergence(p, q), torch.stack([x.kl(y) for x, y in zip(a, b, strict=True)]), 1e-11)


@pytest.mark.parametrize("single_root", [True, False])
def test_without_pairs_it_is_first_order(single_root: bool) -> None:
    scores, lengths = FAMILIES["no pairs"].scores(29)
    arcs, zeros = scores["arcs"], torch.zeros(3, 5, 5, 5, dtype=F64)
    q = gp.ProjectiveTrees(arcs, lengths, single_root=single_root)
    for pairs in ({}, {"siblings": zeros}, {"grandparents": zeros}, {"siblings": zeros, "grandparents": zeros}):
        p = gp.SecondOrderTrees(arcs, lengths, single_root=single_root, **pairs)
        close(p.log_partition, q.log_partition)
        close(p.marginals, q.marginals)
        close(p.entropy(), q.entropy())
        close(p.sibling_marginals.sum(2), q.marginals)
        close(p.grandparent_marginals.sum(1)[:, 1:], q.marginals[:, 1:])
        assert torch.equal(p.argmax, q.argmax)


def test_bad_pairs() -> None:
    arcs, beside = torch.zeros(1, 4, 4), torch.zeros(1, 4, 4, 4)
    beside[0, 0, 1, 2] = NAN  # read, though no tree with a single root has it
    p = gp.SecondOrderTrees(arcs, siblings=beside, validate_args=False)
    assert bool(p.log_partition.isnan().all()) and bool(p.entropy().isnan().all())
    no_head = torch.zeros(1, 4, 4, 4)
    no_head[0, :, :, 2] = NEG_INF
    pairs: tuple[tuple[str, dict[str, Any]], ...] = (
        ("arcs with their best siblings of sentence 0 allow no .* head of word 2", {"siblings": no_head}),
        ("siblings must have shape", {"siblings": arcs}),
        ("grandparents must be a tensor", {"grandparents": [1.0]}),
        ("siblings must be float32 or float64", {"siblings": no_head.long()}),
    )
    for message, wrong in pairs:
        with pytest.raises(ValueError, match=f"^{message}"):
            gp.SecondOrderTrees(arcs, **wrong)


def test_what_allows_no_tree_is_named() -> None:
    """The fewest kinds of scores that do, whichever of them are -inf besides."""
    some = torch.zeros(2, 4, 4)
    some[:, 3, 1] = NEG_INF
    none = some.clone()
    none[1, :, 2] = NEG_INF
    zeros, no_head, no_pair, root_2, not_under_2 = (torch.zeros(2, 4, 4, 4) for _ in range(5))
    no_head[1, :, :, 2] = NEG_INF
    no_pair[1] = NEG_INF
    root_2[1, 0, 0, [1, 3]] = NEG_INF
    not_under_2[1, 0, 2] = NEG_INF
    for arcs, siblings, grandparents, name in (
        (none, no_head, no_pair, "arcs"),
        (some, no_head, zeros, "arcs with their best siblings"),
        (some, zeros, no_pair, "arcs with their best grandparents"),
        (some, None, no_pair, "arcs with their best grandparents"),
        (some, root_2, not_under_2, "arcs with their best siblings and grandparents"),
    ):
        with pytest.raises(ValueError, match=rf"^{name} of sentence 1 allow no projective tree with a single root"):
            gp.SecondOrderTrees(arcs, siblings=siblings, grandparents=grandparents)


def test_parts_must_fit() -> None:
    lengths = torch.tensor([3, 2])
    arcs, values = torch.zeros(2, 4, 4), torch.zeros(2, 4, 4, 4)
    parts = DenseParts(values, lengths, kind="siblings")
    with pytest.raises(ValueError, match=r"^grandparents must be parts of kind 'grandparents', got 'siblings'$"):
        gp.SecondOrderTrees(arcs, lengths, grandparents=parts, validate_args=False)
    with pytest.raises(ValueError, match=r"^siblings of sentence 1 have 2 words, but lengths\[1\] is 3$"):
        gp.SecondOrderTrees(arcs, siblings=parts)
    gp.SecondOrderTrees(arcs, siblings=parts, validate_args=False)  # not looked at
    with pytest.raises(ValueError, match=r"^siblings must have shape"):
        gp.SecondOrderTrees(arcs[:1], lengths[:1], siblings=parts)


def test_parts_past_the_end_have_no_gradient() -> None:
    """Not even where the rows that they are computed from are NaN."""
    g = torch.Generator().manual_seed(0)
    lengths = torch.tensor([4, 2])
    rows = [torch.randn(2, 5, 3, generator=g, dtype=F64) for _ in range(3)]
    for x in rows:
        x[1, 3:] = NAN
        x.requires_grad_()
    parts = TrilinearParts(rows[0], rows[1], rows[2], lengths, kind="grandparents")
    gp.SecondOrderTrees(torch.zeros(2, 5, 5), lengths, grandparents=parts).log_partition.sum().backward()
    for x in rows:
        assert x.grad is not None and bool(x.grad.isfinite().all()) and not bool(x.grad[1, 3:].any())


def test_one_call_gives_all_that_an_entropy_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = ops.marginals
    monkeypatch.setattr(ops, "marginals", lambda *args: calls.append(1) or real(*args))
    family = FAMILIES["siblings and grandparents"]
    scores, lengths = family.scores(3, forbidden=0.0, poison=False)
    leaves = leaves_of(scores)
    for grad_enabled in (True, False):
        with torch.set_grad_enabled(grad_enabled):
            p, q = (family.make(leaves, lengths) for _ in "pq")
            calls.clear()
            p.entropy()
            assert len(calls) == 1
            calls.clear()
            kl_divergence(q, gp.SecondOrderTrees(leaves["arcs"] * 2, lengths))
            assert len(calls) == 1 + grad_enabled  # log Z of the other, with its gradient


@pytest.mark.parametrize("name", NAMES)
def test_entropy_keeps_its_digits(name: str) -> None:
    """Large scores that all trees have, or that none can have, change nothing; scores are such that sums are exact."""
    family, single_root = FAMILIES[name], "many" not in name
    scores, lengths = family.scores(3, words=5, forbidden=0.0, magnitude=64.0, poison=False)
    scores = {kind: x.round() / 64 for kind, x in scores.items()}
    scores["arcs"][:, 4, 2] = NEG_INF
    want, large = family.make(scores, lengths), 2.0**40
    arcs, beside, under = scores["arcs"] - large, scores.get("siblings"), scores.get("grandparents")
    if beside is not None:
        beside = beside + large
        beside[:, 4, 4, 2] = beside[:, 4, 3, 2] = beside[:, 4, 2, 1] = 2 * large  # with a forbidden arc
        if single_root:
            beside[:, 0, 1:] = 3 * large
    if under is not None:
        under[:, 4, 2] = 2 * large
        if single_root:
            under = under + large
    if single_root:
        arcs[:, 0] += 3 * large
    given = {"arcs": arcs, "siblings": beside, "grandparents": under}
    found = family.make({kind: x for kind, x in given.items() if x is not None}, lengths)
    close(found.entropy(), want.entropy(), 1e-12)
    close(kl_divergence(found, want), torch.zeros(len(lengths)), 1e-12)


def test_parts_and_other_dtypes_are_taken() -> None:
    scores, lengths = FAMILIES["siblings and grandparents"].scores(31, forbidden=0.0, poison=False)
    p = gp.SecondOrderTrees(lengths=lengths, **scores)
    parts = DenseParts(scores["siblings"], lengths, kind="siblings")
    q = gp.SecondOrderTrees(scores["arcs"], lengths, siblings=parts, grandparents=scores["grandparents"].float())
    close(q.log_partition, p.log_partition, 1e-5)
    assert q.grandparent_marginals.dtype == F64 and parts.scored > 0
    assert repr(p) == "SecondOrderTrees(sentences: 3, words: 4, single_root=True, siblings, grandparents)"
