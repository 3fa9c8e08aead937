"""Runs fuzzing targets and counts what came of them.

    python fuzz/run.py                          # every target, as many cases as it asks for
    python fuzz/run.py conllu toml --count 1000 # the first cases of two targets
    python fuzz/run.py conllu --case 4711       # one case, here, with its traceback

A target is a module beside this one with ``NAME``, ``COUNT`` and ``one(rng, directory)``, which makes one case from the
generator, runs it, and gives a word for what came of it. A case fails if anything escapes from ``one``, if it takes
longer than ten seconds (it is then killed), if memory grows by more than 2 GB, or if the process dies. Case ``n`` of a
target is the same in every run. Exit 1 if any case failed.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

HERE = Path(__file__).resolve().parent
SECONDS = 10.0
GIGABYTES = 2.0
_START_SECONDS = 300.0  # to import a target: torch, and kernels that have to be compiled
_CHUNK = 64  # cases that a worker is given at a time
_SHOWN = 20  # failures of a target that are listed


class Target(Protocol):
    """What a target module defines."""

    NAME: str
    COUNT: int

    def one(self, rng: random.Random, directory: Path) -> str: ...


class Result(NamedTuple):
    """What a worker says of one case, or of having begun (number -1)."""

    number: int
    outcome: str
    failure: str
    seconds: float
    growth: int


@dataclass
class Tally:
    """What came of a target's cases."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)
    slowest: tuple[float, int] = (0.0, -1)
    growth: tuple[int, int] = (0, -1)
    cases: int = 0

    def add(self, result: Result) -> None:
        """Count a case."""
        self.cases += 1
        if result.failure:
            self.failures[result.number] = result.failure
        else:
            self.outcomes[result.outcome] += 1
        self.slowest = max(self.slowest, (result.seconds, result.number))
        self.growth = max(self.growth, (result.growth, result.number))


def modules() -> list[str]:
    """The target modules beside this one, found without importing any."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.py")) if path.stem != "run"}
    return [name for name, text in texts.items() if re.search(r"^def one\(", text, re.MULTILINE)]


def constants(module: str) -> tuple[str, int]:
    """``NAME`` and ``COUNT`` of a target, without importing it, which takes seconds."""
    lines = re.findall(r"^(NAME|COUNT) = (.+)$", (HERE / f"{module}.py").read_text(encoding="utf-8"), re.MULTILINE)
    found = {name: ast.literal_eval(value) for name, value in lines}
    if found.keys() != {"NAME", "COUNT"}:
        raise SystemExit(f"fuzz: {module}.py does not say what NAME and COUNT are")
    return found["NAME"], found["COUNT"]


def load(module: str) -> Target:
    """A target by its module."""
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    return cast(Target, importlib.import_module(module))


def run_case(target: Target, number: int, directory: Path) -> str:
    """Case ``number`` of a target, in a directory that is empty; its outcome."""
    outcome = target.one(random.Random(f"{target.NAME}:{number}"), directory)
    assert isinstance(outcome, str) and outcome, f"one() gave {outcome!r}, no word"
    return outcome


def _fresh(base: Path) -> Iterator[Path]:
    """Empty directories, one for each case. One that was left empty serves again."""
    number = 0
    while True:
        path = base / str(number)
        if not path.is_dir() or any(path.iterdir()):
            shutil.rmtree(path, ignore_errors=True)
            number += 1
            path = base / str(number)
            path.mkdir(parents=True)
        yield path


def _status(field: str, process: int | str = "self") -> int:
    """A size of a process, in bytes: VmRSS, VmHWM (the greatest it was) or VmData. 0 where the system has no /proc."""
    with suppress(OSError), open(f"/proc/{process}/status", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0


def _limit_data(size: float) -> None:
    """A net below the measured limit: to allocate far more than is allowed fails at once, before it can hurt."""
    with suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (_status("VmData") + int(2 * size), hard))


def _work(module: str, base: Path, size: float, connection: Connection) -> None:
    """A worker: runs the cases it is given and sends a result for each."""
    os.setsid()  # so that whatever a case starts can be ended with it
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        target = load(module)
    except BaseException:
        connection.send(Result(-1, "", f"{module} cannot be imported: {_told()}", 0.0, 0))
        return
    _limit_data(size)
    begun = _status("VmRSS")
    connection.send(Result(-1, "", "", 0.0, 0))
    directories = _fresh(base)
    while True:
        try:
            numbers = connection.recv()
        except EOFError:
            return
        for number in numbers:
            directory = next(directories)
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")  # VmHWM counts from here
            start = time.perf_counter()
            outcome, failure = "", ""
            try:
                outcome = run_case(target, number, directory)
            except BaseException:
                failure = _told()
            seconds = time.perf_counter() - start
            growth = max(_status("VmHWM") - begun, 0)
            if growth > size and (not failure or failure.startswith("MemoryError")):
                failure = f"memory grew by {growth / 1e9:.1f} GB"
            connection.send(Result(number, outcome, failure, seconds, growth))


def _told() -> str:
    """The exception at hand, in one line, and where it came from."""
    kind, error, trace = sys.exc_info()
    assert kind is not None
    frame = traceback.extract_tb(trace)[-1]
    message = " ".join(str(error).split())
    where = f" ({Path(frame.filename).name}:{frame.lineno})" if kind is not AssertionError else ""
    return f"{kind.__name__}: {message[:300]!a}{where}"


class Worker:
    """A process that runs cases of one target, and the case it is at."""

    def __init__(self, module: str, base: Path, size: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(module, base, size, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.numbers: deque[int] = deque()
        self.ready = False
        self.since = time.monotonic()
        self.resident = 0

    def give(self, numbers: list[int]) -> None:
        """Cases to run next."""
        self.numbers.extend(numbers)
        self.since = time.monotonic()
        self.connection.send(numbers)

    def end(self) -> None:
        """Kill it and what it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(cast(int, self.process.pid), signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.connection.close()


class Run:
    """Runs cases of one target in several processes."""

    def __init__(self, module: str, numbers: range, processes: int, seconds: float, size: float, base: Path) -> None:
        self.module, self.seconds, self.size, self.base = module, seconds, size, base
        self.waiting = deque(numbers)
        self.total = len(numbers)
        self.tally = Tally()
        self.workers: list[Worker] = []
        self.processes = min(processes, max(1, self.total))
        self.started = 0
        self.begun = self.told = time.monotonic()

    def all(self) -> Tally:
        """Run them."""
        try:
            while self.tally.cases < self.total:
                while len(self.workers) < self.processes and self.waiting:
                    self.started += 1
                    self.workers.append(Worker(self.module, self.base / str(self.started), self.size))
                by_connection = {worker.connection: worker for worker in self.workers}
                for ready in wait(list(by_connection), timeout=0.2):
                    self._hear(by_connection[cast(Connection, ready)])
                for worker in list(self.workers):
                    self._look(worker)
                self._tell()
        finally:
            for worker in self.workers:
                worker.end()
            self._tell(last=True)
        return self.tally

    def _hear(self, worker: Worker) -> None:
        try:
            result: Result = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            self._lose(worker, f"the process died (exit code {worker.process.exitcode})")
            return
        worker.since = time.monotonic()
        if result.number < 0:
            if result.failure:
                raise SystemExit(f"fuzz: {result.failure}")
            worker.ready = True
            worker.resident = _status("VmRSS", cast(int, worker.process.pid))
        else:
            worker.numbers.popleft()
            self.tally.add(result)
            if result.growth > self.size:  # a new process, or every case after this one would count as well
                self._lose(worker, "")
                return
        if not worker.numbers and self.waiting:
            worker.give([self.waiting.popleft() for _ in range(min(_CHUNK, len(self.waiting)))])

    def _look(self, worker: Worker) -> None:
        """End a worker that hangs or eats up the memory."""
        spent = time.monotonic() - worker.since
        if not worker.ready:
            if spent > _START_SECONDS:
                raise SystemExit(f"fuzz: {self.module} was not imported within {_START_SECONDS:.0f} s")
            return
        if not worker.numbers or worker.connection.poll():
            return
        if spent > self.seconds:
            self._lose(worker, f"killed after {self.seconds:g} s")
            return
        growth = _status("VmRSS", cast(int, worker.process.pid)) - worker.resident
        if growth > self.size:
            self._lose(worker, f"killed when memory had grown by {growth / 1e9:.1f} GB", growth)

    def _lose(self, worker: Worker, failure: str, growth: int = 0) -> None:
        """Put an end to a worker and count the case it was at; the others go back."""
        worker.end()
        self.workers.remove(worker)
        if failure:
            if not worker.numbers:
                raise SystemExit(f"fuzz: {self.module}: {failure} before it was given a case")
            number = worker.numbers.popleft()
            self.tally.add(Result(number, "", failure, time.monotonic() - worker.since, growth))
        self.waiting.extendleft(reversed(worker.numbers))

    def _tell(self, last: bool = False) -> None:
        """Progress on stderr: a line that is written over on a terminal, else one every half minute."""
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if not last and now - self.told < (0.5 if terminal else 30):
            return
        self.told = now
        tally, spent = self.tally, now - self.begun
        line = f"{self.module}: {tally.cases:,} of {self.total:,} cases, {len(tally.failures):,} failed, {spent:.0f} s"
        end = "\n" if last or not terminal else ""
        print(f"\r{line}\x1b[K" if terminal else line, end=end, file=sys.stderr, flush=True)


def reproduce(module: str, number: int) -> None:
    """One case in this process: a failure has its traceback."""
    target = load(module)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as base:
        before, start = _status("VmRSS"), time.perf_counter()
        outcome = run_case(target, number, Path(base))
        seconds, growth = time.perf_counter() - start, max(_status("VmHWM") - before, 0)
    print(f"{target.NAME} case {number}: {outcome}, {seconds:.2f} s, memory +{growth / 1e6:.0f} MB")


def table(tallies: dict[str, Tally], names: dict[str, str]) -> str:
    """The counts, a line a target."""
    rows = [["target", "cases", "outcomes", "failures", "slowest", "memory"]]
    for module, tally in tallies.items():
        outcomes = ", ".join(f"{word} {number:,}" for word, number in tally.outcomes.most_common())
        slowest = f"{tally.slowest[0]:.2f} s (case {tally.slowest[1]})"
        growth = f"+{tally.growth[0] / 1e6:.0f} MB (case {tally.growth[1]})"
        rows.append([names[module], f"{tally.cases:,}", outcomes or "-", f"{len(tally.failures):,}", slowest, growth])
    if len(tallies) > 1:
        failures = sum(len(tally.failures) for tally in tallies.values())
        rows.append(["all", f"{sum(tally.cases for tally in tallies.values()):,}", "", f"{failures:,}", "", ""])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def main(arguments: list[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"which ones; all if none: {', '.join(modules())}")
    parser.add_argument("--count", type=int, help="cases of each target (default: what the target asks for)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--case", type=int, help="run this case alone, in this process")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="a case that takes longer is killed")
    parser.add_argument("--gigabytes", type=float, default=GIGABYTES, help="memory may grow by so much")
    given = parser.parse_args(arguments)
    targets: list[str] = given.targets or modules()
    if unknown := sorted(set(targets) - set(modules())):
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(modules())}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the workers: the processes share the cores
    if given.case is not None:
        if len(targets) != 1:
            parser.error("--case needs one target")
        reproduce(targets[0], given.case)
        return 0
    tallies: dict[str, Tally] = {}
    size: dict[str, Any] = {"seconds": given.seconds, "size": given.gigabytes * 1e9}
    settings, names = {"processes": max(1, given.processes), **size}, {}
    for module in targets:
        names[module], wanted = constants(module)
        count = wanted if given.count is None else given.count
        with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as base:
            tallies[module] = Run(module, range(given.first, given.first + count), base=Path(base), **settings).all()
    print(table(tallies, names))
    for module, tally in tallies.items():
        for number in sorted(tally.failures)[:_SHOWN]:
            print(f"\n{names[module]} case {number}: {tally.failures[number]}")
            print(f"    python fuzz/run.py {module} --case {number}")
        if len(tally.failures) > _SHOWN:
            print(f"\n... and {len(tally.failures) - _SHOWN:,} more of {names[module]}")
    return 1 if any(tally.failures for tally in tallies.values()) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
