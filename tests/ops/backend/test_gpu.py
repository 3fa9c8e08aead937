"""What the GPU path keeps on disk: compiled here by NVRTC, given to a stand-in for the driver."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

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
        return lambda *args: self.called.append((name, args))


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
    backend = gpu.GpuBackend(pointer=lambda tensor: tensor, stream=contextlib.nullcontext)
    backend.launch(KERNEL, [torch.zeros(3), None, 7], slots=2, nodes=40)
    ((name, (grid, block, args)),) = driver.called
    assert name.startswith("_Z3mstIfE") and (grid, block) == ((2,), (64,)) and len(args) == 3


def test_the_names_are_those_of_the_code(driver: type[Driver]) -> None:
    names = [kernel.expression for kernel in instances(KERNEL.name)]
    options = (*gpu.OPTIONS, "--gpu-architecture=sm_80")
    line, code = gpu._machine_code(source_text(KERNEL.name), options, names).split(b"\n", 1)
    found = json.loads(line)
    assert list(found) == names and all(found[name].encode() in code for name in names)
    with pytest.raises(RuntimeError, match="error: identifier"):
        gpu.CachedModule(code="nonsense", options=(), name_expressions=["nonsense<float>"])
