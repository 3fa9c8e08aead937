"""Random short sentences under random constraints, hard and soft: integer programs against all labelled trees."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Hashable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from gpuparse import lp
from tests.oracle import all_trees

pytestmark = pytest.mark.exhaustive

INSTANCES, STEPS = 5000, 10
TAGS = ("NOUN", "VERB", "CCONJ", "PUNCT")
FORMS = {"NOUN": "cat", "VERB": "runs", "CCONJ": "and", "PUNCT": ","}
NAMES = ("nsubj", "obj", "conj")
LIMIT = 1e-6  # the solver's tolerance, for scores of a few units

Doubles = npt.NDArray[np.float64]


def random_constraints(rng: random.Random, n: int, names: tuple[str, ...]) -> list[lp.Constraint]:
    """Up to four different ones, any of them soft; sometimes more than can be satisfied together."""
    every = list(dict.fromkeys(kinds(rng, n, names) + kinds(rng, n, names)))  # two of a kind may meet
    chosen = rng.sample(every, rng.randint(0, 4))
    return [lp.Soft(c, rng.choice([0.1, 0.7, 2.5])) if rng.random() < 0.3 else c for c in chosen]


def kinds(rng: random.Random, n: int, names: tuple[str, ...]) -> list[lp.Constraint]:
    """One of each kind, or some."""

    def some(choices: tuple[str, ...]) -> frozenset[str]:
        return frozenset(rng.sample(choices, rng.randint(1, len(choices))))

    def arc() -> tuple[int, int, str | None]:
        word = rng.randint(1, n)
        return rng.choice([h for h in range(n + 1) if h != word]), word, rng.choice([None, rng.choice(names)])

    first, least = rng.randint(1, n), rng.randint(0, 2)
    return [
        lp.Unique(some(names)),
        lp.Projective(),
        lp.Projective(some(names), some(TAGS) if rng.random() < 0.3 else frozenset()),
        lp.Children(at_least=least, at_most=least + rng.randint(0, 1), heads=some(TAGS), labels=some(names)),
        lp.Children(at_most=rng.randint(0, 2), heads=some(TAGS)),
        lp.Children(at_most=1, tags=some(TAGS)),
        lp.Coordination(symmetric=frozenset({"and"}), commas=frozenset({","})),
        lp.Coordination(asymmetric=frozenset({"and"})),
        lp.Coordination(symmetric=frozenset({"and"}), labels=some(names), always=False),
        lp.Coordination(symmetric=frozenset({"and"}), classes=(frozenset({"NOUN"}), frozenset({"VERB", "PUNCT"}))),
        lp.LabelUnder(rng.choice(names), some((*TAGS, ""))),
        lp.Leaf(some(names), frozenset() if rng.random() < 0.5 else some(names)),
        lp.Arcs(required=(arc(),)),
        lp.Arcs(forbidden=(arc(), arc())),
        lp.Arcs(**{rng.choice(["required", "forbidden"]): ((None, first, rng.choice(names)),)}),
        lp.Span(first, rng.randint(first, n)),
    ]


@cache
def labellings(n: int, labels: int) -> npt.NDArray[np.int64]:
    """All [labels ** n, n] labels of n words."""
    return np.array(list(itertools.product(range(labels), repeat=n)), dtype=np.int64).reshape(-1, n)


def best_of_all(scores: Doubles, words: lp.Words, constraints: list[lp.Constraint], single_root: bool) -> float:
    """The best score, soft rows paid for, of all labelled trees in which all hard rows hold; -inf if there is none."""
    n, L = scores.shape[0] - 1, scores.shape[2]
    trees, labels = all_trees(n, single_root=single_root, projective=False).numpy(), labellings(n, L)

    def total(table: Doubles) -> Doubles:
        """[trees, labellings] of the sum over words of [head, word, label]."""
        return sum(
            (table[trees[:, m], m][:, labels[:, m - 1]] for m in range(1, n + 1)),
            np.zeros((len(trees), len(labels))),
        )

    best = total(scores)
    costs: dict[Hashable, Doubles] = {}  # rows that share a cost: the worst of them
    for number, constraint in enumerate(constraints):
        for row in constraint.rows(words):
            table = np.zeros_like(scores)
            for box in row.boxes:
                every = ((box.heads, range(n + 1)), (box.words, range(1, n + 1)), (box.labels, range(L)))
                places = [sorted(all_ if some is None else some) for some, all_ in every]
                table[np.ix_(*places)] += box.weight
            value = total(table)
            off = np.maximum(np.maximum(row.low - value, value - row.high), 0.0)
            if row.is_hard:
                best[off > 1e-9] = -np.inf
            else:
                key = number, row if row.share is None else row.share
                costs[key] = np.maximum(costs.get(key, 0.0), row.weight * off)
    best = best - sum(costs.values())
    return float(best.max())


def holds(found: lp.Constrained, scores: Doubles, words: lp.Words, constraints: list[lp.Constraint]) -> bool:
    """Whether the tree that was found satisfies what it must, and has the score and the penalty that are said."""
    if found.heads is None or found.labels is None:
        return found.score == -math.inf
    rows = (row for constraint in constraints for row in constraint.rows(words) if row.is_hard)
    total = sum(float(scores[found.heads[m], m, found.labels[m]]) for m in words.words)
    right = abs(total - found.penalty - found.score) <= LIMIT
    return right and not any(row.is_violated(found.heads, found.labels) for row in rows)


@pytest.mark.parametrize("step", range(STEPS))
def test_against_all_labelled_trees(step: int) -> None:
    for seed in range(step, INSTANCES, STEPS):
        rng, numbers = random.Random(seed), np.random.default_rng(seed)
        n = rng.choice([1, 2, 3, 4, 4, 5, 5])
        names = NAMES[: rng.randint(1, 2 if n == 5 else 3)]
        tags = rng.choices(TAGS, k=n)
        words = lp.Words.of([FORMS[tag] for tag in tags], tags, names)
        scores = numbers.normal(size=(n + 1, n + 1, len(names)))
        if seed % 5 == 1:
            scores = scores.round()  # ties
        if seed % 3 == 0:
            scores[numbers.random(scores.shape) < 0.3] = -np.inf
        constraints = random_constraints(rng, n, names)
        single_root = bool(seed % 2)
        best = best_of_all(scores, words, constraints, single_root)
        few = rng.randint(1, 5), rng.randint(1, 3)
        found = lp.best_constrained(scores, words, constraints, single_root=single_root, heads=few[0], labels=few[1])
        told = f"instance {seed}: {found.score} here, {best} of all trees; {constraints}"
        assert found.certified, told
        assert found.score == best or abs(found.score - best) <= LIMIT, told
        assert holds(found, scores, words, constraints), told
