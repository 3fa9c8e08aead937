"""Memory: how much there is, and work done in parts that fit into it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch

if sys.platform != "win32":
    import resource

Item = TypeVar("Item")
Result = TypeVar("Result")

_SMALL = 32 << 20  # bytes: for less it is not worth asking
_SHARE = 0.9  # of what is free that may be taken: others want some too
_MESSAGES = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc", "bad allocation")
_CGROUP = Path("/sys/fs/cgroup")


class NoRoom(Exception):
    """Why one item alone does not fit into memory."""


def in_parts(
    items: Sequence[Item],
    need: Callable[[Sequence[Item]], int],
    run: Callable[[Sequence[Item]], list[Result]],
    device: torch.device,
) -> list[Result | NoRoom]:
    """``run(items)``, in halves of halves where that needs more memory than there is; ``NoRoom`` for what never fits.

    Args:
        need: estimates how many bytes ``run`` takes for some of the items. More than is free is not tried.
        run: gives one result for each item. Where it runs out of memory nevertheless, it is run again, for halves.
    """
    wanted = need(items)
    free = available(device) if wanted > _SMALL else None
    why = f"needs about {_size(wanted)} of memory"
    if free is not None and wanted > free * _SHARE:
        why += f" and {_size(free)} are free"
    else:
        try:
            return [*run(items)]
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        why += ", which could not be had"  # said here, where the error, and with it what it holds, is gone
        if device.type == "cuda":
            torch.cuda.empty_cache()
    if len(items) == 1:
        return [NoRoom(why)]
    half = len(items) // 2
    return in_parts(items[:half], need, run, device) + in_parts(items[half:], need, run, device)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of the CPU or a GPU, however that is said."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(text in str(error).lower() for text in _MESSAGES)


def available(device: torch.device) -> int | None:
    """Bytes that can still be allocated on a device; ``None`` where nothing says so."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free) + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    machine = _field("/proc/meminfo", "MemAvailable")
    found = [size for size in (machine, *_limits(), *_cgroups()) if size is not None]
    return max(min(found), 0) if found else None


def _limits() -> list[int]:
    """Of this process, by ``ulimit``."""
    if sys.platform == "win32":
        return []
    found = []
    for limit, field in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most, used = resource.getrlimit(limit)[0], _field("/proc/self/status", field)
        if most != resource.RLIM_INFINITY and used is not None:
            found.append(most - used)
    return found


def _cgroups() -> list[int]:
    """Of the control groups that this process is in, as in a container."""
    found = []
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds == "":  # version 2
                base, names = _CGROUP, ("memory.max", "memory.current")
            elif "memory" in kinds.split(","):
                base, names = _CGROUP / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
            else:
                continue
            own = base / path.strip("/")
            # Every group above limits as well; within a container the path may be one outside of it.
            for group in (own, *own.parents):
                if group == base.parent:
                    break
                most, used = (_number(group / name) for name in names)
                if most is not None and used is not None:
                    found.append(most - used + (_field(group / "memory.stat", "inactive_file", 1) or 0))
    return found


def _number(path: Path) -> int | None:
    with suppress(OSError, ValueError):  # not there, or "max"
        return int(path.read_text())
    return None


def _field(path: str | os.PathLike[str], name: str, unit: int = 1024) -> int | None:
    """A line ``name: number`` of a file of the system, in bytes."""
    with suppress(OSError, ValueError), open(path, encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith(name) and line.split()[0].rstrip(":") == name:
                return int(line.split()[1]) * unit
    return None


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
