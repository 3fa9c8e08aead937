"""Files that are there whole or not at all, and files that anybody may have made."""

from __future__ import annotations

import glob
import json
import math
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from gpuparse.system.quote import quoted, shown
from gpuparse.system.streams import naming

# Of a JSON file. They keep the memory that it takes to read one, which is many times its size, below 2 GB.
MOST_BYTES = 128 << 20
MOST_VALUES = 4 << 20
MOST_NESTED = 32  # lists in lists
_MOST_DIGITS = 100  # of a whole number
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file under a temporary name beside it, then rename: a reader sees the old one or the new one."""
    write_together({path: content})


def write_together(contents: Mapping[Path, bytes], first_remove: Path | None = None) -> None:
    """Write several files: all under temporary names, and only then, one after the other, under their own.

    Args:
        first_remove: a file that says that the others belong together; it goes before any of them is replaced.
    """
    temporary: dict[Path, str] = {}
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary[path] = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            with naming(path), os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.umask(mask := os.umask(0))
            os.chmod(temporary[path], 0o666 & ~mask)
        if first_remove is not None:
            first_remove.unlink(missing_ok=True)
        for path, name in temporary.items():
            os.replace(name, path)
    except BaseException:
        for name in temporary.values():
            Path(name).unlink(missing_ok=True)
        raise


def is_special(path: str) -> bool:
    """Whether there is something of this name that is no regular file: a pipe, say, onto which nothing is renamed."""
    return os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)


@contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """A new file that takes the name ``path`` when all went well. What is no regular file (a pipe) is written to."""
    if is_special(path):  # before realpath: a pipe has no path
        with naming(path), open(path, "wb") as stream:
            yield stream
        return
    given, path = path, os.path.realpath(path)
    new = Path(f"{path}.{os.getpid()}.tmp")
    try:
        with naming(given), open(new, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def json_bytes(value: Any) -> bytes:
    """A value as the content of a JSON file."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file in the same way."""
    write_bytes(path, json_bytes(value))


def remove_leftovers(path: Path) -> None:
    """Remove what a write of this file that was killed left beside it; no other process may be writing it."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
        left.unlink(missing_ok=True)


def open_file(path: Path, inside: Path | None = None) -> IO[bytes]:
    """Open a file to read it; ``ValueError``, in one line, where there is none that can be read.

    What is no file of the disk, such as a pipe, is refused at once, not waited for.

    Args:
        inside: a directory; the file has to lie there, and links may not lead out of it.
    """
    try:
        real = os.path.realpath(path)
        if inside is not None and not real.startswith(os.path.join(os.path.realpath(inside), "")):
            raise ValueError(f"{path}: a link out of {inside}; put the file itself there")
        _check_regular(path, os.stat(real))
        handle = os.open(real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            _check_regular(path, os.fstat(handle))
        except ValueError:
            os.close(handle)
            raise
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    return os.fdopen(handle, "rb")


def is_there(path: Path) -> bool:
    """Whether there is anything of that name; ``ValueError`` where that cannot be known."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    return True


def _check_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path}: {_KINDS.get(stat.S_IFMT(found.st_mode), 'something else')}; wanted a file")


def read_file(path: Path, most: int = MOST_BYTES, inside: Path | None = None) -> bytes:
    """The content of a file of at most so many bytes; all else as ``open_file``."""
    with open_file(path, inside) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            content = b"" if size > most else file.read(size + 1)
        except OSError as error:
            raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    if size > most:
        raise ValueError(f"{path}: {size:,} bytes; at most {most:,} are read")
    return content


def read_json(path: Path, most: int = MOST_BYTES, inside: Path | None = None) -> Any:
    """A JSON file; ``ValueError`` where it is none. See ``read_file`` and ``parse_json``."""
    return parse_json(read_file(path, most, inside), path)


def parse_json(content: bytes, where: object) -> Any:
    """The value of a JSON text; ``ValueError``, in one line that begins with ``where``, where it is none.

    No object has a name twice, and numbers are finite. Numbers of more than 100 digits, more than 32 lists or objects
    in one another and more than 4 million values are refused.
    """
    if count_values(content) > MOST_VALUES:
        raise ValueError(f"{where}: more than {MOST_VALUES:,} values")
    try:
        value = json.loads(
            content.decode(), object_pairs_hook=_object, parse_int=_whole, parse_float=_number, parse_constant=_number
        )
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as error:
        raise ValueError(f"{where}: not JSON: {shown(str(error))}") from None
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MOST_NESTED):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, (dict, list))
        ]
    if level:
        raise _too_deep(where)
    return value


def count_values(content: bytes) -> int:
    """At least as many as the values of a JSON text, by its punctuation."""
    return 1 + sum(map(content.count, (b",", b"[", b"{")))


def _too_deep(where: object) -> ValueError:
    return ValueError(f"{where}: more than {MOST_NESTED} lists or objects in one another")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{quoted(twice)} is there twice")
    return made


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{quoted(text)} is no finite number")
    return value
