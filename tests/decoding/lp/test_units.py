"""Costs of programs are distances from what no tree is above, in units of their own."""

from __future__ import annotations

import numpy as np
import pytest

from gpuparse.decoding.ppc.units import Units


@pytest.mark.parametrize("horizon", [0.5, 3.0, 1e9])
def test_scores_become_costs_and_scores_again(horizon: float) -> None:
    """A bound, with what rounding may have done to it."""
    arcs = np.random.default_rng(0).normal(size=(5, 5)) + 7.0
    arcs[:, 0] = np.diag(arcs)[0] - np.inf
    np.fill_diagonal(arcs, -np.inf)
    units = Units.of(arcs, {}).within(horizon)
    shared = float(arcs[:, 1:].max(0).sum())
    for distance in (0.0, 0.25, 2.0):
        cost = units.cost(shared - distance)
        assert units.distance(cost) == pytest.approx(distance, abs=1e-9) and units.distance(cost) <= distance
        assert (
            units.score(cost) == pytest.approx(shared - distance, abs=1e-9) and units.score(cost) >= shared - distance
        )


def test_what_lies_on_the_horizon_counts() -> None:
    """Arcs and pairs that are exactly as far away; those beyond do not."""
    arcs = np.zeros((4, 4))
    arcs[0, 1:] = -8.0, -8.5, -1.0
    units = Units.of(arcs, {"siblings": np.zeros((4, 4))}).within(8.0)
    assert np.isfinite(units.arcs[0, 1:]).tolist() == [True, False, True] and units.leaves_out
    head, word = np.zeros(3, dtype=np.int64), np.arange(1, 4)
    assert np.isfinite(units.triples("siblings", head, word, np.array([-8.0, -8.5, 0.0]))).tolist() == [
        True,
        False,
        True,
    ]
