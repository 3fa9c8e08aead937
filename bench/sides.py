"""Two checkouts in turns: each runs the timed calls of a suite in a process of its own, when it is told to.

A side is ``python -m bench side SUITE ...`` with a checkout's gpuparse, and its bench where it has this package. Each
line of its input is a request, and each line of its output an answer, both JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import gpuparse as gp
from bench.bars import Bar
from bench.output import LOG, PROJECT, Problem, show
from bench.registry import Args, Measured, Suite
from bench.timing import calls_of, seconds_of


def serve(suite: Suite, args: Args) -> None:
    """Answer until the input ends: first what there is, then the seconds of a call, the mean of some."""
    torch.set_num_threads(1)
    if suite.timed is None:
        raise Problem(f"{suite.name}: nothing in it is timed by itself; it cannot be compared", 2)
    calls = list(suite.timed(args))
    _answer({"names": [call.name for call in calls], "gpuparse": gp.__file__})
    sizes: dict[int, int] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        number, call = asked["call"], calls[asked["call"]]
        counted = {}
        if number not in sizes:
            counted = call.count(call.run())  # which also compiles and loads
            sizes[number] = calls_of(call.run, asked["least"])[0] if asked["least"] else 1
        _answer({"seconds": seconds_of(call.run, sizes[number]) / sizes[number], "counted": counted})


def _answer(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


# The checkout before everything else; a bench of its own that is no package is passed over for ours.
_SIDE = "import sys; sys.path[0] = sys.argv[1]; from bench.__main__ import main; sys.exit(main(sys.argv[2:]))"


class Side:
    """A checkout in a process of its own."""

    def __init__(self, checkout: Path, given: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SIDE, str(checkout), "side", *given],
            env={**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.checkout = checkout
        self.names: list[str] = []

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        """Its input ends, and with it the process."""
        with self.process:
            pass

    def begin(self) -> None:
        """Wait until it knows what it times."""
        begun = self._read()
        self.names = begun["names"]
        if Path(begun["gpuparse"]).resolve().parents[1] != self.checkout:
            raise Problem(f"{begun['gpuparse']} was imported, which is not in {self.checkout}")

    def ask(self, call: int, least: float) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"call": call, "least": least}) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Problem(f"{self.checkout}: it ended with exit code {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


def compare(other: Path, given: Sequence[str], *, repeats: int, least: float, must: float) -> Measured:
    """The speed of this checkout over that of another one, in turns; which is first alternates.

    Seconds of a call are the median of its repetitions; calls of one name are added up.
    """
    if not (other / "gpuparse").is_dir():
        raise Problem(f"{other}: no checkout of gpuparse", 2)
    with Side(PROJECT, given) as now, Side(other.resolve(), given) as before:
        sides = {"now": now, "before": before}
        now.begin()
        before.begin()
        if now.names != before.names:
            raise Problem(f"{other}: other calls are timed there than here")
        found = [_in_turns(sides, number, repeats, least) for number in range(len(now.names))]
    rows: dict[str, list[dict[str, dict[str, Any]]]] = {}
    for name, record in zip(now.names, found, strict=True):
        rows.setdefault(name, []).append(record)
    bars, shown = [], []
    for name, records in rows.items():
        total = {side: sum(r[side]["median"] for r in records) for side in sides}
        fastest = {side: sum(min(r[side]["seconds"]) for r in records) for side in sides}
        ratio, of_fastest = (x["before"] / x["now"] for x in (total, fastest))
        each = [r["before"]["median"] / r["now"]["median"] for r in records]
        keys = records[0]["now"]["counted"]
        counts = {key: [sum(r[side]["counted"][key] for r in records) for side in sides] for key in keys}
        told = ", ".join(f"{now_} {key} (before: {before_})" for key, (now_, before_) in counts.items())
        seconds = (f"{1000 * total[side]:.3g}" for side in ("before", "now"))
        shown.append((name, len(records), *seconds, f"{ratio:.3f}", f"{min(each):.2f}", f"{max(each):.2f}", told))
        bars.append(Bar(f"speed now over before, {name}", ratio, must, unit=" ×", digits=3, fastest=of_fastest))
    columns = ("", ">calls", ">ms before", ">ms now", ">speed ×", ">least", ">most", "counted")
    show(f"Against {other}, {repeats} repetitions in turns", columns, shown)
    return Measured(rows, bars)


def _in_turns(sides: dict[str, Side], number: int, repeats: int, least: float) -> dict[str, dict[str, Any]]:
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    counted: dict[str, dict[str, int]] = {}
    for turn in range(repeats):
        for name in sorted(sides, reverse=bool((turn + number) % 2)):
            answer = sides[name].ask(number, least)
            seconds[name].append(answer["seconds"])
            counted.setdefault(name, answer["counted"])
    found: dict[str, dict[str, Any]] = {
        n: {"seconds": s, "median": statistics.median(s), "counted": counted[n]} for n, s in seconds.items()
    }
    ratio = found["before"]["median"] / found["now"]["median"]
    LOG.print(f"{sides['now'].names[number]}: {ratio:.3f} × as fast as before")
    return found
