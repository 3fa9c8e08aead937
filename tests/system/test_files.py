"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuparse.system import files
from gpuparse.system.files import is_there, read_file, read_json, write_bytes, write_json
from tests.refusals import refusal

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
sys.modules["gpuparse"].__path__ = [{str(Path(files.__file__).parents[1])!r}]
from gpuparse.system import files
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


# ------------------------------------------------------------------------------------------------ of strangers


def refused(call, path):
    """The line of a refusal that comes at once."""
    began = time.perf_counter()
    line = refusal(call, longest=700)
    assert time.perf_counter() - began < 1 and line.startswith(f"{path}: ")
    return line.removeprefix(f"{path}: ")


def test_what_is_no_file(tmp_path, monkeypatch):
    path = tmp_path / "x"
    assert refused(lambda: read_json(path), path) == "cannot be read: No such file or directory"
    os.mkfifo(path)
    assert refused(lambda: read_file(path), path) == "a pipe; wanted a file"
    path.unlink()
    path.mkdir()
    assert refused(lambda: read_file(path), path) == "a directory; wanted a file"
    path.rmdir()
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(tmp_path)  # names of sockets are short
        listening.bind("x")
        assert refused(lambda: read_file(path), path) == "a socket; wanted a file"
    path.unlink()
    path.symlink_to("/dev/zero")
    assert refused(lambda: read_file(path), path) == "a device; wanted a file"
    path.unlink()
    path.symlink_to(path)
    assert refused(lambda: read_file(path), path) == "cannot be read: Too many levels of symbolic links"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"x")
    path.chmod(0)
    assert refused(lambda: read_file(path), path) == "cannot be read: Permission denied"


def test_links(tmp_path):
    directory = tmp_path / "model"
    (directory / "deep").mkdir(parents=True)
    for place in (directory, directory / "deep", tmp_path):
        (place / "real").write_bytes(b"real")
    (tmp_path / "model2").mkdir()
    (tmp_path / "model2" / "real").write_bytes(b"real")  # whose name begins with that of the directory
    path = directory / "x"
    for to in ("real", "deep/real", directory / "real"):
        path.symlink_to(to)
        assert read_file(path, inside=directory) == b"real"
        path.unlink()
    for to in ("../real", tmp_path / "real", "deep/../../real", "../model2/real", "/etc/passwd", ".."):
        path.symlink_to(to)
        assert refused(lambda: read_file(path, inside=directory), path).startswith(f"a link out of {directory}; put ")
        path.unlink()
    # A directory that is a link is the user's own.
    (tmp_path / "linked").symlink_to(directory)
    assert read_file(tmp_path / "linked" / "real", inside=tmp_path / "linked") == b"real"


def test_files_of_any_size(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert read_file(path, 5) == b"12345"
    assert refused(lambda: read_file(path, 4), path) == "5 bytes; at most 4 are read"
    os.truncate(path, 1 << 40)
    assert refused(lambda: read_json(path), path) == "1,099,511,627,776 bytes; at most 134,217,728 are read"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 10**6, "more than 32 lists or objects in one another"),
        (b'{"a":' * 10**5, "more than 32 lists or objects in one another"),
        (b"[" * 33 + b"]" * 33, "more than 32 lists or objects in one another"),
        (b"[]," * 3_000_000, "more than 4,194,304 values"),
        (b"1" * 101, "not JSON: a number of 101 digits"),
        (b"-" + b"1" * 10**6, "not JSON: a number of 1000001 digits"),
        (b"[NaN]", "not JSON: 'NaN' is no finite number"),
        (b"[-Infinity]", "not JSON: '-Infinity' is no finite number"),
        (b"1e999", "not JSON: '1e999' is no finite number"),
        (b'{"a":1,"b":2,"a":3}', "not JSON: 'a' is there twice"),
        (b'{"' + b"x" * 10**6 + b'":1,"' + b"x" * 10**6 + b'":1}', "not JSON: 'xxx"),
        (b"\xff", "not JSON: 'utf-8' codec can't decode"),
        (b"\xef\xbb\xbf{}", "not JSON: Unexpected UTF-8 BOM"),
        (b'"\x00"', "not JSON: Invalid control character"),
        (b"", "not JSON: Expecting value"),
        *((text, "not JSON: ") for text in (b"{", b'{"a": 1} x', b'{"a": 1,\n\n}')),
    ],
    ids=range(18),
)
def test_json_of_strangers(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert refused(lambda: read_json(path), path).startswith(message)


def test_json_within_the_limits(tmp_path):
    path = tmp_path / "x.json"
    for content, value in (
        (b"[" * 32 + b"]" * 32, None),
        (b"1" + b"0" * 99, 10**99),
        (b"[1.5e300,-0.0,true,null]", [1.5e300, -0.0, True, None]),
    ):
        path.write_bytes(content)
        assert value is None or read_json(path) == value
        read_json(path)


def test_is_there(tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "file").write_bytes(b"")
    assert is_there(tmp_path) and is_there(tmp_path / "link") and is_there(tmp_path / "file")
    assert not is_there(tmp_path / "none") and not is_there(tmp_path / "file" / "x")
    long = tmp_path / ("x" * 300)
    assert refused(lambda: is_there(long), long) == "cannot be read: File name too long"
