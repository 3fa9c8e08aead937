"""The kernels of chains as PTX, run through the project's own launch code, equal the CPU build: no race, no fault."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpuparse.ops import chains
from gpuparse.ops.backend import Backend

from .emulator import DTYPES, INF, SCHEDULED, both

pytestmark = pytest.mark.emulated

KINDS = pytest.mark.parametrize("kind", ("shared", "own", "trigrams"))


def sentences(kind: str, dtype: torch.dtype, tags: int = 3) -> tuple[Tensor, Tensor, Tensor, bool]:
    """A ragged batch with forbidden tags and pairs, one sentence that needs the wide numbers, one that is bad and one
    without any chain."""
    generator = torch.Generator().manual_seed(tags)
    B, n, size = 6, 5, tags * tags if kind == "trigrams" else tags
    unary = torch.randn(B, n, tags, generator=generator, dtype=torch.float64)
    places = (B, n - 1) if kind == "own" else (1, 1)
    pairs = torch.randn(*places, size, tags, generator=generator, dtype=torch.float64)
    pairs[..., 0, 1] = -INF
    unary[0, 1, 0] = -INF
    unary[1] *= 3000.0
    unary[4, 0, 0] = float("nan")
    unary[5, 2] = -INF
    lengths = torch.tensor([5, 4, 2, 1, 5, 5])
    for b, length in enumerate(lengths.tolist()):
        unary[b, length:] = float("nan")
    return unary.to(dtype), pairs.to(dtype), lengths, kind == "trigrams"


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", (0, 1, 2))
@KINDS
def test_sums(kind: str, order: int, dtype: torch.dtype, schedule: str) -> None:
    unary, pairs, lengths, trigrams = sentences(kind, dtype)
    directions = [(torch.randn_like(unary), torch.randn_like(pairs)) for _ in range(order)]
    weight = torch.rand(len(unary), dtype=torch.float64)
    good = [0, 1, 2, 3, 5]

    def run(backend: Backend) -> Tensor:
        value, _ = chains.sums(unary, pairs, lengths, trigrams, directions, backend=backend)
        mu, counts = chains.sums(unary, pairs, lengths, trigrams, directions, weight, backend=backend)
        assert value[4].isnan() and mu[4].isnan().all()
        if kind == "own":
            counts = counts[good]
        else:  # once more without the bad one
            counts = chains.sums(
                unary[good],
                pairs,
                lengths[good],
                trigrams,
                directions=[(u[good], v) for u, v in directions],
                weight=weight[good],
                want=(False, True),
                backend=backend,
            )[1]
        return torch.cat([value[good], mu[good].double().flatten(), counts.double().flatten()])

    answer = both(run, schedule, 2e-5 if dtype == torch.float32 else 1e-11)
    assert not answer.isnan().any()
    if order == 0:
        assert answer[4] == -INF and (answer[:4] > -INF).all()


@SCHEDULED
@pytest.mark.parametrize("kind", ("shared", "trigrams"))
def test_every_place_of_shared_pairs(kind: str, schedule: str) -> None:
    unary, pairs, lengths, trigrams = sentences(kind, torch.float64)
    unary, lengths = unary[:3], lengths[:3]
    every = pairs.expand(3, chains.places(5, trigrams), -1, -1)
    weight = torch.ones(3, dtype=torch.float64)
    both(
        lambda backend: chains.sums(
            unary, every, lengths, trigrams, weight=weight, want=(False, True), backend=backend
        )[1],
        schedule,
        1e-11,
    )


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
@KINDS
def test_topk(kind: str, dtype: torch.dtype, schedule: str) -> None:
    unary, pairs, lengths, trigrams = sentences(kind, dtype)
    tags = both(lambda backend: chains.chain_topk(unary, pairs, lengths, trigrams, 7, backend=backend), schedule, 0.0)
    assert (tags[:, 4:] == -1).all() and (tags[3:, 3] == -1).all() and (tags[0, 0] >= 0).all()


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
@KINDS
def test_sample(kind: str, dtype: torch.dtype, schedule: str) -> None:
    unary, pairs, lengths, trigrams = sentences(kind, dtype)
    seed = torch.tensor([1234567])
    tags = both(
        lambda backend: chains.chain_sample(unary, pairs, lengths, seed, trigrams, 40, backend=backend), schedule, 0.0
    )
    assert (tags[:, 4:] == -1).all() and (tags[:, 0] >= 0).all()


@SCHEDULED
def test_more_tags_than_lanes(schedule: str) -> None:
    """A block is as wide as there are states, up to a limit: here lanes take several of them."""
    unary, pairs, lengths, trigrams = sentences("trigrams", torch.float64, tags=17)
    unary, lengths, weight = unary[:1, :3], lengths[:1].clamp(max=3), torch.ones(1, dtype=torch.float64)
    both(
        lambda backend: torch.cat(
            [x.flatten() for x in chains.sums(unary, pairs, lengths, trigrams, weight=weight, backend=backend)]
        ),
        schedule,
        1e-11,
    )
