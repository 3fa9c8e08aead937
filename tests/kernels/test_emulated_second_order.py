"""The PTX of the second-order kernels, run through the project's own launch code, equals the CPU build."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpuparse.backend import Backend
from gpuparse.ops.second_order import SECOND_ORDER
from gpuparse.plain.second_order import Scores
from tests.ptx.launch import ORDERS

from .emulator import DTYPES, INF, SCHEDULED, sentences
from .emulator import quickly_both as both

pytestmark = pytest.mark.emulated

FAMILIES = pytest.mark.parametrize("family", ("siblings", "grandparents", "both"))


def scores_of(family: str, dtype: torch.dtype, words: int) -> tuple[Scores, Tensor]:
    """``sentences`` with scores of pairs, some of which are forbidden or so large that the wide numbers are needed."""
    arcs, lengths = sentences(dtype, words)
    generator = torch.Generator().manual_seed(words)
    pairs = []
    for _ in range(2):
        x = torch.randn(5, *[words + 1] * 3, generator=generator, dtype=torch.float64)
        forbidden = torch.rand(x.shape, generator=generator) < 0.2
        forbidden[[0, 3]] = False
        forbidden[1] &= (torch.rand(x[1].shape, generator=generator) < 0.3) & (arcs[1] == -INF)
        x[2] *= 300.0
        forbidden[2] &= x[2] < 0
        pairs.append(x.masked_fill(forbidden, -INF).to(dtype))
    return (arcs, None if family == "grandparents" else pairs[0], None if family == "siblings" else pairs[1]), lengths


def check_sums(family: str, order: int, single_root: bool, schedule: str, dtype: torch.dtype, words: int) -> None:
    scores, lengths = scores_of(family, dtype, words)
    directions = [[None if x is None else torch.rand_like(x) for x in scores] for _ in range(order)]

    def run(backend: Backend) -> Tensor:
        logz = torch.empty(len(lengths), dtype=torch.float64)
        out = [None if x is None else torch.empty_like(x) for x in scores]
        SECOND_ORDER.sums(scores, (lengths, single_root), directions, None if order else logz, out, backend)
        return torch.cat([*([] if order else [logz]), *(x.flatten().double() for x in out if x is not None)])

    answer = both(run, schedule, 1e-6 if dtype == torch.float32 else 1e-11)
    assert not answer.isnan().any()
    if order == 0:
        assert answer[4] == -INF and (answer[[0, 1, 3]] > -INF).all()


@SCHEDULED
@FAMILIES
@pytest.mark.parametrize("order", (0, 1, 2))
def test_sums(family: str, order: int, schedule: str) -> None:
    check_sums(family, order, (order + ORDERS.index(schedule)) % 2 == 0, schedule, torch.float64, 5)


@pytest.mark.parametrize("family", ("siblings", "both"))
@pytest.mark.parametrize("order", (0, 1, 2))
def test_sums_of_float32(family: str, order: int) -> None:
    """Once for each kernel."""
    check_sums(family, order, True, "random", torch.float32, 4)


@SCHEDULED
@FAMILIES
def test_log_partition_alone(family: str, schedule: str) -> None:
    scores, lengths = scores_of(family, torch.float64, 6)

    def run(backend: Backend) -> Tensor:
        logz = torch.empty(len(lengths), dtype=torch.float64)
        SECOND_ORDER.sums(scores, (lengths, True), (), logz, None, backend)
        return logz

    both(run, schedule, 1e-11)


@SCHEDULED
@FAMILIES
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("single_root", (True, False))
def test_best_and_samples(family: str, single_root: bool, dtype: torch.dtype, schedule: str) -> None:
    scores, lengths = scores_of(family, dtype, 6)
    heads = both(
        lambda backend: SECOND_ORDER.decode("argmax", scores, (lengths, single_root), backend=backend), schedule, 0.0
    )
    assert (heads[4] == -1).all() and (heads[0, 1:] >= 0).all()
    seed = torch.tensor([1234567])
    both(
        lambda backend: SECOND_ORDER.decode("sample", scores, (lengths, single_root), 40, seed, backend), schedule, 0.0
    )


@FAMILIES
def test_best_of_more_cells_than_lanes(family: str) -> None:
    """N^2 = 289 places for a block of at most 256 threads, so that each takes several."""
    scores, lengths = scores_of(family, torch.float64, 16)
    heads = both(lambda backend: SECOND_ORDER.decode("argmax", scores, (lengths, True), backend=backend), "random", 0.0)
    assert (heads[4] == -1).all() and (heads[0, 1:] >= 0).all()


@SCHEDULED
@FAMILIES
def test_bad_scores_are_poison(family: str, schedule: str) -> None:
    scores, lengths = scores_of(family, torch.float64, 4)
    x = scores[1] if scores[1] is not None else scores[2]
    assert x is not None
    (x[0, 3, 3] if scores[1] is not None else x[0, 4, 3])[2] = float("nan")

    def run(backend: Backend) -> Tensor:
        out = [None if x is None else torch.empty_like(x) for x in scores]
        SECOND_ORDER.sums(scores, (lengths, True), (), None, out, backend)
        return torch.cat([x.flatten(1) for x in out if x is not None], 1)

    answer = both(run, schedule, 1e-11)
    assert answer[0].isnan().all() and not answer[1:].isnan().any()
    assert (
        both(lambda backend: SECOND_ORDER.decode("argmax", scores, (lengths, True), backend=backend), schedule, 0.0)[0]
        == -1
    ).all()
