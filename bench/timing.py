"""How things are timed: contenders that agree, in turns; peak memory; the machine."""

from __future__ import annotations

import gc
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

import gpuparse as gp
from bench.output import LOG, OUT, PROJECT, figure, show
from gpuparse.ops import backend

Result = TypeVar("Result")

Results = dict[str, Tensor]
"""What contenders must agree on: log Z [B] and marginals [B, N, N], or the score of the tree found [B]."""


@dataclass(frozen=True)
class Contender:
    """One way to compute what a case asks for."""

    name: str
    run: Callable[[], Any]
    """One call, from scores at hand to results: nothing kept from the call before."""
    against: str | None = None
    """The contender that this one's rate is divided by."""
    ours: bool = False
    single_root: bool = False
    read: Callable[[Any], Results] = dict
    """What a call's results are, for the check before the timing."""


@dataclass
class Timing:
    """Repetitions of one contender, each of `calls` calls on a batch of `batch` sentences."""

    name: str
    against: str | None
    ours: bool
    batch: int
    asked: int
    calls: int = 1
    repetitions: int = 0
    seconds: list[float] = field(default_factory=list)
    """Of one call, by repetition."""

    def rates(self) -> dict[str, float]:
        """Sentences per second over the repetitions: median, least, most, and the quartiles."""
        rates = [self.batch / s for s in self.seconds]
        quartiles = statistics.quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else rates * 3
        q1, median, q3 = quartiles
        return {"median": median, "min": min(rates), "max": max(rates), "q1": q1, "q3": q3}


@dataclass
class Case:
    """Contenders on the same scores, and how each did."""

    task: str
    scores: str
    n: int
    batch: int
    timings: list[Timing] = field(default_factory=list)

    def rate(self, name: str, by: str = "median") -> float | None:
        """Sentences per second of the contender of that name (median, max ...); None if it did not run."""
        return next((t.rates()[by] for t in self.timings if t.name == name), None)

    def ratio(self, name: str, against: str | None, by: str = "median") -> float | None:
        """How many times as fast the one is as the other; None if either did not run."""
        ours, theirs = self.rate(name, by), self.rate(against, by) if against else None
        return ours / theirs if ours and theirs else None

    def as_json(self) -> list[dict[str, Any]]:
        """One record a contender."""
        case = {"task": self.task, "scores": self.scores, "n": self.n, "batch": self.batch}
        return [
            case
            | {
                "contender": t.name,
                "ours": t.ours,
                "sentences_per_second": t.rates(),
                "against": t.against,
                "ratio": self.ratio(t.name, t.against),
                "ratio_of_fastest": self.ratio(t.name, t.against, "max"),
                "calls_per_repetition": t.calls,
                "repetitions": t.repetitions,
                "repetitions_asked": t.asked,
                "seconds_per_call": t.seconds,
            }
            for t in self.timings
        ]


def timed(run: Callable[[], Result]) -> tuple[Result, float]:
    """What a call gives, and its wall time in seconds."""
    start = time.perf_counter()
    result = run()
    return result, time.perf_counter() - start


def seconds_of(run: Callable[[], Any], calls: int) -> float:
    """Wall time of `calls` calls."""
    gc.collect()
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return time.perf_counter() - start


def agreeing(
    case: Case,
    contenders: Sequence[Contender],
    truth: dict[bool, Results],
    tolerance: dict[str, float],
    problems: list[dict[str, Any]],
) -> list[Contender]:
    """Run each once (which also compiles) and add who is wrong to `problems`; those that could run.

    `truth` is for multi-root (False) and single-root trees (True).
    """
    able = []
    for c in contenders:
        found: list[str] = []
        try:
            for name, value in c.read(c.run()).items():
                error = float((value.detach().double() - truth[c.single_root][name].double()).abs().max())
                if not error <= tolerance[name]:
                    found.append(f"{name} is off by {error:.2g} (tolerance {tolerance[name]:g})")
            able.append(c)
        except Exception as error:  # whatever a peer throws, the others go on
            found.append(f"failed: {type(error).__name__}: {error}")
        for text in found:
            where = f"{case.task}, {case.scores} scores, n={case.n}, B={case.batch}: {c.name}"
            problems.append({"where": where, "ours": c.ours, "what": text})
            LOG.print(f"DISAGREES  {where}: {text}")
    return able


def measure(
    case: Case, contenders: Sequence[Contender], *, repeats: int, least: float = 0.0, budget: float = math.inf
) -> Case:
    """Time all contenders in turns (A B C A B C ...), so that whatever the machine does hits them alike.

    Each is run before, so that everything is compiled and loaded. A repetition makes as many calls as last
    `least` seconds. A contender that would need more than `budget` seconds in all makes fewer repetitions,
    spread evenly among those of the others; one at least.
    """
    for c in contenders:
        c.run()
        t = Timing(c.name, c.against, c.ours, case.batch, repeats)
        t.calls, took = calls_of(c.run, least)
        t.repetitions = min(repeats, max(1, int(min(budget / took, repeats))))
        case.timings.append(t)
    for r in range(repeats):
        for c, t in zip(contenders, case.timings, strict=True):
            if (r + 1) * t.repetitions // repeats > r * t.repetitions // repeats:
                t.seconds.append(seconds_of(c.run, t.calls) / t.calls)
    return case


def calls_of(run: Callable[[], Any], least: float) -> tuple[int, float]:
    """How many calls last `least` seconds, and how long they took."""
    calls = 1
    while (took := seconds_of(run, calls)) < least:
        calls = max(calls + 1, math.ceil(1.2 * calls * min(least / max(took, 1e-9), 20.0)))
    return calls, took


def _status(key: str) -> float | None:
    """A line of /proc/self/status, in MB."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{key}:")), None)


def _peak() -> float:
    """This process's peak resident memory, in MB."""
    peak = _status("VmHWM")
    if peak is not None:
        return peak
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def memory_growth(run: Callable[[], Any]) -> float:
    """By how many MB `run()` takes this process's peak memory above what it held before.

    For a fresh process that has done the same on something tiny. On Linux, ru_maxrss starts with the peak of
    the process that started this one, which would hide growth; VmHWM is the same figure without that. Growth
    starts from what is held now, not from the peak so far: memory that imports took and gave back counts.
    """
    gc.collect()
    before = _status("VmRSS") or _peak()
    run()
    return max(0.0, _peak() - before)


_CHILD = (
    "import importlib, json, sys; module, name, *given = json.loads(sys.argv[1]); "
    "print(json.dumps(getattr(importlib.import_module(module), name)(*given)))"
)


def in_fresh_process(module: str, name: str, *given: Any) -> Any:
    """What a function of a module returns in a process of its own; None, and a line on stderr, if it failed."""
    command = [sys.executable, "-c", _CHILD, json.dumps([module, name, *given])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT)
    if done.returncode == 0:
        return json.loads(done.stdout)
    LOG.print(f"  failed ({done.returncode}): {(done.stderr.strip().splitlines() or ['killed?'])[-1]}")
    return None


def environment(peers: Sequence[str]) -> dict[str, Any]:
    """Versions, processor, threads, date, and the path that gpuparse takes."""
    cpu: Any = backend.describe()["cpu"]
    versions = {"gpuparse": gp.__version__, "torch": torch.__version__}
    for name in ("numpy", *peers):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions | {"python": platform.python_version()},
        "cpu": cpu["model"],
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0],
        "backend": {"path": cpu["path"], "reason": cpu["reason"]},
    }


def print_environment(found: dict[str, Any]) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    OUT.print(f"{found['date']}  {versions}")
    load, path = found["load_average"], found["backend"]
    OUT.print(f"{found['cpu']}, {found['cores']} cores, {found['threads']} threads, load average {load:.1f}")
    OUT.print(f"gpuparse's path on the CPU: {path['path']} ({path['reason']})")
    if load > 0.5:
        OUT.print("NOTE: the machine was busy before this began; the figures are worth less for it")


def show_cases(title: str, cases: Sequence[Case]) -> None:
    """Every contender of the cases of one task and kind of scores."""
    rows: list[tuple[str, ...]] = []
    sections = []
    for case in cases:
        sections.append(len(rows))
        for i, t in enumerate(case.timings):
            r, ratio = t.rates(), case.ratio(t.name, t.against)
            fewer = f" (of {t.asked}: slow)" if t.repetitions < t.asked else ""
            of = (str(case.n), str(case.batch)) if i == 0 else ("", "")
            spread = (f"{figure(r[low])}–{figure(r[high])}" for low, high in (("min", "max"), ("q1", "q3")))
            rate = f"{figure(ratio)} × {t.against.split(',')[0]}" if ratio and t.against else ""
            rows.append((*of, t.name, figure(r["median"]), *spread, f"{t.repetitions}{fewer} × {t.calls}", rate))
    columns = (">sentences/s", ">min–max", ">quartiles", ">reps × calls")
    show(title, ("n", "B", "contender", *columns, "rate"), rows, sections=sections)
