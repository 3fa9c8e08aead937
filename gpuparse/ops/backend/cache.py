"""The directory of compiled kernels: safe from other users, with many processes, killed ones too, and where nothing
can be written.

Code is loaded from it, so nobody else may have a say in it: it belongs to this user, and neither it nor the directories
above it can be changed by others; the same is looked at again on every file, once it is open. A digest lies beside
each file: one that is damaged or cut short is made anew, not loaded. A file is written under another name, synced and
renamed, never changed in place, so that what another process has loaded stays whole.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import os
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_STALE_SECONDS = 24 * 3600
_LOCK_SECONDS = 1300  # more than the compiler is given; then whoever has the lock is stuck, and it is built without
_MOST_BYTES = 2**28  # more than any library; a file that is longer is damaged
_SUFFIXES = (".so", ".cubin")
#: not through a link, not waiting for the other end of a FIFO; what a system does not have it does not need
_SAFELY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_NO_FILE = (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO)  # what opening a link, directory or socket gives

_not_used: dict[Path, str] = {}  # directories that could not be used in this process, and why


class Untrusted(OSError):
    """Something in the cache is not this user's alone."""


def cache_directory() -> Path:
    """``$GPUPARSE_CACHE``, else ``gpuparse`` in the user's cache directory."""
    try:
        if chosen := os.environ.get("GPUPARSE_CACHE"):
            return Path(chosen).expanduser().absolute()
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "gpuparse"
    except RuntimeError as error:
        raise OSError("this user has no home directory: set GPUPARSE_CACHE") from error


def cache_name(stem: str, suffix: str, *key: str) -> str:
    """The name of a cached file that depends on ``key``: all that it is made from."""
    digest = hashlib.sha256("\n".join(key).encode()).hexdigest()
    return f"{stem}-{digest[:20]}{suffix}"


def fetch(file_name: str, build: Callable[[Path], None], load: Callable[[Path, bytes], T]) -> T:
    """``load(path, content)`` of a file from the cache, or of one made by ``build(path)``.

    Processes that want the same file at once wait for the first; should it die, its lock is gone with it. Where the
    cache cannot be used (read-only, full, or not this user's alone, of which one warning tells), the file is made in a
    directory that is only this process's. ``OSError`` if that cannot be done either.
    """
    try:
        return load(*_fetch(_cache(), file_name, build))
    except OSError as error:
        reason = error
    try:
        loaded = load(*_fetch(_private(), file_name, build))
    except OSError as error:
        raise OSError(
            f"compiled kernels can be kept neither in the cache ({_why(reason)}) nor in a temporary directory "
            f"({_why(error)}): set GPUPARSE_CACHE or TMPDIR"
        ) from error
    with contextlib.suppress(OSError):  # without a home there is no directory to speak of
        directory = cache_directory()
        first = directory not in _not_used
        _not_used[directory] = _why(reason)
        if first and isinstance(reason, Untrusted):
            warnings.warn(
                f"gpuparse does not use its cache, and compiles its kernels in every process: {reason}; put that "
                "right, or set GPUPARSE_CACHE to a directory that only you can write",
                RuntimeWarning,
                stacklevel=2,
            )
    return loaded


def _why(error: OSError) -> str:
    """The same words for every file: without its name, which is of no use to anybody."""
    return str(error) if isinstance(error, Untrusted) else error.strerror or str(error)


def _check(path: Path, status: os.stat_result, *, above: bool = False) -> None:
    """Raise ``Untrusted`` if anybody else could have written this, or could write it now.

    Args:
        above: it is a directory above the cache, or a link on the way. That may also be the system's, and others may
            write it if they cannot rename what is ours in it (the sticky bit).
    """
    if not hasattr(os, "geteuid"):  # no such owners and modes here
        return
    name, mode = repr(str(path)), status.st_mode
    owners = {os.geteuid()} | ({0, os.stat("/").st_uid} if above else set())
    if status.st_uid not in owners:
        raise Untrusted(f"{name} belongs to user {status.st_uid}, not to {os.geteuid()}")
    if not stat.S_ISLNK(mode) and mode & 0o022 and not (above and mode & stat.S_ISVTX):
        raise Untrusted(f"{name} can be written by others (mode {stat.S_IMODE(mode):04o})")


def _check_directory(path: Path, *, make: bool) -> Path:
    """The directory itself, behind links; made, if it is not there, for this user alone whatever the umask."""
    for place in (path, *path.parents):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            status = os.lstat(place)
            if place != path or stat.S_ISLNK(status.st_mode):
                _check(place, status, above=True)
    real = Path(os.path.realpath(path))
    for place in reversed((real, *real.parents)):  # nothing is made where others could meddle with it
        if make and not os.path.lexists(place):
            with contextlib.suppress(FileExistsError):  # made by another process just now
                place.mkdir(0o700)
                place.chmod(0o700)  # the umask may have taken from it
        status = os.lstat(place)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
        _check(place, status, above=place != real)
    return real


def _cache() -> Path:
    return _check_directory(cache_directory(), make=True)


def _private() -> Path:
    """Only for this process, where the cache cannot be used.

    Where others can rename it (a temporary directory without the sticky bit), it is reached by the handle that holds it
    open, so that it does not matter what its name has become.
    """
    directory, handle = _made_private()
    try:
        return _check_directory(directory, make=True)
    except Untrusted:
        held = Path(f"/proc/{os.getpid()}/fd/{handle}")
        if not os.path.isdir(held):
            raise
        return held


@cache
def _made_private() -> tuple[Path, int]:
    directory = _make_temporary(Path(tempfile.gettempdir()), "gpuparse-", "")
    atexit.register(_remove, directory, os.getpid())
    try:
        handle = os.open(directory, os.O_RDONLY | _SAFELY)
    except PermissionError:  # a system on which directories cannot be opened
        return directory, -1
    _check(directory, os.fstat(handle))
    return directory, handle


def _make_temporary(parent: Path, prefix: str, suffix: str) -> Path:
    directory = Path(tempfile.mkdtemp(prefix=prefix, suffix=suffix, dir=parent))
    directory.chmod(0o700)  # the umask may have taken from it
    return directory


def _remove(directory: Path, process: int) -> None:
    if os.getpid() == process:  # not at the end of a forked child
        shutil.rmtree(directory, ignore_errors=True)


def _open(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a plain file of this user's; anything else is ``Untrusted``, and neither followed nor waited for."""
    no_file = Untrusted(f"{str(path)!r} is not a plain file")
    try:
        handle = os.open(path, flags | _SAFELY, 0o600)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise no_file from error
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise no_file
        _check(path, status)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _digest_path(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _digest(target: Path, content: bytes) -> bytes:
    """In the form of ``sha256sum``, which can check it."""
    return f"{hashlib.sha256(content).hexdigest()}  {target.name}\n".encode()


def _read(target: Path) -> bytes | None:
    """What a file holds; None if it is not there, or is not what was written."""
    try:
        with open(_open(target), "rb") as file, open(_open(_digest_path(target)), "rb") as beside:
            content = file.read() if os.fstat(file.fileno()).st_size <= _MOST_BYTES else b""
            expected = _digest(target, content)
            return content if beside.read(len(expected) + 1) == expected else None
    except FileNotFoundError:
        return None


def _fetch(directory: Path, file_name: str, build: Callable[[Path], None]) -> tuple[Path, bytes]:
    target = directory / file_name
    content = _read(target)
    if content is None:
        with _lock(directory / f"{file_name}.lock"):
            content = _read(target)
            if content is None:
                _sweep(directory)
                content = _publish(target, build)
    return target, content


def _publish(target: Path, build: Callable[[Path], None]) -> bytes:
    """Build a file, and give it and its digest their names when both are on the disk; what it holds."""
    workplace = _make_temporary(target.parent, f"{target.name}.", ".tmp")
    try:
        made, digest = workplace / target.name, _digest_path(workplace / target.name)
        build(made)
        made.chmod(0o700)
        with open(_open(made, os.O_RDWR), "rb") as file:
            content = file.read()
            os.fsync(file.fileno())
        with open(_open(digest, os.O_RDWR | os.O_CREAT | os.O_EXCL), "wb") as file:
            digest.chmod(0o600)
            file.write(_digest(target, content))
            file.flush()
            os.fsync(file.fileno())
        made.replace(target)
        digest.replace(_digest_path(target))
    finally:
        shutil.rmtree(workplace, ignore_errors=True)
    with contextlib.suppress(OSError):  # not all systems can; should the names get lost, the files are made again
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    return content


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # no such locks here: two processes may build the same file, and the renames are still whole
        yield
        return
    with open(_open(path, os.O_RDWR | os.O_CREAT), "r+b") as file:
        os.fchmod(file.fileno(), 0o600)  # the umask may have taken from it
        deadline = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:  # some network file systems have no locks
                break
            else:
                break
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()


def _sweep(directory: Path) -> None:
    """Remove what killed compilations left behind, and nothing that has another form of name."""
    for suffix in _SUFFIXES:
        for old in directory.glob(f"*-{'[0-9a-f]' * 20}{suffix}.*.tmp"):
            with contextlib.suppress(OSError):
                if time.time() - old.lstat().st_mtime > _STALE_SECONDS:
                    (shutil.rmtree if old.is_dir() else os.unlink)(old)


def describe_cache() -> dict[str, object]:
    """Where the cache is, whether it is used and, if not, why; what is in it."""
    try:
        directory = cache_directory()
    except OSError as error:
        nowhere = {"path": "~/.cache/gpuparse", "writable": False, "files": 0, "bytes": 0}
        return {**nowhere, "used": False, "reason": _why(error)}
    sizes, reason = [], _not_used.get(directory)
    try:
        with os.scandir(_check_directory(directory, make=False)) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIXES) and entry.is_file(follow_symlinks=False):
                    sizes.append(entry.stat(follow_symlinks=False).st_size)
    except FileNotFoundError:  # it will be made when there is something to put into it
        pass
    except OSError as error:
        reason = reason or _why(error)
    nearest = next((p for p in (directory, *directory.parents) if os.path.exists(p)), directory)
    writable = os.access(nearest, os.W_OK)
    if not writable and not sizes:
        reason = reason or "it is empty and cannot be written"
    return {
        "path": str(directory),
        "used": reason is None,
        "reason": reason,
        "writable": writable,
        "files": len(sizes),
        "bytes": sum(sizes),
    }
