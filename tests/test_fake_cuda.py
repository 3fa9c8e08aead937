"""The torch code on fake `cuda` tensors, in a process of its own (see fake_cuda.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run(*args: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[1]
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.fake_cuda", *args], capture_output=True, text=True, cwd=root
    )


def test_no_device_mix_and_no_wait(guard: list[str]) -> None:
    done = run(*guard)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "54 ok"
