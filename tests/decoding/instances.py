"""Random scores, the best trees under them, and what holds of every answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import gpuparse as gp
from tests.oracle import all_trees

LENGTHS = torch.tensor([5, 3, 1, 4])


def normal(seed: int, *shapes: Sequence[int], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Normal numbers of these shapes, drawn one after the other."""
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=g, dtype=dtype) for shape in shapes]


def tensors(seed: int, B: int, n: int, kinds: Sequence[str] = (), labels: int = 0) -> dict[str, Tensor]:
    """Normal scores of arcs, of pairs of these kinds and of labels, by their names."""
    shapes = {"arcs": [B, n + 1, n + 1]} | {kind: [B, *[n + 1] * 3] for kind in kinds}
    if labels:
        shapes["labels"] = [B, n + 1, n + 1, labels]
    return dict(zip(shapes, normal(seed, *shapes.values()), strict=True))


def instance(
    seed: int, parts: Sequence[str] = ("grandparents",), forbidden: float = 0.0, strength: float = 1.5
) -> gp.Scores:
    """Scores of a ragged batch, some of them -inf."""
    g = torch.Generator().manual_seed(seed)
    arcs = 2 * torch.randn(4, 6, 6, generator=g, dtype=torch.float64)
    arcs[:, 1:][torch.rand(4, 5, 6, generator=g) < forbidden / 2] = -math.inf
    made = {}
    for kind in parts:
        made[kind] = strength * torch.randn(4, 6, 6, 6, generator=g, dtype=torch.float64)
        made[kind][torch.rand(made[kind].shape, generator=g) < forbidden] = -math.inf
    for b, n in enumerate(LENGTHS.tolist()):  # what is past the end is never looked at
        for x in (arcs, *made.values()):
            x[b, n + 1 :] = math.nan
            x[b, :, n + 1 :] = math.nan
    return gp.Scores(arcs, LENGTHS, **made)


def best(scores: gp.Scores, single_root: bool = True, projective: bool = False) -> Tensor:
    """The greatest score of any tree of each sentence."""
    found = []
    for b, n in enumerate(scores.lengths.tolist()):
        trees = all_trees(n, single_root=single_root, projective=projective)
        heads = torch.zeros(len(trees), *scores.arcs.shape[:2], dtype=torch.int64)
        heads[:, b, : n + 1] = trees
        found.append(scores.total(heads)[:, b].max())
    return torch.stack(found)


def check_sound(found: Any, expected: Tensor) -> None:
    """Certified is best, no bound is below the best score, and no score is above it."""
    torch.testing.assert_close(found.score[found.certified], expected[found.certified], rtol=0, atol=1e-8)
    assert bool((found.bound >= expected - 1e-9)[expected > -math.inf].all())
    assert bool((found.score <= expected + 1e-9).all())


def check_best(found: Any, expected: Tensor) -> None:
    """All is certified, and best."""
    check_sound(found, expected)
    assert bool(found.certified.all())
    torch.testing.assert_close(found.bound, expected, rtol=0, atol=1e-8)
