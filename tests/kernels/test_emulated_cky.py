"""The PTX of the kernels over trees of a grammar, run through the project's own launch code, equals the CPU build."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from gpuparse.backend import Backend
from gpuparse.ops.cky import CKY
from gpuparse.plain.cky import Scores, index_rules
from tests.ptx.launch import ORDERS

from .emulator import DTYPES, INF, SCHEDULED
from .emulator import quickly_both as both

pytestmark = pytest.mark.emulated


def scores_of(
    dtype: torch.dtype, words: int = 4, symbols: int = 6, tags: int = 3, rules: int = 24, spans: bool = True
) -> tuple[Scores, Tensor, Tensor]:
    """A ragged batch with forbidden parts, one sentence that needs the wide numbers, NaN where nothing is read, and one
    sentence without any tree."""
    g = torch.Generator().manual_seed(words)
    every = torch.cartesian_prod(torch.arange(tags, symbols), torch.arange(symbols), torch.arange(symbols))
    chosen = every[torch.randperm(len(every), generator=g)[:rules]]
    chosen = torch.cat([chosen, torch.tensor([[tags, 0, 0], [tags, 0, tags]])]).unique(dim=0).T
    R, B = chosen.shape[1], 4
    shapes = ((B, words, tags), (B, R), (B, symbols), (B, words, words, symbols))
    found = [torch.randn(shape, generator=g, dtype=torch.float64) for shape in shapes]
    barred = torch.rand(R, generator=g) < 0.2
    found[1][1] = found[1][1].masked_fill(barred & ~((chosen[0] == tags) & (chosen[1] == 0)), -INF)
    for x in found:
        x[2] *= 300.0
    found[0][3, 1] = -INF
    lengths = torch.tensor([words, words - 1, words, 2])
    found[0][1, words - 1] = found[3][:, 1, 0] = float("nan")
    values = [x.to(dtype) for x in found]
    return (values[0], values[1], values[2], values[3] if spans else None), index_rules(chosen, symbols), lengths


def flat(tensors: Sequence[Tensor | None]) -> Tensor:
    return torch.cat([x.flatten().double() for x in tensors if x is not None])


def check_sums(order: int, schedule: str, dtype: torch.dtype, spans: bool) -> None:
    scores, grammar, lengths = scores_of(dtype, spans=spans)
    directions = [[None if x is None else torch.rand_like(x) for x in scores] for _ in range(order)]

    def run(backend: Backend) -> Tensor:
        logz = torch.empty(len(lengths), dtype=torch.float64)
        out = [None if x is None else torch.empty_like(x) for x in scores]
        CKY.sums(scores, (grammar, lengths), directions, None if order else logz, out, backend)
        return flat([*([] if order else [logz]), *out])

    answer = both(run, schedule, 1e-6 if dtype == torch.float32 else 1e-11)
    assert not answer.isnan().any()
    if order == 0:
        assert answer[3] == -INF and bool((answer[:3] > -INF).all())


@SCHEDULED
@pytest.mark.parametrize("order", (0, 1, 2))
def test_sums(order: int, schedule: str) -> None:
    check_sums(order, schedule, torch.float64, ORDERS.index(schedule) != order)


@pytest.mark.parametrize("order", (0, 1, 2))
def test_sums_of_float32(order: int) -> None:
    check_sums(order, "random", torch.float32, True)


@SCHEDULED
def test_log_partition_of_more_cells_than_lanes(schedule: str) -> None:
    """70 symbols over 6 places: more than the 256 threads of a block, so that each takes several."""
    scores, grammar, lengths = scores_of(torch.float64, 6, 74, 4, 120)

    def run(backend: Backend) -> Tensor:
        logz = torch.empty(len(lengths), dtype=torch.float64)
        CKY.sums(scores, (grammar, lengths), (), logz, None, backend)
        return logz

    both(run, schedule, 1e-11)


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
def test_best_and_samples(dtype: torch.dtype, schedule: str) -> None:
    scores, grammar, lengths = scores_of(dtype, 5)
    trees = both(lambda backend: CKY.decode("argmax", scores, (grammar, lengths), backend=backend), schedule, 0.0)
    assert bool((trees[3] == -1).all()) and bool((trees[0, :, :3] >= 0).all())
    seed = torch.tensor([1234567])
    both(lambda backend: CKY.decode("sample", scores, (grammar, lengths), 40, seed, backend), schedule, 0.0)


@SCHEDULED
def test_bad_scores_are_poison(schedule: str) -> None:
    scores, grammar, lengths = scores_of(torch.float64)
    assert scores[3] is not None
    scores[3][0, 1, 2, 4] = float("nan")

    def run(backend: Backend) -> Tensor:
        out = [None if x is None else torch.empty_like(x) for x in scores]
        CKY.sums(scores, (grammar, lengths), (), None, out, backend)
        return torch.cat([x.flatten(1) for x in out if x is not None], 1)

    answer = both(run, schedule, 1e-11)
    assert bool(answer[0].isnan().all()) and not answer[1:].isnan().any()
    assert bool(
        (
            both(lambda backend: CKY.decode("argmax", scores, (grammar, lengths), backend=backend), schedule, 0.0)[0]
            == -1
        ).all()
    )
