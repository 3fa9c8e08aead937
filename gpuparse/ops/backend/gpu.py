"""Kernels on a GPU: compiled by NVRTC and launched by CuPy on torch's current stream, tensors passed as they are."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpuparse.ops.backend.base import Argument, Kernel, Long, announce, instances, source_text
from gpuparse.ops.backend.cache import cache_name, fetch

OPTIONS = ("--std=c++17", "--device-as-default-execution-space")  # of lambdas too
MAX_BLOCK = 256  # BLOCK of lanes.cuh
WORKSPACE_BYTES = 2**30  # at most this much for the workspaces of one launch, if a single one fits


class CachedModule:
    """What ``cupy.RawModule`` makes of code with name expressions, on the current device, from gpuparse's own cache.

    CuPy keeps such modules below ``$CUPY_CACHE_DIR`` (else ``~/.cupy/kernel_cache``). Recent versions also load what
    lies there, whoever wrote it, and that cache can only be changed for a whole process. So nothing is read from it or
    put there: NVRTC compiles in memory, what it makes is kept and checked as a library for the CPU is, and the very
    bytes that were checked are given to the driver. They are machine code for the device, not PTX, which the driver
    would compile and keep in a cache of its own.
    """

    def __init__(self, *, code: str, options: Sequence[str], name_expressions: Sequence[str]) -> None:
        from cupy.cuda import function, nvrtc

        major, minor = torch.cuda.get_device_capability()
        exact = 10 * major + minor
        architecture = exact if exact in nvrtc.getSupportedArchs() else 10 * major  # which runs on all of its kind
        given = (*options, f"--gpu-architecture=sm_{architecture}")
        stem = name_expressions[0].partition("<")[0]
        file_name = cache_name(stem, ".cubin", code, *given, *name_expressions, str(nvrtc.getVersion()))

        def build(target: Path) -> None:
            announce("GPU")
            target.write_bytes(_machine_code(code, given, name_expressions))

        names, machine_code = fetch(file_name, build, lambda _, content: content.split(b"\n", 1))
        self._names: dict[str, str] = json.loads(names)
        self._module = function.Module()
        self._module.load(machine_code)
        self._functions: dict[str, Any] = {}

    def get_function(self, name: str) -> Any:
        if name not in self._functions:
            self._functions[name] = self._module.get_function(self._names[name])
        return self._functions[name]


def _machine_code(code: str, options: Sequence[str], name_expressions: Sequence[str]) -> bytes:
    """A line of JSON, the names in the compiled code by their expressions; then the compiled code."""
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(code, "gpuparse.cu", (), ())
    try:
        for expression in name_expressions:
            nvrtc.addNameExpression(program, expression)
        try:
            nvrtc.compileProgram(program, tuple(options))
        except nvrtc.NVRTCError as error:
            raise RuntimeError(f"NVRTC: {nvrtc.getProgramLog(program).strip() or error}") from error
        names = {expression: nvrtc.getLoweredName(program, expression) for expression in name_expressions}
        return json.dumps(names).encode() + b"\n" + nvrtc.getCUBIN(program)
    finally:
        nvrtc.destroyProgram(program)


class GpuBackend:
    """A team is a block of threads.

    ``module`` is called like ``cupy.RawModule``; ``pointer`` makes a kernel argument of a tensor; ``stream`` gives the
    context to launch in. The defaults are ``CachedModule`` and CuPy's.
    """

    lanes = MAX_BLOCK

    def __init__(
        self,
        module: Callable[..., Any] | None = None,
        pointer: Callable[[Tensor], Any] | None = None,
        stream: Callable[[], contextlib.AbstractContextManager[Any]] | None = None,
    ) -> None:
        if module is None:
            import cupy  # noqa: F401  (the reason why there are no kernels, should it not be there)

            module = CachedModule
        self._module = module
        self._pointer = pointer or (lambda tensor: np.intp(tensor.data_ptr()))
        self._stream = stream or _torch_stream
        self._compiled = cache(self._compile)

    def _compile(self, name: str, number: str, device: int) -> Any:
        names = [k.expression for k in instances(name) if k.number == number]
        return self._module(code=source_text(name), options=OPTIONS, name_expressions=names)

    def slots(self, sentences: int, slot_bytes: int, work: int) -> int:
        return max(1, min(sentences, 65535, WORKSPACE_BYTES // max(1, slot_bytes)))

    def prepare(self, name: str, number: str) -> None:
        with self._stream():
            kernel = next(k for k in instances(name) if k.number == number)
            self._compiled(name, number, torch.cuda.current_device()).get_function(kernel.expression)

    def launch(self, kernel: Kernel, args: Sequence[Argument], *, slots: int, nodes: int) -> None:
        block = min(MAX_BLOCK, -(-nodes // 32) * 32)
        tensor = next(a for a in args if isinstance(a, Tensor))
        with torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext(), self._stream():
            module = self._compiled(kernel.name, kernel.number, tensor.device.index or 0)
            module.get_function(kernel.expression)((slots,), (block,), tuple(map(self._argument, args)))

    def _argument(self, argument: Argument) -> Any:
        if isinstance(argument, Tensor):
            return self._pointer(argument)
        if argument is None:
            return np.intp(0)
        return np.int64(argument) if isinstance(argument, Long) else np.int32(argument)


@contextlib.contextmanager
def _torch_stream() -> Any:
    import cupy

    device, stream = torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream
    with cupy.cuda.Device(device), cupy.cuda.ExternalStream(stream, device):
        yield
