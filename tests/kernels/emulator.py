"""The GPU backend with an emulator of the compiled PTX in CuPy's place, on CPU tensors.

The emulator is looked for at ../shared/ptxemu beside the checkout; tests that need it are skipped where it is not.
"""

from __future__ import annotations

import contextlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuparse.backend.gpu import GpuBackend

PLACE = Path(__file__).resolve().parents[2].parent / "shared" / "ptxemu"
SCHEDULES = ("fwd", "rev", "rand")


class EmulatedGpu(GpuBackend):
    """Launches by the code that launches on a GPU; the order in which threads run is chosen by ``schedule``."""

    def __init__(self, emulated: Any) -> None:
        self.schedule = "fwd"
        self._emulated = emulated
        super().__init__(module=self._build, pointer=lambda tensor: tensor, stream=contextlib.nullcontext)

    def slots(self, sentences: int, slot_bytes: int, work: int) -> int:
        return min(2, super().slots(sentences, slot_bytes, work))  # so that blocks take several sentences, one by one

    def _build(self, **module: Any) -> Any:
        built = self._emulated(**module, arch="compute_80", race=True, opt="-O1")
        return _Module(built, self)


class _Module:
    def __init__(self, built: Any, gpu: EmulatedGpu) -> None:
        self._built, self._gpu = built, gpu

    def get_function(self, name: str) -> Any:
        function = self._built.get_function(name)
        return lambda grid, block, args: function(grid, block, args, order=self._gpu.schedule, seed=7)


@cache
def emulated_gpu() -> EmulatedGpu:
    if not (PLACE / "ptxemu.py").is_file():
        pytest.skip(f"no PTX emulator at {PLACE}")
    pytest.importorskip("nvidia.cuda_nvrtc", reason="needs nvidia-cuda-nvrtc-cu12")
    sys.path.insert(0, str(PLACE))
    import ptxemu

    return EmulatedGpu(ptxemu.RawModule)
