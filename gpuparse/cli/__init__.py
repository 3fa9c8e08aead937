"""The command line: data on stdout, progress and errors on stderr; exit 0 done, 1 could not, 2 misused."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from gpuparse import __version__
from gpuparse.cli.evaluate import evaluate
from gpuparse.cli.info import info
from gpuparse.cli.parse import parse
from gpuparse.cli.render import render
from gpuparse.cli.sample import sample
from gpuparse.cli.tag import tag
from gpuparse.cli.train import train

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Dependency parsing as structured inference, on a GPU or a CPU.",
)
for command in (train, parse, tag, evaluate, render, sample, info):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpuparse {__version__}")
        raise typer.Exit


@app.callback()
def _gpuparse(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. An error is one line, or a traceback where ``GPUPARSE_DEBUG=1``."""
    try:
        app()
    except BrokenPipeError:  # whoever read our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Exception as error:
        if os.environ.get("GPUPARSE_DEBUG") == "1":
            raise
        message = " ".join(str(error).split()) or "no message"
        if not isinstance(error, (ValueError, OSError)):  # not the input's fault, or not known to be
            message = f"{type(error).__name__}: {message} (GPUPARSE_DEBUG=1 for more)"
        print(f"gpuparse: {message}", file=sys.stderr)
        raise SystemExit(1) from None
