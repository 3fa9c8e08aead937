"""Scores of a ragged batch, and the best trees under them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import gpuparse as gp
from tests.oracle import all_trees

LENGTHS = torch.tensor([5, 3, 1, 4])


def instance(seed: int, parts: tuple[str, ...], forbidden: float = 0.0, strength: float = 1.5) -> gp.Scores:
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
        N, count = n + 1, len(trees)
        given = {
            kind: getattr(scores, kind).dense()[b, :N, :N, :N].expand(count, -1, -1, -1) for kind in scores.second_order
        }
        one = gp.Scores(
            scores.arcs[b, :N, :N].expand(count, -1, -1), torch.full((count,), n), **given, validate_args=False
        )
        found.append(one.total(trees).max())
    return torch.stack(found)
