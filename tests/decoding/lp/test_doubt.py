"""The solver's word that a program has no solution is checked."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.ilp.master import Master
from gpuparse.decoding.solver import Solution, Status
from tests.decoding.instances import normal


@pytest.mark.parametrize("ray", [None, np.ones])
def test_a_solver_that_lies_about_infeasible_programs(monkeypatch: pytest.MonkeyPatch, ray: object) -> None:
    """Whatever it says, and whatever it gives for a reason, the answer is the best tree or is not certified."""
    monkeypatch.setattr(Master, "solve", lambda *_: Solution(Status.INFEASIBLE, None, None, -np.inf))
    monkeypatch.setattr(Master, "ray", lambda self: None if ray is None else np.ones(len(self.rows)))
    for seed in range(5):
        arcs, pairs = normal(seed, (1, 4, 4), (1, 4, 4, 4))
        scores = gp.Scores(arcs, grandparents=3 * pairs)
        found = gp.decode(scores, "ilp")
        best = gp.decode(scores, "ppc", exact=True)
        assert bool(best.certified[0])
        assert found.heads.tolist() == best.heads.tolist() or not bool(found.certified[0])
        assert float(found.bound[0]) >= float(best.score[0]) - 1e-12


@pytest.mark.parametrize("method", ["ppc", "lp", "dd", "ilp", "auto"])
@pytest.mark.parametrize("mask", [-1e30, -1e200, float(np.finfo(np.float64).min) / 4])
def test_the_only_tree_is_far_beyond_the_others_parts(method: str, mask: float) -> None:
    """Parts of ordinary size, then one that is far away, then none: the horizon has to move as far as that."""
    pairs = torch.full((1, 4, 4, 4), -torch.inf, dtype=torch.float64)
    pairs[0, 0, 1, 2], pairs[0, 1, 2, 3] = -1e12, mask  # 0 -> 1 -> 2 -> 3, and no other
    scores = gp.Scores(*normal(0, (1, 4, 4)), grandparents=pairs)
    found = gp.decode(scores, method)
    assert found.heads.tolist() == [[-1, 0, 1, 2]]
    assert int(found.iterations[0]) < 5000
