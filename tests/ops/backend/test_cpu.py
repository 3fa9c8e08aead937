"""Libraries for the CPU: how they are compiled, and that a damaged one is never loaded."""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
from pathlib import Path

import pytest

from gpuparse.ops.backend import cache, cpu
from tests.ops.backend.place import OTHER_USER, ROOT, compiler, in_a_child, in_a_fork, only_posix

pytestmark = only_posix


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    target = tmp_path_factory.mktemp("library") / "threads.so"
    cpu._compile(cpu.THREADS, target)
    return target.read_bytes()


def compile_by(script: str, directory: Path, monkeypatch: pytest.MonkeyPatch, target: str = "threads.so") -> Path:
    """Compile with a compiler that does what a script says."""
    program = compiler(directory, script)
    monkeypatch.setattr(cpu, "_compiler_command", lambda: (program,))
    monkeypatch.setattr(cpu, "find_compiler", lambda: program)
    cpu._compile(cpu.THREADS, directory / target)
    return directory / target


@pytest.mark.slow
def test_a_library_that_is_cut_short(library: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To load one would often be the end of the process (SIGBUS): each is tried in a process of its own."""
    name = cache.cache_name("threads", ".so")
    monkeypatch.setenv("GPUPARSE_CACHE", str(tmp_path / "cache"))

    def make(target: Path) -> None:
        target.write_bytes(library)

    pages = range(0, len(library), 4096)
    for length in sorted({1, 63, 64, 65, 100, 4097, len(library) // 2, len(library) - 1, *pages}):
        cache.fetch(name, make, lambda path, _: None)
        (tmp_path / "cache" / name).write_bytes(library[:length])
        loaded = lambda: cache.fetch(name, make, lambda path, _: ctypes.CDLL(str(path))).run_in_threads  # noqa: E731
        assert in_a_fork(loaded) == 0, length
        assert (tmp_path / "cache" / name).read_bytes() == library


@pytest.mark.parametrize("umask", (0, 0o777))
def test_any_umask(umask: int) -> None:
    """Of a user who is not root, whom modes keep from things."""
    with tempfile.TemporaryDirectory() as top:
        if ROOT:
            os.chown(top, OTHER_USER, OTHER_USER)
        target = Path(top) / "threads.so"

        def action() -> None:
            os.umask(umask)
            cpu._compile(cpu.THREADS, target)

        in_a_child(action)
        assert target.stat().st_mode & 0o777 == 0o700


def test_what_is_made_on_the_way_is_beside_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    script = 'for last; do :; done; echo "$TMPDIR" > "$last"'
    assert compile_by(script, tmp_path, monkeypatch, "work/threads.so").read_text() == f"{tmp_path / 'work'}\n"


@pytest.mark.parametrize(
    ("script", "told"),
    (
        ("kill -9 $$", "killed by signal 9"),
        ("exit 0", "status 0, no library"),
        ("exit 3", "status 3, no library"),
        ("echo 'first line' >&2; echo second >&2; exit 1", "first line"),
    ),
)
def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, told: str) -> None:
    with pytest.raises(cpu.CompileError, match=rf"could not compile the kernels \(threads\): {told}$"):
        compile_by(script, tmp_path, monkeypatch)


@pytest.mark.parametrize("code", (errno.ENOSPC, errno.EDQUOT))
def test_a_compiler_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    with pytest.raises(OSError) as caught:
        compile_by(f"echo 'fatal error: error writing to x.s: {os.strerror(code)}' >&2; exit 1", tmp_path, monkeypatch)
    assert caught.value.errno == code


def test_the_version_is_the_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiler(tmp_path, "echo 'g++ 99.1'\necho 'Copyright'\n")
    monkeypatch.setattr(cpu, "_compiler_command", lambda: (program,))
    assert cpu.compiler_version.__wrapped__() == "g++ 99.1"
    monkeypatch.setattr(cpu, "_compiler_command", lambda: (str(tmp_path / "none"),))
    assert cpu.compiler_version.__wrapped__() is None
