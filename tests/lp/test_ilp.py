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
    """The best score of all labelled trees that satisfy everything; every row of every constraint is looked at."""
    n, L = scores.shape[0] - 1, scores.shape[2]
    rows = [row for constraint in constraints for row in constraint.rows(words)]
    best = -math.inf
    for tree in all_trees(n, single_root=single_root, projective=False).tolist():
        for labels in itertools.product(range(L), repeat=n):
            score = sum(float(scores[tree[m], m, labels[m - 1]]) for m in range(1, n + 1))
            if score > best and not any(row.is_violated(tree, [-1, *labels]) for row in rows):
                best = score
    return best


@pytest.mark.parametrize("seed", range(150))
def test_certified_is_the_best_that_satisfies_everything(seed: int) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    n = rng.choice([1, 2, 3, 3, 4])
    words = sentence([rng.choice(TAGS) for _ in range(n)])
    scores = numbers.normal(size=(n + 1, n + 1, len(LABELS)))
    if seed % 3 == 0:
        scores[numbers.random(scores.shape) < 0.3] = -np.inf
    constraints = random_constraints(rng, n)
    single_root = bool(seed % 2)
    best = by_enumeration(scores, words, constraints, single_root)
    few = {"heads": rng.randint(1, 3), "labels": rng.randint(1, 2)}
    found = best_constrained(scores, words, constraints, single_root=single_root, **few)
    assert found.certified
    assert found.score == pytest.approx(best, abs=1e-9)
    if best == -math.inf:
        assert found.heads is None and found.labels is None
        return
    assert found.heads is not None and found.labels is not None
    assert found.bound == found.score
    assert not [row.why for c in constraints for row in c.rows(words) if row.is_violated(found.heads, found.labels)]
    assert found.score == pytest.approx(
        sum(scores[found.heads[m], m, found.labels[m]] for m in range(1, n + 1)), abs=1e-12
    )


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
    assert set(found.conflict) == {"the arc 2 -> 1", "the arc 2 -> 3", "0 to 1 child under word 2 ('runs')"}


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
