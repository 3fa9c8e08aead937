"""CUDA C++ to PTX by NVRTC, and what ptxas says of it. Neither needs a GPU; both are kept in the project's cache."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuparse.ops.backend.cache import cache_name, fetch


def compile_ptx(
    code: str, options: Sequence[str], names: Sequence[str], architecture: str
) -> tuple[str, dict[str, str]]:
    """The PTX, and the names in it by the expressions they were asked for by. ``architecture`` as in "80"."""
    nvrtc = pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="needs cupy-cuda12x")
    pytest.importorskip("nvidia.cuda_nvrtc", reason="needs nvidia-cuda-nvrtc-cu12")
    given = (*options, f"--gpu-architecture=compute_{architecture}", "--generate-line-info")

    def build(target: Path) -> None:
        program = nvrtc.createProgram(code, "kernel.cu", [], [])
        try:
            for name in names:
                nvrtc.addNameExpression(program, name)
            try:
                nvrtc.compileProgram(program, given)
            except nvrtc.NVRTCError:
                pytest.fail(nvrtc.getProgramLog(program))
            lowered = {name: nvrtc.getLoweredName(program, name) for name in names}
            ptx = nvrtc.getPTX(program)
            text = ptx.decode() if isinstance(ptx, bytes) else ptx
            target.write_text(json.dumps(lowered) + "\n" + text.rstrip("\0"))
        finally:
            nvrtc.destroyProgram(program)

    file_name = cache_name("nvrtc", ".ptx", code, *given, *names, str(nvrtc.getVersion()))
    lowered, ptx = fetch(file_name, build, lambda _, content: content.decode().split("\n", 1))
    return ptx, json.loads(lowered)


def find_ptxas() -> str:
    """The one that comes as a Python package, whose version goes with NVRTC's, else the system's."""
    package = pytest.importorskip("nvidia.cuda_nvcc", reason="needs nvidia-cuda-nvcc-cu12")
    here = Path(next(iter(package.__path__))) / "bin" / "ptxas"
    found = str(here) if here.is_file() else shutil.which("ptxas")
    if found is None:
        pytest.skip("no ptxas")
    return found


def assembler_report(ptx: str, architecture: str) -> str:
    """What ``ptxas -v`` says: registers, spills and shared memory of every kernel."""
    ptxas = find_ptxas()
    version = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout

    def build(target: Path) -> None:
        source, made = target.with_suffix(".in"), target.with_suffix(".cubin")
        source.write_text(ptx)
        try:
            command = [ptxas, "-v", f"-arch=sm_{architecture}", str(source), "-o", str(made)]
            target.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stderr)
        finally:
            source.unlink()
            made.unlink(missing_ok=True)

    return fetch(cache_name("ptxas", ".txt", ptx, architecture, version), build, lambda _, content: content.decode())
