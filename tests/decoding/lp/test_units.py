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
