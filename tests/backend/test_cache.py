"""The cache: what is not this user's alone is not used, what is damaged is made anew, and nothing hangs."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuparse.backend import cache

NAME = f"kernel-{'0a' * 10}.so"
WHOLE = bytes(range(40))
OTHER_USER = 54321
ROOT = os.geteuid() == 0

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="owners and modes are those of POSIX")
only_root = pytest.mark.skipif(not ROOT, reason="only root can give files away")


class Place:
    """A cache, and what ``fetch`` did with it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.library = directory / NAME
        self.digest = directory / f"{NAME}.sha256"
        self.lock = directory / f"{NAME}.lock"
        self.builds = 0
        self.warnings: list[str] = []

    def build(self, target: Path) -> None:
        self.builds += 1
        target.write_bytes(WHOLE)

    def fetch(self, build: Callable[[Path], None] | None = None) -> Path:
        """Where the file came from; its content is right."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            path, content = cache.fetch(NAME, build or self.build, lambda path, content: (path, content))
        self.warnings += [str(warning.message) for warning in caught]
        assert content == WHOLE == path.read_bytes()
        return path

    def fill(self) -> None:
        assert self.fetch() == self.library
        self.builds = 0

    def names(self) -> list[str]:
        return sorted(file.name for file in self.directory.iterdir())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """An empty cache, and a process that has not looked at one; nothing may take long."""
    (tmp_path / "temporary").mkdir(0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(cache, "_made_private", functools.cache(cache._made_private.__wrapped__))
    monkeypatch.setattr(cache, "_not_used", {})
    monkeypatch.setenv("GPUPARSE_CACHE", str(tmp_path / "cache"))

    def too_long(*_: object) -> None:
        raise AssertionError("the cache hangs")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(30)
    yield Place(tmp_path / "cache")
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def private(path: Path) -> bool:
    return path.parent.name.startswith("gpuparse-")


def in_a_child(action: Callable[[], None]) -> None:
    """Run ``action`` as a user who is not root, in a process of its own."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if ROOT:
                os.setgroups([])
                os.setgid(OTHER_USER)
                os.setuid(OTHER_USER)
            action()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def shared(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The same in a directory of the user that ``in_a_child`` runs as."""
    tempfile.tempdir = None
    top = Path(tempfile.mkdtemp())
    (top / "temporary").mkdir()
    if ROOT:
        for directory in (top, top / "temporary"):
            os.chown(directory, OTHER_USER, OTHER_USER)
    tempfile.tempdir = str(top / "temporary")
    monkeypatch.setenv("GPUPARSE_CACHE", str(top / "cache"))
    yield Place(top / "cache")
    if (top / "cache").exists():
        (top / "cache").chmod(0o700)
    shutil.rmtree(top)


def refused(place: Place) -> str:
    """The cache is not used, and one warning, in one line, says so; ``gpuparse info`` does, too."""
    assert private(place.fetch()) and private(place.fetch())
    (warning,) = place.warnings
    assert place.builds == 1 and "\n" not in warning and "GPUPARSE_CACHE" in warning
    described = cache.describe_cache()
    assert described["used"] is False and str(described["reason"]) in warning
    return warning


# What is made


@pytest.mark.parametrize("umask", (0, 0o022, 0o777))
def test_made_for_this_user_alone(shared: Place, umask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Place(shared.directory / "deeper" / "still")
    monkeypatch.setenv("GPUPARSE_CACHE", str(shared.directory))

    def modes(*paths: Path) -> set[str]:
        return {oct(stat.S_IMODE(path.stat().st_mode)) for path in paths}

    def build(target: Path) -> None:
        shared.build(target)
        assert modes(shared.lock) == {"0o600"}

    def action() -> None:
        os.umask(umask)
        assert shared.fetch(build) == shared.library == shared.fetch() and shared.builds == 1
        assert shared.names() == [NAME, f"{NAME}.sha256"] and not shared.warnings
        assert modes(shared.library, *(shared.directory, *shared.directory.parents)[:3]) == {"0o700"}
        assert modes(shared.digest) == {"0o600"}
        shared.directory.chmod(0o722)  # and the private directory
        path = shared.fetch()
        assert private(path) and modes(path, path.parent) == {"0o700"}

    in_a_child(action)


def test_the_digest_is_one_that_sha256sum_can_check(place: Place) -> None:
    place.fill()
    assert place.digest.read_text() == f"{hashlib.sha256(WHOLE).hexdigest()}  {NAME}\n"


def test_all_is_synced_before_it_has_its_name(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("sync"), fsync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("rename"), replace(a, b))[1])
    place.fill()
    assert done == ["sync", "sync", "rename", "rename", "sync"]


def test_what_is_loaded_elsewhere_stays_whole(place: Place) -> None:
    place.fill()
    with open(place.library, "rb") as loaded:
        place.digest.unlink()
        place.fetch()
        assert os.fstat(loaded.fileno()).st_ino != place.library.stat().st_ino
        assert loaded.read() == WHOLE


# Damaged


def made_anew(place: Place) -> None:
    place.builds = 0
    assert place.fetch() == place.library and place.builds == 1
    assert place.fetch() == place.library and place.builds == 1
    assert not place.warnings


@pytest.mark.parametrize("which", ("library", "digest"))
def test_cut_short_or_changed_anywhere(place: Place, which: str) -> None:
    place.fill()
    file: Path = getattr(place, which)
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        made_anew(place)
        file.write_bytes(whole[:length] + bytes([whole[length] ^ 1]) + whole[length + 1 :])
        made_anew(place)
    file.write_bytes(whole + b"\n")
    made_anew(place)


@pytest.mark.parametrize("which", ("library", "digest"))
def test_missing(place: Place, which: str) -> None:
    """A library without its digest is what an older version has left."""
    place.fill()
    getattr(place, which).unlink()
    made_anew(place)


@pytest.mark.parametrize("which", ("library", "digest"))
def test_huge(place: Place, which: str) -> None:
    place.fill()
    os.truncate(getattr(place, which), 2**36)
    made_anew(place)


# Not a file


def put(kind: str, path: Path, precious: Path) -> None:
    path.unlink(missing_ok=True)
    if kind == "FIFO":
        os.mkfifo(path, 0o600)
    elif kind == "link":
        path.symlink_to(precious)
    elif kind == "dangling link":
        path.symlink_to(precious.with_name("nowhere"))
    elif kind == "directory":
        path.mkdir(0o700)
    else:
        before = os.getcwd()
        os.chdir(path.parent)  # a socket's path must be short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
        os.chdir(before)
        path.chmod(0o600)


@pytest.mark.parametrize("kind", ("FIFO", "link", "dangling link", "directory", "socket"))
@pytest.mark.parametrize("which", ("library", "digest", "lock"))
def test_something_else_in_its_place(place: Place, which: str, kind: str, tmp_path: Path) -> None:
    place.fill()
    precious = tmp_path / "precious"
    precious.write_bytes(getattr(place, which).read_bytes() if which != "lock" else b"precious")
    before = precious.read_bytes()
    put(kind, getattr(place, which), precious)
    if which == "lock":
        place.library.unlink()
    assert "is not a plain file" in refused(place)
    assert precious.read_bytes() == before and not precious.with_name("nowhere").exists()


def test_a_file_in_the_place_of_the_directory(place: Place) -> None:
    place.directory.write_text("in the way")
    assert private(place.fetch()) and not place.warnings
    assert cache.describe_cache()["reason"] == os.strerror(errno.ENOTDIR)


# Not this user's alone


@only_root
@pytest.mark.parametrize("which", ("library", "digest", "lock", "directory"))
def test_foreign(place: Place, which: str) -> None:
    place.fill()
    if which == "lock":
        place.library.unlink()
        place.lock.touch(0o600)
    os.chown(getattr(place, which), OTHER_USER, -1)
    assert f"belongs to user {OTHER_USER}, not to {os.geteuid()}" in refused(place)


@pytest.mark.parametrize("mode", (0o720, 0o702))
@pytest.mark.parametrize("which", ("library", "digest", "lock", "directory"))
def test_others_may_write(place: Place, which: str, mode: int) -> None:
    place.fill()
    if which == "lock":
        place.library.unlink()
        place.lock.touch()
    getattr(place, which).chmod(mode)
    assert f"can be written by others (mode {mode:04o})" in refused(place)


@pytest.mark.parametrize("mode", (0o777, 0o770))
@pytest.mark.parametrize("there", (False, True))
def test_others_may_write_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place, mode: int, there: bool
) -> None:
    top = tmp_path / "open"
    top.mkdir()
    place = Place(top / "between" / "cache")
    monkeypatch.setenv("GPUPARSE_CACHE", str(place.directory))
    if there:
        place.fill()
    top.chmod(mode)
    assert f"open' can be written by others (mode {mode:04o})" in refused(place)
    assert there or not list(top.iterdir())  # nothing is made in there


@only_root
def test_foreign_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    top = tmp_path / "home"
    top.mkdir()
    os.chown(top, OTHER_USER, -1)
    place = Place(top / "cache")
    monkeypatch.setenv("GPUPARSE_CACHE", str(place.directory))
    assert f"home' belongs to user {OTHER_USER}" in refused(place)
    assert not list(top.iterdir())


def test_sticky_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    top = tmp_path / "sticky"
    top.mkdir()
    top.chmod(0o1777)
    place = Place(top / "cache")
    monkeypatch.setenv("GPUPARSE_CACHE", str(place.directory))
    place.fill()
    place.directory.chmod(0o1777)  # but not itself
    assert "can be written by others (mode 1777)" in refused(place)


def test_a_link_to_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    """~/.cache is often one. It is as good as where it leads to."""
    place.fill()
    (tmp_path / "link").symlink_to(place.directory)
    monkeypatch.setenv("GPUPARSE_CACHE", str(tmp_path / "link"))
    assert place.fetch() == place.library and not place.builds and cache.describe_cache()["used"]
    place.directory.chmod(0o777)
    assert "cache' can be written by others" in refused(place)


def test_a_link_to_where_others_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    monkeypatch.setenv("GPUPARSE_CACHE", str(tmp_path / "link" / "cache"))
    assert "open' can be written by others" in refused(place)


@only_root
def test_a_link_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    place.fill()
    (tmp_path / "link").symlink_to(tmp_path)
    os.lchown(tmp_path / "link", OTHER_USER, -1)
    monkeypatch.setenv("GPUPARSE_CACHE", str(tmp_path / "link" / "cache"))
    assert f"link' belongs to user {OTHER_USER}" in refused(place)


@only_root
def test_a_cache_of_root_is_foreign_to_others(shared: Place) -> None:
    shared.directory.mkdir(0o755)
    in_a_child(lambda: print(refused(shared)))


# Read-only


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


# Full


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


def test_a_directory_that_cannot_be_synced(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: full() if stat.S_ISDIR(os.fstat(handle).st_mode) else fsync(handle))
    assert place.fetch() == place.library


@pytest.mark.parametrize("name", ("mkdir", "fsync", "replace"))
def test_full_everywhere(place: Place, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


# Several processes, killed ones


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

    child = os.fork()
    if child == 0:
        if when == "replaced":  # the library, but not the digest
            replace = os.replace
            os.replace = lambda a, b: replace(a, b) if str(b).endswith(".so") else die()  # type: ignore[assignment]
        elif when != "build":
            setattr(os, when, die)
        place.fetch(die if when == "build" else None)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    (leftover,) = place.directory.glob("*.tmp")
    other = place.directory / "of somebody else.tmp"
    other.touch()
    for old in (leftover, other):
        os.utime(old, (0, 0))
    made_anew(place)
    assert place.names() == [NAME, f"{NAME}.sha256", other.name]


# The private directory


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
    child = os.fork()
    if child == 0:
        cache._remove(path.parent, os.getppid())
        os._exit(0)
    os.waitpid(child, 0)
    assert path.is_file()
    cache._remove(path.parent, os.getpid())
    assert not path.parent.exists()


# Where it is


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
    assert cache.describe_cache() == {
        "path": str(place.directory),
        "used": True,
        "reason": None,
        "writable": True,
        "files": 0,
        "bytes": 0,
    }
    place.fill()
    (place.directory / "dangling.so").symlink_to("nowhere")
    described = cache.describe_cache()
    assert described["used"] and (described["files"], described["bytes"]) == (1, len(WHOLE))
    place.directory.chmod(0o777)
    assert cache.describe_cache()["reason"] == f"'{place.directory}' can be written by others (mode 0777)"
