"""What the commands share: one-line failures and numbers in words."""

from __future__ import annotations

from typing import NoReturn

import typer


def fail(message: str, code: int = 1) -> NoReturn:
    """Say why on stderr, in one line, and leave with ``code`` (1 could not, 2 misused)."""
    typer.echo(f"gpuparse: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)


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
