"""Sums over grandparents and siblings at lengths around those of whole packs (grandsiblings_spans.cuh), against plain
torch in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.ops.plain import second_order as plain

INF = float("inf")


@pytest.mark.parametrize("n", (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 25, 33))
@pytest.mark.parametrize("single_root", (True, False))
@pytest.mark.parametrize("kinds", (("grandparents",), ("siblings", "grandparents")), ids=" and ".join)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_sums_around_packs(n: int, single_root: bool, kinds: tuple[str, ...], dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(n)
    N = n + 1
    arcs = torch.randn(6, N, N, generator=g, dtype=dtype)
    pairs = {kind: torch.randn(6, N, N, N, generator=g, dtype=dtype) for kind in kinds}
    chain = torch.zeros(N, N, dtype=torch.bool).diagonal_scatter(torch.ones(n, dtype=torch.bool), 1)
    masked = (torch.rand(arcs.shape, generator=g) < 0.4) & ~chain  # the tree of arcs i -> i+1 is always there
    arcs[1:3] = arcs[1:3].masked_fill(masked[1:3], -INF)
    heads = torch.arange(n)
    for kind, x in pairs.items():
        forbidden = torch.rand(x.shape, generator=g) < 0.3
        if kind == "siblings":
            forbidden[:, heads, heads, heads + 1] = False
        else:
            forbidden[:, heads[:-1], heads[:-1] + 1, heads[:-1] + 2] = False
        x[2] = x[2].masked_fill(forbidden[2], -INF)
        x[3] *= 8.0
        x[4] *= 1e4
    arcs[4] *= 1e4
    lengths = torch.tensor([n, n, n, n, n, 1 + n // 2])
    parts = (arcs, pairs.get("siblings"), pairs["grandparents"])
    trees = gp.SecondOrderTrees(arcs, lengths, single_root=single_root, **pairs)
    exact = tuple(None if x is None else x.double() for x in parts)
    # results are rounded to their dtype; plain torch loses 1e-12 or so in float64
    tolerance = 1e-6 if dtype == torch.float32 else 1e-10
    log_z = plain.log_partition(exact, lengths, single_root)
    torch.testing.assert_close(trees.log_partition.double(), log_z, rtol=tolerance, atol=tolerance)
    found: list[Tensor] = [trees.marginals, *(getattr(trees, f"{kind[:-1]}_marginals") for kind in kinds)]
    expected = [x for x in plain.derivative(exact, lengths, single_root) if x is not None]
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x.double(), y, rtol=tolerance, atol=tolerance)
    assert (trees.marginals[1][masked[1]] == 0).all()


@pytest.mark.parametrize("n", (4, 9, 17))
@pytest.mark.parametrize("kinds", (("grandparents",), ("siblings", "grandparents")), ids=" and ".join)
@pytest.mark.parametrize("wrong", (float("nan"), INF))
def test_scores_that_are_none(n: int, kinds: tuple[str, ...], wrong: float) -> None:
    """A NaN or +inf that some tree could have poisons its sentence; one that none has, nothing."""
    N = n + 1
    given: dict[str, Tensor] = {kind: torch.zeros(3, N, N, N) for kind in kinds} | {"arcs": torch.zeros(3, N, N)}
    whole = gp.SecondOrderTrees(**given).log_partition
    for kind, x in given.items():
        read, unread = x.clone(), x.clone()
        if kind == "arcs":
            places = [(0, n), (n, 1), (1, n)]
            unread[:, :, 0] = wrong
            unread.diagonal(0, 1, 2).fill_(wrong)
        elif kind == "siblings":
            places = [(0, n - 1, n), (n, n, 1), (n, 2, 1), (1, 1, n)]
            unread[:, :, :, 0] = wrong
            unread[:, 2, 1, 3] = unread[:, 1, 3, 2] = unread[:, 3, 4, 2] = wrong
        else:
            places = [(0, n, 1), (n, 1, 2), (1, 2, n), (n, n - 1, 1)]
            unread[:, :, 0] = wrong
            unread[:, 2, 1, 3] = unread[:, 2, 3, 1] = unread[:, 4, 4, 1] = wrong
        for place in places:
            bad = read.clone()
            bad[(1, *place)] = wrong
            p = gp.SecondOrderTrees(**(given | {kind: bad}), validate_args=False)
            assert p.log_partition.isnan().tolist() == [False, True, False], (kind, place)
            assert p.marginals.isnan().flatten(1).any(1).tolist() == [False, True, False]
        assert torch.equal(gp.SecondOrderTrees(**(given | {kind: unread}), validate_args=False).log_partition, whole)
