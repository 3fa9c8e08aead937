"""The cache: what is not this user's alone is not used, what is damaged is made anew, and nothing hangs."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
from pathlib import Path

import pytest

from gpuparse.ops.backend import cache
from tests.ops.backend.place import (
    NAME,
    OTHER_USER,
    WHOLE,
    Place,
    another,
    in_a_child,
    made_anew,
    only_posix,
    only_root,
    private,
    refused,
)

pytestmark = only_posix


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


def test_all_is_synced_before_it_has_its_name(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("sync"), fsync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("rename"), replace(a, b))[1])
    place.fill()
    assert done == ["sync", "sync", "rename", "rename", "sync"]
    assert place.digest.read_text() == f"{hashlib.sha256(WHOLE).hexdigest()}  {NAME}\n"  # as of sha256sum


def test_what_is_loaded_elsewhere_stays_whole(place: Place) -> None:
    place.fill()
    with open(place.library, "rb") as loaded:
        place.digest.unlink()
        place.fetch()
        assert os.fstat(loaded.fileno()).st_ino != place.library.stat().st_ino
        assert loaded.read() == WHOLE


@pytest.mark.slow
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
    os.truncate(file, 2**36)
    made_anew(place)
    file.unlink()  # a library without its digest is what an older version has left
    made_anew(place)


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


FOREIGN = pytest.param("foreign", marks=only_root)


def give_away(file: Path, how: int | str) -> str:
    """To another user, or for others to write; what is said of it then."""
    if isinstance(how, int):
        file.chmod(how)
        return f"{file.name}' can be written by others (mode {how:04o})"
    os.lchown(file, OTHER_USER, -1)
    return f"{file.name}' belongs to user {OTHER_USER}, not to {os.geteuid()}"


@pytest.mark.parametrize("how", (FOREIGN, 0o720, 0o702))
@pytest.mark.parametrize("which", ("library", "digest", "lock", "directory"))
def test_foreign_or_others_may_write(place: Place, which: str, how: int | str) -> None:
    place.fill()
    if which == "lock":
        place.library.unlink()
        place.lock.touch(0o600)
    assert give_away(getattr(place, which), how) in refused(place)


@pytest.mark.parametrize("how", (FOREIGN, 0o777, 0o770))
@pytest.mark.parametrize("there", (False, True))
def test_foreign_or_others_may_write_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place, how: int | str, there: bool
) -> None:
    top = tmp_path / "open"
    top.mkdir()
    place = another(monkeypatch, top / "between" / "cache")
    if there:
        place.fill()
    assert give_away(top, how) in refused(place)
    assert there or not list(top.iterdir())  # nothing is made in there


def test_sticky_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    place = another(monkeypatch, tmp_path / "sticky" / "cache")
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


@pytest.mark.parametrize("how", (FOREIGN, 0o777))
def test_a_link_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place, how: int | str) -> None:
    """Of another user, or to where others may write."""
    (tmp_path / "open").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "open")
    told = give_away(tmp_path / ("open" if isinstance(how, int) else "link"), how)
    assert told in refused(another(monkeypatch, tmp_path / "link" / "cache"))


@only_root
def test_a_cache_of_root_is_foreign_to_others(shared: Place) -> None:
    shared.directory.mkdir(0o755)
    in_a_child(lambda: print(refused(shared)))
