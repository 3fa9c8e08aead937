"""The GPU backend with the PTX emulator in CuPy's place, on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from gpuparse.ops.backend import Backend, backend_for
from gpuparse.ops.backend.gpu import GpuBackend
from tests.ptx import RawModule
from tests.ptx.launch import ORDERS, Counts

DTYPES = (torch.float32, torch.float64)
INF = float("inf")
SCHEDULED = pytest.mark.parametrize("schedule", ORDERS)


class EmulatedGpu(GpuBackend):
    """Launches by the code that launches on a GPU, one with few units for doubles; the order in which threads run is
    chosen by ``schedule``. No more than ``most`` slots: so that blocks take several sentences, one by one.
    ``launched``: grids and their counts."""

    def __init__(self, optimise: str, most: int = 2, free: int = 16 * 10**9, **how: Any) -> None:
        self.schedule, self.most, self._how = ORDERS[0], most, {"optimise": optimise, "architecture": "86", **how}
        self.launched: list[tuple[int, Counts | None]] = []
        super().__init__(self._build, lambda tensor: tensor, lambda: free)

    def slots(self, sentences: int, slot_bytes: int, work: int) -> int:
        return min(self.most, super().slots(sentences, slot_bytes, work))

    def _build(self, **module: Any) -> Any:
        return _Module(RawModule(**module, **self._how), self)


class _Module:
    def __init__(self, built: RawModule, gpu: EmulatedGpu) -> None:
        self._built, self._gpu = built, gpu

    def get_function(self, name: str) -> Any:
        function = self._built.get_function(name)

        def run(grid: tuple[int], block: tuple[int], args: tuple[Any, ...], stream: None) -> None:
            function(grid, block, args, order=self._gpu.schedule, seed=7)
            self._gpu.launched.append((grid[0], function.counts))

        return run


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
