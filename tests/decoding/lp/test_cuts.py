"""Cuts: every tree meets them, those that are violated are found, and no others."""

from itertools import combinations

import numpy as np
import pytest

from gpuparse.decoding.ppc.cuts import Cuts, no_cross, no_cycle, no_cycle_gp, triangle, violated_sets
from tests.oracle import all_trees

N = 6
LEAST = 1e-6


def weights(heads: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """z [N, N] and z^gp [N, N, N] of a tree."""
    z, y = np.zeros((N, N)), np.zeros((N, N, N))
    for m in range(1, N):
        z[heads[m], m] = 1
        if heads[m] > 0:
            y[heads[heads[m]], heads[m], m] = 1
    return z, y


def heads_at_random(generator: np.random.Generator) -> np.ndarray:
    """Weights of heads [N, N], a few of each word, cycles and all."""
    z = generator.random((N, N)) * (generator.random((N, N)) < 0.4)
    z[np.arange(N), np.arange(N)], z[:, 0] = 0, 0
    z[0, 1:] += 1e-3 * (z[:, 1:].sum(0) == 0)
    return np.divide(z, z.sum(0), out=np.zeros_like(z), where=z.sum(0) > 0)


def pairs_at_random(z: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Weights of most grandparents [N, N, N] that those of heads allow, and which there are."""
    y = np.minimum(z[:, :, None], z[None]) * (generator.random((N, N, N)) < 0.7)
    y[np.arange(N), :, np.arange(N)] = 0
    return y, np.argwhere(y > 0)


def slack(cuts: Cuts, z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What each row leaves: its high side less what a solution makes of it."""
    left = cuts.high.copy()
    for (row, at, value), x in ((cuts.arcs, z), (cuts.triples, y)):
        np.subtract.at(left, row, value * x[tuple(at.T)])
    return left


@pytest.mark.parametrize("seed", range(60))
def test_sets_against_all_subsets(seed: int) -> None:
    z = heads_at_random(np.random.default_rng(seed))
    found = violated_sets(z, LEAST)
    words = range(1, N)
    every = [s for k in words for s in combinations(words, k)]
    outside = {s: z[np.ix_([h for h in range(N) if h not in s], list(s))].sum() for s in every}
    assert (len(found) > 0) == (min(outside.values()) < 1 - LEAST)
    for row in found:
        assert outside[tuple(np.nonzero(row)[0].tolist())] < 1 - LEAST
    assert (slack(no_cycle(z, LEAST), z, np.zeros((N, N, N))) < 0).all()


def test_the_weights_of_a_tree_have_no_violated_set() -> None:
    for heads in all_trees(N - 1, single_root=False, projective=False)[::11].tolist():
        assert not len(violated_sets(weights(heads)[0], LEAST))


@pytest.mark.slow
def test_trees_meet_all_cuts() -> None:
    """Cuts that random weights violate, met by every tree."""
    trees = [weights(heads) for heads in all_trees(N - 1, single_root=False, projective=False)[::5].tolist()]
    generator = np.random.default_rng(0)
    counts = np.zeros(3)
    for _ in range(150):
        z = heads_at_random(generator)
        y, triples = pairs_at_random(z, generator)
        families = no_cycle(z, LEAST), no_cycle_gp(z, y, triples, LEAST), triangle(z, y, triples, LEAST)
        for family, cuts in enumerate(families):
            assert (slack(cuts, z, y) < -LEAST / 2).all()  # each is violated
            counts[family] += len(cuts.high)
            for tree in trees:
                assert (slack(cuts, *tree) >= 0).all()
    assert (counts > 20).all()


def test_the_worst_triangle() -> None:
    """No set of heads A is violated by more than the one that was chosen; with no row none is violated at all."""
    generator = np.random.default_rng(1)
    for _ in range(20):
        z = heads_at_random(generator)
        y, triples = pairs_at_random(z, generator)
        left = slack(triangle(z, y, triples, LEAST), z, y)
        worst = [
            sum(y[g, p, c] + y[g, p, q] - z[g, p] for g in A) + y[p, q, c] - z[p, q]
            for p, q, c in triples.tolist()
            if p > 0
            for k in range(N + 1)
            for A in combinations(range(N), k)
        ]
        assert max([0.0, *worst]) == pytest.approx(max(-left, default=0.0), abs=LEAST)


def crossing(heads: list[int]) -> bool:
    spans = [sorted((h, m)) for m, h in enumerate(heads) if m]
    return any(a < c < b < d for a, b in spans for c, d in spans)


def test_no_cross() -> None:
    """No projective tree violates a row; every other tree violates one, and so do weights where any row does."""
    zeros, rng = np.zeros((N, N, N)), np.random.default_rng(0)
    trees = all_trees(N - 1, single_root=False, projective=False).tolist()
    projective = [heads for heads in trees if not crossing(heads)]
    for heads in rng.permutation(trees)[:200].tolist():
        found = no_cross(weights(heads)[0], LEAST)
        assert (len(found.high) > 0) == crossing(heads)
        assert (slack(found, weights(heads)[0], zeros) < 0).all()
    for _ in range(20):
        z = heads_at_random(rng)
        found = no_cross(z, LEAST)
        assert (slack(found, z, zeros) < -LEAST).all()
        for heads in projective[:: max(1, len(projective) // 50)]:
            assert (slack(found, weights(heads)[0], zeros) > -1e-12).all()
        worst = 0.0
        for i, j in combinations(range(N), 2):
            for k in set(range(1, N)) - {i, j}:
                inside = i < k < j
                others = [x for x in range(N) if x != k and (not i <= x <= j if inside else i < x < j)]
                worst = max(worst, z[i, j] + z[j, i] * (i > 0) + z[others, k].sum() - 1)
        assert (worst > LEAST) == (len(found.high) > 0)
        assert worst <= LEAST or -slack(found, z, zeros).min() == pytest.approx(worst)


def test_cuts_side_by_side() -> None:
    """The sum of two is both, and what is known is left out."""
    z = heads_at_random(np.random.default_rng(0))
    one = no_cycle(z, LEAST)
    assert len(one.high)
    both = one + one
    assert len(both.high) == 2 * len(one.high)
    zeros = np.zeros((N, N, N))
    np.testing.assert_array_equal(slack(both, z, zeros), np.tile(slack(one, z, zeros), 2))
    assert len(both.without(one.keys()).high) == 0
    assert len(one.without(Cuts.none().keys()).high) == len(one.high)
    some = Cuts.none() + one
    np.testing.assert_array_equal(slack(some, z, zeros), slack(one, z, zeros))
