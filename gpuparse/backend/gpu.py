"""Kernels on a GPU: compiled and launched by CuPy on torch's current stream, tensors passed as they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpuparse.backend.base import Argument, Kernel, Long, instances, source_text

OPTIONS = ("--std=c++17",)
MAX_BLOCK = 256  # BLOCK of lanes.cuh
WORKSPACE_BYTES = 2**30  # at most this much for the workspaces of one launch, if a single one fits


class GpuBackend:
    """A team is a block of threads.

    ``module`` is called like ``cupy.RawModule``; ``pointer`` makes a kernel argument of a tensor; ``stream`` gives the
    context to launch in. The defaults are CuPy's.
    """

    lanes = MAX_BLOCK

    def __init__(
        self,
        module: Callable[..., Any] | None = None,
        pointer: Callable[[Tensor], Any] | None = None,
        stream: Callable[[], contextlib.AbstractContextManager[Any]] | None = None,
    ) -> None:
        if module is None:
            import cupy

            module = cupy.RawModule
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
