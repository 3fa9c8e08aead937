"""What the GPU path keeps on disk: compiled here by NVRTC, given to a stand-in for the driver."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from gpuparse.ops.backend import gpu
from gpuparse.ops.backend.base import Kernel, announce, instances, source_text

KERNEL = Kernel("mst", "float")


class Driver:
    """Stands in for ``cupy.cuda.function.Module``."""

    loaded: list[bytes]
    called: list[tuple[str, tuple[Any, ...]]]

    def load(self, content: bytes) -> None:
        self.loaded.append(content)

    def get_function(self, name: str) -> Any:
        return lambda *args, **more: self.called.append((name, (*args, more["stream"])))


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Driver]:
    function = pytest.importorskip("cupy.cuda.function", reason="needs cupy-cuda12x")
    pytest.importorskip("nvidia.cuda_nvrtc", reason="needs nvidia-cuda-nvrtc-cu12")
    monkeypatch.setenv("GPUPARSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(function, "Module", Driver)
    Driver.loaded, Driver.called = [], []
    return Driver


def module() -> gpu.CachedModule:
    names = [kernel.expression for kernel in instances(KERNEL.name) if kernel.number == KERNEL.number]
    return gpu.CachedModule(code=source_text(KERNEL.name), options=gpu.OPTIONS, name_expressions=names)


@pytest.mark.slow
def test_compiled_once_and_checked(driver: type[Driver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    compile_ = gpu._machine_code
    monkeypatch.setattr(gpu, "_machine_code", lambda *args: (compiled.append(args), compile_(*args))[1])
    module()
    module()
    assert len(compiled) == 1 and driver.loaded[0] == driver.loaded[1] and driver.loaded[0].startswith(b"\x7fELF")
    (file,) = (tmp_path / "cache").glob("mst-*.cubin")
    assert file.stat().st_mode & 0o777 == 0o700

    whole = file.read_bytes()
    for number, length in enumerate((0, 10, len(whole) // 2, len(whole) - 1)):
        file.write_bytes(whole[:length])
        module()
        assert len(compiled) == number + 2 and driver.loaded[-1] == driver.loaded[0]

    file.unlink()
    os.mkfifo(file)
    with pytest.warns(RuntimeWarning, match="is not a plain file"):
        module()
    assert driver.loaded[-1] == driver.loaded[0]


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    """In processes of their own, with CuPy's own cache elsewhere: it stays empty."""
    pytest.importorskip("cupy.cuda.function", reason="needs cupy-cuda12x")
    pytest.importorskip("nvidia.cuda_nvrtc", reason="needs nvidia-cuda-nvrtc-cu12")
    place = {
        "GPUPARSE_CACHE": str(tmp_path / "cache"),
        "CUPY_CACHE_DIR": str(tmp_path / "cupy"),
        "OMP_NUM_THREADS": "1",
    }

    def run(*expressions: str) -> Any:
        command = [sys.executable, "-W", "ignore", "-m", "tests.ops.backend.another_process", *expressions]
        root = Path(__file__).resolve().parents[3]
        done = subprocess.run(command, capture_output=True, text=True, cwd=root, env={**os.environ, **place})
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)

    first, second = run("check<float>"), run("check<float>", "check<double>", "check<float>")
    assert (first["compiled"], second["compiled"]) == (1, 1)  # the second what the first did not
    assert second["loaded"] == [*first["loaded"], second["loaded"][1], *first["loaded"]]
    assert second["names"][0] == first["names"][0] != second["names"][1]
    assert run("check<float>", "check<double>") == {
        **second,
        "compiled": 0,
        **{k: second[k][:2] for k in ("loaded", "names")},
    }
    assert not list((tmp_path / "cupy").rglob("*"))


def test_the_device_decides_what_is_compiled(
    driver: type[Driver], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = []
    announce.cache_clear()
    caplog.set_level("WARNING", "gpuparse")  # whatever a quiet command has left
    monkeypatch.setattr(gpu, "_machine_code", lambda code, options, names: (given.append(options[-1]), b"{}\n")[1])
    for capability in ((8, 0), (8, 6), (9, 9)):  # of the last, NVRTC knows only the kind
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda capability=capability: capability)
        module()
    assert given == [f"--gpu-architecture=sm_{number}" for number in (80, 86, 90)]
    (said,) = caplog.messages  # once
    assert said.startswith("gpuparse: compiling kernels for the GPU, ")


def test_nothing_of_the_cache_of_cupy(driver: type[Driver], monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = pytest.importorskip("cupy.cuda.compiler")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("CuPy's cache is used")

    for name in ("_compile_module_with_cache", "_compile_with_cache_cuda"):
        monkeypatch.setattr(compiler, name, refuse)
    backend = gpu.GpuBackend(pointer=lambda tensor: tensor)
    backend.launch(KERNEL, [torch.zeros(3), None, 7], slots=2, nodes=40)
    ((name, (grid, block, args, stream)),) = driver.called
    assert name.startswith("_Z3mstIfE") and (grid, block) == ((2,), (64,)) and len(args) == 3 and stream is None


def test_compiled_for_the_device_of_the_tensors_and_launched_on_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each order by itself, once for each device, and what it was compiled to is kept."""
    current, made, called = [0], [], []

    @contextlib.contextmanager
    def as_current(device: torch.device) -> Iterator[None]:
        before, current[0] = current[0], device.index
        yield
        current[0] = before

    def module(*, name_expressions: list[str], **_: object) -> Any:
        def get_function(name: str) -> Any:
            made.append((name, current[0]))
            return lambda grid, block, args, stream: called.append((name, current[0], stream.ptr))

        (_,) = name_expressions
        return SimpleNamespace(get_function=get_function)

    monkeypatch.setattr(torch.cuda, "device", as_current)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=1000 + device.index))
    backend = gpu.GpuBackend(module, pointer=lambda tensor: tensor)
    backend.prepare("eisner", "float", torch.device("cuda:1"))
    assert made == [("eisner<float, 0>", 1)]
    with FakeTensorMode():
        for order, device in ((0, "cuda:1"), (2, "cuda:1"), (2, "cuda:1"), (0, "cuda:0")):
            backend.launch(Kernel("eisner", "float", order), [torch.empty(2, device=device)], slots=1, nodes=3)
    assert made == [("eisner<float, 0>", 1), ("eisner<float, 2>", 1), ("eisner<float, 0>", 0)]
    orders, devices, streams = [0, 2, 2, 0], [1, 1, 1, 0], [1001, 1001, 1001, 1000]
    assert called == [(f"eisner<float, {o}>", d, s) for o, d, s in zip(orders, devices, streams, strict=True)]


@pytest.mark.slow
def test_the_names_are_those_of_the_code(driver: type[Driver]) -> None:
    names = [kernel.expression for kernel in instances(KERNEL.name)]
    options = (*gpu.OPTIONS, "--gpu-architecture=sm_80")
    line, code = gpu._machine_code(source_text(KERNEL.name), options, names).split(b"\n", 1)
    found = json.loads(line)
    assert list(found) == names and all(found[name].encode() in code for name in names)
    with pytest.raises(RuntimeError, match="error: identifier"):
        gpu.CachedModule(code="nonsense", options=(), name_expressions=["nonsense<float>"])


def test_more_blocks_where_memory_is_free() -> None:
    """A workspace of a MiB each: as many as there are sentences, where half of what is free has room for them."""
    free = (lambda: None), (lambda: 3 * 2**30), (lambda: 2**40)
    blocks = [gpu.GpuBackend(Driver, free=bytes_).slots(2000, 2**20, 1) for bytes_ in free]
    assert blocks == [gpu.WORKSPACE_BYTES // 2**20, 1536, 2000]
