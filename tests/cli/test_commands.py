from __future__ import annotations

import json
import logging
import math
import re
import subprocess
import sys
from importlib import metadata

import pytest
from typer.testing import CliRunner

from gpuparse import __version__, cli
from gpuparse.cli import selftest
from gpuparse.ops import backend


def machine(**changes):
    described = {
        "kernels_dir": "/somewhere/kernels",
        "cache": {
            "path": "/somewhere/cache",
            "used": True,
            "reason": None,
            "writable": True,
            "files": 3,
            "bytes": 1_234_567,
        },
        "compiler": {"path": "/usr/bin/c++", "version": "c++ 12.2", "flags": ["-O3", "-march=native"]},
        "cpu": {"path": "kernels", "reason": "compiled kernels", "threads": 2, "model": "Some CPU [rev 2]"},
        "cupy": "14.0",
        "cuda": [{"name": "Some GPU", "capability": "8.6", "path": "torch", "reason": "no CuPy"}],
    }
    return {**described, **changes}


BARE = machine(
    compiler={"path": None, "version": None, "flags": []},
    cpu={"path": "torch", "reason": "no C++ compiler", "threads": 1, "model": "Some CPU"},
    cache={
        "path": "/somewhere/cache",
        "used": False,
        "reason": "it belongs to user 7",
        "writable": False,
        "files": 1,
        "bytes": 12,
    },
    cupy=None,
    cuda=[],
)


def check(ok=True, difference=1e-12):
    return selftest.Check(
        kernel="eisner",
        device="cpu",
        dtype="float64",
        max_difference=difference,
        tolerance=1e-10,
        ok=ok,
        note="",
    )


@pytest.fixture
def run(monkeypatch):
    """Run the command line on a machine that is made up."""

    def run(*arguments, described=None, checks=()):
        monkeypatch.setattr(backend, "describe", lambda: described or machine())
        monkeypatch.setattr(selftest, "run", lambda devices=None: list(checks))
        return CliRunner().invoke(cli.app, arguments)

    return run


def test_info(run):
    result = run("info")
    assert result.exit_code == 0
    assert result.stderr == ""
    out = result.stdout
    assert metadata.version("torch") in out
    assert "Some CPU [rev 2], 2 threads" in out
    assert re.search("^ +compiled kernels$", out, re.MULTILINE)
    assert "Some GPU, compute capability 8.6" in out
    assert "plain torch: no CuPy" in out
    assert "c++ 12.2" in out
    assert "-O3 -march=native" in out
    assert re.search("^ +used$", out, re.MULTILINE)
    assert "writable, 3 files, 1.2 MB" in out


def test_info_of_a_bare_machine(run):
    result = run("info", described=BARE)
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "CuPy not installed" in lines
    assert "plain torch: no C++ compiler" in lines
    assert "cuda no device" in lines
    assert "compiler not found" in lines
    assert "not used: it belongs to user 7" in lines
    assert "not writable, 1 file, 12 B" in lines


def test_long_values_stay_on_one_line(run):
    path = "/somewhere" + 20 * "/far away"
    assert path in run("info", described=machine(kernels_dir=path)).stdout


def test_json(run):
    report = json.loads(run("info", "--json").stdout)
    assert report["versions"]["cupy"] == "14.0"
    assert [device["device"] for device in report["devices"]] == ["cpu", "cuda:0"]
    assert report["devices"][1]["capability"] == "8.6"
    assert report["cache"]["bytes"] == 1_234_567 and report["cache"]["used"]
    assert "selftest" not in report


def test_selftest_that_agrees(run):
    result = run("info", "--selftest", checks=[check()])
    assert result.exit_code == 0
    assert "eisner" in result.stdout
    assert "1.0e-12" in result.stdout


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_selftest_that_differs(run, form):
    result = run("info", "--selftest", *form, checks=[check(), check(ok=False, difference=math.nan)])
    assert result.exit_code == 1
    assert "1 of 2 checks differ" in result.stderr
    if form:
        assert [row["ok"] for row in json.loads(result.stdout)["selftest"]] == [True, False]
        assert json.loads(result.stdout)["selftest"][1]["max_difference"] is None
    else:
        assert "DIFFERS" in result.stdout


def test_selftest_with_nothing_to_compare(run):
    result = run("info", "--selftest", described=BARE)
    assert result.exit_code == 1
    assert "nothing to compare" in result.stderr


def test_version(run):
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"gpuparse {__version__}\n"


def test_quiet_silences_the_library(run):
    logger = logging.getLogger("gpuparse")
    for option, level in ([], logging.NOTSET), (["--quiet"], logging.ERROR):
        logger.setLevel(logging.NOTSET)
        assert run("train", "model", "--show-config", *option).exit_code == 0
        assert logger.level == level
    logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize("arguments", [("nothing",), ("info", "--nothing"), ("info", "more")])
def test_wrong_usage(run, arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr


def fail():
    raise OSError("the disk\nis gone")


def test_an_error_is_one_line(monkeypatch, capsys):
    monkeypatch.delenv("GPUPARSE_DEBUG", raising=False)
    monkeypatch.setattr(backend, "describe", fail)
    monkeypatch.setattr(sys, "argv", ["gpuparse", "info"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "gpuparse: the disk is gone\n"


def test_debug_gives_the_traceback(monkeypatch):
    monkeypatch.setenv("GPUPARSE_DEBUG", "1")
    monkeypatch.setattr(backend, "describe", fail)
    monkeypatch.setattr(sys, "argv", ["gpuparse", "info"])
    with pytest.raises(OSError, match="is gone"):
        cli.main()


def test_on_this_machine():
    """The real thing, as a user starts it."""
    program = [sys.executable, "-c", "from gpuparse.cli import main; main()", "info", "--json"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["versions"]["torch"] == metadata.version("torch")
    assert report["devices"][0]["path"] in {"kernels", "torch"}
