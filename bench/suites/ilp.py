"""Labelled parsing under constraints by incremental integer programs: the tables of Riedel and Clarke 2006.

train: nine Dutch parsers by cross-validation, twice, and the others, where they are not there. accuracy: Table 1,
violations before and after. runtime: Table 2, time and iterations by length. pruning: Table 3, heads and labels that a
program begins with. wall: the whole command with constraints and without.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.bars import Bar
from bench.commands import timed_parse
from bench.models import ENGLISH, treebank_file
from bench.output import LOG, OUT, figure, show, show_records
from bench.registry import FIRST, TREEBANKS, Args, Measured, Option, Suite, models, repeats, threads
from bench.registry import seconds as above_zero
from bench.suites.ilp_models import RUNS, Scored, scored, train_run
from bench.suites.ilp_solving import (
    BUCKETS,
    Times,
    breaks,
    mean,
    parse_all,
    percentile,
    percents,
    prune,
    sign_test,
    times_of,
)
from bench.suites.parser import blanked
from gpuparse import lp
from gpuparse.data.conllu import read_conllu, write_conllu

PAPER = (0.0056, 0.052, 0.46, 1.5, 7.2, 33.0)  # seconds, mean, by bucket
PAPER_CLE = (0.00027, 0.00098, 0.0032, 0.0075, 0.014, 0.023)
PAPER_ITERATIONS = (2.08, 2.87, 4.48, 5.82, 8.40, 15.17)
PAPER_LONG = (0, 0, 0, 0, 3, 3)  # sentences that took more than two minutes
HEADS, LABELS = 5, 3  # what a program begins with
PRUNING = [(q, LABELS) for q in (1, 2, 5, 10, None)] + [(HEADS, k) for k in (1, 2, None)] + [(None, None)]
TIMED = ("dutch", "english")  # whose iterations have a bar
HARD = ("dutch", "english", "hungarian")  # whose every sentence must satisfy what is hard


def accuracy(args: Args) -> Measured:
    """Table 1."""
    bars: list[Bar] = []
    data: dict[str, Any] = {}
    rows: list[tuple[Any, ...]] = []
    for name in args.runs:
        constraints = constraints_of(name, args)
        LOG.print(f"accuracy: {RUNS[name].title}")
        found = parse_all(items_of(name, args), constraints, args.time_limit)
        bl, cnstr, counted = percents(found.before), percents(found.after), found.counts
        sentences, words = (int(found.before[name]) for name in ("sentences", "words"))
        p = sign_test(counted["better"], counted["worse"])
        rows.append((RUNS[name].title, "bl", *(f"{value:.2f}" for value in bl.values())))
        anew = f"{100 * counted['solved_anew'] / max(sentences, 1):.1f} %"
        counts = (f"{p:.2g}", anew, counted["infeasible"], counted["not_proven"])
        rows.append(("", "cnstr", *(f"{value:.2f}" for value in cnstr.values()), *counts))
        if found.conflicts:
            LOG.print("infeasible: " + " | ".join(found.conflicts))
        satisfied = 100 * (1 - counted["breaking"] / max(sentences, 1))
        must = 100.0 if name in HARD else None
        text = f"hard constraints satisfied, {counted['infeasible']} proven impossible, {RUNS[name].title}"
        bars.append(Bar(text, satisfied, must, unit=" %", digits=2))
        must, aim = (0.0, 0.3) if name == "dutch" else (None, None)
        bars.append(Bar(f"LAS by constraints, {RUNS[name].title}", cnstr["LAS"] - bl["LAS"], must, aim, digits=2))
        figures = {"bl": bl, "cnstr": cnstr, "p": p, "sentences": sentences, "words": words, **counted}
        broken = [vars(each) for each in found.broken]
        data[name] = {**figures, "conflicts": found.conflicts, "constraints": broken}
    rows.append(("the paper", "bl", "84.6", "88.9", "27.7", "42.2"))
    rows.append(("", "cnstr", "85.1", "89.4", "29.7", "43.8", "< 0.001"))
    columns = (">LAS", ">UAS", ">LC", ">UC", ">p (sign)", ">solved anew", ">infeasible", ">not proven")
    show("Accuracy (Table 1), without constraints (bl) and with (cnstr)", ("", "", *columns), rows)
    for name, record in data.items():
        title = f"{RUNS[name].title}: sentences of {record['sentences']:,} that break a constraint"
        show(title, ("constraint", ">gold", ">bl", ">cnstr"), [tuple(each.values()) for each in record["constraints"]])
    return Measured(data, bars)


def runtime(args: Args) -> Measured:
    """Table 2."""
    found = {}
    for name in args.runs:
        LOG.print(f"runtime: {RUNS[name].title}")
        found[name] = times_of(items_of(name, args), constraints_of(name, args), args.time_limit)
        print_times(RUNS[name].title, found[name], args.time_limit)
    bars = []
    for name, times in found.items():
        every, needed = ([n for t in times for n in getattr(t, f"{which}_iterations")] for which in ("every", "needed"))
        must, aim = (19, 7) if name in TIMED else (None, None)
        for text, values in (("of sentences solved anew", needed), ("of all, from nothing", every)):
            title = f"iterations {text}, 99th percentile (most: {max(values, default=0)}), {RUNS[name].title}"
            bars.append(Bar(title, percentile(values, 0.99), must, aim, most=True, digits=0))
    for place, paper in enumerate(PAPER):
        for which, text in (("needed", "solved anew"), ("every", "all, from nothing")):
            means = [(mean(getattr(found[name][place], which)), RUNS[name].title) for name in found]
            worst = max(((m, title) for m, title in means if m is not None), default=None)
            title = f"mean solve time, {length_of(place)} words, {text}: slowest ({worst[1] if worst else '–'})"
            milliseconds = None if worst is None else 1000 * worst[0]
            bars.append(Bar(title, milliseconds, 1000 * paper, 100 * paper, True, " ms", 2))
    return Measured({name: [vars(t) for t in times] for name, times in found.items()}, bars)


def length_of(place: int) -> str:
    low, high = BUCKETS[place]
    return f"{low}–{high}" if place < len(BUCKETS) - 1 else f"over {low - 1}"


def print_times(title: str, times: Sequence[Times], limit: float) -> None:
    rows: list[tuple[Any, ...]] = []

    def row(text: str, values: Iterable[float | None], factor: float = 1.0) -> None:
        rows.append((text, *(figure(None if value is None else factor * value) for value in values)))

    rows.append(("sentences", *(len(t.every) for t in times)))
    row("gp.mst, ms", (mean(t.mst) for t in times), 1000)
    row("ufal.chu-liu-edmonds, ms", (mean(t.ufal) for t in times), 1000)
    row("– the paper's CLE, ms", PAPER_CLE, 1000)
    row("all under constraints, from nothing, ms", (mean(t.every) for t in times), 1000)
    row("– the paper, ms", PAPER, 1000)
    row("  iterations", (mean(t.every_iterations) for t in times))
    row("  – the paper", PAPER_ITERATIONS)
    rows.append(("sentences that break a constraint", *(len(t.needed) for t in times)))
    row("  solved anew, ms", (mean(t.needed) for t in times), 1000)
    row("  – the slowest, ms", (max(t.needed, default=None) for t in times), 1000)
    row("  iterations", (mean(t.needed_iterations) for t in times))
    rows.append(("  – the most", *(max(t.needed_iterations, default=0) for t in times)))
    rows.append((f"took {limit:g} s or more", *(sum(s >= limit for s in (*t.every, *t.needed)) for t in times)))
    rows.append(("– the paper, 120 s", *PAPER_LONG))
    columns = ("words", *(f">{length_of(p)}" for p in range(len(BUCKETS))))
    show(f"{title}: runtime (Table 2), means", columns, rows)


def pruning(args: Args) -> Measured:
    """Table 3: only sentences that break a constraint are solved; all words count in LAS."""
    data: dict[str, list[dict[str, Any]]] = {}
    bars = []
    for name in args.runs:
        LOG.print(f"pruning: {RUNS[name].title}")
        constraints, items, right, words = constraints_of(name, args), [], 0, 0
        for item in items_of(name, args):
            words += len(item)
            if any(breaks(constraint, item, item.start) for constraint in constraints):
                items.append(item)
            else:
                right += sum(item.right(*item.start)[1])
        rows: list[dict[str, Any]] = []
        for grow in (False, True):
            for q, k in PRUNING:
                row = prune(items, q, k, constraints=constraints, limit=args.time_limit, grow=grow)
                las = 100 * (right + row.pop("right")) / max(words, 1)
                rows.append({**row, "grow": grow, "program": "grown until proven" if grow else "as it is", "LAS": las})
        columns = {"": "program", ">heads (–: all)": "heads", ">labels": "labels", ">LAS": "LAS:.2f"}
        columns |= {">seconds": "seconds:~", ">% certified": "certified_percent:.1f", ">without a tree": "without_tree"}
        title = f"{RUNS[name].title}: {len(items):,} sentences solved anew, by what a program begins with (Table 3)"
        show_records(title, columns, rows)
        data[name] = rows
        proven = min(row["certified_percent"] for row in rows if row["grow"])
        bars.append(Bar(f"certified where grown, the least, {RUNS[name].title}", proven, unit=" %"))
    OUT.print("the paper: LAS 84.90, 85.11, 85.14 and 351, 760, 3,640 seconds with q = 5, 10, all (heads with labels)")
    return Measured(data, bars)


def wall(args: Args) -> Measured:
    """The whole command, in turns."""
    model, constraints = model_of("english", args), args.constraints or RUNS["english"].constraints
    ways: dict[str, list[str]] = {"without": [], "with": [p for name in constraints for p in ("--constraints", name)]}
    records: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as scratch:
        blank, output = Path(scratch, "blank.conllu"), Path(scratch, "output.conllu")
        write_conllu(map(blanked, read_conllu(treebank_file(args, ENGLISH.parsed))), blank)
        for number in range(args.repeats):
            for way, options in ways.items():
                LOG.print(f"gpuparse parse {way} constraints, {number + 1} of {args.repeats}")
                records[way].append(timed_parse(model, blank, *options, output=output, threads=args.threads))
    seconds = {way: statistics.median(r["command_seconds"] for r in each) for way, each in records.items()}
    parsing = {way: statistics.median(r["seconds"] for r in each) for way, each in records.items()}
    title = f"gpuparse parse, the whole English dev file, medians of {args.repeats}"
    columns = ("constraints", ">whole command, s", ">first sentence read to last written, s")
    show(title, columns, [(way, f"{seconds[way]:.2f}", f"{parsing[way]:.2f}") for way in ways])
    bars = [
        Bar("wall time of parse, with over without", seconds["with"] / seconds["without"], 1.5, 1.1, True, " ×", 3),
        Bar("the same without start-up", parsing["with"] / parsing["without"], most=True, unit=" ×", digits=3),
    ]
    return Measured(records, bars)


def train(args: Args) -> Measured:
    """Parsers that are neither there nor given."""
    for name in args.runs:
        if model_of(name, args) == args.models / name:
            train_run(RUNS[name], args.models / name, args)
    return Measured(None)


def model_of(name: str, args: Args) -> Path:
    given = {"english": args.english_model, "hungarian": args.hungarian_model}
    return given.get(name) or Path(args.models / name)


def items_of(name: str, args: Args) -> Iterable[Scored]:
    return scored(RUNS[name], model_of(name, args), args)


def constraints_of(name: str, args: Args) -> list[lp.Constraint]:
    files = args.constraints or RUNS[name].constraints
    return [constraint for file in files for constraint in lp.load_constraints(file)]


def constraints_file(text: str) -> str:
    """Whose constraints can be read."""
    try:
        lp.load_constraints(text)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


SUITE = Suite(
    "ilp",
    "parsing under constraints by integer programs: accuracy, violations, time by length, pruning, the whole command",
    {"train": train, "accuracy": accuracy, "runtime": runtime, "pruning": pruning, "wall": wall},
    [
        TREEBANKS,
        models("ilp"),
        *(Option(f"{name}-model", "a parser that was trained before", kind=Path) for name in ("english", "hungarian")),
        Option("runs", "treebanks and parsers", list(RUNS), many=True, choices=list(RUNS), trial=True),
        Option(
            "constraints", "files, or names, in place of each run's own", None, constraints_file, many=True, trial=True
        ),
        FIRST,
        Option("time-limit", "seconds, the most for one sentence", 120.0, above_zero, trial=True),
        repeats(3, "commands timed in wall"),
        threads(),
    ],
    peers=("highspy", "ufal.chu-liu-edmonds"),
)
