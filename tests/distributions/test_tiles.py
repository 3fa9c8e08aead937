"""Eisner's sums at lengths around those of whole tiles (eisner_tiles.cuh), against plain torch in float64."""

from __future__ import annotations

import pytest
import torch

import gpuparse as gp
from gpuparse.ops.plain import eisner, generic

INF = float("inf")


@pytest.mark.parametrize("n", (1, 2, 4, 5, 7, 8, 9, 12, 16, 17, 25, 34))
@pytest.mark.parametrize("single_root", (True, False))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_sums_around_tiles(n: int, single_root: bool, dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(n)
    arcs = torch.randn(6, n + 1, n + 1, generator=g, dtype=dtype)
    masked = torch.rand(arcs.shape, generator=g) < 0.4
    masked.diagonal(1, 1, 2).fill_(False)  # the tree of arcs i -> i+1 is always there
    arcs[1:3] = arcs[1:3].masked_fill(masked[1:3], -INF)
    arcs[3] *= 8.0
    arcs[4] *= 1e4
    lengths = torch.tensor([n, n, max(1, n - 1), n, n, 1 + n // 2])
    trees = gp.ProjectiveTrees(arcs, lengths, single_root=single_root)
    marginals, exact = trees.marginals.double(), arcs.double()
    expected = generic.marginals(eisner.log_partition, exact, lengths, single_root)
    # results are rounded to their dtype; plain torch loses 1e-12 or so in float64
    tolerance = 1e-6 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(marginals, expected, rtol=tolerance, atol=tolerance)
    log_z = eisner.log_partition(exact, lengths, single_root)
    torch.testing.assert_close(trees.log_partition.double(), log_z, rtol=tolerance, atol=tolerance)
    assert (marginals[1][masked[1]] == 0).all()
