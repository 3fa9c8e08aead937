"""Cuts for grandparents and siblings together: every tree meets them, and those that are violated are found."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.ppc import program
from gpuparse.decoding.ppc.cuts import Cuts
from gpuparse.decoding.ppc.grandparents import Grandparents
from gpuparse.decoding.ppc.siblings import Siblings
from gpuparse.decoding.ppc.stars import one_star
from tests.decoding.instances import best, check_best, check_sound, instance
from tests.oracle import all_trees

LEAST = 1e-6
KINDS = ("grandparents", "siblings")
Weights = tuple[np.ndarray, np.ndarray, np.ndarray]  # of arcs, grandparents and siblings


def weights(heads: list[int]) -> Weights:
    """Those of a tree."""
    N = len(heads)
    z, y, x = np.zeros((N, N)), np.zeros((N, N, N)), np.zeros((N, N, N))
    z[heads[1:], range(1, N)] = 1
    y[tuple(Grandparents.of_tree(np.array(heads)).T)] = 1
    x[tuple(Siblings.of_tree(np.array(heads)).T)] = 1
    return z, y, x


def mixed(trees: list[list[int]], generator: np.random.Generator) -> Weights:
    """Arcs of half of two trees; pairs likewise, and some of them moved to other grandparents and siblings."""
    pick = generator.integers(len(trees), size=2)
    z, y, x = (sum(some) / 2 for some in zip(*(weights(trees[k]) for k in pick), strict=True))
    for table, kind in ((y, Grandparents), (x, Siblings)):
        legal = kind.legal(z > 0)
        table[tuple(legal[generator.random(len(legal)) < 0.3].T)] += 0.25
    return z, y, x


def slack(cuts: Cuts, z: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What each row leaves: its high side less what weights make of it."""
    left = cuts.high.copy()
    for (row, at, value), own in ((cuts.arcs, z), (cuts.triples, y), (cuts.siblings, x)):
        np.subtract.at(left, row, value * own[tuple(at.T)])
    return left


@pytest.mark.parametrize("n", [3, 4, 5])
def test_trees_meet_all(n: int) -> None:
    """Rows of all three kinds that mixtures of trees violate."""
    generator = np.random.default_rng(n)
    every = all_trees(n, single_root=False, projective=False).tolist()
    tables = [np.stack(x) for x in zip(*map(weights, every), strict=True)]
    counts = np.zeros(2)
    for _ in range(40):
        cuts = one_star(*mixed(every, generator), LEAST)
        left = np.tile(cuts.high, (len(every), 1))
        for (row, at, value), own in zip((cuts.arcs, cuts.triples, cuts.siblings), tables, strict=True):
            np.subtract.at(left.T, row, (value * own[(slice(None), *at.T)]).T)
        assert (left >= 0).all()
        counts += (cuts.high == 1).sum(), (cuts.high == 0).sum()
    assert (counts > 5).all()


def test_the_worst_sets() -> None:
    """None is violated by more than what was found for its nodes; with no row none is violated at all."""
    generator, N = np.random.default_rng(1), 5
    trees = all_trees(N - 1, single_root=False, projective=False).tolist()
    for _ in range(25):
        z, y, x = mixed(trees, generator)
        # OneGP: what other grandparents have is what the arc has less that of g
        y[:, 1:] *= np.divide(z[1:], y[:, 1:].sum(0), out=np.zeros_like(z[1:]), where=y[:, 1:].sum(0) > 0)
        if (np.abs(y[:, 1:].sum(0) - z[1:]) > 1e-12).any():
            continue
        cuts = one_star(z, y, x, LEAST)
        worst = 0.0
        for g, p in np.argwhere((z > LEAST) & (z < 1 - LEAST)).tolist():
            for k in range(1, N):
                for members in map(list, combinations(range(1, N), k)):
                    if p in members or p == 0:
                        continue
                    more = -y[g, p, members]
                    for s in set(range(1, N)) - {p}:
                        worst = max(worst, y[g, p, s] - z[p, s] + (x[s, p, members] + more).sum())
                        worst = max(worst, y[g, p, s] - z[p, s] + (x[members, p, s] + more).sum())
                    if max(members) < p or min(members) > p:
                        worst = max(worst, z[g, p] - 1 + (x[p, p, members] + more).sum())
        assert max(-slack(cuts, z, y, x), default=0.0) == pytest.approx(worst if worst > LEAST else 0.0, abs=1e-9)


def test_programs_are_tighter(monkeypatch: pytest.MonkeyPatch) -> None:
    """And bounds hold, proofs of what they prove are accepted, and both ways of solving come to the same."""
    found = []
    for cuts in (lambda *_: Cuts.none(), one_star):
        monkeypatch.setattr(program, "one_star", cuts)
        found.append([gp.decode(instance(seed, KINDS), "lp").stats["relaxed"] for seed in range(8)])
    loose, tight = map(torch.cat, found)
    assert bool((tight <= loose + 1e-7).all()) and int((tight < loose - 1e-3).sum()) > 2
    for seed in range(8):
        scores = instance(seed, KINDS)
        expected = best(scores)
        lazy, whole = gp.decode(scores, "ppc"), gp.decode(scores, "lp", proof=True)
        check_sound(whole, expected)
        torch.testing.assert_close(lazy.stats["relaxed"], whole.stats["relaxed"], rtol=0, atol=1e-6)
        gp.verify(scores, whole)
        exact = gp.decode(scores, "ppc", exact=True, proof=True)
        check_best(exact, expected)
        gp.verify(scores, exact)
