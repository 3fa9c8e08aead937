"""``decode(method="ilp")``: which sentences are solved, what is said of them, and of wrong arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from gpuparse.decoding.methods import decode
from gpuparse.decoding.scores import Scores
from gpuparse.lp import Arcs, Children, Projective, Soft, Unique, Words, violates
from tests.decoding.instances import normal
from tests.decoding.refusals import refuses

NAMES = ("nsubj", "obj", "punct")
NAMED = [Soft(Unique(frozenset({"obj"})), 1.0)]


def batch(seed: int = 0, B: int = 6, n: int = 5) -> tuple[Scores, list[Words]]:
    arcs, labels = normal(seed, (B, n + 1, n + 1), (B, n + 1, n + 1, 3), dtype=torch.float32)
    lengths = torch.randint(2, n + 1, (B,), generator=torch.Generator().manual_seed(seed))
    words = [Words.of(["word"] * k, ["VERB", *["NOUN"] * (k - 1)], NAMES) for k in lengths.tolist()]
    return Scores(arcs, lengths, labels=labels), words


def test_only_what_violates_is_solved() -> None:
    scores, words = batch(B=24, n=6)
    asked = [Unique(frozenset(NAMES))]
    plain, found = decode(scores, "mst"), decode(scores, "ilp", constraints=asked, words=words)
    assert found.certified.all() and (found.score <= plain.score + 1e-9).all()
    assert torch.equal(found.bound, found.score)
    for b, n in enumerate(scores.lengths.tolist()):
        before, after = ((p.heads[b, : n + 1].tolist(), p.labels[b, : n + 1].tolist()) for p in (plain, found))
        violates = any(True for _ in asked[0].violated(words[b], *before))
        assert bool(found.stats["solved"][b]) == violates
        assert not list(asked[0].violated(words[b], *after))
        if not violates:
            assert before == after
    assert found.stats["solved"].any() and not found.stats["solved"].all()
    torch.testing.assert_close(found.score, scores.tree_score(found.heads, found.labels))


def test_projective_is_eisners_tree() -> None:
    scores, _ = batch(1)
    found, eisner = decode(scores, "ilp", projective=True), decode(scores, "eisner")
    torch.testing.assert_close(found.score, eisner.score)
    free = decode(scores, "ilp", constraints=[Projective()])
    torch.testing.assert_close(free.score, eisner.score)


def test_what_cannot_be_satisfied_gets_the_tree_without() -> None:
    scores, words = batch(2)
    asked = [Arcs(required=((0, 1, None), (0, 2, None)))]  # two words under one root
    found, plain = decode(scores, "ilp", constraints=asked, words=words), decode(scores, "mst")
    assert found.stats["infeasible"].all() and not found.certified.any()
    assert torch.equal(found.heads, plain.heads) and found.bound.isposinf().all()
    auto = decode(scores, constraints=(c for c in asked), words=words)  # it takes constraints
    reasons = auto.remarks[0].removeprefix("infeasible: ").split("; ")
    assert sorted(reasons) == ["one word under the root", "the arc 0 -> 1", "the arc 0 -> 2"]
    assert sorted(auto.remarks) == list(range(len(words)))
    several = decode(scores, "ilp", constraints=asked, words=words, single_root=False)
    assert several.certified.all() and (several.heads[:, 1:3] == 0).all()


def test_without_labels() -> None:
    scores, _ = batch(3)
    bare = Scores(scores.arcs, scores.lengths)
    words = [Words.of(["word"] * n, ["NOUN"] * n) for n in scores.lengths.tolist()]
    found = decode(bare, "ilp", constraints=[Children(at_most=1)], words=words)
    assert found.labels is None and found.certified.all()
    for b, n in enumerate(scores.lengths.tolist()):
        heads = found.heads[b, 1 : n + 1].tolist()
        assert all(heads.count(h) <= 1 for h in range(n + 1))


def test_no_time() -> None:
    scores, words = batch(4, B=24, n=6)
    found = decode(scores, "ilp", constraints=[Unique(frozenset(NAMES))], words=words, time_limit=0.0)
    late = found.stats["solved"].bool()
    assert late.any() and torch.equal(found.certified, ~late)
    assert sorted(found.remarks) == late.nonzero()[:, 0].tolist()
    assert all(text.startswith("not proven: ") for text in found.remarks.values())
    best = decode(scores, "ilp", constraints=[Unique(frozenset(NAMES))], words=words)
    assert (found.bound >= best.score - 1e-9).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": []}, "words: 0 for 6 sentences"),
        ({"words": [Words.of(["a"])] * 6}, "words of sentence 0: 1, and its length is"),
        ({"beam": 3}, "has no option 'beam'; it has constraints, words, heads, labels, grow, time_limit"),
        ({"constraints": NAMED}, r"constraints\[0\] names labels, but words do not say what labels there are"),
        ({"constraints": [Projective()], "words": [["a"]] * 6}, r"words of sentence 0 must be lp\.Words, got list"),
    ],
)
def test_errors(change: dict[str, Any], message: str) -> None:
    scores, _ = batch()
    refuses(message, decode, scores, "ilp", **change)


def test_names_of_labels_need_labels() -> None:
    scores, words = batch()
    bare, other = Scores(scores.arcs, scores.lengths), [Words(w.forms, w.tags, {"x": 7}) for w in words]
    refuses("words have names of labels, but scores have no labels", decode, bare, "ilp", words=words)
    refuses(r"words of sentence 0: a label's number is not in 0\.\.2", decode, scores, "ilp", words=other)
    refuses("tags: 1 for 2 words", Words.of, ["a", "b"], ["X"])


def test_begun_with_the_trees_of_another_method() -> None:
    """They stay where they satisfy the constraints, with what is known of them, and where nothing does."""
    scores, words = batch(5, B=12)
    (pairs,) = normal(1, (12, 6, 6, 6), dtype=torch.float32)
    given = Scores(scores.arcs, scores.lengths, labels=scores.labels, grandparents=pairs)
    start = decode(given, "ppc", exact=True)
    assert start.labels is not None and start.certified.all()
    asked = [Unique(frozenset(NAMES))]
    best = decode(given, "ilp", constraints=asked, words=words)
    found = decode(given, "ilp", constraints=asked, words=words, start=start)
    assert torch.equal(found.heads, best.heads) and found.certified.all()
    torch.testing.assert_close(found.score, best.score)
    solved = found.stats["solved"].bool()
    assert torch.equal(solved, violates(asked, words, start.heads, start.labels))
    assert solved.any() and not solved.all() and best.stats["solved"].all()
    assert torch.equal(found.iterations[~solved], start.iterations[~solved])
    assert torch.equal(found.stats["scored"], start.stats["scored"])  # its counts are kept
    bare = decode(given, "ilp", constraints=asked, words=words, start=replace(start, labels=None))
    assert torch.equal(bare.heads, best.heads)
    impossible = [Arcs(required=((0, 1, None), (0, 2, None)))]
    left = decode(given, "ilp", constraints=impossible, words=words, start=start)
    assert torch.equal(left.heads, start.heads) and not left.certified.any() and left.stats["infeasible"].all()
    refuses(r"start must be a gpuparse\.Parse, got Tensor", decode, given, "ilp", start=start.heads)
    with pytest.raises(ValueError, match=r"start must have heads of shape \[12, 6\], got \[2, 6\]"):
        decode(given, "ilp", start=start.take(torch.tensor([0, 1])))
