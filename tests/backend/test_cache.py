"""The cache: what is not this user's alone is not used, what is damaged is made anew, and nothing hangs."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
from pathlib import Path

import pytest

from gpuparse.backend import cache
from tests.backend.place import (
    NAME,
    OTHER_USER,
    WHOLE,
    Place,
    in_a_child,
    made_anew,
    only_posix,
    only_root,
    private,
    refused,
)

pytestmark = only_posix


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
