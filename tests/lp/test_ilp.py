"""Trees under constraints: against the best of all trees that satisfy them, and what is said where there is none."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from gpuparse.lp import (
    Arcs,
    Children,
    Constraint,
    Coordination,
    LabelUnder,
    Projective,
    Row,
    Soft,
    Span,
    Unique,
    Words,
    best_constrained,
)
from tests.oracle import all_trees, has_crossing

TAGS = ("NOUN", "VERB", "CCONJ", "PUNCT")
FORMS = {"NOUN": "cat", "VERB": "runs", "CCONJ": "and", "PUNCT": ","}
LABELS = {"nsubj": 0, "obj": 1, "conj": 2}


def sentence(tags: list[str]) -> Words:
    return Words(("", *(FORMS[tag] for tag in tags)), ("", *tags), LABELS)


def random_constraints(rng: random.Random, n: int) -> list[Constraint]:
    labels = frozenset(rng.sample(sorted(LABELS), rng.randint(1, 2)))
    arc = (rng.randint(0, n), rng.randint(1, n), rng.choice([None, "obj"]))
    first = rng.randint(1, n)
    span = Span(first, rng.randint(first, n))
    choices: list[Constraint] = [
        Unique(labels),
        Projective(),
        Projective(labels),
        Children(at_most=1, heads=frozenset({"NOUN"})),
        Children(at_least=1, at_most=2, heads=frozenset({"VERB"}), labels=labels),
        Children(at_most=0, heads=frozenset({"PUNCT"})),
        Children(at_most=1, tags=frozenset({"PUNCT"})),
        Coordination(symmetric=frozenset({"and"}), commas=frozenset({","})),
        Coordination(asymmetric=frozenset({"and"})),
        Coordination(symmetric=frozenset({"and"}), classes=(frozenset({"NOUN"}), frozenset({"VERB"}))),
        LabelUnder("nsubj", frozenset({"VERB", ""})),
        Arcs(required=(arc,)) if arc[0] != arc[1] else Arcs(),
        Arcs(forbidden=(arc,)),
        span,
    ]
    return rng.sample(choices, rng.randint(0, 3))


def by_enumeration(scores: np.ndarray, words: Words, constraints: list[Constraint], single_root: bool) -> float:
    """The best score of all labelled trees, less what soft rows cost; every row of every constraint is looked at."""
    n, L = scores.shape[0] - 1, scores.shape[2]
    rows = [row for constraint in constraints for row in constraint.rows(words)]
    best = -math.inf
    for tree in all_trees(n, single_root=single_root, projective=False).tolist():
        for labels in itertools.product(range(L), repeat=n):
            named = [-1, *labels]
            score = sum(float(scores[tree[m], m, named[m]]) for m in range(1, n + 1))
            if score <= best:
                continue
            broken = [row for row in rows if row.is_violated(tree, named)]
            if not any(row.is_hard for row in broken):
                best = max(best, score - cost(broken, tree, named))
    return best


def cost(broken: list[Row], heads: list[int], labels: list[int]) -> float:
    """Of soft rows: of those that share one, the most."""
    groups: dict[object, list[float]] = {}
    for row in broken:
        groups.setdefault(row.share or row, []).append(row.weight * row.excess(heads, labels))
    return sum(map(max, groups.values()))


def random_problem(seed: int) -> tuple[np.ndarray, Words, list[Constraint], bool]:
    """Scores, a sentence, constraints of which some are soft, and whether one root is wanted."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    n = rng.choice([1, 2, 3, 3, 4])
    words = sentence([rng.choice(TAGS) for _ in range(n)])
    scale = rng.choice([1.0, 1.0, 1.0, 100.0, 1e4])
    scores = numbers.normal(size=(n + 1, n + 1, len(LABELS))) * scale
    if seed % 3 == 0:
        scores[numbers.random(scores.shape) < 0.3] = -np.inf
    if seed % 5 == 0:
        scores = np.round(scores)  # many trees of the same score
    constraints = [
        Soft(each, rng.choice([0.1, 0.5, 1.0, 3.0]) * scale) if rng.random() < 0.3 else each
        for each in random_constraints(rng, n)
    ]
    return scores, words, constraints, bool(seed % 2)


@pytest.mark.parametrize("seed", range(150))
def test_certified_is_the_best_that_satisfies_everything(seed: int) -> None:
    scores, words, constraints, single_root = random_problem(seed)
    best = by_enumeration(scores, words, constraints, single_root)
    rng = random.Random(seed)
    few = {"heads": rng.randint(1, 3), "labels": rng.randint(1, 2)}
    found = best_constrained(scores, words, constraints, single_root=single_root, **few)
    assert found.certified
    assert found.score == pytest.approx(best, rel=1e-9, abs=1e-9)
    if best == -math.inf:
        assert found.heads is None and found.labels is None
        return
    assert found.heads is not None and found.labels is not None
    assert found.bound == found.score
    broken = [row for c in constraints for row in c.rows(words) if row.is_violated(found.heads, found.labels)]
    assert not [row.why for row in broken if row.is_hard]
    paid = cost(broken, found.heads, found.labels)
    assert found.penalty == pytest.approx(paid, rel=1e-9)
    alone = sum(scores[found.heads[m], m, found.labels[m]] for m in range(1, len(scores)))
    assert found.score == pytest.approx(alone - paid, rel=1e-12, abs=1e-9)


def test_some_of_these_problems_are_of_every_kind() -> None:
    """Soft constraints that pay, fractional programs, no solution: or the test above says little."""
    found = []
    for seed in range(150):
        scores, words, constraints, single_root = random_problem(seed)
        found.append(best_constrained(scores, words, constraints, single_root=single_root, heads=1, labels=1))
    assert sum(each.penalty > 0 for each in found) > 5
    assert sum(each.heads is None for each in found) > 5
    assert sum(each.iterations > 2 for each in found) > 20
    assert any(each.branched for each in found)


@pytest.mark.parametrize("seed", range(20))
def test_a_start_changes_nothing_but_the_work(seed: int) -> None:
    scores, words, constraints, single_root = random_problem(seed)
    plain = best_constrained(scores, words, constraints, single_root=single_root)
    free = best_constrained(scores, words, single_root=single_root)
    if free.heads is None or free.labels is None:
        return
    started = best_constrained(scores, words, constraints, single_root=single_root, start=(free.heads, free.labels))
    assert started.certified and started.iterations <= plain.iterations
    assert started.score == pytest.approx(plain.score, rel=1e-9)


def test_without_growing_the_answer_is_of_the_few_and_says_so() -> None:
    kept = 0
    for seed in range(60):
        scores, words, constraints, single_root = random_problem(seed)
        best = best_constrained(scores, words, constraints, single_root=single_root)
        few = best_constrained(scores, words, constraints, single_root=single_root, heads=1, labels=1, grow=False)
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
    best = best_constrained(scores, words, [Projective(), Children(at_most=2)])
    assert best.certified
    for seconds in (1e-5, 1e-3, 5e-3, 2e-2):
        found = best_constrained(scores, words, [Projective(), Children(at_most=2)], seconds=seconds)
        assert found.bound >= best.score - 1e-9
        assert found.heads is None or found.score <= best.score + 1e-9
        assert not found.certified or found.score == pytest.approx(best.score)


def test_projective_rows_are_those_of_crossing_trees() -> None:
    words = sentence(["NOUN"] * 4)
    trees = all_trees(4, single_root=False, projective=False)
    for tree, crosses in zip(trees.tolist(), has_crossing(trees).tolist(), strict=True):
        found = list(Projective().violated(words, tree, [-1, 0, 0, 0, 0]))
        assert bool(found) == crosses
        assert bool(found) == any(row.is_violated(tree, [-1, 0, 0, 0, 0]) for row in Projective().rows(words))


def test_violated_is_what_rows_say() -> None:
    rng = random.Random(1)
    for _ in range(200):
        n = rng.randint(1, 5)
        words = sentence([rng.choice(TAGS) for _ in range(n)])
        heads = [-1, *(rng.choice([h for h in range(n + 1) if h != m]) for m in range(1, n + 1))]
        labels = [-1, *(rng.randrange(3) for _ in range(n))]
        for constraint in random_constraints(rng, n):
            said = {row for row in constraint.rows(words) if row.is_violated(heads, labels)}
            assert bool(said) == bool(list(constraint.violated(words, heads, labels)))


def test_a_long_sentence_looks_at_little() -> None:
    numbers = np.random.default_rng(0)
    n = 30
    scores = numbers.normal(size=(n + 1, n + 1, 20))
    for m in range(1, n + 1):
        scores[m - 1, m, m % 3] += 12.0
    names = {f"l{k}": k for k in range(20)}
    words = Words(("", *["w"] * n), ("", *["X"] * n), names)
    found = best_constrained(scores, words, [Unique(frozenset(names)), Projective()])
    assert found.certified and found.iterations < 20
    assert found.variables < scores.size / 4


def test_what_conflicts_is_named() -> None:
    words = sentence(["NOUN", "VERB", "NOUN"])
    scores = np.zeros((4, 4, 3))
    asked: list[Constraint] = [
        Unique(frozenset({"obj"})),
        Arcs(required=((2, 1, None),)),
        Arcs(required=((2, 3, None),)),
        Children(at_most=1, heads=frozenset({"VERB"})),
    ]
    found = best_constrained(scores, words, asked)
    assert found.heads is None and found.certified and found.score == -math.inf
    assert set(found.conflict) == {"the arc 2 -> 1", "the arc 2 -> 3", "at most 1 child under word 2 ('runs')"}


def test_no_head_at_all() -> None:
    scores = np.zeros((3, 3, 2))
    scores[:, 2] = -np.inf
    found = best_constrained(scores, sentence(["NOUN", "NOUN"]))
    assert found.heads is None and found.certified and found.conflict == ("a word has no possible head",)


def test_no_time_is_no_certificate() -> None:
    scores = np.random.default_rng(0).normal(size=(9, 9, 3))
    found = best_constrained(scores, sentence(["NOUN"] * 8), [Projective()], seconds=0.0)
    assert not found.certified and found.heads is None
    assert found.bound >= best_constrained(scores, sentence(["NOUN"] * 8), [Projective()]).score


def test_labels_that_a_model_does_not_know_ask_for_nothing() -> None:
    words = sentence(["NOUN", "VERB"])
    unknown = frozenset({"vocative"})
    for constraint in (Children(at_least=1, labels=unknown), Unique(unknown), LabelUnder("vocative", unknown)):
        assert not list(constraint.rows(words))
