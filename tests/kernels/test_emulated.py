"""Every kernel's PTX, run through the project's own launch code, equals the CPU build: no race, no fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gpuparse.backend import Backend, backend_for
from gpuparse.ops import EISNER, MATRIX_TREE, Structure, launch

from .emulator import SCHEDULES, emulated_gpu

STRUCTURES = pytest.mark.parametrize("s", (EISNER, MATRIX_TREE), ids=lambda s: s.name)
DTYPES = (torch.float32, torch.float64)
INF = float("inf")


def sentences(dtype: torch.dtype, words: int = 6, magnitude: float = 1.0) -> tuple[Tensor, Tensor]:
    """A ragged batch with forbidden arcs, cycles of best heads, one sentence that needs the wide numbers, one NaN where
    nothing is read, and one sentence without any tree."""
    generator = torch.Generator().manual_seed(words)
    arcs = magnitude * torch.randn(5, words + 1, words + 1, generator=generator, dtype=torch.float64)
    arcs[0, 2, 3] = arcs[0, 3, 2] = 9.0
    arcs[1][torch.rand(words + 1, words + 1, generator=generator) < 0.3] = -INF
    arcs[1, 0, 1] = arcs[1, 1, 2] = arcs[1, 2, 3] = 0.5
    arcs[2] *= 900.0
    arcs[2, 1, 2] = arcs[2, 2, 1] = 5000.0
    arcs[3, :, 0] = float("nan")
    arcs[4, :, 2] = -INF
    lengths = torch.tensor([words, 3, words - 1, 1, 4])
    return arcs.to(dtype), lengths


def both(run: Callable[[Backend], Tensor], schedule: str, tolerance: float) -> Tensor:
    """Run on the CPU and on the emulated GPU, compare, and give the CPU's answer."""
    gpu, cpu = emulated_gpu(), backend_for(torch.device("cpu"))
    assert cpu is not None
    gpu.schedule = schedule
    expected, found = run(cpu), run(gpu)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    return expected


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("single_root", (True, False))
@pytest.mark.parametrize("order", (0, 1, 2))
@STRUCTURES
def test_sums(s: Structure, order: int, single_root: bool, dtype: torch.dtype, schedule: str) -> None:
    arcs, lengths = sentences(dtype)
    u, v = torch.randn_like(arcs), torch.randn_like(arcs)

    def run(backend: Backend) -> Tensor:
        logz, out = torch.empty(len(arcs), dtype=torch.float64), torch.empty_like(arcs)
        directions = [(u,), (v,)][:order]
        s.family.sums((arcs,), (lengths, single_root), directions, None if order else logz, (out,), backend)
        return out if order else torch.cat([logz, out.flatten()])

    answer = both(run, schedule, 1e-6 if dtype == torch.float32 else 1e-11)
    assert not answer.isnan().any()
    if order == 0:
        assert answer[4] == -INF and (answer[:4] > -INF).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("single_root", (True, False))
@STRUCTURES
def test_log_partition_alone(s: Structure, single_root: bool, dtype: torch.dtype, schedule: str) -> None:
    arcs, lengths = sentences(dtype, 5)

    def run(backend: Backend) -> Tensor:
        logz = torch.empty(len(arcs), dtype=torch.float64)
        s.family.sums((arcs,), (lengths, single_root), (), logz, None, backend)
        return logz

    both(run, schedule, 1e-6 if dtype == torch.float32 else 1e-11)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("single_root", (True, False))
@STRUCTURES
@pytest.mark.parametrize("words", (6, 40))
def test_best(s: Structure, words: int, single_root: bool, dtype: torch.dtype, schedule: str) -> None:
    arcs, lengths = sentences(dtype, words)
    heads = both(
        lambda backend: s.family.decode("argmax", (arcs,), (lengths, single_root), backend=backend), schedule, 0.0
    )
    assert (heads[4] == -1).all() and (heads[0, 1:] >= 0).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("single_root", (True, False))
@STRUCTURES
def test_topk(s: Structure, single_root: bool, dtype: torch.dtype, schedule: str) -> None:
    arcs, lengths = sentences(dtype, 5)
    heads = both(
        lambda backend: s.family.decode("topk", (arcs,), (lengths, single_root), 9, None, backend), schedule, 0.0
    )
    assert (heads[1:, 3] == -1).all() and (heads[0, 3, 1] == 0).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("single_root", (True, False))
@STRUCTURES
def test_sample(s: Structure, single_root: bool, dtype: torch.dtype, schedule: str) -> None:
    arcs, lengths = sentences(dtype)
    seed = torch.tensor([1234567])
    both(lambda backend: s.family.decode("sample", (arcs,), (lengths, single_root), 40, seed, backend), schedule, 0.0)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_check(dtype: torch.dtype, schedule: str) -> None:
    arcs, lengths = sentences(dtype)
    arcs[0, 1, 2] = float("nan")
    arcs[4, 0, 1] = -(2.0**20)
    lengths[3] = 99
    flags = both(lambda backend: launch.check(arcs, lengths, backend), schedule, 0.0)
    assert flags[0] & 1 and flags[1] & 2 and flags[3] & 4 and flags[4] & 8 and not flags[2]
