"""Shells that complete what is typed; short options."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from gpuparse import __version__, cli
from gpuparse.system.defaults import TREE_METHODS, ready

PROGRAM = """
import sys
from gpuparse import cli
sys.argv = ["gpuparse", *sys.argv[1:]]
try:
    cli.main()
finally:
    print([name for name in ("torch", "highspy") if name in sys.modules], file=sys.stderr)
"""


def run(*arguments, **variables):
    """Code, output, what was said; torch is never imported."""
    environment = {**os.environ, **variables, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    *said, imported = done.stderr.splitlines()
    assert imported == "[]"
    return done.returncode, done.stdout.splitlines(), said


def complete(line):
    words = line.split(" ")
    asked = {"_GPUPARSE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    code, found, said = run(**asked)
    assert (code, said) == (0, [])
    return [name for name in found if name]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("gpuparse re", ["render"]),
        ("gpuparse parse --con", ["--constraints", "--confidence"]),
        ("gpuparse parse --method ", ["auto", *TREE_METHODS]),
        ("gpuparse parse model --constraints u", [name for name in ready() if name.startswith("u")]),
        ("gpuparse parse --device cud", ["cuda", "cuda:0"]),
        ("gpuparse render tr", []),  # and so the shell completes a file's name
    ],
)
def test_completing(line, found):
    assert complete(line) == found


def test_scripts_for_shells(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        code, script, _ = run("--show-completion", shell)
        assert code == 0 and "_GPUPARSE_COMPLETE=complete_" + shell in "\n".join(script)
    code, told, _ = run("--install-completion", "bash", HOME=str(tmp_path), USERPROFILE=str(tmp_path))
    assert code == 0 and "bash completion installed in " in told[0] and (tmp_path / ".bashrc").exists()
    code, found, said = run(_GPUPARSE_COMPLETE="complete_tcsh")
    assert (code, found, said) == (1, [], ["Shell tcsh not supported."])


def test_short_options():
    for command in ((), *((each.callback.__name__,) for each in cli.app.registered_commands)):
        short, long = (CliRunner().invoke(cli.app, [*command, option]) for option in ("-h", "--help"))
        assert short.exit_code == 0 and short.stdout == long.stdout and "Usage" in short.stdout
    assert CliRunner().invoke(cli.app, ["-V"]).stdout == f"gpuparse {__version__}\n"
