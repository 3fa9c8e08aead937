"""Kernels are compiled once and used again; where they cannot be, one warning and the torch path."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import gpuparse as gp
from gpuparse.ops.backend import base, choose, cpu
from gpuparse.ops.backend.gpu import GpuBackend
from tests.ops.backend.place import compiler, in_a_fork

USE = """
import warnings, torch
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from gpuparse.ops.backend import backend_for
    import gpuparse as gp
    for _ in range(2):
        heads = gp.mst(torch.tensor([[[0., 1., 0.], [0., 0., 5.], [0., 9., 0.]]]))
print(heads.tolist(), backend_for(torch.device("cpu")) is not None)
for w in caught:
    if "gpuparse" in str(w.message): print("WARNING", w.message)
"""
RIGHT = "[[-1, 2, 0]]"
SILENTLY = 'import logging; logging.getLogger("gpuparse").setLevel("ERROR")'
NOTICE = "gpuparse: compiling kernels for the CPU, some seconds each; the cache keeps them, if it can be written\n"


def start(cache: Path, before: str = "", **environment: str) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    own = {**os.environ, "GPUPARSE_CACHE": str(cache), **environment}
    return subprocess.Popen([sys.executable, "-c", f"{before}\n{USE}"], env=own, start_new_session=True, **pipes)


def finish(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.splitlines()


def test_several_processes_at_once(tmp_path: Path) -> None:
    processes = [start(tmp_path) for _ in range(3)]
    for process in processes:
        assert finish(process) == [f"{RIGHT} True"]
    names = sorted(f.name.split("-")[0] for f in tmp_path.glob("*.so"))
    assert names == ["check", "mst", "threads"]
    assert not list(tmp_path.glob("*.tmp"))


def test_compiling_is_said_once(tmp_path: Path) -> None:
    """Though three kernels are compiled; not by a process that finds them, nor where the logger is silenced."""
    for place, before, told in (("a", "", NOTICE), ("a", "", ""), ("b", SILENTLY, "")):
        process = start(tmp_path / place, before)
        out, err = process.communicate(timeout=300)
        assert (out, err) == (f"{RIGHT} True\n", told)
        assert len(list((tmp_path / place).glob("*.so"))) == 3


@pytest.mark.parametrize("obstacle", ("file", "read-only"))
def test_cache_that_cannot_be_written(tmp_path: Path, obstacle: str) -> None:
    place = tmp_path / "cache"
    if obstacle == "file":
        place.write_text("in the way")
    else:
        place = Path("/proc/gpuparse")  # not even root can make this
        if not Path("/proc").is_dir():
            pytest.skip("no /proc here")
    assert finish(start(place)) == [f"{RIGHT} True"]


@pytest.mark.parametrize(
    ("script", "told", "times"),
    [
        (None, "no C++ compiler", 1),
        ("echo 'error: no such luck' >&2; exit 1", "no such luck", 1),
        # Of the cache, and of the temporary directory.
        ("echo 'error: writing: No space left on device' >&2; exit 1", "No space left on device", 2),
    ],
    ids=["none", "fails", "full disk"],
)
def test_no_compiler(tmp_path: Path, script: str | None, told: str, times: int) -> None:
    cache = tmp_path / "cache"
    out = finish(start(cache, CXX="/nonexistent/c++" if script is None else compiler(tmp_path, script)))
    assert out[0] == f"{RIGHT} False"
    assert len(out) == 2 and out[1].startswith("WARNING") and out[1].count(told) == times
    assert not cache.exists() or not list(cache.iterdir())  # nothing half written is left


def test_after_a_killed_compile(tmp_path: Path) -> None:
    hanging = compiler(tmp_path, 'case "$*" in *--version*) echo slow;; *) sleep 600;; esac')
    place = tmp_path / "cache"
    process = start(place, CXX=hanging)
    deadline = time.monotonic() + 120
    while not list(place.glob("*.tmp")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (leftover,) = place.glob("*.tmp")
    os.utime(leftover, (0, 0))  # long ago
    assert finish(start(place)) == [f"{RIGHT} True"]
    assert not list(place.glob("*.tmp"))


def test_broken_file_in_the_cache(tmp_path: Path) -> None:
    words = f"env {cpu.find_compiler()} -DUNUSED=1"  # a compiler of several words
    assert finish(start(tmp_path, CXX=words)) == [f"{RIGHT} True"]
    for file in tmp_path.glob("*.so"):
        file.write_bytes(file.read_bytes()[:100])
    assert finish(start(tmp_path, CXX=words)) == [f"{RIGHT} True"]


def test_torch_path_by_choice(tmp_path: Path) -> None:
    assert finish(start(tmp_path, GPUPARSE_BACKEND="torch")) == [f"{RIGHT} False"]
    assert not list(tmp_path.iterdir())


def test_broken_cupy_and_unknown_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it raises
    backend, reason = choose._choose.__wrapped__("cuda")
    assert backend is None and "gpuparse[cuda12]" in reason
    with pytest.raises(ImportError):
        GpuBackend()
    monkeypatch.setenv("GPUPARSE_BACKEND", "tpu")
    with pytest.raises(ValueError, match="GPUPARSE_BACKEND must be"):
        choose._choose.__wrapped__("cpu")


def test_threads_follow_torch() -> None:
    backend, before = cpu.CpuBackend(), torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        much, little = cpu.WORTH_A_THREAD, 1
        assert backend.slots(10, 1, much) == 2 and backend.slots(1, 1, much) == 1 and backend.slots(0, 1, much) == 1
        assert backend.slots(10, 1, little) == 1
        assert backend.slots(10, cpu.WORKSPACE_BYTES, much) == 1  # memory before speed
        torch.set_num_threads(1)
        assert backend.slots(10, 1, much) == 1
    finally:
        torch.set_num_threads(before)


def big_batch() -> torch.Tensor:
    return torch.randn(8, 31, 31, generator=torch.Generator().manual_seed(0))  # enough work for two threads


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    arcs = big_batch()
    expected = gp.ProjectiveTrees(arcs).log_partition  # the parent's threads exist now

    def same() -> None:
        assert torch.equal(gp.ProjectiveTrees(arcs).log_partition, expected)

    assert in_a_fork(same) == 0


def test_python_threads_at_once() -> None:
    arcs = big_batch()
    expected = gp.ProjectiveTrees(arcs).marginals
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: gp.ProjectiveTrees(arcs).marginals, range(40)))
    assert all(torch.equal(mu, expected) for mu in found)


def test_every_source_is_listed() -> None:
    files = {f.stem for f in base.kernels_directory().glob("*.cu")}
    assert files == set(base.SOURCES)
    for name, orders in base.SOURCES.items():
        text, every = base.source_text(name), {(None,): "EXPORT_TYPES", (0, 1, 2): "EXPORT_ORDERS"}.get(orders)
        each = [f"EXPORT({kernel.symbol}, {kernel.expression})" for kernel in base.instances(name)]
        assert f"{every}({name})" in text or all(export in text for export in each), name


def test_wheel_has_the_kernels(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    import zipfile

    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for file in base.kernels_directory().iterdir():
        assert f"gpuparse/_kernels/{file.name}" in names
