"""A cache to try things on, and what ``fetch`` does with it."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuparse.ops.backend import cache

NAME = f"kernel-{'0a' * 10}.so"
WHOLE = bytes(range(40))
OTHER_USER = 54321
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0

only_posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="owners and modes are those of POSIX")
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


def compiler(directory: Path, script: str) -> str:
    """One that does what a script says."""
    program = directory / "c++"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def another(monkeypatch: pytest.MonkeyPatch, directory: Path) -> Place:
    """A cache elsewhere."""
    monkeypatch.setenv("GPUPARSE_CACHE", str(directory))
    return Place(directory)


def in_a_fork(action: Callable[[], object]) -> int:
    """Run ``action`` in a process of its own; how that ended, 0 if nothing was raised."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def private(path: Path) -> bool:
    return path.parent.name.startswith("gpuparse-")


def in_a_child(action: Callable[[], None]) -> None:
    """Run ``action`` as a user who is not root, in a process of its own."""

    def as_another() -> None:
        if ROOT:
            os.setgroups([])
            os.setgid(OTHER_USER)
            os.setuid(OTHER_USER)
        action()

    assert in_a_fork(as_another) == 0


def refused(place: Place) -> str:
    """The cache is not used, and one warning, in one line, says so; ``gpuparse info`` does, too."""
    assert private(place.fetch()) and private(place.fetch())
    (warning,) = place.warnings
    assert place.builds == 1 and "\n" not in warning and "GPUPARSE_CACHE" in warning
    described = cache.describe_cache()
    assert described["used"] is False and str(described["reason"]) in warning
    return warning


def made_anew(place: Place) -> None:
    place.builds = 0
    assert place.fetch() == place.library and place.builds == 1
    assert place.fetch() == place.library and place.builds == 1
    assert not place.warnings
