"""What a run tells of itself: a JSONL log, a curve, and calls for a progress bar."""

from __future__ import annotations

import json
import math
import os
from io import BytesIO
from pathlib import Path
from typing import Any

from gpuparse.system.files import parse_json, read_file, write_bytes
from gpuparse.system.quote import quoted
from gpuparse.system.streams import naming

DEV_SCORES = {"dev_uas": "C0--", "dev_las": "C0-", "dev_accuracy": "C0-"}  # and the lines that they are drawn by


class TrainingReport:
    """Called as training goes on; this one says nothing. A progress bar overrides what it wants."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def begin(self, *, epochs: int, epoch: int) -> None:
        """Training begins, or goes on, with ``epoch`` (from 0)."""

    def step(self, *, epoch: int, batch: int, batches: int, loss: float, words_per_second: float) -> None:
        """``batch`` of ``batches`` batches of an epoch are done."""

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch is done: its line of the log."""


class Log:
    """A JSON object a line. After a resumption it goes on from where the checkpoint was."""

    def __init__(self, path: Path, length: int = 0) -> None:
        self.path = path
        if length and path.is_file() and not path.is_symlink() and path.stat().st_size >= length:
            os.truncate(path, length)
            read_log(path)  # what is wrong with it is said before, not after training
        else:
            write_bytes(path, b"")  # which replaces a link, and leaves alone what it leads to
        self._file = path.open("a", encoding="utf-8")

    def write(self, event: str, **values: Any) -> dict[str, Any]:
        """Add a line; returns what stands in it."""
        record = {"event": event, **values}
        with naming(self.path):
            self._file.write(json.dumps(_finite(record), ensure_ascii=False, allow_nan=False) + "\n")
            self._file.flush()
        return record

    @property
    def length(self) -> int:
        """Bytes so far."""
        return self._file.tell()

    def close(self) -> None:
        with naming(self.path):
            self._file.close()


def _finite(record: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity and no NaN: they become null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in record.items()
    }


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; one cut off by a sudden end is left out. ``ValueError`` where there is another file."""
    records = []
    for number, line in enumerate(read_file(path).splitlines(keepends=True), 1):
        if line.endswith(b"\n"):
            record = parse_json(line, f"{path}:{number}")
            wanted = ("epoch", "loss") if isinstance(record, dict) and record.get("event") == "epoch" else ()
            if not isinstance(record, dict) or not isinstance(record.get("event"), str):
                raise ValueError(f"{path}:{number}: {quoted(record)}; wanted an object with an event")
            for name in (*wanted, *(name for name in DEV_SCORES if name in record)):
                if not isinstance(record.get(name, ""), (int, float, type(None))):
                    raise ValueError(f"{path}:{number}: {name} is {quoted(record.get(name, ''))}; wanted a number")
            records.append(record)
    return records


def draw_curve(log: Path, target: Path) -> bool:
    """Draw loss and dev accuracy by epoch as a PNG; ``False`` where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        return False

    epochs = [record for record in read_log(log) if record["event"] == "epoch"]
    figure = Figure(figsize=(7, 4), layout="constrained")
    left = figure.subplots()
    number = [record["epoch"] for record in epochs]
    left.plot(number, [record["loss"] for record in epochs], color="0.5", label="training loss")
    left.set_xlabel("epoch")
    left.set_ylabel("loss per word")
    left.set_ylim(bottom=0)
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    lines = left.get_lines()
    if any(name in record for record in epochs for name in DEV_SCORES):
        right = left.twinx()
        for name, style in DEV_SCORES.items():
            if all(name in record for record in epochs):
                shown = "dev accuracy" if name == "dev_accuracy" else name.replace("_", " ").upper()
                right.plot(number, [100 * record[name] for record in epochs], style, label=shown)
        right.set_ylabel("accuracy, %")
        lines = [*lines, *right.get_lines()]
    left.legend(lines, [str(line.get_label()) for line in lines], loc="center right")
    image = BytesIO()
    figure.savefig(image, format="png", dpi=150)
    write_bytes(target, image.getvalue())
    return True
