from __future__ import annotations

import functools
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuparse.ops.backend import cache
from tests.ops.backend.place import OTHER_USER, ROOT, Place


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
