"""What the commands share: lines on stderr, one-line failures and numbers in words."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

import typer
from rich.console import Console

from gpuparse.system.quote import MOST, shown, visible
from gpuparse.system.streams import STDOUT, naming

_LONGEST = 2000  # characters of a line, whatever it is made of


def one_line(message: str) -> str:
    """A message fit for a terminal: on one line, with control characters escaped, and no argument at full length."""
    text = visible(" ".join(message.split()))
    for argument in sys.argv[1:]:
        for value in (argument, argument.partition("=")[2]):
            for form in (value, repr(value)[1:-1]):  # as it is, and as Python quotes it
                if len(form) > MOST:
                    text = text.replace(visible(" ".join(form.split())), shown(form))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def say(message: str) -> None:
    """A line on stderr."""
    with suppress(OSError):  # where nobody can be told, nobody is
        typer.echo(one_line(message), err=True)


def fail(message: str, code: int = 1) -> NoReturn:
    """Say why on stderr, in one line, and leave with ``code`` (1 could not, 2 misused)."""
    say(f"gpuparse: {message}")
    raise typer.Exit(code)


def reason(error: BaseException) -> str:
    """What an error says, beginning with the file where there is one."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or type(error).__name__}"
    return str(error) or "no message"


def put(text: str, end: str = "\n") -> None:
    """A text on stdout, as it is, or fit for a terminal where it is one."""
    with naming(STDOUT):
        typer.echo(visible(text) if sys.stdout.isatty() else text, nl=bool(end))


class Output(Console):
    """Standard output for tables. What cannot be written is an error that names it."""

    def __init__(self) -> None:
        super().__init__(highlight=False)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE), STDOUT)

    def print(self, *objects: Any, **options: Any) -> None:
        with naming(STDOUT):
            super().print(*objects, **options)


def count(number: int, thing: str) -> str:
    """``1 check``, ``2 checks``."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def size_text(size: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
