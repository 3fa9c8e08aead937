"""Small sentences under a few constraints, and what all of their labelled trees are worth."""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable
from functools import cache

import numpy as np
import numpy.typing as npt

from gpuparse import lp
from tests.oracle import all_trees

TAGS = ("NOUN", "VERB", "CCONJ", "PUNCT")
FORMS = {"NOUN": "cat", "VERB": "runs", "CCONJ": "and", "PUNCT": ","}
LABELS = ("nsubj", "obj", "conj")

Doubles = npt.NDArray[np.float64]
Problem = tuple[Doubles, lp.Words, list[lp.Constraint], bool]


def sentence(tags: list[str], labels: tuple[str, ...] = LABELS) -> lp.Words:
    return lp.Words.of([FORMS[tag] for tag in tags], tags, labels)


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


def random_constraints(rng: random.Random, n: int, names: tuple[str, ...] = LABELS) -> list[lp.Constraint]:
    """Up to four different ones; sometimes more than can be satisfied together."""
    every = list(dict.fromkeys(kinds(rng, n, names) + kinds(rng, n, names)))  # two of a kind may meet
    return rng.sample(every, rng.randint(0, 4))


def random_problem(seed: int) -> Problem:
    """Scores, a sentence, constraints of which some are soft, and whether one root is wanted."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    n = rng.choice([1, 2, 3, 3, 4, 4, 5])
    names = LABELS[: rng.randint(1, 2 if n == 5 else 3)]
    scale = rng.choice([1.0, 1.0, 1.0, 100.0, 1e4])
    scores = numbers.normal(size=(n + 1, n + 1, len(names))) * scale
    if seed % 3 == 0:
        scores[numbers.random(scores.shape) < 0.3] = -np.inf
    if seed % 5 == 0:
        scores = np.round(scores)  # many trees of the same score
    constraints = [
        lp.Soft(each, rng.choice([0.1, 0.5, 1.0, 3.0]) * scale) if rng.random() < 0.3 else each
        for each in random_constraints(rng, n, names)
    ]
    return scores, sentence(rng.choices(TAGS, k=n), names), constraints, bool(seed % 2)


@cache
def labellings(n: int, labels: int) -> npt.NDArray[np.int64]:
    """All [labels ** n, n] labels of n words."""
    return np.array(list(itertools.product(range(labels), repeat=n)), dtype=np.int64).reshape(-1, n)


class Worths:
    """Of all labelled trees: the score less what soft rows cost, -inf where a hard row is broken.

    Of rows that share a cost the worst counts. Every row of every constraint is looked at.
    """

    def __init__(self, scores: Doubles, words: lp.Words, constraints: list[lp.Constraint], single_root: bool) -> None:
        self.n, L = scores.shape[0] - 1, scores.shape[2]
        self.trees = all_trees(self.n, single_root=single_root, projective=False).numpy()
        self.labels = labellings(self.n, L)
        self.values = self._total(scores)
        costs: dict[Hashable, Doubles] = {}
        for row in (row for constraint in constraints for row in constraint.rows(words)):
            table = np.zeros_like(scores)
            for box in row.boxes:
                every = ((box.heads, range(self.n + 1)), (box.words, range(1, self.n + 1)), (box.labels, range(L)))
                places = [sorted(all_ if some is None else some) for some, all_ in every]
                table[np.ix_(*places)] += box.weight
            value = self._total(table)
            off = np.maximum(np.maximum(row.low - value, value - row.high), 0.0)
            if row.is_hard:
                self.values[off > 1e-9] = -np.inf
            else:
                costs[row.share or row] = np.maximum(costs.get(row.share or row, 0.0), row.weight * off)
        self.values = self.values - sum(costs.values())
        self.best = float(self.values.max())

    def _total(self, table: Doubles) -> Doubles:
        """[trees, labellings] of the sum over words of [head, word, label]."""
        of_words = (table[self.trees[:, m], m][:, self.labels[:, m - 1]] for m in range(1, self.n + 1))
        return sum(of_words, np.zeros((len(self.trees), len(self.labels))))

    def of(self, heads: list[int], labels: list[int]) -> float:
        """Of one of them."""
        tree, labelling = (self.trees == heads).all(1), (self.labels == labels[1:]).all(1)
        return float(self.values[tree.argmax(), labelling.argmax()]) if tree.any() and labelling.any() else -np.inf
