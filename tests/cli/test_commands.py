from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
from importlib import metadata

import pytest
from typer.testing import CliRunner

from gpuparse import __version__, cli
from gpuparse.cli import selftest
from gpuparse.ops import backend

CACHE = {"path": "/somewhere/cache", "used": True, "reason": None, "writable": True, "files": 3, "bytes": 1_234_567}


def machine(**changes):
    described = {
        "kernels_dir": "/somewhere/kernels",
        "cache": CACHE,
        "compiler": {"path": "/usr/bin/c++", "version": "c++ 12.2", "flags": ["-O3", "-march=native"]},
        "cpu": {"path": "kernels", "reason": "compiled kernels", "threads": 2, "model": "Some CPU [rev 2]"},
        "cupy": "14.0",
        "cuda": [{"name": "Some GPU", "capability": "8.6", "path": "torch", "reason": "no CuPy"}],
    }
    return {**described, **changes}


BARE = machine(
    compiler={"path": None, "version": None, "flags": []},
    cpu={"path": "torch", "reason": "no C++ compiler", "threads": 1, "model": "Some CPU"},
    cache=CACHE | {"used": False, "reason": "it belongs to user 7", "writable": False, "files": 1, "bytes": 12},
    cupy=None,
    cuda=[],
)


def check(ok=True, difference=1e-12):
    return selftest.Check("eisner", "cpu", "float64", difference, 1e-10, ok, "")


@pytest.fixture
def run(monkeypatch):
    """Run the command line on a machine that is made up."""

    def run(*arguments, described=None, checks=()):
        monkeypatch.setattr(backend, "describe", lambda: described or machine())
        monkeypatch.setattr(selftest, "run", lambda devices=None, times=None: list(checks))
        return CliRunner().invoke(cli.app, arguments)

    return run


@pytest.mark.parametrize(
    ("described", "told"),
    [
        (
            machine(),
            [
                *(f"torch {metadata.version('torch')}", "Some CPU [rev 2], 2 threads", "compiled kernels"),
                *("Some GPU, compute capability 8.6", "plain torch: no CuPy", "c++ 12.2", "-O3 -march=native"),
                *("used", "writable, 3 files, 1.2 MB"),
            ],
        ),
        (
            BARE,
            [
                *("CuPy not installed", "plain torch: no C++ compiler", "cuda no device", "compiler not found"),
                *("not used: it belongs to user 7", "not writable, 1 file, 12 B"),
            ],
        ),
    ],
    ids=["all", "bare"],
)
def test_info(run, described, told):
    result = run("info", described=described)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert [each for each in told if not any(line == each or line.endswith(f" {each}") for line in lines)] == []


def test_long_values_stay_on_one_line(run):
    path = "/somewhere" + 20 * "/far away"
    assert path in run("info", described=machine(kernels_dir=path)).stdout


def test_json(run):
    report = json.loads(run("info", "--json").stdout)
    assert report["versions"]["cupy"] == "14.0"
    assert [device["device"] for device in report["devices"]] == ["cpu", "cuda:0"]
    assert report["devices"][1]["capability"] == "8.6"
    assert report["kernels_dir"] == "/somewhere/kernels" and report["cache"]["path"] == "/somewhere/cache"
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
    assert result.exit_code == 1 and "1 of 2 checks differ" in result.stderr
    if form:
        rows = json.loads(result.stdout)["selftest"]
        assert [(row["ok"], row["max_difference"]) for row in rows] == [(True, 1e-12), (False, None)]
    else:
        assert "DIFFERS" in result.stdout
    result = run("info", "--selftest", described=BARE)
    assert result.exit_code == 1 and "nothing to compare" in result.stderr


def test_report_of_the_selftest(run, tmp_path, monkeypatch):
    file = tmp_path / "report.json"
    monkeypatch.setenv("HOME", "/somewhere")
    timed = selftest.Check("mst", "cuda:0", "float32", 0.0, 0.0, True, seconds=0.25, plain_seconds=1.5)
    result = run("info", "--selftest", "--report", str(file), checks=[timed, check()])
    assert result.exit_code == 0 and "250.000" in result.stdout and "1500.000" in result.stdout
    report = json.loads(file.read_text())
    rows = [(row["kernel"], row["seconds"], row["plain_seconds"]) for row in report["selftest"]]
    assert rows == [("mst", 0.25, 1.5), ("eisner", None, None)] and report["devices"][1]["capability"] == "8.6"
    assert report["kernels_dir"] == "~/kernels" and report["cache"]["path"] == "~/cache"
    result = run("info", "--report", str(file))
    assert (
        result.exit_code == 2
        and result.stderr == "gpuparse: --report needs --selftest: there is nothing else to report\n"
    )


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


@pytest.mark.parametrize("debug", [None, "", "1"])
def test_an_error_is_one_line_or_a_traceback(monkeypatch, capsys, debug):
    def fail():
        raise OSError("the disk\nis gone")

    monkeypatch.delenv("GPUPARSE_DEBUG", raising=False)
    if debug is not None:
        monkeypatch.setenv("GPUPARSE_DEBUG", debug)
    monkeypatch.setattr(backend, "describe", fail)
    monkeypatch.setattr(sys, "argv", ["gpuparse", "info"])
    with pytest.raises(OSError if debug else SystemExit, match="is gone" if debug else "1") as left:
        cli.main()
    assert debug or (left.value.code, *capsys.readouterr()) == (1, "", "gpuparse: the disk is gone\n")


def test_on_this_machine():
    """The real thing, as a user starts it."""
    program = [sys.executable, "-c", "from gpuparse.cli import main; main()", "info", "--json"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["versions"]["torch"] == metadata.version("torch")
    assert report["devices"][0]["path"] in {"kernels", "torch"}
