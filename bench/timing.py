"""What a benchmark needs: scores, agreement, interleaved timing, peak memory, the machine, tables, JSON."""

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
from typing import Any

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

import gpuparse as gp
from gpuparse import backend

OUT = Console(width=None if sys.stdout.isatty() else 150, highlight=False, markup=False)
"""Tables and findings, on stdout."""

LOG = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
"""Progress, on stderr."""


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


def random_heads(n: int, projective: bool, rng: np.random.Generator) -> list[int]:
    """Heads of a random tree with one word under the root; those of the words 1 .. n count."""
    heads = [0] * (n + 1)
    if not projective:
        order = 1 + rng.permutation(n)
        for i in range(1, n):
            heads[order[i]] = int(order[rng.integers(i)])
        return heads
    spans = [(1, n + 1, 0)]  # words first .. last - 1 hang together on a head outside
    while spans:
        first, last, head = spans.pop()
        word = int(rng.integers(first, last))
        heads[word] = head
        for a, b in ((first, word), (word + 1, last)):
            while a < b:
                end = int(rng.integers(a, b)) + 1
                spans.append((a, end, word))
                a = end
    return heads


def make_scores(kind: str, n: int, batch: int, projective: bool) -> Tensor:
    """[B, N, N] in float32: standard normal, or peaked as trained ones are: a random tree, 12 above
    noise of 1.5.
    """
    rng = np.random.default_rng([n, batch, int(projective), kind == "peaked"])
    arcs = rng.standard_normal((batch, n + 1, n + 1))
    if kind == "peaked":
        arcs *= 1.5
        for b in range(batch):
            arcs[b, random_heads(n, projective, rng), range(n + 1)] += 12.0
    return torch.from_numpy(arcs).float()


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


def measure(case: Case, contenders: Sequence[Contender], *, repeats: int, least: float, budget: float) -> None:
    """Time all contenders in turns (A B C A B C ...), so that whatever the machine does hits them alike.

    Each must have run before, so that everything is compiled and loaded. A repetition makes as many calls as
    last `least` seconds. A contender that would need more than `budget` seconds in all makes fewer
    repetitions, spread evenly among those of the others; one at least.
    """
    for c in contenders:
        t = Timing(c.name, c.against, c.ours, case.batch, repeats)
        while (took := seconds_of(c.run, t.calls)) < least:
            t.calls = max(t.calls + 1, math.ceil(1.2 * t.calls * min(least / max(took, 1e-9), 20.0)))
        t.repetitions = min(repeats, max(1, int(budget / took)))
        case.timings.append(t)
    for r in range(repeats):
        for c, t in zip(contenders, case.timings, strict=True):
            if (r + 1) * t.repetitions // repeats > r * t.repetitions // repeats:
                t.seconds.append(seconds_of(c.run, t.calls) / t.calls)


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


def in_fresh_process(arguments: Sequence[str]) -> Any:
    """The JSON that a script of ours prints on stdout; None, and a line on stderr, if it failed."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout)
    LOG.print(f"  failed ({done.returncode}): {(done.stderr.strip().splitlines() or ['killed?'])[-1]}")
    return None


def version_of(package: str) -> str | None:
    """The installed version; None if it is not."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def environment(peers: Sequence[str]) -> dict[str, Any]:
    """Versions, processor, threads, date, and the path that gpuparse takes."""
    cpu: Any = backend.describe()["cpu"]
    versions = {"gpuparse": gp.__version__, "torch": torch.__version__}
    versions |= {name: version_of(name) or "not installed" for name in ("numpy", *peers)}
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


def figure(x: float | None, unit: str = "") -> str:
    """Three digits (12,345 is 12.3k), or a dash for what was not measured."""
    if x is None or not math.isfinite(x):
        return "–"
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if abs(x) >= 10 * size or (suffix == "M" and abs(x) >= size):
            x, unit = x / size, suffix + unit
            break
    if abs(x) < 1:
        return f"{x:.2g}{unit}"
    return f"{x:,.{0 if abs(x) >= 100 else 1 if abs(x) >= 10 else 2}f}{unit}"


def new_table(title: str, *columns: str) -> Table:
    """Columns are to the left, or to the right if their name begins with >."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for name in columns:
        table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left", no_wrap=True)
    return table


def timing_table(title: str, cases: Sequence[Case]) -> Table:
    """Every contender of the cases of one task and kind of scores."""
    spread = (">sentences/s", ">min–max", ">quartiles", ">reps × calls")
    table = new_table(title, "n", "B", "contender", *spread, "rate")
    for case in cases:
        for i, t in enumerate(case.timings):
            r, ratio = t.rates(), case.ratio(t.name, t.against)
            fewer = f" (of {t.asked}: slow)" if t.repetitions < t.asked else ""
            table.add_row(
                str(case.n) if i == 0 else "",
                str(case.batch) if i == 0 else "",
                t.name,
                figure(r["median"]),
                f"{figure(r['min'])}–{figure(r['max'])}",
                f"{figure(r['q1'])}–{figure(r['q3'])}",
                f"{t.repetitions}{fewer} × {t.calls}",
                f"{figure(ratio)} × {t.against.split(',')[0]}" if ratio and t.against else "",
            )
        table.add_section()
    return table


def memory_table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """Rows have what, n, batch and megabytes."""
    kinds = list(dict.fromkeys(row["what"] for row in rows))
    table = new_table(title, ">n", ">B", *(f">{kind}" for kind in kinds))
    for n, batch in dict.fromkeys((row["n"], row["batch"]) for row in rows):
        found = {row["what"]: row["megabytes"] for row in rows if (row["n"], row["batch"]) == (n, batch)}
        table.add_row(str(n), str(batch), *(figure(found.get(kind)) for kind in kinds))
    return table


@dataclass
class Bar:
    """A figure that the project promises: at least `must` (memory: at most)."""

    name: str
    must: float
    aim: float | None
    measured: float | None
    fastest: float | None = None
    """The same from the fastest repetition of each side, which a busy machine disturbs least."""
    unit: str = " ×"

    @property
    def passed(self) -> bool:
        if self.measured is None:
            return False
        return self.measured <= self.must if self.unit == " MB" else self.measured >= self.must

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        a, b = sorted((self.measured, self.fastest or self.measured))
        return ("pass" if self.passed else "FAIL") + (" (unsteady)" if b > 1.25 * a else "")


def bars_table(bars: Sequence[Bar]) -> Table:
    table = new_table("Bars", "bar", ">measured", ">fastest/fastest", ">must", ">aim", "verdict")
    for bar in bars:
        must = f"{'≤' if bar.unit == ' MB' else '≥'} {bar.must:g}"
        aim = "" if bar.aim is None else f"{bar.aim:g}"
        measured = (figure(x, bar.unit) for x in (bar.measured, bar.fastest))
        table.add_row(bar.name, *measured, must, aim, bar.verdict)
    return table


def write_json(path: Path, data: Any) -> None:
    """All or nothing: written to a temporary name, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
