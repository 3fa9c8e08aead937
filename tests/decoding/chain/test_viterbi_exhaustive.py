"""Column generation against the dense program on random chains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import gpuparse as gp

pytestmark = pytest.mark.exhaustive

INSTANCES = 10_000
ROUNDING = 1e-12  # of a score's size: the same sum in another order


def random_instances(count: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Ragged batches of 100 with 1 to 180 tags, forbidden tags and transitions, ties, many magnitudes. In every third
    one words decide most, so that column generation is not left to the dense program."""
    for seed in range(count // 100):
        generator = torch.Generator().manual_seed(seed)
        n, T, scales = 1 + seed % 13, 1 + (seed * 7) % 80, ((0.3, 1.0, 4.0, 1e4)[seed % 4], (0.1, 1.0, 3.0)[seed % 3])
        if seed % 3 == 2:
            T, scales = 100 + T, ((6.0, 10.0)[seed % 2], 0.5)
        unary = scales[0] * torch.randn(100, n, T, generator=generator, dtype=torch.float64)
        transitions = scales[1] * torch.randn(T, T, generator=generator, dtype=torch.float64)
        if seed % 7 == 0:
            unary, transitions = unary.round(), transitions.round()
        if seed % 4 == 3:
            unary[..., 1:][torch.rand(100, n, T - 1, generator=generator) < 0.4] = -torch.inf
            mask = torch.rand(T, T, generator=generator) < 0.4
            mask[0, 0] = False
            transitions[mask] = -torch.inf
        dtype = (torch.float32, torch.float64)[seed % 2]
        yield unary.to(dtype), transitions.to(dtype), torch.randint(1, n + 1, (100,), generator=generator)


@pytest.mark.parametrize("pricing", ["forward", "averaged"])
def test_column_generation_finds_the_dense_score(pricing: str) -> None:
    for number, (unary, transitions, lengths) in enumerate(random_instances(INSTANCES)):
        dense = gp.viterbi(unary, transitions, lengths, method="dense").score
        found = gp.viterbi(unary, transitions, lengths, method="column_generation", pricing=pricing).score
        same = (found == dense) | ((found - dense).abs() <= ROUNDING * dense.abs().clamp(min=1.0))
        assert bool(same.all()), f"batch {number}, sentences {(~same).nonzero()[:, 0].tolist()}"
