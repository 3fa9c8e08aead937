"""What launches may cost, counted by the emulator for one sentence, and how many sentences are worked on at once."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from gpuparse.ops import EISNER, MATRIX_TREE, launch
from gpuparse.ops.backend import Kernel
from gpuparse.ops.family import Family, KernelTask
from gpuparse.ops.second_order import SECOND_ORDER
from tests.declared import example
from tests.ptx.launch import Counts

from .emulator import EmulatedGpu

NODES, LENGTHS = 41, torch.tensor([40])


@cache
def counting() -> EmulatedGpu:
    return EmulatedGpu("-O1", races=False, counting=True)


def scores(*parts: int) -> list[Tensor | None]:
    """Random ones, of so many dimensions."""
    g = torch.Generator().manual_seed(40)
    return [torch.randn([1] + [NODES] * k, generator=g) if k else None for k in parts]


def last() -> Counts:
    found = counting().launched[-1][1]
    assert found is not None
    return found


@pytest.mark.emulated
@pytest.mark.parametrize(("family", "most"), [(EISNER, 60), (MATRIX_TREE, 20)], ids=["eisner", "mst"])
def test_barriers_of_decoding(family: Family, most: int) -> None:
    """The program has one for each width; unwinding and contraction have none, for one warp does them."""
    family.decode("argmax", scores(2), (LENGTHS, True), backend=counting())
    assert 0 < last().barriers <= most


@pytest.mark.emulated
def test_sectors_of_best_heads() -> None:
    """The lanes of a warp read the same row of scores: six sectors a row of 41 floats; the chain's heads are a tree."""
    peaked = torch.diag_embed(torch.full((NODES - 1,), 9.0), 1)[None] + scores(2)[0]
    MATRIX_TREE.decode("argmax", [peaked], (LENGTHS, True), backend=counting())
    assert 0 < last().global_sectors <= 700


@pytest.mark.emulated
def test_barriers_of_elimination() -> None:
    """One for each word, and two on the way back."""
    given = scores(2)
    MATRIX_TREE.sums(given, (LENGTHS, True), (), torch.empty(1, dtype=torch.float64), given, counting())
    assert 120 <= last().barriers <= 150


@pytest.mark.emulated
@pytest.mark.slow
def test_scores_to_weights_of_siblings() -> None:
    """Up to a fifth of what takes time is loading: a bad score ends a launch after it."""

    def critical(given: list[Tensor | None], out: list[Tensor] | None) -> int:
        logz, before = torch.empty(1, dtype=torch.float64), len(counting().launched)
        SECOND_ORDER.sums(given, (LENGTHS, True), (), logz, out, counting())
        assert len(counting().launched) == before + 2 and bool(logz.isnan()) == (out is None)
        found = counting().launched[before][1]
        assert found is not None
        return found.critical_instructions

    given = scores(2, 3, 0)
    everything = critical(given, SECOND_ORDER.empty_scores(given))
    assert given[0] is not None
    given[0][0, 1, 2] = float("nan")
    assert 0.02 * everything < critical(given, None) <= 0.2 * everything


@pytest.mark.parametrize("parts", [(2, 3, 0), (2, 0, 3), (2, 3, 3)], ids=["siblings", "grandparents", "both"])
def test_sentences_at_once(parts: tuple[int, ...]) -> None:
    """64 of 100 words in 16 GB, and not more than half of what is free."""
    given = scores(*parts)
    for free, least in ((16 * 10**9, 64), (2 * 10**9, 9)):
        gpu = EmulatedGpu("-Og", 10**6, free)
        room = SECOND_ORDER._kernels(given).room(KernelTask("sums", (64, 101), given, both_ways=True, fast=True))
        slots = gpu.slots(64, 8 * room.doubles, room.work)
        assert slots >= least and slots * 8 * room.doubles <= max(2**30, free / 2)


@pytest.mark.emulated
@pytest.mark.parametrize("name", ("siblings", "grandparents", "grandsiblings"))
def test_64_blocks(name: str) -> None:
    """Two launches: all with fast numbers, and those that need others with safe ones."""
    given, gpu = example(name), EmulatedGpu("-Og", 64)
    many = [None if x is None else x.repeat(13, *[1] * (x.dim() - 1)) for x in given.scores]
    inputs, found = (given.lengths.repeat(13), True), []
    for backend in (None, gpu):
        logz, out = torch.empty(65, dtype=torch.float64), SECOND_ORDER.empty_scores(many)
        SECOND_ORDER.sums(
            many, inputs, (), logz, [y if x is not None else None for x, y in zip(many, out, strict=True)], backend
        )
        found.append([logz, *(y for x, y in zip(many, out, strict=True) if x is not None)])
    assert [grid for grid, _ in gpu.launched] == [64, 64]
    for cpu, emulated in zip(*found, strict=True):
        torch.testing.assert_close(emulated, cpu, rtol=1e-11, atol=1e-11)


class _Narrow:
    """A backend that would like more slots than there is memory for."""

    lanes = 32

    def __init__(self) -> None:
        self.launched: list[int] = []

    def slots(self, sentences: int, slot_bytes: int, work: int) -> int:
        return sentences

    def launch(self, kernel: Kernel, args: object, *, slots: int, nodes: int) -> None:
        self.launched.append(slots)

    def prepare(self, name: str, number: str) -> None: ...


def test_fewer_slots_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    new_empty, narrow, tried = torch.Tensor.new_empty, _Narrow(), []

    def limited(self: Tensor, size: int, **how: object) -> Tensor:
        tried.append(size)
        if size > 500:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return new_empty(self, size, **how)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch.Tensor, "new_empty", limited)
    given = {"nodes": 1, "work": 1, "tail": ()}
    launch.launch(narrow, Kernel("mst", "float"), [torch.zeros(1)], sentences=30, doubles=100, **given)
    assert narrow.launched == [3] and tried == [3000, 1500, 700, 300]
    launch.launch(narrow, Kernel("mst", "float"), [torch.zeros(1)], sentences=30, doubles=9, rarely=True, **given)
    assert narrow.launched == [3, 30]
    with pytest.raises(torch.OutOfMemoryError):
        launch.launch(narrow, Kernel("mst", "float"), [torch.zeros(1)], sentences=30, doubles=501, **given)
    monkeypatch.setattr(launch, "SPARE_BYTES", 8 * 9 * 4)
    launch.launch(narrow, Kernel("mst", "float"), [torch.zeros(1)], sentences=30, doubles=9, rarely=True, **given)
    assert narrow.launched == [3, 30, 4]
