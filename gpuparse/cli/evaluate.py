"""``gpuparse evaluate``: a system's parses against the gold ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuparse.cli.common import Output, count, fail, put, reason
from gpuparse.evaluate import Breakdown, Evaluation
from gpuparse.evaluate import evaluate as compare
from gpuparse.system.quote import visible

_CONFUSIONS = 15  # rows that are shown
_NAMES = {"Root": "Root", "UEM": "Exact trees", "LEM": "Exact, labelled"}


def evaluate(
    gold: Annotated[Path, typer.Argument(help="The gold CoNLL-U file, or - for standard input; *.gz is unpacked.")],
    system: Annotated[Path, typer.Argument(help="The same text parsed; words and sentences may be cut differently.")],
    lengths: Annotated[
        bool, typer.Option("--by-length", help="Also print accuracy by the length of arcs and of sentences.")
    ] = False,
    labels: Annotated[
        bool, typer.Option("--by-label", help="Also print each label's scores and the most frequent confusions.")
    ] = False,
    everything: Annotated[bool, typer.Option("--breakdown", help="Both of these.")] = False,
    counts: Annotated[bool, typer.Option("--counts", help="Print numbers of words instead of percentages.")] = False,
    several_roots: Annotated[
        bool, typer.Option("--several-roots", help="Accept sentences with more than one root.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, ratios from 0 to 1.")] = False,
) -> None:
    """Print the CoNLL 2018 metrics of a parsed file, and how often roots and whole trees are right."""
    if str(gold) == str(system) == "-":
        fail("standard input can be the gold file or the system's, not both", 2)
    try:
        result = compare(str(gold), str(system), single_root=not several_roots)
    except (OSError, ValueError) as error:
        fail(reason(error))
    if as_json:
        put(json.dumps(result.to_json(), indent=2, ensure_ascii=sys.stdout.isatty(), allow_nan=False))
        return
    console = Output()
    _print_metrics(console, result, counts)
    if lengths or everything:
        _print_lengths(console, result.breakdown)
    if labels or everything:
        _print_labels(console, result.breakdown)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _print_titled(console: Console, title: str, table: Table) -> None:
    console.print(f"\n{title}", style="italic", soft_wrap=True)
    console.print(table)


def _percents(*ratios: float | None) -> list[str]:
    return ["" if ratio is None else f"{100 * ratio:.2f}" for ratio in ratios]


def _print_metrics(console: Console, result: Evaluation, counts: bool) -> None:
    headings = ("correct", "gold", "system", "aligned") if counts else ("precision", "recall", "F1", "aligned")
    table = _table("metric", *headings)
    for name, score in result.metrics.items():
        numbers = ["" if x is None else f"{x}" for x in (score.correct, score.gold, score.system, score.aligned)]
        ratios = _percents(score.precision, score.recall, score.f1, score.aligned_accuracy)
        table.add_row(_NAMES.get(name, name), *(numbers if counts else ratios))
    console.print(table)


def _print_lengths(console: Console, found: Breakdown) -> None:
    arcs = _table("words", "gold", "system", *(f"{m} {r}" for m in ("UAS", "LAS") for r in ("P", "R", "F1")))
    for arc in found.arc_lengths:
        both = (arc.unlabelled, arc.labelled)
        ratios = _percents(*(ratio for score in both for ratio in (score.precision, score.recall, score.f1)))
        arcs.add_row(arc.length, f"{arc.labelled.gold}", f"{arc.labelled.system}", *ratios)
    sentences = _table("words", "sentences", "UAS", "LAS", "exact", "exact, labelled")
    for row in found.sentence_lengths:
        sentences.add_row(row.length, f"{row.sentences}", *_percents(row.uas, row.las, row.uem, row.lem))
    _print_titled(console, "by length of arc", arcs)
    _print_titled(console, "by length of sentence", sentences)


def _print_labels(console: Console, found: Breakdown) -> None:
    labels = _table("label", "gold", "system", "precision", "recall", "F1", "F1 with head")
    for row in found.labels:
        given = row.given
        ratios = _percents(given.precision, given.recall, given.f1, row.attached.f1)
        labels.add_row(Text(visible(row.label, keep="")), f"{given.gold}", f"{given.system}", *ratios)
    _print_titled(console, "by label", labels)
    if not found.confusions:
        return
    shown = found.confusions[:_CONFUSIONS]
    title = "confusions of labels"
    if len(shown) < len(found.confusions):
        title += f" (the first {len(shown)} of {count(len(found.confusions), 'pair')})"
    confusions = _table("gold → system", "words", "head right")
    for confusion in shown:
        pair = Text(visible(f"{confusion.gold} → {confusion.system}", keep=""))
        confusions.add_row(pair, f"{confusion.words}", f"{confusion.right_heads}")
    _print_titled(console, title, confusions)
