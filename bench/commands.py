"""What the benchmarks of the commands share: running gpuparse, its memory, bars, treebanks."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table
from timing import LOG, OUT, new_table

PROJECT = Path(__file__).resolve().parents[1]
RESULTS = PROJECT / "bench" / "results"
TREEBANKS = Path("..") / "shared" / "treebanks"
"""Where treebanks are looked for, from the project."""

COMMAND = (sys.executable, "-m", "gpuparse.cli")

TINY = {
    "scorer.word": 32,
    "scorer.char": 16,
    "scorer.chars": 32,
    "scorer.tag": 16,
    "scorer.feats": 16,
    "scorer.hidden": 48,
    "scorer.layers": 1,
    "scorer.arc": 64,
    "scorer.label": 32,
}
"""Settings of a model for which only the way to it counts."""


class Problem(Exception):
    """Something could not be measured; the message is one line. Exit code 1 could not, 2 misused."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def leave(main: Callable[[], int]) -> None:
    """Run a script's main function and exit with what it returns; a problem is one line on stderr."""
    try:
        sys.exit(main())
    except Problem as problem:
        LOG.print(f"{Path(sys.argv[0]).name}: {problem}")
        sys.exit(problem.code)
    except KeyboardInterrupt:
        LOG.print(f"{Path(sys.argv[0]).name}: interrupted")
        sys.exit(130)


def whole(text: str) -> int:
    """A whole number from 1, for argparse."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def check_names(parser: argparse.ArgumentParser, *given: tuple[Sequence[str], Collection[str]]) -> None:
    """Exit with a line if a name is none of those that are known."""
    for names, known in given:
        for name in names:
            if name not in known:
                parser.error(f"{name!r} is none of {', '.join(known)}")


def settings(values: dict[str, Any]) -> list[str]:
    """Options of ``gpuparse train``."""
    return [part for name, value in values.items() for part in ("--set", f"{name}={value}")]


def treebanks(given: Path | None) -> Path:
    """The directory of the treebanks."""
    directory = given or PROJECT / TREEBANKS
    if not any(directory.glob("*.conllu")):
        raise Problem(f"no *.conllu in {given or TREEBANKS}: say where the treebanks are by --treebanks DIR", 2)
    return directory


def add_treebanks(parser: argparse.ArgumentParser) -> None:
    """The option that says where the treebanks are."""
    text = f"where the treebanks are; default: {TREEBANKS} from the project"
    parser.add_argument("--treebanks", type=Path, metavar="DIR", help=text)


@dataclass
class Finished:
    """A command that has run."""

    seconds: float
    """Wall time, from its start to its end."""
    stdout: str
    stderr: str
    peak: float | None = None
    """Peak resident memory in MB, where it was watched."""
    resident: list[tuple[float, float]] = field(default_factory=list)
    """Seconds since the start and MB held, every few seconds, where it was watched."""


def run(*arguments: str | Path, show: bool = False, watch: bool = False) -> Finished:
    """Run gpuparse; ``Problem`` where it fails.

    Args:
        show: let its stderr through instead of keeping it.
        watch: watch its memory (Linux).
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = time.perf_counter()
        process = subprocess.Popen([*COMMAND, *map(str, arguments)], stdout=out, stderr=None if show else err)
        done = Finished(0.0, "", "")
        try:
            if watch:
                _watch(process, done, begun)
            code = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        done.seconds = time.perf_counter() - begun
        done.stdout, done.stderr = _text(out), _text(err)
    if code:
        raise failure(arguments[0], code, done.stderr)
    return done


def failure(name: str | Path, code: int, stderr: str) -> Problem:
    """Why a command failed: its last line."""
    last = (stderr.strip().splitlines() or ["see above" if code > 0 else "killed?"])[-1]
    return Problem(f"gpuparse {name} failed ({code}): {last}")


def _text(file: Any) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _watch(process: subprocess.Popen[bytes], done: Finished, begun: float) -> None:
    """Follow the memory of a process until it ends.

    The kernel keeps the peak (VmHWM), so that nothing is missed between two looks. What getrusage says of a child
    would do as well, did it not begin with the memory of this process.
    """
    status = Path(f"/proc/{process.pid}/status")
    told = sampled = 0.0
    while process.poll() is None:
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            peak, now = (int(lines[name].split()[0]) / 1024 for name in ("VmHWM", "VmRSS"))
        except (OSError, KeyError, ValueError):  # at its very end a process has none
            time.sleep(0.02)
            continue
        done.peak = max(done.peak or 0.0, peak)
        seconds = time.perf_counter() - begun
        if seconds - sampled >= 2:
            done.resident.append((round(seconds, 1), round(now, 1)))
            sampled = seconds
        if seconds - told >= 30:
            LOG.print(f"  {seconds:.0f} s: {now:.0f} MB, {peak:.0f} MB at most")
            told = seconds
        time.sleep(0.02)


_SUMMARY = re.compile(r"^([\d,]+) sentences?, ([\d,]+) words?.* in ([\d.]+) s, ([\d,]+) words/s: (.+)$", re.MULTILINE)


def parse_summary(stderr: str) -> dict[str, Any]:
    """What ``gpuparse parse`` says at its end: sentences, words, seconds, words_per_second, shares (percent)."""
    found = _SUMMARY.search(stderr)
    if not found:
        raise Problem(f"gpuparse parse did not end with its summary but with: {stderr.strip()[-200:]!r}")
    sentences, words, speed = (int(found[group].replace(",", "")) for group in (1, 2, 4))
    shares = {}
    for part in found[5].split(", "):
        name, percent = part.removesuffix(" %").rsplit(" ", 1)
        shares[name] = float(percent)
    return {
        "sentences": sentences,
        "words": words,
        "seconds": float(found[3]),
        "words_per_second": speed,
        "shares": shares,
    }


@dataclass
class Goal:
    """A figure, and what it must be and is aimed to be: at least, or at most where ``most``."""

    name: str
    measured: float | None
    must: float | None = None
    aim: float | None = None
    most: bool = False
    unit: str = ""
    digits: int = 1

    def reaches(self, bar: float | None) -> bool:
        """Whether the figure is as good as a bar."""
        if bar is None or self.measured is None:
            return False
        return self.measured <= bar if self.most else self.measured >= bar

    @property
    def missed(self) -> bool:
        """Whether there is a bar that is not reached; what was not measured does not reach it."""
        return self.must is not None and not self.reaches(self.must)

    @property
    def verdict(self) -> str:
        if self.must is None:
            return ""
        if self.measured is None:
            return "not measured"
        return "FAIL" if self.missed else "aim" if self.reaches(self.aim) else "pass"

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "measured": self.measured,
            "must": self.must,
            "aim": self.aim,
            "at_most": self.most,
            "unit": self.unit.strip(),
            "verdict": self.verdict,
        }


def goals_table(title: str, goals: Sequence[Goal]) -> Table:
    """Bar, must, aim, measured, verdict."""
    table = new_table(title, "bar", ">must", ">aim", ">measured", "verdict")
    for goal in goals:
        sign = "≤" if goal.most else "≥"
        bars = ["" if bar is None else f"{sign} {bar:g}{goal.unit}" for bar in (goal.must, goal.aim)]
        measured = "–" if goal.measured is None else f"{goal.measured:,.{goal.digits}f}{goal.unit}"
        table.add_row(goal.name, *bars, measured, goal.verdict)
    return table


def print_goals(title: str, goals: Sequence[Goal]) -> int:
    """Print the table; 1 if a must is missed, else 0."""
    OUT.print(goals_table(title, goals))
    return int(any(goal.missed for goal in goals))
