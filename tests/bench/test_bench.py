"""The benchmarks' command line, registry, bars and timing, on suites that take no time."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as bench
from bench.bars import Bar, none_of
from bench.output import PROJECT, figure, write_json
from bench.registry import FIRST, Args, Measured, Option, Suite, at_least, find, languages
from bench.sides import compare
from bench.suites import NAMES
from bench.timing import Case, Contender, agreeing, in_fresh_process, measure


def tiny(args: Args) -> Measured:
    case = Case("sums", "", 0, 10)
    measure(case, [Contender("one", partial(sum, range(args.size)))], repeats=3)
    return Measured({"seconds": case.timings[0].seconds}, [Bar("size", args.size, 3, 5)])


SUITE = Suite(
    "tiny",
    "sums of small numbers",
    {"one": tiny, "two": lambda args: Measured(args.languages), "none": lambda args: Measured(None)},
    [
        Option("size", "how many", 4, at_least(2), trial=True),
        FIRST,
        languages(["danish", "dutch"]),
        Option("again", "words", [], again=True),
    ],
)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "find", lambda name: SUITE if name == "tiny" else find(name))


def results(directory: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in directory.glob("*.json")}


@pytest.mark.slow
@pytest.mark.usefixtures("fake")
def test_a_suite_is_run_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["run", "tiny", "--out", str(tmp_path)]) == 0
    found = results(tmp_path)
    assert set(found) == {"tiny_one.json", "tiny_two.json"}
    one = found["tiny_one.json"]
    assert len(one["data"]["seconds"]) == 3 and one["settings"]["size"] == "4"
    assert [bar["verdict"] for bar in one["bars"]] == ["pass"]
    assert found["tiny_two.json"]["data"] == ["danish", "dutch"]
    assert bench.main(["report", "--out", str(tmp_path)]) == 0
    assert "tiny_one" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("fake")
def test_trials_do_not_take_the_place_of_results(tmp_path: Path) -> None:
    bench.main(["run", "tiny", "one", "--out", str(tmp_path)])
    assert bench.main(["run", "tiny", "one", "--size", "2", "--out", str(tmp_path)]) == 1  # its bar is missed
    assert set(results(tmp_path)) == {"tiny_one.json", "tiny_one_trial.json"}
    assert bench.main(["report", "--out", str(tmp_path)]) == 1


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["run"], "which suite"),
        (["run", "nothing"], "'nothing' is no suite"),
        (["walk"], "'walk' is none of list, run, compare, report"),
        (["run", "tiny", "three"], "'three' is none of its parts: one, two, none"),
        (["run", "tiny", "--size", "1"], "--size: '1' is not a whole number from 2"),
        (["run", "tiny", "--size", "many"], "--size: 'many' is not a whole number from 2"),
        (["run", "tiny", "--languages", "danish,latin"], "--languages: 'latin' is none of danish, dutch"),
        (["run", "tiny", "--colour", "red"], "--colour"),
        (["compare", "nowhere", "tiny"], "nowhere: no checkout of gpuparse"),
        (["side", "tiny"], "tiny: nothing in it is timed by itself"),
    ],
)
def test_wrong_usage_is_one_line(given: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(given) == 2
    err = capsys.readouterr().err.strip().splitlines()
    assert len(err) == 1 and err[0].startswith("bench: ") and told in err[0]


def test_a_report_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(tmp_path / "old.json", {"environment": {}})
    assert bench.main(["report", "--out", str(tmp_path)]) == 1
    assert "no results" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_suites_declare_themselves(name: str) -> None:
    suite = find(name)
    assert suite.name == name and suite.about and suite.parts
    args = bench.read_options(suite, [])
    assert not suite.is_trial(args)
    assert all(hasattr(args, option.key) for option in suite.options)
    assert "default: all" in bench.parser_of(suite).format_help()


def test_the_list_and_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["list"]) == 0
    out = capsys.readouterr().out
    assert all(f"{name}: " in out for name in NAMES)
    assert bench.main([]) == 0
    assert "python -m bench run SUITE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("bar", "verdict"),
    [
        (Bar("shown", 3.0), ""),
        (Bar("not", None, 1), "not measured"),
        (Bar("low", 0.9, 1, 2), "FAIL"),
        (Bar("enough", 1.0, 1, 2), "pass"),
        (Bar("best", 2.0, 1, 2), "aim"),
        (Bar("much", 1.1, 1, most=True), "FAIL"),
        (Bar("little", 1.0, 1, 0.5, most=True), "pass"),
        (Bar("least", 0.5, 1, 0.5, most=True), "aim"),
        (Bar("quick once", 1.0, 1, fastest=1.5), "pass (unsteady)"),
        (Bar("slow once", 2.0, 1, fastest=1.5), "pass (unsteady)"),
        (none_of("wrong", 0), "pass"),
        (none_of("wrong", 1), "FAIL"),
    ],
)
def test_verdicts(bar: Bar, verdict: str) -> None:
    assert bar.verdict == verdict
    assert bar.missed == (verdict in ("FAIL", "not measured"))
    assert Bar.from_json(json.loads(json.dumps(bar.as_json()))) == bar


@pytest.mark.slow
def test_contenders_take_turns() -> None:
    order: list[str] = []
    contenders = [Contender(name, partial(order.append, name), "a") for name in "ab"]
    case = measure(Case("turns", "", 0, 4), contenders, repeats=3)
    assert order[-6:] == ["a", "b"] * 3
    assert [t.repetitions for t in case.timings] == [3, 3] and case.ratio("a", "a") == 1.0
    assert case.rate("c") is None and case.ratio("b", "c") is None
    values = (None, float("inf"), 0.012345, 1.2345, 12.345, 1234.5, 12345.0, 1234567.0)
    assert [figure(x) for x in values] == ["–", "–", "0.012", "1.23", "12.3", "1,234", "12.3k", "1.23M"]


def test_a_slow_contender_makes_fewer_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.timing.seconds_of", lambda run, calls: run() * calls)
    contenders = [Contender("slow", lambda: 4.0), Contender("quick", lambda: 0.25)]
    case = measure(Case("budget", "", 0, 1), contenders, repeats=5, least=1.0, budget=8.0)
    assert [(t.repetitions, len(t.seconds)) for t in case.timings] == [(2, 2), (5, 5)]
    assert case.timings[1].calls >= 4 and case.ratio("quick", "slow") == 16.0


def test_who_disagrees_is_named() -> None:
    import torch

    truth = {False: {"score": torch.zeros(2)}}
    ways = [
        Contender("right", lambda: {"score": torch.zeros(2)}),
        Contender("wrong", lambda: {"score": torch.ones(2)}, ours=True),
        Contender("broken", lambda: {}["score"]),
    ]
    problems: list[dict[str, Any]] = []
    able = agreeing(Case("case", "random", 3, 2), ways, truth, {"score": 1e-3}, problems)
    assert [way.name for way in able] == ["right", "wrong"]
    assert [("wrong" in p["where"], p["ours"]) for p in problems] == [(True, True), (False, False)]


def test_a_fresh_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert in_fresh_process("operator", "add", 2, 3) == 5
    assert in_fresh_process("operator", "truediv", 1, 0) is None
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.slow
def test_this_checkout_against_itself() -> None:
    """Two processes of the cheapest calls there are."""
    given = ["second_order", "--words", "2", "--batch", "1"]
    found = compare(PROJECT, given, repeats=1, least=0.0, must=1e-9)
    assert len(found.bars) == 6 and not any(bar.missed for bar in found.bars)


@pytest.mark.slow
def test_the_command_itself() -> None:
    command = [sys.executable, "-m", "bench", "run", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 2 and "is no suite" in done.stderr
