"""The command line: ``python -m bench list``, ``run SUITE [PART ...]``, ``compare DIR SUITE``, ``report``.

Tables go to stdout, progress to stderr, and every figure to JSON files in ``bench/results``. Exits with 1 if a bar is
missed or something could not be measured, with 2 at wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from bench.bars import Bar, show_bars
from bench.output import LOG, OUT, RESULTS, Problem, write_json
from bench.registry import Args, Measured, Suite, find, seconds, whole
from bench.sides import compare, serve
from bench.suites import NAMES
from bench.timing import environment, print_environment


class Arguments(argparse.ArgumentParser):
    """Whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise Problem(message, 2)


def parser_of(suite: Suite, parts: bool = True) -> Arguments:
    """The options of a suite."""
    parser = Arguments(prog=f"python -m bench run {suite.name}", description=suite.about, allow_abbrev=False)
    if parts:
        text = f"{', '.join(suite.parts)}; default: all"
        parser.add_argument("parts", nargs="*", metavar="part", help=text)
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help="of results; default bench/results")
    for option in suite.options:
        option.add_to(parser)
    return parser


def read_options(suite: Suite, given: Sequence[str], parts: bool = True) -> Args:
    """What was asked of a suite, checked; ``trial`` where it is less than by default."""
    args = parser_of(suite, parts).parse_args(given)
    for part in args.parts if parts else ():
        if part not in suite.parts:
            raise Problem(f"{suite.name}: {part!r} is none of its parts: {', '.join(suite.parts)}", 2)
    args.trial = suite.is_trial(args)
    return args


def begin(suite: Suite, args: Args) -> dict[str, Any]:
    """Say where and with what things are measured."""
    if hasattr(args, "threads"):
        torch.set_num_threads(args.threads)
    found = environment(suite.peers)
    print_environment(found)
    for peer in suite.peers:
        if found["versions"][peer] == "not installed":
            LOG.print(f"{peer} is not installed, so it is left out: pip install 'gpuparse[bench]'")
    for line in suite.notes:
        OUT.print(line)
    return found


def finish(path: Path, suite: Suite, part: str, found: dict[str, Any], args: Args, measured: Measured) -> None:
    """Write a part's results."""
    settings = {key: str(value) for key, value in vars(args).items()}
    bars = [bar.as_json() for bar in measured.bars]
    known = {"suite": suite.name, "part": part, "trial": args.trial, "environment": found, "settings": settings}
    write_json(path, known | {"data": measured.data, "bars": bars})


def run_suite(suite: Suite, given: Sequence[str]) -> int:
    """Measure some parts of a suite, or all; 1 if a bar is missed."""
    args = read_options(suite, given)
    found = begin(suite, args)
    bars: list[Bar] = []
    for part in args.parts or suite.parts:
        measured = suite.parts[part](args)
        bars += measured.bars
        if measured.data is not None:
            finish(args.out / suite.result(part, args.trial), suite, part, found, args, measured)
    return int(show_bars(f"Bars, {suite.name}{' (a trial)' if args.trial else ''}", bars))


def compare_suite(given: Sequence[str]) -> int:
    """The timed calls of a suite here and in another checkout, in turns."""
    parser = Arguments(prog="python -m bench compare", allow_abbrev=False)
    parser.add_argument("checkout", type=Path, help="to compare with")
    parser.add_argument("suite", help="and its options")
    parser.add_argument("--turns", type=whole, default=5, help="repetitions of a call; default 5")
    parser.add_argument("--least", type=float, default=0.05, help="seconds of a repetition; default 0.05")
    parser.add_argument("--must", type=seconds, default=0.97, help="speed over before; default 0.97")
    args, rest = parser.parse_known_args(given)
    suite = find(args.suite)
    own = read_options(suite, rest, parts=False)
    found = begin(suite, own)
    how = {"repeats": args.turns, "least": args.least, "must": args.must}
    measured = compare(args.checkout, [suite.name, *rest], **how)
    finish(own.out / f"{suite.name}_compared.json", suite, "compared", found, own, measured)
    return int(show_bars("Bars", measured.bars))


def list_suites(_: Sequence[str]) -> int:
    for name in NAMES:
        suite = find(name)
        OUT.print(f"{name}: {suite.about}\n    parts: {' '.join(suite.parts)}")
    return 0


def report(given: Sequence[str]) -> int:
    """All bars of results that are there; 1 if one is missed."""
    parser = Arguments(prog="python -m bench report", allow_abbrev=False)
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help="of results; default bench/results")
    directory = parser.parse_args(given).out
    verdicts: list[bool] = []
    for path in sorted(directory.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record, dict) and "suite" in record:  # others are of before there was one form of results
            bars = [Bar.from_json(bar) for bar in record["bars"]]
            verdicts.append(show_bars(f"{path.stem}, {record['environment']['date'][:10]}", bars))
    if not verdicts:
        raise Problem(f"no results in {directory}: python -m bench run SUITE makes them")
    return int(any(verdicts))


USAGE = f"""python -m bench list
python -m bench run SUITE [PART ...] [options; --help shows them]
python -m bench compare CHECKOUT SUITE [options]
python -m bench report [--out DIR]

suites: {", ".join(NAMES)}"""


def command(given: Sequence[str]) -> int:
    """Run a command; its exit code."""
    name, *rest = given or ["--help"]
    if name in ("-h", "--help"):
        OUT.print(USAGE)
        return 0
    if name in (others := {"list": list_suites, "report": report, "compare": compare_suite}):
        return others[name](rest)
    if name not in ("run", "side"):
        raise Problem(f"{name!r} is none of list, run, compare, report", 2)
    if not rest:
        raise Problem(f"{name}: which suite? There are {', '.join(NAMES)}", 2)
    suite = find(rest[0])
    if name == "run":
        return run_suite(suite, rest[1:])
    serve(suite, read_options(suite, rest[1:], parts=False))
    return 0


def main(given: Sequence[str]) -> int:
    """Run a command; a problem is one line on stderr."""
    try:
        return command(given)
    except Problem as problem:
        LOG.print(f"bench: {problem}")
        return problem.code
    except KeyboardInterrupt:
        LOG.print("bench: interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
