"""Trees under constraints: against the best of all trees that satisfy them, and what is said where there is none."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpuparse import lp
from gpuparse.decoding.ilp.search import _ConstrainedSearch
from tests.decoding.lp.problems import Worths, random_problem, sentence
from tests.decoding.refusals import refuses
from tests.oracle import all_trees, has_crossing


def check_problem(seed: int) -> None:
    """Certified is the best that satisfies everything."""
    scores, words, constraints, single_root = random_problem(seed)
    worths = Worths(scores, words, constraints, single_root)
    rng = random.Random(seed)
    few = {"heads": rng.randint(1, 3), "labels": rng.randint(1, 2)}
    found = lp.best_constrained(scores, words, constraints, single_root=single_root, **few)
    told = f"{seed}: {constraints}"
    assert found.certified, told
    assert found.score == pytest.approx(worths.best, rel=1e-9, abs=1e-9), told
    if worths.best == -math.inf:
        assert found.heads is None and found.labels is None
        return
    assert found.bound == found.score == pytest.approx(worths.of(found.heads, found.labels), rel=1e-9, abs=1e-9), told
    alone = sum(scores[found.heads[m], m, found.labels[m]] for m in range(1, len(scores)))
    assert found.score == pytest.approx(alone - found.penalty, rel=1e-12, abs=1e-9), told


@pytest.mark.parametrize("seed", range(150))
def test_certified_is_the_best_that_satisfies_everything(seed: int) -> None:
    check_problem(seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("step", range(10))
def test_certified_is_the_best_of_thousands(step: int) -> None:
    for seed in range(step, 5000, 10):
        check_problem(seed)


def test_some_of_these_problems_are_of_every_kind() -> None:
    """Soft constraints that pay, fractional programs, no solution: or the test above says little."""
    found = []
    for seed in range(150):
        scores, words, constraints, single_root = random_problem(seed)
        found.append(lp.best_constrained(scores, words, constraints, single_root=single_root, heads=1, labels=1))
    assert sum(each.penalty > 0 for each in found) > 5
    assert sum(each.heads is None for each in found) > 5
    assert sum(each.iterations > 2 for each in found) > 20
    assert any(each.branched for each in found)


@pytest.mark.parametrize("seed", range(20))
def test_a_start_changes_nothing_but_the_work(seed: int) -> None:
    scores, words, constraints, single_root = random_problem(seed)
    plain = lp.best_constrained(scores, words, constraints, single_root=single_root)
    free = lp.best_constrained(scores, words, single_root=single_root)
    if free.heads is None or free.labels is None:
        return
    started = lp.best_constrained(scores, words, constraints, single_root=single_root, start=(free.heads, free.labels))
    assert started.certified and started.iterations <= plain.iterations
    assert started.score == pytest.approx(plain.score, rel=1e-9)


def test_without_growing_the_answer_is_of_the_few_and_says_so() -> None:
    kept = 0
    for seed in range(60):
        scores, words, constraints, single_root = random_problem(seed)
        best = lp.best_constrained(scores, words, constraints, single_root=single_root)
        few = lp.best_constrained(scores, words, constraints, single_root=single_root, heads=1, labels=1, grow=False)
        assert few.score <= best.score + 1e-9 * max(1.0, abs(best.score)) if few.heads else True
        assert few.bound >= best.score - 1e-9 * max(1.0, abs(best.score))
        if few.certified:
            kept += 1
            assert few.score == pytest.approx(best.score, rel=1e-9)
    assert 0 < kept < 60


def test_in_too_little_time_bounds_hold() -> None:
    rng = np.random.default_rng(3)
    words = sentence(["NOUN"] * 12)
    scores = rng.normal(size=(13, 13, 3))
    best = lp.best_constrained(scores, words, [lp.Projective(), lp.Children(at_most=2)])
    assert best.certified
    for seconds in (1e-5, 1e-3, 5e-3, 2e-2):
        found = lp.best_constrained(scores, words, [lp.Projective(), lp.Children(at_most=2)], seconds=seconds)
        assert found.bound >= best.score - 1e-9
        assert found.heads is None or found.score <= best.score + 1e-9
        assert not found.certified or found.score == pytest.approx(best.score)


def test_projective_rows_are_those_of_crossing_trees() -> None:
    words = sentence(["NOUN"] * 4)
    trees = all_trees(4, single_root=False, projective=False)
    for tree, crosses in zip(trees.tolist(), has_crossing(trees).tolist(), strict=True):
        found = list(lp.Projective().violated(words, tree, [-1, 0, 0, 0, 0]))
        assert bool(found) == crosses
        assert bool(found) == any(row.is_violated(tree, [-1, 0, 0, 0, 0]) for row in lp.Projective().rows(words))


def test_a_long_sentence_looks_at_little() -> None:
    numbers = np.random.default_rng(0)
    n = 30
    scores = numbers.normal(size=(n + 1, n + 1, 20))
    for m in range(1, n + 1):
        scores[m - 1, m, m % 3] += 12.0
    names = {f"l{k}": k for k in range(20)}
    words = lp.Words(("", *["w"] * n), ("", *["X"] * n), names)
    found = lp.best_constrained(scores, words, [lp.Unique(frozenset(names)), lp.Projective()])
    assert found.certified and found.iterations < 20
    assert found.variables < scores.size / 4


def test_what_conflicts_is_named() -> None:
    words = sentence(["NOUN", "VERB", "NOUN"])
    scores = np.zeros((4, 4, 3))
    asked: list[lp.Constraint] = [
        lp.Unique(frozenset({"obj"})),
        lp.Arcs(required=((2, 1, None),)),
        lp.Arcs(required=((2, 3, None),)),
        lp.Children(at_most=1, heads=frozenset({"VERB"})),
    ]
    found = lp.best_constrained(scores, words, asked)
    assert found.heads is None and found.certified and found.score == -math.inf
    assert set(found.conflict) == {"the arc 2 -> 1", "the arc 2 -> 3", "at most 1 child under word 2 ('runs')"}


def test_no_head_at_all() -> None:
    scores = np.zeros((3, 3, 3))
    scores[:, 2] = -np.inf
    found = lp.best_constrained(scores, sentence(["NOUN", "NOUN"]))
    assert found.heads is None and found.certified and found.conflict == ("no head of word 2 ('cat')",)


def test_no_time_is_no_certificate() -> None:
    scores = np.random.default_rng(0).normal(size=(9, 9, 3))
    found = lp.best_constrained(scores, sentence(["NOUN"] * 8), [lp.Projective()], seconds=0.0)
    assert not found.certified and found.heads is None
    assert found.bound >= lp.best_constrained(scores, sentence(["NOUN"] * 8), [lp.Projective()]).score


@pytest.mark.parametrize("seed", range(60))
def test_soft_crossings_are_paid_once(seed: int) -> None:
    """Five words: fractional solutions, whose cuts must not charge a crossing twice."""
    scores = np.round(np.random.default_rng(seed).normal(size=(6, 6, 1)), 1)
    words = lp.Words.of(list("abcde"))
    asked: list[lp.Constraint] = [lp.Soft(lp.Projective(), 0.5)]
    found = lp.best_constrained(scores, words, asked)
    assert found.certified
    assert found.score == pytest.approx(Worths(scores, words, asked, True).best, abs=1e-9)


class Rows(lp.Constraint):
    """Rows as they are given."""

    def __init__(self, *given: lp.Row) -> None:
        self.given = given

    def rows(self, words: lp.Words) -> Iterator[lp.Row]:
        return iter(self.given)


ONE, TWO = (lp.Box(frozenset({1})),), (lp.Box(frozenset({2})),)
ALL = lp.Box(None, frozenset(range(4)))


@pytest.mark.parametrize(
    "rows",
    [
        (lp.Row(ONE, -math.inf, 0, "x", 0.5, "s"), lp.Row(TWO, 2, math.inf, "y", 0.5, "s")),  # above and below
        (lp.Row(ONE, -math.inf, 0, "x", 1.0, "s"), lp.Row(TWO, -math.inf, 0, "y", 0.1, "s")),  # of two weights
        (lp.Row(ONE, 1, 1, "x", 0.4, "s"), lp.Row(TWO, 1, 1, "y", 0.7, "s"), lp.Row(TWO, 0, 0, "z", 0.3, "s")),
        (lp.Row((), -math.inf, -1, "nothing", 0.3), lp.Row(ONE, 1, 3, "x")),
        (lp.Row((ALL,), 3, 3, "all"), lp.Row(ONE, 1, 2, "x")),
        (lp.Row((lp.Box(frozenset({1}), weight=1e6),), 1e-3, 1e6, "big"),),
        (lp.Row((lp.Box(frozenset({1}), weight=1e6),), 1e-3, 1e6, "big", 1e-6),),
        (lp.Row((lp.Box(frozenset({1}), weight=0.3), lp.Box(frozenset({2}), weight=-0.7)), -0.5, 0.4, "odd", 0.9),),
    ],
)
@pytest.mark.parametrize("seed", range(12))
def test_any_rows(rows: tuple[lp.Row, ...], seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(4, 4, 1))
    words = lp.Words.of(list("abc"))
    found = lp.best_constrained(scores, words, [Rows(*rows)])
    best = Worths(scores, words, [Rows(*rows)], True).best
    assert found.certified and found.score == pytest.approx(best, abs=1e-9)


def test_rows_that_cannot_be() -> None:
    words, scores = lp.Words.of(list("abc")), np.zeros((4, 4, 1))
    for change, message in (
        ({"weight": -1.0}, "'x': weight is -1"),
        ({"weight": math.nan}, "'x': weight is nan"),
        ({"low": 2}, "'x': low is 2, high is 1"),
        ({"boxes": (lp.Box(weight=math.inf),)}, "'x': a box's weight is not finite"),
    ):
        refuses(message, lp.Row, **{"boxes": ONE, "low": 0, "high": 1, "why": "x", **change})
    far = lp.Row((lp.Box(frozenset({7})),), 1, 1, "far")
    refuses(r"row 'far': 7 is not in 0\.\.3", lp.best_constrained, scores, words, [Rows(far)])


def test_far_apart_scores_are_certified_to_the_last() -> None:
    """What all trees have in common, however large, takes nothing from the certificate."""
    words = lp.Words.of(list("abcd"))
    asked: list[lp.Constraint] = [lp.Soft(lp.Children(at_least=1), 1e9)]  # some word has no child
    for seed in range(40):
        scores = np.random.default_rng(seed).normal(size=(5, 5, 1))
        found = [lp.best_constrained(scores, words, asked, heads=heads) for heads in (1, 9)]
        assert all(each.certified for each in found)
        assert found[0].score == pytest.approx(found[1].score, rel=0, abs=1e-5)
        far = lp.best_constrained(scores + 1e9, words, [lp.Children(at_most=1)], heads=1)
        near = lp.best_constrained(scores, words, [lp.Children(at_most=1)])
        assert far.certified and far.score - 4e9 == pytest.approx(near.score, rel=0, abs=1e-5)


def test_conflicts_have_nothing_needless() -> None:
    words, scores = lp.Words.of(list("abc")), np.zeros((4, 4, 1))
    found = lp.best_constrained(scores, words, [lp.Children(at_least=1)])
    assert sorted(found.conflict) == [
        f"at least 1 child under word {k} ({w!r})" for k, w in ((1, "a"), (2, "b"), (3, "c"))
    ]
    named = lp.Row((ALL,), 7, 9, "a cycle of my own")
    assert lp.best_constrained(scores, words, [Rows(named)]).conflict == ("a cycle of my own",)


def test_conflicts_conflict_and_none_can_be_left_out() -> None:
    looked_at = 0
    for seed in range(400):
        scores, words, constraints, single_root = random_problem(seed)
        if not np.isfinite(scores[:, 1:]).all() or len(words.forms) > 5:
            continue
        found = lp.best_constrained(scores, words, constraints, single_root=single_root)
        if found.heads is not None:
            continue
        looked_at += 1
        rows = {row for c in constraints for row in c.rows(words) if row.is_hard and row.why in found.conflict}
        flat = np.zeros(scores.shape)
        root = "one word under the root" in found.conflict
        assert Worths(flat, words, [Rows(*rows)], root).best == -math.inf
        for why in found.conflict:
            rest = [row for row in rows if row.why != why]
            assert Worths(flat, words, [Rows(*rest)], root and not why.startswith("one word under")).best == 0.0
    assert looked_at > 15


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 0}, "heads is 0; wanted a whole number from 1 on"),
        ({"labels": 1.5}, r"labels is 1\.5; wanted a whole number from 1 on"),
        ({"seconds": math.nan}, "the time limit is nan; wanted seconds from 0 on"),
        ({"scores": np.full((4, 4, 1), np.nan)}, r"scores\[0, 1, 0\] is nan"),
        ({"scores": np.zeros((3, 3, 1))}, "words: 3, but scores are of 2"),
        ({"scores": np.zeros((4, 4))}, r"scores must have shape \[N, N, L\]"),
        ({"constraints": "ud"}, "constraints is 'ud'; read files of them by lp.load_constraints"),
        ({"constraints": lp.Projective()}, "constraints must be a list of them, got Projective"),
        ({"constraints": [3]}, r"constraints\[0\] must be a constraint"),
        ({"constraints": [lp.Span(1, 7)]}, "7"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    given = {"scores": np.zeros((4, 4, 1)), "words": lp.Words.of(list("abc")), **change}
    refuses(message, lp.best_constrained, given.pop("scores"), given.pop("words"), **given)


def test_no_words_and_one_word() -> None:
    none = lp.best_constrained(np.zeros((1, 1, 1)), lp.Words.of([]))
    assert none.certified and none.heads == [-1] and none.score == 0.0
    one = lp.best_constrained(np.ones((2, 2, 1)), lp.Words.of(["a"]), (c for c in [lp.Projective()]))
    assert one.certified and one.heads == [-1, 0] and one.score == 1.0


def test_labels_that_a_model_does_not_know_ask_for_nothing() -> None:
    words = sentence(["NOUN", "VERB"])
    unknown = frozenset({"vocative"})
    for constraint in (lp.Children(at_least=1, labels=unknown), lp.Unique(unknown), lp.LabelUnder("vocative", unknown)):
        assert not list(constraint.rows(words))


def test_labels_are_branched_on_where_arcs_are_whole() -> None:
    """A word with one head and two labels: one branch demands the first, one forbids it; then a single tree is left."""
    seen: list[Any] = []
    scores = np.full((2, 2, 2), -np.inf)
    scores[0, 1] = 0.0
    sentence = SimpleNamespace(look=seen.append)
    node: Any = SimpleNamespace(scores=scores, forbidden=np.zeros(scores.shape, dtype=bool), N=2, sentence=sentence)
    (step, without), (other, forbidden) = _ConstrainedSearch._split(node, None)
    assert (step, other) == ((0, 1, 0, 1), (0, 1, 0, 0))
    assert without[0, 1].tolist() == [False, True] and forbidden[0, 1].tolist() == [True, False]
    node.forbidden[0, 1, 0] = True
    assert list(_ConstrainedSearch._split(node, None)) == [] and seen == [([-1, 0], [-1, 1])]
