"""The cache where nothing can be written, with several processes and killed ones, and what stands in for it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuparse.ops.backend import cache
from tests.ops.backend.place import NAME, WHOLE, Place, in_a_child, in_a_fork, made_anew, only_posix, only_root, private

pytestmark = only_posix


def test_a_read_only_cache_is_used(shared: Place) -> None:
    def action() -> None:
        shared.fill()
        shared.directory.chmod(0o500)
        shared.library.chmod(0o500)
        shared.digest.chmod(0o400)
        before = os.stat(shared.directory).st_mtime_ns
        assert shared.fetch() == shared.library and not shared.builds
        assert os.stat(shared.directory).st_mtime_ns == before and not shared.warnings
        described = cache.describe_cache()
        assert described["used"] and not described["writable"] and described["files"] == 1

    in_a_child(action)


@pytest.mark.parametrize("content", ("damaged", "empty", "not there"))
def test_a_read_only_cache_without_the_file(shared: Place, content: str) -> None:
    def action() -> None:
        if content == "damaged":
            shared.fill()
            shared.library.write_bytes(b"half")
        elif content == "empty":
            shared.directory.mkdir()
        else:
            shared.directory.parent.chmod(0o500)
        if content != "not there":
            shared.directory.chmod(0o500)
        before = cache.describe_cache()
        assert before["used"] == (content == "damaged") and not before["writable"]
        assert private(shared.fetch()) and not shared.warnings
        assert cache.describe_cache()["reason"] == os.strerror(errno.EACCES)

    try:
        in_a_child(action)
    finally:
        shared.directory.parent.chmod(0o700)


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("calls", ("mkdir 2", "fsync 1", "fsync 2", "replace 1", "replace 2", "build 1"))
def test_full_while(place: Place, calls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at some call, and no longer at the next: that is in the private directory."""
    name, number = calls.split()
    count = 0

    def once(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            nonlocal count
            count += 1
            return full() if count == int(number) else real(*args, **options)

        return call

    with monkeypatch.context() as patch:
        if name == "build":
            assert private(place.fetch(once(place.build)))
        else:
            patch.setattr(os, name, once(getattr(os, name)))
            assert private(place.fetch())
    assert not place.warnings and cache.describe_cache()["reason"] == os.strerror(errno.ENOSPC)
    assert not {name for name in place.names()} - {NAME}  # a library without its digest is not taken for one
    assert place.fetch() == place.library


@pytest.mark.parametrize("name", ("mkdir", "fsync", "replace"))
def test_full_everywhere(place: Place, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync
    with monkeypatch.context() as patch:  # a directory that cannot be synced does not matter
        patch.setattr(os, "fsync", lambda handle: full() if stat.S_ISDIR(os.fstat(handle).st_mode) else fsync(handle))
        place.fill()
    place.library.unlink()
    monkeypatch.setattr(os, name, full)
    with pytest.raises(OSError, match="neither in the cache") as caught:
        place.fetch()
    told = str(caught.value)
    assert told.count("No space left on device") == 2 and "\n" not in told and "kernel" not in told.split("(")[1]


@only_root
def test_a_disk_that_is_full(place: Place, tmp_path: Path) -> None:
    place.directory.mkdir(0o700)
    if os.system(f"mount -t tmpfs -o size=16k,mode=700 tmpfs '{place.directory}' 2>/dev/null"):
        pytest.skip("nothing can be mounted here")
    try:
        (place.directory / "filler").write_bytes(bytes(12 * 1024))
        assert private(
            place.fetch(lambda target: place.build(target) or target.with_name("more").write_bytes(bytes(9999)))
        )
        assert place.names() == ["filler"] and not place.warnings
        (place.directory / "filler").unlink()
        assert place.fetch() == place.library
    finally:
        assert not os.system(f"umount '{place.directory}'")


def test_a_library_that_cannot_be_loaded_from_there(place: Place) -> None:
    """As where nothing may be executed."""

    def load(path: Path, content: bytes) -> Path:
        if path == place.library:
            raise OSError("failed to map segment")
        return path

    assert private(cache.fetch(NAME, place.build, load))
    assert cache.describe_cache()["reason"] == "failed to map segment"


def test_processes_at_once(place: Place, tmp_path: Path) -> None:
    def build(target: Path) -> None:
        with open(tmp_path / "log", "a") as log:
            log.write("built\n")
        time.sleep(0.2)
        place.build(target)

    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            os._exit(0 if place.fetch(build) == place.library and not place.warnings else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert (tmp_path / "log").read_text() == "built\n"
    assert place.names() == [NAME, f"{NAME}.sha256"]


@pytest.mark.parametrize("missing", ("locks", "fcntl", "geteuid"))
def test_systems_without(place: Place, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing == "locks":
        import fcntl

        def no_locks(*_: object) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(fcntl, "flock", no_locks)
    elif missing == "fcntl":
        monkeypatch.setitem(sys.modules, "fcntl", None)
    else:
        monkeypatch.delattr(os, "geteuid")
    made_anew(place)


def test_a_lock_that_is_never_given_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr(cache, "_LOCK_SECONDS", 0.2)
    place.directory.mkdir(0o700)
    with open(place.lock, "w") as stuck:
        fcntl.flock(stuck, fcntl.LOCK_EX)
        place.lock.chmod(0o600)
        made_anew(place)


@pytest.mark.parametrize("when", ("build", "fsync", "replace", "replaced"))
def test_killed_while(place: Place, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def fetch() -> None:
        if when == "replaced":  # the library, but not the digest
            replace = os.replace
            os.replace = lambda a, b: replace(a, b) if str(b).endswith(".so") else die()  # type: ignore[assignment]
        elif when != "build":
            setattr(os, when, die)
        place.fetch(die if when == "build" else None)

    assert in_a_fork(fetch) == signal.SIGKILL
    (leftover,) = place.directory.glob("*.tmp")
    other = place.directory / "of somebody else.tmp"
    other.touch()
    for old in (leftover, other):
        os.utime(old, (0, 0))
    made_anew(place)
    assert place.names() == [NAME, f"{NAME}.sha256", other.name]


def test_a_temporary_directory_that_others_may_write(place: Place, tmp_path: Path) -> None:
    """Another user renames the private directory and puts one of his own there: it is not looked at."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc here")
    (tmp_path / "temporary").chmod(0o777)
    place.directory.mkdir()
    place.directory.chmod(0o777)

    def build(target: Path) -> None:
        place.build(target)
        (directory,) = (tmp_path / "temporary").iterdir()
        shutil.copytree(directory, tmp_path / "copy")
        directory.rename(tmp_path / "renamed")
        (tmp_path / "copy").rename(directory)
        (directory / NAME).write_bytes(b"evil")

    path = place.fetch(build)
    assert path.parts[:2] == ("/", "proc") and path.resolve() == tmp_path / "renamed" / NAME


def test_a_forked_child_leaves_the_private_directory(place: Place) -> None:
    place.directory.touch()
    path = place.fetch()
    assert in_a_fork(lambda: cache._remove(path.parent, os.getppid())) == 0 and path.is_file()
    cache._remove(path.parent, os.getpid())
    assert not path.parent.exists()


def test_no_home(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("GPUPARSE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", no_home)
    assert private(place.fetch()) and not place.warnings
    described = cache.describe_cache()
    assert not described["used"] and "no home" in str(described["reason"])


def test_described(place: Place) -> None:
    nothing = {"reason": None, "writable": True, "files": 0, "bytes": 0}
    assert cache.describe_cache() == {"path": str(place.directory), "used": True, **nothing}
    place.fill()
    (place.directory / "dangling.so").symlink_to("nowhere")
    described = cache.describe_cache()
    assert described["used"] and (described["files"], described["bytes"]) == (1, len(WHOLE))
    place.directory.chmod(0o777)
    assert cache.describe_cache()["reason"] == f"'{place.directory}' can be written by others (mode 0777)"
