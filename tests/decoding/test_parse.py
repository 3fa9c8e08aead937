"""Answers about a batch: some of it taken, some of it replaced, and scored by what methods know."""

from __future__ import annotations

import torch

from gpuparse.decoding.methods import decode
from gpuparse.decoding.parse import Parse
from tests.scores_oracle import random_scores


def test_scored_labelled_and_bounded() -> None:
    scores = random_scores(3).first_order()
    best = decode(scores, "mst")
    low, high = best.score.detach() - 1, best.score.detach() + 1
    none = torch.zeros_like(best.certified)
    found = Parse.of(scores, best.heads, bound=low, certified=none, iterations=best.iterations)
    assert torch.equal(found.score, best.score) and torch.equal(found.bound, best.score)  # no bound is below the score
    assert found.labels is not None and best.labels is not None and torch.equal(found.labels, best.labels)
    found = Parse.of(scores, best.heads, bound=high, certified=none, iterations=best.iterations, penalty=0.5)
    assert torch.equal(found.score, best.score - 0.5) and torch.equal(found.bound, high)
    found = Parse.of(scores, best.heads, bound=high, certified=~none, iterations=best.iterations, remarks={1: "x"})
    assert torch.equal(found.bound, best.score) and found.remarks == {1: "x"}


def test_taken_and_put() -> None:
    scores = random_scores(4, batch=4)
    whole, rows = decode(scores, "ilp"), torch.tensor([2, 0])
    whole.remarks.update({0: "zero", 1: "one", 2: "two"})
    some = whole.take(rows)
    assert torch.equal(some.heads, whole.heads[rows]) and some.remarks == {0: "two", 1: "zero"}
    assert all(torch.equal(x, whole.stats[name][rows]) for name, x in some.stats.items())
    alone = decode(scores.take(rows), "ilp")
    assert alone.labels is not None and torch.equal(alone.labels, whole.labels[rows])
    assert torch.equal(alone.heads, some.heads) and torch.equal(alone.score, some.score)
    other = Parse.of(
        scores.take(rows),
        torch.full_like(alone.heads, -1),
        bound=alone.bound + 1,
        certified=torch.zeros_like(alone.certified),
        iterations=alone.iterations + 7,
        stats={"own": torch.tensor([5, 6])},
        remarks={1: "new"},
    )
    put = whole.put(rows, other)
    assert torch.equal(put.heads[rows], other.heads) and torch.equal(put.heads[[1, 3]], whole.heads[[1, 3]])
    assert torch.equal(put.iterations[rows], other.iterations) and torch.equal(put.bound[rows], other.bound)
    assert put.certified[rows].tolist() == [False, False]
    assert torch.equal(put.certified[[1, 3]], whole.certified[[1, 3]])
    assert put.stats["own"].tolist() == [6, 0, 5, 0] and put.stats["solved"][rows].tolist() == [0, 0]
    assert torch.equal(put.stats["solved"][[1, 3]], whole.stats["solved"][[1, 3]])
    assert put.remarks == {0: "new", 1: "one"}
    assert put.labels is not None and torch.equal(put.labels[[1, 3]], whole.labels[[1, 3]])
