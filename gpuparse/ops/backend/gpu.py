"""Kernels on a GPU: compiled by NVRTC and launched by CuPy on torch's current stream, tensors passed as they are."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpuparse.ops.backend.base import Argument, Kernel, Long, announce, instances, source_text
from gpuparse.ops.backend.cache import cache_name, fetch
from gpuparse.system.room import available

OPTIONS = ("--std=c++17", "--device-as-default-execution-space")  # of lambdas too
MAX_BLOCK = 256  # BLOCK of lanes.cuh
WORKSPACE_BYTES = 2**30  # what the workspaces of one launch may take without a look at what is free


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


class Stream(NamedTuple):
    """All that CuPy asks of a stream that it is to launch on."""

    ptr: int


class GpuBackend:
    """A team is a block of threads.

    ``module`` is called like ``cupy.RawModule``; ``pointer`` makes a kernel argument of a tensor; ``free`` says how
    many bytes of memory are free. The defaults are ``CachedModule``, CuPy's and torch's. Every instance of a kernel is
    a module of its own, compiled for a device when it is first wanted there: derivatives that nobody asks for cost
    nothing.
    """

    lanes = MAX_BLOCK

    def __init__(
        self,
        module: Callable[..., Any] | None = None,
        pointer: Callable[[Tensor], Any] | None = None,
        free: Callable[[], int | None] | None = None,
    ) -> None:
        if module is None:
            import cupy  # noqa: F401  (the reason why there are no kernels, should it not be there)

            module = CachedModule
        self._module = module
        self._pointer = pointer or (lambda tensor: np.intp(tensor.data_ptr()))
        self._free = free or (lambda: available(torch.device("cuda", torch.cuda.current_device())))
        self._function = cache(self._compile)

    def _compile(self, kernel: Kernel, device: torch.device) -> Callable[..., None]:
        made = self._module(code=source_text(kernel.name), options=OPTIONS, name_expressions=[kernel.expression])
        return made.get_function(kernel.expression)

    def slots(self, sentences: int, slot_bytes: int, work: int) -> int:
        room = WORKSPACE_BYTES
        if sentences * slot_bytes > room:
            room = max(room, (self._free() or 0) // 2)
        return max(1, min(sentences, 65535, room // max(1, slot_bytes)))

    def prepare(self, name: str, number: str, device: torch.device) -> None:
        with _current(device):
            self._function(next(k for k in instances(name) if k.number == number), device)

    def launch(self, kernel: Kernel, args: Sequence[Argument], *, slots: int, nodes: int) -> None:
        block = min(MAX_BLOCK, -(-nodes // 32) * 32)
        device = next(a for a in args if isinstance(a, Tensor)).device
        with _current(device) as stream:
            self._function(kernel, device)((slots,), (block,), tuple(map(self._argument, args)), stream=stream)

    def _argument(self, argument: Argument) -> Any:
        if isinstance(argument, Tensor):
            return self._pointer(argument)
        if argument is None:
            return np.intp(0)
        if isinstance(argument, float):
            return np.float64(argument)
        return np.int64(argument) if isinstance(argument, Long) else np.int32(argument)


@contextlib.contextmanager
def _current(device: torch.device) -> Iterator[Stream | None]:
    """Within it the device is the current one; torch's stream there. None for an emulated device."""
    if device.type != "cuda":
        yield None
    else:
        with torch.cuda.device(device):
            yield Stream(torch.cuda.current_stream(device).cuda_stream)
