"""What every suite says and writes: tables, progress, plots, JSON, and what went wrong."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

PROJECT = Path(__file__).resolve().parents[1]
RESULTS = PROJECT / "bench" / "results"

OUT = Console(width=None if sys.stdout.isatty() else 150, highlight=False, markup=False)
"""Tables and findings, on stdout."""

LOG = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
"""Progress, on stderr."""


class Problem(Exception):
    """Something could not be measured; the message is one line. Exit code 1 could not, 2 misused."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


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


def cell(record: Mapping[str, Any], column: str) -> Any:
    """A value by its key and, after a colon, its format; "~" is that of ``figure``. None where there is none."""
    key, _, form = column.partition(":")
    value = record.get(key)
    return value if value is None or not form else figure(value) if form == "~" else format(value, form)


def show_records(title: str, columns: Mapping[str, str], records: Iterable[Mapping[str, Any]]) -> None:
    """Print a table: columns by their titles (see ``show``), each with what ``cell`` makes of a record."""
    show(title, list(columns), [[cell(record, column) for column in columns.values()] for record in records])


def titled(
    records: Mapping[str, Mapping[str, Any]], paper: Callable[[str], Iterable[Any]] = lambda title: ()
) -> list[dict[str, Any]]:
    """Records with their titles and what a paper has of each, as one text."""
    return [{"title": t, "paper": " / ".join(map(str, paper(t))), **record} for t, record in records.items()]


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, sections: Sequence[int] = ()) -> None:
    """Print a table, with a line before the rows of these numbers.

    Columns are to the left, or to the right if their name begins with >. Whole numbers get commas, None is a dash.
    """
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for name in columns:
        table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left", no_wrap=True)
    for number, row in enumerate(rows):
        if number in sections:
            table.add_section()
        table.add_row(*("–" if x is None else f"{x:,}" if isinstance(x, int) else str(x) for x in row))
    OUT.print(table)


def plot(path: Path, panels: Sequence[Callable[[Any], None]], *, width: float = 6.0, height: float = 4.0) -> None:
    """Panels side by side as PNG, each drawn by a function of its axes; without matplotlib a line that says so."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        LOG.print(f"no {path.name}: matplotlib is not installed (pip install 'gpuparse[bench]')")
        return
    page = Figure(figsize=(width, height), layout="constrained")
    for axes, panel in zip(page.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        panel(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8)
    _whole(path, lambda temporary: page.savefig(temporary, format="png", dpi=150))


def write_json(path: Path, data: Any) -> None:
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    _whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _whole(path: Path, write: Callable[[Path], object]) -> None:
    """All or nothing: written to a temporary name, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    LOG.print(f"written: {path}")
