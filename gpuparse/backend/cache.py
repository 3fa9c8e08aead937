"""The directory of compiled kernels: safe with many processes, killed ones too, and where nothing can be written."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

_STALE_SECONDS = 24 * 3600


def cache_directory() -> Path:
    """``$GPUPARSE_CACHE``, else ``gpuparse`` in the user's cache directory."""
    if chosen := os.environ.get("GPUPARSE_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "gpuparse"


@cache
def _private_directory() -> Path:
    """Only for this process, where the cache cannot be written to."""
    directory = Path(tempfile.mkdtemp(prefix="gpuparse-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def fetch(file_name: str, build: Callable[[Path], None]) -> Path:
    """The path of ``file_name``, from the cache or made by ``build(path)``.

    It is built under another name and then renamed: a file of that name is always whole. Processes that want the
    same file at once wait for the first; should it die, its lock is gone with it.
    """
    try:
        return _fetch(cache_directory(), file_name, build)
    except OSError:  # read-only, full, not ours
        return _fetch(_private_directory(), file_name, build)


def discard(path: Path) -> None:
    """Forget a file that turned out to be broken."""
    with contextlib.suppress(OSError):
        path.unlink()


def _fetch(directory: Path, file_name: str, build: Callable[[Path], None]) -> Path:
    target = directory / file_name
    if target.exists():
        return target
    directory.mkdir(parents=True, exist_ok=True)
    with _lock(directory / f"{file_name}.lock"):
        if target.exists():
            return target
        _sweep(directory)
        handle, name = tempfile.mkstemp(prefix=f"{file_name}.", suffix=".tmp", dir=directory)
        os.close(handle)
        partial = Path(name)
        try:
            build(partial)
            partial.chmod(0o755)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    return target


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # no such locks here: two processes may build the same file, and the renames are still whole
        yield
        return
    with open(path, "w") as file:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    with contextlib.suppress(OSError):
        path.unlink()


def _sweep(directory: Path) -> None:
    """Remove what killed compilations left behind."""
    for old in directory.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _STALE_SECONDS:
                old.unlink()


def describe_cache() -> dict[str, object]:
    directory = cache_directory()
    files = [f for f in directory.glob("*.so")] if directory.is_dir() else []
    nearest = next((p for p in (directory, *directory.parents) if p.exists()), directory)
    return {
        "path": str(directory),
        "writable": os.access(nearest, os.W_OK),
        "files": len(files),
        "bytes": sum(f.stat().st_size for f in files),
    }
