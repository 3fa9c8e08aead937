"""The torch code on fake `cuda` tensors, in a process of its own (see fake_cuda.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gpuparse.backend.cpu import find_compiler

GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace { C10_REGISTER_GUARD_IMPL(CUDA, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>) }
"""


def run(*args: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[1]
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.fake_cuda", *args], capture_output=True, text=True, cwd=root
    )


@pytest.fixture(scope="session")
def guard(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if torch.backends.cuda.is_built():
        return []
    compiler = find_compiler()
    assert compiler is not None, "the tests need a C++ compiler"
    place, home = tmp_path_factory.mktemp("guard"), Path(torch.__file__).parent
    (place / "guard.cpp").write_text(GUARD)
    command = [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", f"-I{home}/include", "guard.cpp"]
    subprocess.run([*command, "-o", "guard.so", f"-L{home}/lib", "-lc10"], cwd=place, check=True)
    return [str(place / "guard.so")]


def test_no_device_mix_and_no_wait(guard: list[str]) -> None:
    done = run(*guard)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "54 ok"
