"""Kernels compiled and launched, in the call form of ``cupy.RawModule``, on tensors and arrays of the processor."""

from __future__ import annotations

import ctypes
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from gpuparse.ops.backend.cache import cache_name, fetch
from gpuparse.ops.backend.cpu import compiler_version, find_compiler, native_flags

from .nvrtc import compile_ptx
from .parse import Kernel, Program, parse
from .translate import Translated, translate

RUNTIME = Path(__file__).parent / "runtime"
ORDERS = ("forward", "backward", "random")
MOST_SHARED_BYTES = 227 * 1024  # what a block may have on an sm_90
FRAME_BYTES = 384 * 1024  # of the stacks that grid.h gives
FLAGS = (
    *("-std=c++17", "-fPIC", "-shared", "-w", "-fno-exceptions", "-fno-rtti", "-fno-stack-protector", "-fwrapv"),
    *("-ffp-contract=off", "-fno-strict-aliasing", f"-Werror=frame-larger-than={FRAME_BYTES}"),
)


class LaunchError(Exception):
    """What a GPU would have done wrong, silently or not: a race, a fault, a deadlock, a launch that cannot be."""


@dataclass(frozen=True)
class Counts:
    """What a launch costs on any GPU. A warp issues what its busiest lane runs; ``critical_instructions`` are those of
    the busiest warp between any two barriers, ``double_instructions`` those of all warps for the units for doubles, of
    which many cards have few. A sector is 32 bytes; a pass over shared memory serves each bank once."""

    barriers: int
    warp_instructions: int
    critical_instructions: int
    lane_instructions: int
    double_instructions: int
    global_requests: int
    global_sectors: int
    shared_requests: int
    shared_passes: int


class _Counts(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in Counts.__dataclass_fields__)


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("params", ctypes.c_void_p),
        ("dynamic_shared_bytes", ctypes.c_uint32),
        ("order", ctypes.c_int32),
        ("seed", ctypes.c_uint64),
        ("seconds", ctypes.c_double),
        ("regions", ctypes.c_uint64),
        ("bounds", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("message_bytes", ctypes.c_uint64),
        ("counts", ctypes.POINTER(_Counts)),
    )


@cache
def _runtime() -> str:
    return "\n".join(path.read_text() for path in sorted(RUNTIME.glob("*.h")))


def _library(source: str, flags: Sequence[str]) -> ctypes.CDLL:
    compiler = find_compiler()
    if compiler is None:
        raise RuntimeError("the PTX emulator needs a C++ compiler (set CXX, or install g++ or clang++)")
    given = [*FLAGS, *native_flags(), *flags]

    def build(target: Path) -> None:
        command = [compiler, *given, f"-I{RUNTIME}", "-x", "c++", "-", "-o", str(target)]
        done = subprocess.run(command, input=source, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(command)}: {done.stderr[:2000]}")

    name = cache_name("ptx", ".so", source, _runtime(), *given, compiler, str(compiler_version()))
    return fetch(name, build, lambda path, _: ctypes.CDLL(str(path)))


class PtxModule:
    """The kernels of a PTX program. ``races=False`` leaves out the search for races, ``counting=True`` counts."""

    def __init__(self, ptx: str, *, races: bool = True, counting: bool = False, optimise: str = "-O1") -> None:
        self.program: Program = parse(ptx)
        self.translated: Translated = translate(self.program)
        flags = (optimise, f"-DRACES={int(races)}", f"-DCOUNTING={int(counting)}")
        self.library = _library(self.translated.source, flags)

    def get_function(self, name: str) -> Function:
        if name not in self.program.kernels:
            raise KeyError(f"{name} is none of {', '.join(self.program.kernels)}")
        return Function(self, self.program.kernels[name])

    def variable(self, name: str) -> np.ndarray:
        """The bytes of a variable in global or constant memory."""
        where = {
            c_name: size for c_name, size in zip(self.translated.globals, self.translated.global_bytes, strict=True)
        }
        c_name = f"v_{name}"
        return np.ctypeslib.as_array((ctypes.c_uint8 * where[c_name]).in_dll(self.library, c_name))

    def regions(self) -> Iterator[tuple[int, int]]:
        for name, size in zip(self.translated.globals, self.translated.global_bytes, strict=True):
            begin = ctypes.addressof((ctypes.c_uint8 * size).in_dll(self.library, name))
            yield begin, begin + size


class RawModule(PtxModule):
    """CUDA C++, compiled by NVRTC for an architecture such as "80"."""

    def __init__(
        self,
        *,
        code: str,
        options: Sequence[str] = (),
        name_expressions: Sequence[str] = (),
        architecture: str = "80",
        **how: Any,
    ) -> None:
        ptx, self._names = compile_ptx(code, options, name_expressions, architecture)
        super().__init__(ptx, **how)

    def get_function(self, name: str) -> Function:
        return super().get_function(self._names.get(name, name))


class Function:
    """A kernel: called with a grid, a block and arguments. Tensors and arrays are passed by their addresses, numbers of
    NumPy by their bytes. ``counts`` is of the last launch."""

    def __init__(self, module: PtxModule, kernel: Kernel) -> None:
        self.module, self.kernel = module, kernel
        self.counts: Counts | None = None

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        shared_mem: int = 0,
        *,
        order: str = "forward",
        seed: int = 1,
        seconds: float = 600.0,
    ) -> None:
        full_grid, full_block = ((*given, 1, 1)[:3] for given in (grid, block))
        self._check(full_grid, full_block, shared_mem, args)
        params = bytearray(self.kernel.param_bytes + 16)
        regions = set(self.module.regions())
        for number, (argument, (variable, offset)) in enumerate(zip(args, self.kernel.params, strict=True)):
            content, region = _argument(argument)
            if len(content) != variable.bytes:
                raise LaunchError(
                    f"argument {number} has {len(content)} bytes, and the kernel's parameter {variable.bytes}"
                )
            params[offset : offset + variable.bytes] = content
            regions |= {region} if region else set()
        bounds = np.array(_merged(regions), dtype=np.uint64).reshape(-1)
        given = np.frombuffer(params, dtype=np.uint8)
        message, counts = ctypes.create_string_buffer(1024), _Counts()
        launch = _Launch(
            grid=(ctypes.c_uint32 * 3)(*full_grid),
            block=(ctypes.c_uint32 * 3)(*full_block),
            params=given.ctypes.data,
            dynamic_shared_bytes=shared_mem,
            order=ORDERS.index(order),
            seed=seed,
            seconds=seconds,
            regions=len(bounds) // 2,
            bounds=bounds.ctypes.data,
            message=ctypes.cast(message, ctypes.c_char_p),
            message_bytes=len(message),
            counts=ctypes.pointer(counts),
        )
        number = self.module.translated.kernels.index(self.kernel.name)
        if self.module.library.ptx_run(ctypes.c_uint32(number), ctypes.byref(launch)):
            raise LaunchError(f"{self.kernel.name}: {self._in_cuda(message.value.decode())}")
        self.counts = Counts(**{name: int(getattr(counts, name)) for name in Counts.__dataclass_fields__})

    def _check(self, grid: Sequence[int], block: Sequence[int], shared_mem: int, args: Sequence[Any]) -> None:
        threads = block[0] * block[1] * block[2]
        if min(*grid, *block) < 1 or max(grid[1:]) > 65535 or block[2] > 64:
            raise LaunchError(f"no such grid or block: {tuple(grid)}, {tuple(block)}")
        most = min(1024, self.kernel.max_threads or 1024)
        if threads > most:
            raise LaunchError(f"{threads} threads in a block, at most {most}")
        if (wanted := self.module.translated.shared_bytes[self.kernel.name] + shared_mem) > MOST_SHARED_BYTES:
            raise LaunchError(f"{wanted} bytes of shared memory, at most {MOST_SHARED_BYTES}")
        if len(args) != len(self.kernel.params):
            raise LaunchError(f"{len(args)} arguments for {len(self.kernel.params)} parameters")

    def _in_cuda(self, message: str) -> str:
        """With the lines of the CUDA source beside those of the PTX."""

        def named(found: re.Match[str]) -> str:
            cuda = self.module.program.cuda_lines.get(int(found[1]))
            return f"{found[0]} = CUDA line {cuda}" if cuda else found[0]

        return re.sub(r"PTX line (\d+)", named, message)


def _argument(argument: Any) -> tuple[bytes, tuple[int, int] | None]:
    """The bytes of an argument, and the memory it points to."""
    if isinstance(argument, Tensor):
        storage = argument.untyped_storage()
        begin, where = storage.data_ptr(), argument.data_ptr()
        return where.to_bytes(8, "little"), (begin, begin + storage.nbytes())
    if isinstance(argument, np.ndarray):
        begin = argument.ctypes.data
        return begin.to_bytes(8, "little"), (begin, begin + argument.nbytes)
    if isinstance(argument, np.generic):
        return argument.tobytes(), None
    raise TypeError(f"an argument is a tensor, an array or a number of NumPy, not {type(argument).__name__}")


def _merged(regions: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without empty ones, and those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(region for region in regions if region[0] < region[1]):
        if merged and begin < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged
