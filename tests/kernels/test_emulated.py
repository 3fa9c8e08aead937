"""Every kernel's PTX, run through the project's own launch code, equals the CPU build: no race, no fault."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpuparse.backend import Backend
from gpuparse.ops import EISNER, MATRIX_TREE, Structure, launch

from .emulator import DTYPES, INF, SCHEDULED, both, sentences

STRUCTURES = pytest.mark.parametrize("s", (EISNER, MATRIX_TREE), ids=lambda s: s.name)

pytestmark = pytest.mark.emulated


@SCHEDULED
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


@SCHEDULED
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


@SCHEDULED
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


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("single_root", (True, False))
@STRUCTURES
def test_topk(s: Structure, single_root: bool, dtype: torch.dtype, schedule: str) -> None:
    arcs, lengths = sentences(dtype, 5)
    heads = both(
        lambda backend: s.family.decode("topk", (arcs,), (lengths, single_root), 9, None, backend), schedule, 0.0
    )
    assert (heads[1:, 3] == -1).all() and (heads[0, 3, 1] == 0).all()


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("single_root", (True, False))
@STRUCTURES
def test_sample(s: Structure, single_root: bool, dtype: torch.dtype, schedule: str) -> None:
    arcs, lengths = sentences(dtype)
    seed = torch.tensor([1234567])
    both(lambda backend: s.family.decode("sample", (arcs,), (lengths, single_root), 40, seed, backend), schedule, 0.0)


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
def test_check(dtype: torch.dtype, schedule: str) -> None:
    arcs, lengths = sentences(dtype)
    arcs[0, 1, 2] = float("nan")
    arcs[4, 0, 1] = -(2.0**20)
    lengths[3] = 99
    flags = both(lambda backend: launch.check(arcs, lengths, backend), schedule, 0.0)
    assert flags[0] & 1 and flags[1] & 2 and flags[3] & 4 and flags[4] & 8 and not flags[2]
