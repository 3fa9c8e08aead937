"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuparse import files
from gpuparse.files import read_json, write_bytes, write_json

OLD, NEW = b"old\n", b"new " * 100


def test_written_and_replaced(tmp_path):
    path = tmp_path / "a" / "b" / "file.bin"  # directories are made
    for content in (OLD, NEW, b""):
        write_bytes(path, content)
        assert path.read_bytes() == content
        assert os.listdir(path.parent) == ["file.bin"]


def test_permissions_are_those_of_any_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        write_bytes(tmp_path / "file", OLD)
        assert os.umask(0o027) == 0o027  # left as it was
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


class Broken(BaseException):
    """Not even an Exception, as KeyboardInterrupt."""


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Broken()], ids=["OSError", "interrupt"])
@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
def test_an_exception_leaves_the_old_file(tmp_path, monkeypatch, step, error):
    path = tmp_path / "file"
    write_bytes(path, OLD)

    def fail(*_):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(files.os, step, fail)
        with pytest.raises(type(error)):
            write_bytes(path, NEW)
    assert path.read_bytes() == OLD
    assert os.listdir(tmp_path) == ["file"]  # and nothing else
    write_bytes(path, NEW)
    assert path.read_bytes() == NEW


def test_content_that_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {"a": 1})
    for value, error in (({"a": float("nan")}, ValueError), ({"a": object()}, TypeError)):
        with pytest.raises(error):
            write_json(path, value)
    with pytest.raises(TypeError):
        write_bytes(path, "text")
    assert read_json(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["file.json"]


# The module without the rest of the package, so that a process is there at once.
_ALONE = f"""
import os, signal, sys, types
from pathlib import Path
sys.modules["gpuparse"] = types.ModuleType("gpuparse")
sys.modules["gpuparse"].__path__ = [{str(Path(files.__file__).parent)!r}]
from gpuparse import files
path = Path(sys.argv[1])
"""


def start(code, *arguments, **options):
    return subprocess.Popen([sys.executable, "-I", "-c", _ALONE + code, *map(str, arguments)], **options)


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
def test_a_kill_before_the_end_leaves_the_old_file(tmp_path, step):
    path = tmp_path / "file"
    write_bytes(path, OLD)
    code = f"os.{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\nfiles.write_bytes(path, {NEW!r})"
    assert start(code, path).wait(30) == -signal.SIGKILL
    assert path.read_bytes() == OLD
    left = [name for name in os.listdir(tmp_path) if name != "file"]
    assert all(name.startswith(".file.") for name in left)  # hidden, and in nobody's way
    write_bytes(path, NEW)
    assert path.read_bytes() == NEW


def test_a_kill_at_any_moment(tmp_path):
    """One of two contents, at every moment and after the end."""
    path = tmp_path / "file"
    contents = [byte * 300_000 for byte in (b"a", b"b")]
    code = """
print(flush=True)
while True:
    for byte in (b"a", b"b"):
        files.write_bytes(path, byte * 300_000)
"""
    seen = set()
    for delay in (0.0, 0.01, 0.02, 0.03, 0.05):
        process = start(code, path, stdout=subprocess.PIPE)
        try:
            process.stdout.readline()
            end = time.monotonic() + delay
            while time.monotonic() < end:
                if path.exists():
                    seen.add(path.read_bytes())
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        if path.exists():
            seen.add(path.read_bytes())
    assert seen and seen <= set(contents)


def test_json(tmp_path):
    path = tmp_path / "x" / "file.json"
    value = {"größe": ["😀", 1, 0.1, None, True, {"": []}], "inf": "inf"}
    write_json(path, value)
    assert read_json(path) == value
    text = path.read_bytes().decode()
    assert "größe" in text and "😀" in text and text.endswith("}\n")  # to be read by people


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1} x', b"\xff\xfe", b'{"a": 1,\n\n}'])
def test_what_is_not_json(tmp_path, content):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_json(path)
    assert str(caught.value).startswith(f"{path}: not JSON: ") and "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"none\.json: cannot be read: No such file or directory$"):
        read_json(tmp_path / "none.json")
