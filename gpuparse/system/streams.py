"""Standard input and output, and the names of files in the errors of the system."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from gpuparse.system.quote import visible

STDIN, STDOUT = "<stdin>", "<stdout>"


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Within it, an ``OSError`` that names no file, such as of a full disk, names this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


def standard_input() -> IO[bytes]:
    """Standard input, as bytes."""
    if sys.stdin is None:
        raise _closed(STDIN)
    return sys.stdin.buffer


def standard_output() -> IO[bytes]:
    """Standard output, for UTF-8 as bytes; what must not reach a terminal is escaped where it is one."""
    if sys.stdout is None:
        raise _closed(STDOUT)
    return cast(IO[bytes], _Output(sys.stdout.buffer, sys.stdout.isatty()))


class _Output(io.BufferedIOBase):
    """Standard output. It is flushed, and never closed."""

    def __init__(self, stream: IO[bytes], terminal: bool) -> None:
        self._stream, self._terminal = stream, terminal

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        sent = bytes(data)
        if self._terminal:
            sent = visible(sent.decode("utf-8", "surrogateescape")).encode("utf-8")
        with naming(STDOUT):
            self._stream.write(sent)
        return len(data)

    def flush(self) -> None:
        with naming(STDOUT):
            self._stream.flush()

    def close(self) -> None:
        pass


def _closed(name: str) -> OSError:
    return OSError(errno.EBADF, os.strerror(errno.EBADF), name)
