"""How many operations belief propagation takes where values cannot be looked at, as on a GPU."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.bp.parsing import log_partition, squared_loss
from gpuparse.train.objectives import tree_objective
from tests.budget import budget


def some_scores(grad: bool = False) -> gp.Scores:
    g, B, N = torch.Generator().manual_seed(0), 32, 21
    lengths = torch.randint(10, 21, (B,), generator=g)
    arcs, grand, sib = (torch.randn(B, *[N] * k, generator=g).requires_grad_(grad) for k in (2, 3, 3))
    return gp.Scores(arcs, lengths, grandparents=grand, siblings=sib, validate_args=False)


@pytest.mark.slow
@pytest.mark.parametrize("variables, grand", [("heads", "bp_grand_heads"), ("links", "bp_grand")])
@pytest.mark.parametrize("projective", [False, True])
def test_decoding(projective: bool, variables: str, grand: str) -> None:
    scores = some_scores()
    with budget() as counted:
        found = gp.decode(scores, "bp", iterations=5, tolerance=0.0, projective=projective, variables=variables)
    assert (found.iterations == 5).all()
    launched = Counter(line.partition(" at ")[0] for line in counted.operations.elements())
    assert launched["bp_tree"] == launched[grand] == launched["bp_children"] == 5
    assert counted.operations.total() <= 400


@pytest.mark.parametrize("variables, most", [("links", 1000), ("heads", 2000)])
def test_gradient(variables: Any, most: int) -> None:
    """Of beliefs, through five iterations; of log Z with messages as constants."""
    scores = some_scores(grad=True)
    options: Any = {"iterations": 5, "tolerance": 0.0, "schedule": "serial", "variables": variables}
    with budget() as counted:
        squared_loss(scores, gp.mst(scores.arcs.detach(), scores.lengths), **options).sum().backward()
    assert counted.operations.total() <= 2 * most
    with budget() as counted:
        log_partition(scores, **options).sum().backward()
    assert counted.operations.total() <= most


@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("name, most", [("bp", 1000), ("bp_l2", 2000)])
def test_training(name: Any, projective: bool, most: int) -> None:
    scores = some_scores(grad=True)
    heads = gp.mst(scores.arcs.detach(), scores.lengths)
    loss = tree_objective(name, projective=projective, single_root=True, margin=1.0, iterations=5)
    with budget() as counted:
        loss(scores, heads).sum().backward()
    assert counted.operations.total() <= most
    assert scores.arcs.grad is not None and not scores.arcs.grad.isnan().any()
