"""Every kernel compiles for every supported GPU generation, spills nothing and fits in shared memory."""

from __future__ import annotations

import re

import pytest

from gpuparse.ops.backend.base import SOURCES, instances, source_text
from gpuparse.ops.backend.gpu import OPTIONS
from tests.ptx.nvrtc import assembler_report, compile_ptx

ARCHITECTURES = ("75", "80", "86", "90", "100", "120")
STATIC_SHARED_BYTES = 48 * 1024


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", SOURCES)
def test_compiles_without_spills(name: str, architecture: str) -> None:
    kernels = instances(name)
    ptx, _ = compile_ptx(source_text(name), OPTIONS, [kernel.expression for kernel in kernels], architecture)
    told = assembler_report(ptx, architecture)
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", told)
    assert len(spills) == len(kernels), told
    assert set(spills) == {("0", "0")}, told
    assert all(int(size) <= STATIC_SHARED_BYTES for size in re.findall(r"(\d+) bytes smem", told)), told
