"""What a node of branch and bound is given."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.dual import branch


@pytest.mark.parametrize("iterations", [10, 1000])
def test_a_node_has_few_iterations(iterations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the first run, but no more than a hundred: what takes longer is worth two smaller nodes."""
    real, seen = branch.DualDecomposition, []

    def made(*given: Any, **how: Any) -> gp.DualDecomposition:
        seen.append(how["iterations"])
        return real(*given, **how)

    monkeypatch.setattr(branch, "DualDecomposition", made)
    g = torch.Generator().manual_seed(0)
    pairs = {kind: 2 * torch.randn(12, 8, 8, 8, generator=g) for kind in ("siblings", "grandparents")}
    scores = gp.Scores(torch.randn(12, 8, 8, generator=g), **pairs)
    found = gp.decode(scores, "dd", exact=True, iterations=iterations)
    assert found.certified.all() and set(seen) == {min(iterations, branch.ITERATIONS)}
