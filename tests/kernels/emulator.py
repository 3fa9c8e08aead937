"""The GPU backend with the PTX emulator in CuPy's place, on CPU tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from gpuparse.ops.backend import Backend, backend_for
from gpuparse.ops.backend.gpu import GpuBackend
from tests.ptx import RawModule
from tests.ptx.launch import ORDERS

DTYPES = (torch.float32, torch.float64)
INF = float("inf")
SCHEDULED = pytest.mark.parametrize("schedule", ORDERS)


class EmulatedGpu(GpuBackend):
    """Launches by the code that launches on a GPU; the order in which threads run is chosen by ``schedule``."""

    def __init__(self, optimise: str) -> None:
        self.schedule = ORDERS[0]
        self._optimise = optimise
        super().__init__(module=self._build, pointer=lambda tensor: tensor, stream=contextlib.nullcontext)

    def slots(self, sentences: int, slot_bytes: int, work: int) -> int:
        return min(2, super().slots(sentences, slot_bytes, work))  # so that blocks take several sentences, one by one

    def _build(self, **module: Any) -> Any:
        return _Module(RawModule(**module, optimise=self._optimise), self)


class _Module:
    def __init__(self, built: RawModule, gpu: EmulatedGpu) -> None:
        self._built, self._gpu = built, gpu

    def get_function(self, name: str) -> Any:
        function = self._built.get_function(name)
        return lambda grid, block, args: function(grid, block, args, order=self._gpu.schedule, seed=7)


@cache
def emulated_gpu(optimise: str) -> EmulatedGpu:
    return EmulatedGpu(optimise)


def on_both(run: Callable[[Backend], Any], schedule: str, *, optimise: str = "-O1") -> tuple[Any, Any]:
    """What the CPU and what the emulated GPU make of it."""
    gpu, cpu = emulated_gpu(optimise), backend_for(torch.device("cpu"))
    assert cpu is not None
    gpu.schedule = schedule
    return run(cpu), run(gpu)


def both(run: Callable[[Backend], Tensor], schedule: str, tolerance: float, *, optimise: str = "-O1") -> Tensor:
    """Run on the CPU and on the emulated GPU, compare, and give the CPU's answer."""
    expected, found = on_both(run, schedule, optimise=optimise)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    return expected
