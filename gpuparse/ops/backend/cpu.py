"""Kernels on a CPU: compiled by the system's C++ compiler at first use, sentences spread over threads."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from gpuparse.ops.backend.base import Argument, Kernel, Long, announce, source_text
from gpuparse.ops.backend.cache import cache_name, fetch

WORTH_A_THREAD = 50_000  # steps (about that many nanoseconds or less) that make up for waking a thread
WORKSPACE_BYTES = 2**32  # fewer threads rather than more than this for their workspaces
COMPILE_SECONDS = 600
THREADS = "threads"  # threads.cpp, which runs the kernels
FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared", "-pthread", "-fno-math-errno", "-fno-trapping-math", "-w")


class CompileError(RuntimeError):
    """The compiler is missing or refused."""


@cache
def find_compiler() -> str | None:
    """``$CXX``, else the first of c++, g++ and clang++ on the path."""
    return _compiler_command()[0] if _compiler_command() else None


@cache
def _compiler_command() -> tuple[str, ...]:
    """The compiler with the words that CXX has after it ("ccache g++", "g++ -m64"); empty if there is none."""
    if words := shlex.split(os.environ.get("CXX", "")):
        found = shutil.which(words[0])
        return (found, *words[1:]) if found else ()
    found = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)
    return (found,) if found else ()


@cache
def compiler_version() -> str | None:
    compiler = find_compiler()
    if compiler is None:
        return None
    try:
        answer = subprocess.run(
            [*_compiler_command(), "--version"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.splitlines()[0] if answer.stdout else None


@cache
def _cpu_info() -> dict[str, str]:
    """What the system tells of its first processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in reversed(lines) if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def cpu_model() -> str:
    return _cpu_info().get("model name", platform.processor() or platform.machine())


def _cpu_features() -> str:
    """A cache may be shared by machines: what is compiled for one may not run on another."""
    return _cpu_info().get("flags") or _cpu_info().get("Features") or cpu_model()


@cache
def native_flags() -> tuple[str, ...]:
    """What makes the compiler use all of this processor's instructions."""
    return ("-mcpu=native",) if platform.machine() in ("arm64", "aarch64") else ("-march=native",)


def _compile(name: str, target: Path) -> None:
    compiler = find_compiler()
    if compiler is None:
        raise CompileError("no C++ compiler found (set CXX, or install g++ or clang++)")
    announce("CPU")
    for native in (native_flags(), ()):  # the second where the compiler does not know this processor
        command = [*_compiler_command(), *FLAGS, *native, "-x", "c++", "-", "-o", str(target)]
        try:
            done = subprocess.run(
                command,
                input=source_text(name),
                capture_output=True,
                text=True,
                timeout=COMPILE_SECONDS,
                umask=0o077,
                # What is made on the way to the library is no more for others than that. Messages are looked at below.
                env={**os.environ, "TMPDIR": str(target.parent), "LC_ALL": "C"},
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CompileError(f"{compiler} could not be run: {error}") from error
        if done.returncode == 0 and target.is_file():
            return
    for code in (errno.ENOSPC, errno.EDQUOT):
        if os.strerror(code) in done.stderr:
            raise OSError(code, os.strerror(code))
    ended = f"killed by signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}, no library"
    told = (done.stderr.strip().splitlines() or [ended])[0]
    raise CompileError(f"{compiler} could not compile the kernels ({name}): {told}")


@cache
def _library(name: str) -> ctypes.CDLL:
    compiler = (*FLAGS, *native_flags(), *_compiler_command(), str(compiler_version()))
    file_name = cache_name(name, ".so", source_text(name), *compiler, _cpu_features())
    return fetch(file_name, partial(_compile, name), lambda path, _: ctypes.CDLL(str(path)))


def _ctype(argument: Argument) -> type:
    if argument is None or isinstance(argument, Tensor):
        return ctypes.c_void_p
    if isinstance(argument, float):
        return ctypes.c_double
    return ctypes.c_longlong if isinstance(argument, Long) else ctypes.c_int


def _function(kernel: Kernel, args: Sequence[Argument]) -> Callable[..., None]:
    """The compiled kernel, to be called with (threads, arguments...); ``args`` show its arguments' types."""
    address = ctypes.c_void_p.in_dll(_library(kernel.name), kernel.symbol).value
    assert address is not None
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, *map(_ctype, args))(address)
    return partial(function, ctypes.cast(_library(THREADS).run_in_threads, ctypes.c_void_p))


class CpuBackend:
    """A team is one thread; there are as many as ``torch.get_num_threads()`` says."""

    lanes = 1

    def __init__(self) -> None:
        self._functions: dict[Kernel, Callable[..., None]] = {}
        self._compiling = threading.Lock()
        _library(THREADS)  # raises if nothing can be compiled here

    def slots(self, sentences: int, slot_bytes: int, work: int) -> int:
        room = WORKSPACE_BYTES // max(1, slot_bytes)
        return max(1, min(torch.get_num_threads(), sentences, sentences * work // WORTH_A_THREAD, room))

    def prepare(self, name: str, number: str, device: torch.device) -> None:
        with self._compiling:
            _library(name)

    def launch(self, kernel: Kernel, args: Sequence[Argument], *, slots: int, nodes: int) -> None:
        function = self._functions.get(kernel)
        if function is None:
            with self._compiling:
                function = self._functions[kernel] = _function(kernel, args)
        function(slots, *[a.data_ptr() if isinstance(a, Tensor) else a for a in args])  # without the GIL
