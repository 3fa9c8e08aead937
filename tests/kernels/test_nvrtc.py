"""Every kernel compiles for every supported GPU generation, spills nothing and fits in shared memory."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuparse.backend.base import SOURCES, instances, source_text
from gpuparse.backend.gpu import OPTIONS

ARCHITECTURES = ("75", "80", "86", "90", "100", "120")
STATIC_SHARED_BYTES = 48 * 1024


def find_ptxas() -> str:
    """The one from PyPI, whose version goes with NVRTC's, else the system's."""
    package = pytest.importorskip("nvidia.cuda_nvcc", reason="needs nvidia-cuda-nvcc-cu12")
    here = Path(next(iter(package.__path__))) / "bin" / "ptxas"
    found = str(here) if here.is_file() else shutil.which("ptxas")
    if found is None:
        pytest.skip("no ptxas")
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", SOURCES)
def test_compiles_without_spills(name: str, architecture: str, tmp_path: Path) -> None:
    nvrtc = pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="needs cupy-cuda12x")
    kernels = instances(name)
    program = nvrtc.createProgram(source_text(name), f"{name}.cu", [], [])
    for kernel in kernels:
        nvrtc.addNameExpression(program, kernel.expression)
    try:
        nvrtc.compileProgram(program, [*OPTIONS, f"--gpu-architecture=compute_{architecture}"])
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program))
    ptx = nvrtc.getPTX(program)
    file = tmp_path / f"{name}.ptx"
    file.write_bytes(ptx if isinstance(ptx, bytes) else ptx.encode())
    command = [find_ptxas(), "-v", f"-arch=sm_{architecture}", str(file), "-o", str(tmp_path / "out.cubin")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", told)
    assert len(spills) == len(kernels), told
    assert set(spills) == {("0", "0")}, told
    assert all(int(size) <= STATIC_SHARED_BYTES for size in re.findall(r"(\d+) bytes smem", told)), told
