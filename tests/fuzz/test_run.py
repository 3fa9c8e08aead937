"""The runner: what it counts as a failure, and a small part of every target."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FUZZ = Path(__file__).parents[2] / "fuzz"
SMALL = 2000  # one in so many of a target's cases is run here

_TARGET = """
from __future__ import annotations
import os, random, time
from pathlib import Path
from types import ModuleType
NAME = "sick"
COUNT = 8
def one(rng: random.Random, directory: Path) -> str:
    assert not list(directory.iterdir()), "not fresh"
    (directory / "file").write_text("x")
    return run(rng)
def run(rng: random.Random) -> str:
    number = NUMBERS[rng.random()]
    if number == 1: raise AssertionError("wrong\\n\\x1b[31m")
    if number == 2: raise KeyError("x" * 1000)
    if number == 3: time.sleep(60)
    if number == 4: os._exit(7)
    if number == 5:
        kept = [bytearray(b"x" * (1 << 20)) for _ in range(400)]
    return "fine" if number % 2 else "even"
NUMBERS = {random.Random(f"{NAME}:{number}").random(): number for number in range(COUNT)}
"""


def _run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(FUZZ.parent), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=300, env=environment
    )


@pytest.fixture
def sick(tmp_path: Path) -> Path:
    """A runner beside a target that fails in every way."""
    (tmp_path / "sick.py").write_text(_TARGET)
    (tmp_path / "helper.py").write_text("raise RuntimeError('no target: not to be imported')\n")
    shutil.copy(FUZZ / "run.py", tmp_path)
    return tmp_path / "run.py"


def test_what_fails_is_counted_and_named(sick: Path) -> None:
    done = _run(sick, "--seconds", "1", "--gigabytes", "0.2", "--processes", "2")
    assert done.returncode == 1, done.stderr
    assert re.search(r"^sick +8 +even 2, fine 1 +5 ", done.stdout, re.M), done.stdout
    told = dict(re.findall(r"^sick case (\d+): (.*)\n    python fuzz/run.py sick --case \1$", done.stdout, re.M))
    assert sorted(told) == ["1", "2", "3", "4", "5"]
    assert told["1"] == r"AssertionError: 'wrong \x1b[31m'"
    assert told["2"].startswith("KeyError: ") and "(sick.py:" in told["2"] and len(told["2"]) < 400
    assert told["3"] == "killed after 1 s"
    assert told["4"] == "the process died (exit code 7)"
    assert "memory" in told["5"] and "GB" in told["5"]
    assert "8 of 8 cases, 5 failed" in done.stderr


def test_part_of_a_target_and_one_case(sick: Path) -> None:
    done = _run(sick, "sick", "--first", "6", "--count", "2", "--processes", "1")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^sick +2 +even 1, fine 1 +0 ", done.stdout, re.M), done.stdout
    assert _run(sick, "sick", "--case", "6").stdout.startswith("sick case 6: even")
    done = _run(sick, "sick", "--case", "2")
    assert done.returncode == 1 and "Traceback" in done.stderr


def test_no_such_target(sick: Path) -> None:
    done = _run(sick, "nosuch")
    assert done.returncode == 2 and "no such target: nosuch; there are sick" in done.stderr


def _runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_run", FUZZ / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_run"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", _runner().modules())
def test_a_small_part(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which has all modules; the runner itself is tested above."""
    monkeypatch.syspath_prepend(str(FUZZ))
    runner = _runner()
    target = runner.load(name)
    assert runner.constants(name) == (target.NAME, target.COUNT)
    for number in range(max(10, target.COUNT // SMALL)):
        directory = tmp_path / str(number)
        directory.mkdir()
        try:
            runner.run_case(target, number, directory)
        except BaseException:
            print(f"python fuzz/run.py {name} --case {number}")
            raise
