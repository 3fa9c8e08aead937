"""Running the commands of gpuparse: their time, their memory, what they say at their end."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.output import LOG, Problem

COMMAND = (sys.executable, "-m", "gpuparse.cli")

TINY = {
    **{"scorer.word": 32, "scorer.char": 16, "scorer.chars": 32, "scorer.tag": 16, "scorer.feats": 16},
    **{"scorer.hidden": 48, "scorer.layers": 1, "scorer.arc": 64, "scorer.label": 32},
}
"""Settings of a model for which only the way to it counts."""


def settings(values: Mapping[str, Any]) -> list[str]:
    """Options of ``gpuparse train``."""
    return [part for name, value in values.items() for part in ("--set", f"{name}={value}")]


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
    counts = {"sentences": 1, "words": 2, "words_per_second": 4}
    shares = (part.removesuffix(" %").rsplit(" ", 1) for part in found[5].split(", "))
    return {
        **{name: int(found[group].replace(",", "")) for name, group in counts.items()},
        "seconds": float(found[3]),
        "shares": {name: float(percent) for name, percent in shares},
    }


def timed_parse(model: Path, *given: str | Path, output: Path, threads: int) -> dict[str, Any]:
    """``gpuparse parse`` of files, with what options it is given: its summary, its whole time and its peak memory."""
    done = run("parse", model, *given, "-o", output, "--threads", str(threads), watch=True)
    more = {"command_seconds": done.seconds, "peak_megabytes": done.peak, "resident_megabytes": done.resident}
    return parse_summary(done.stderr) | more
