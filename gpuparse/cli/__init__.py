"""The command line: data on stdout, progress and errors on stderr; exit 0 done, 1 could not, 2 misused."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from gpuparse import __version__
from gpuparse.cli.common import reason, say
from gpuparse.cli.evaluate import evaluate
from gpuparse.cli.info import info
from gpuparse.cli.parse import parse
from gpuparse.cli.render import render
from gpuparse.cli.sample import sample
from gpuparse.cli.serve import serve
from gpuparse.cli.tag import tag
from gpuparse.cli.train import train
from gpuparse.system import startup
from gpuparse.system.streams import STDOUT, naming

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Dependency parsing as structured inference, on a GPU or a CPU.",
)
for command in (train, parse, tag, evaluate, render, serve, sample, info):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpuparse {__version__}")
        raise typer.Exit


@app.callback()
def _gpuparse(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. An error is one line, or a traceback where ``GPUPARSE_DEBUG=1``.

    Ctrl-C leaves with 130. Where standard output cannot be written to its end, that is said, and the code is 1.
    """
    startup.open_streams()
    code = 0
    try:
        with startup.interruptible():
            code = _run(sys.argv[1:])
            code = _flush(quiet=code != 0) or code
    except KeyboardInterrupt:  # at the very beginning or end
        if code != startup.INTERRUPTED:  # which has been said
            say("gpuparse: interrupted")
        code = startup.INTERRUPTED
    startup.end()
    raise SystemExit(code)


def _run(arguments: list[str]) -> int:
    """Run a command; the exit code."""
    command = typer.main.get_command(app)
    try:
        with naming(STDOUT):  # which is what help and version are written to
            _complete(command)
            context = command.make_context("gpuparse", list(arguments) or ["--help"])
        with context:
            command.invoke(context)
    except typer.Exit as left:
        return left.exit_code or (0 if arguments else 2)
    except SystemExit as left:  # of what helps shells complete
        return left.code if isinstance(left.code, int) else 0
    except _MISUSE as error:
        context_name = error.ctx.command_path if getattr(error, "ctx", None) else "gpuparse"  # type: ignore[attr-defined]
        message = error.format_message()  # type: ignore[attr-defined]
        say(f"gpuparse: {message.rstrip('.')}; {context_name} --help says what there is")
        return 2
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("GPUPARSE_DEBUG") == "1":
            raise
        if isinstance(error, (KeyboardInterrupt, typer.Abort)):
            say("gpuparse: interrupted")
            return startup.INTERRUPTED
        message = "out of memory" if isinstance(error, MemoryError) else reason(error)
        if not isinstance(error, (ValueError, OSError, MemoryError)):  # not the input's fault, or not known to be
            message = f"{type(error).__name__}: {message} (GPUPARSE_DEBUG=1 for more)"
        say(f"gpuparse: {message}")
        return 1
    return 0


def _complete(command: Any) -> None:
    """Leave with what may follow on a line where a shell asks for that by the environment."""
    if os.environ.get(_ASKED):
        command._main_shell_completion({}, "gpuparse", _ASKED)


_ASKED = "_GPUPARSE_COMPLETE"  # the variable that typer's scripts for shells set

# typer's name for what users did wrong, of whichever click it is made of
_MISUSE: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def _flush(quiet: bool) -> int:
    """Write what is left of standard output; 1 where that fails, and then nothing tries again."""
    try:
        with naming(STDOUT):
            sys.stdout.flush()
    except OSError as error:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not quiet:
            say(f"gpuparse: {reason(error)}")
        return 1
    return 0
