"""The restricted program: its bound holds at any prices, and its columns and rows agree however they joined."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from gpuparse.decoding.ilp.constrained import penalty
from gpuparse.decoding.ilp.master import Master
from gpuparse.decoding.ilp.rows import Row
from tests.decoding.lp.problems import LABELS, TAGS, random_constraints, sentence
from tests.oracle import all_trees


def problem(seed: int, n: int = 3) -> tuple[np.ndarray, list[Row]]:
    """Scores of a sentence, and rows of which some are soft, some of those with a shared slack."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    words = sentence([rng.choice(TAGS) for _ in range(n)])
    scores = numbers.normal(size=(n + 1, n + 1, len(LABELS)))
    scores[:, 0] = -np.inf
    scores[np.arange(n + 1), np.arange(n + 1)] = -np.inf
    rows = [row for constraint in random_constraints(rng, n) for row in constraint.rows(words)]
    soft = [rng.choice([None, "one", "other"]) for _ in rows]
    return scores, [
        row if rng.random() < 0.5 else Row(row.boxes, row.low, row.high, row.why, 0.7, share)
        for row, share in zip(rows, soft, strict=True)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_no_tree_is_above_the_bound_at_any_prices(seed: int) -> None:
    scores, rows = problem(seed)
    numbers = np.random.default_rng(seed)
    master = Master(scores, rows, np.isfinite(scores))
    priced = [master.price()] + [master.price(numbers.normal(size=len(master.rows)) * k) for k in (0.1, 1.0, 5.0)]
    for tree in all_trees(3, single_root=False, projective=False).tolist():
        for chosen in itertools.product(range(len(LABELS)), repeat=3):
            labels = [-1, *chosen]
            broken = [row for row in dict.fromkeys(rows) if row.is_violated(tree, labels)]
            if any(row.is_hard for row in broken):
                continue
            arcs = [(tree[m], m, labels[m]) for m in range(1, 4)]
            score = sum(scores[arc] for arc in arcs) - penalty(broken, (tree, labels))
            for prices in priced:
                assert score <= prices.bound + 1e-9
                for h, m, label in arcs:
                    assert score <= prices.bound - prices.gap[h, m - 1, label] + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_columns_and_rows_in_any_order(seed: int) -> None:
    scores, rows = problem(seed, n=4)
    numbers = np.random.default_rng(seed)
    arcs = np.isfinite(scores)
    whole = Master(scores, rows, arcs).solve(np.inf)
    later = Master(scores, rows[::2], arcs & (numbers.random(arcs.shape) < 0.5))
    later.solve(np.inf)
    later.grow(arcs & (numbers.random(arcs.shape) < 0.5))
    later.solve(np.inf)
    later.state(rows)
    later.grow(arcs)
    found = later.solve(np.inf)
    assert found.status is whole.status
    if whole.values is not None:
        assert found.bound == pytest.approx(whole.bound, abs=1e-9)
        assert later.price(found.prices).bound == pytest.approx(whole.bound, abs=1e-8)


def test_labels_that_no_row_tells_apart() -> None:
    scores, _ = problem(0)
    master = Master(scores, [], np.isfinite(scores))
    assert [labels.tolist() for labels in master.label_classes()] == [[0, 1, 2]]
    rows = [row for c in random_constraints(random.Random(3), 3) for row in c.rows(sentence(["NOUN"] * 3))]
    master.state(rows)
    told_apart = {box.labels for row in rows for box in row.boxes} - {None}
    for labels in master.label_classes():
        assert all(len({label in places for label in labels.tolist()}) == 1 for places in told_apart if places)
