"""Labelled parsing under constraints by incremental integer programs: the tables of Riedel and Clarke 2006.

    python bench/ilp.py                    # every part; trains what is not there
    python bench/ilp.py train              # nine Dutch parsers by cross-validation, twice, and the others
    python bench/ilp.py accuracy runtime --runs dutch --english-model DIR

Parts: train; accuracy (Table 1, violations before and after); runtime (Table 2, time and iterations by length); pruning
(Table 3, heads and labels that a program begins with); random (against all labelled trees of short sentences); wall
(the whole command with constraints and without). Exits with 1 if a must is missed, and with 2 at wrong usage.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import ilp_random
import torch
from commands import (
    RESULTS,
    Goal,
    add_treebanks,
    leave,
    parse_summary,
    print_goals,
    run,
    treebanks,
    whole,
)
from ilp_models import RUNS, Scored, scored, train
from ilp_solving import BUCKETS, Times, breaks, mean, parse_all, percentile, prune, sign_test, times_of
from parser import blanked
from timing import LOG, OUT, environment, figure, new_table, print_environment, write_json

from gpuparse import lp
from gpuparse.data.conllu import read_conllu, write_conllu

PAPER = (0.0056, 0.052, 0.46, 1.5, 7.2, 33.0)  # seconds, mean, by bucket
PAPER_CLE = (0.00027, 0.00098, 0.0032, 0.0075, 0.014, 0.023)
PAPER_ITERATIONS = (2.08, 2.87, 4.48, 5.82, 8.40, 15.17)
PAPER_LONG = (0, 0, 0, 0, 3, 3)  # sentences that took more than two minutes
HEADS, LABELS = 5, 3  # what a program begins with
PRUNING = [(q, LABELS) for q in (1, 2, 5, 10, None)] + [(HEADS, k) for k in (1, 2, None)] + [(None, None)]
SECONDS, INSTANCES, REPEATS = 120.0, 5000, 3
TIMED = ("dutch", "english")  # whose iterations have a bar
HARD = ("dutch", "english", "hungarian")  # whose every sentence must satisfy what is hard


def accuracy(args: argparse.Namespace) -> tuple[list[Goal], Any]:
    """Table 1."""
    goals, data = [], {}
    columns = (">LAS", ">UAS", ">LC", ">UC", ">p (sign)", ">solved anew", ">infeasible", ">not proven")
    table = new_table("Accuracy (Table 1), without constraints (bl) and with (cnstr)", "", "", *columns)
    details = []
    for name in args.runs:
        constraints = constraints_of(name, args)
        LOG.print(f"accuracy: {RUNS[name].title}")
        found = parse_all(items_of(name, args), constraints, args.seconds)
        bl, cnstr = found.before.percent(), found.after.percent()
        p = sign_test(found.better, found.worse)
        table.add_row(RUNS[name].title, "bl", *(f"{value:.2f}" for value in bl.values()))
        anew = f"{100 * found.needed / max(found.before.sentences, 1):.1f} %"
        counts = (f"{p:.2g}", anew, str(found.infeasible), str(found.not_proven))
        table.add_row("", "cnstr", *(f"{value:.2f}" for value in cnstr.values()), *counts)
        rules = new_table(
            f"{RUNS[name].title}: sentences of {found.before.sentences:,} that break a constraint",
            "constraint",
            *(">gold", ">bl", ">cnstr"),
        )
        for each in found.broken:
            rules.add_row(each.name, str(each.gold), str(each.before), str(each.after))
        details.append(rules)
        if found.conflicts:
            LOG.print("infeasible: " + " | ".join(found.conflicts))
        satisfied = 100 * (1 - found.breaking / max(found.before.sentences, 1))
        must = 100.0 if name in HARD else None
        text = f"hard constraints satisfied, {found.infeasible} proven impossible, {RUNS[name].title}"
        goals.append(Goal(text, satisfied, must, unit=" %", digits=2))
        must, aim = (0.0, 0.3) if name == "dutch" else (None, None)
        goals.append(Goal(f"LAS by constraints, {RUNS[name].title}", cnstr["LAS"] - bl["LAS"], must, aim, digits=2))
        data[name] = {
            "bl": bl,
            "cnstr": cnstr,
            "p": p,
            "better": found.better,
            "worse": found.worse,
            "sentences": found.before.sentences,
            "words": found.before.words,
            "solved_anew": found.needed,
            "infeasible": found.infeasible,
            "not_proven": found.not_proven,
            "breaking": found.breaking,
            "conflicts": found.conflicts,
            "constraints": [vars(each) for each in found.broken],
        }
    table.add_row("the paper", "bl", "84.6", "88.9", "27.7", "42.2")
    table.add_row("", "cnstr", "85.1", "89.4", "29.7", "43.8", "< 0.001")
    OUT.print(table)
    for rules in details:
        OUT.print(rules)
    return goals, data


def runtime(args: argparse.Namespace) -> tuple[list[Goal], Any]:
    """Table 2."""
    found = {}
    for name in args.runs:
        LOG.print(f"runtime: {RUNS[name].title}")
        found[name] = times_of(items_of(name, args), constraints_of(name, args), args.seconds)
        print_times(RUNS[name].title, found[name], args.seconds)
    goals = []
    for name, times in found.items():
        every, needed = ([n for t in times for n in getattr(t, f"{which}_iterations")] for which in ("every", "needed"))
        must, aim = (19, 7) if name in TIMED else (None, None)
        for text, values in (("of sentences solved anew", needed), ("of all, from nothing", every)):
            title = f"iterations {text}, 99th percentile (most: {max(values, default=0)}), {RUNS[name].title}"
            goals.append(Goal(title, percentile(values, 0.99), must, aim, most=True, digits=0))
    for place, paper in enumerate(PAPER):
        for which, text in (("needed", "solved anew"), ("every", "all, from nothing")):
            means = [(mean(getattr(found[name][place], which)), RUNS[name].title) for name in found]
            worst = max(((m, title) for m, title in means if m is not None), default=None)
            title = f"mean solve time, {length_of(place)} words, {text}: slowest ({worst[1] if worst else '–'})"
            milliseconds = None if worst is None else 1000 * worst[0]
            goals.append(Goal(title, milliseconds, 1000 * paper, 100 * paper, True, " ms", 2))
    return goals, {name: [vars(t) for t in times] for name, times in found.items()}


def length_of(place: int) -> str:
    low, high = BUCKETS[place]
    return f"{low}–{high}" if place < len(BUCKETS) - 1 else f"over {low - 1}"


def print_times(title: str, times: Sequence[Times], limit: float) -> None:
    table = new_table(f"{title}: runtime (Table 2), means", "words", *(f">{length_of(p)}" for p in range(len(BUCKETS))))

    def row(text: str, values: Iterable[float | None], factor: float = 1.0) -> None:
        table.add_row(text, *(figure(None if value is None else factor * value) for value in values))

    def counts(text: str, values: Iterable[int]) -> None:
        table.add_row(text, *map(str, values))

    counts("sentences", (len(t.every) for t in times))
    row("gp.mst, ms", (mean(t.mst) for t in times), 1000)
    row("ufal.chu-liu-edmonds, ms", (mean(t.ufal) for t in times), 1000)
    row("– the paper's CLE, ms", PAPER_CLE, 1000)
    row("all under constraints, from nothing, ms", (mean(t.every) for t in times), 1000)
    row("– the paper, ms", PAPER, 1000)
    row("  iterations", (mean(t.every_iterations) for t in times))
    row("  – the paper", PAPER_ITERATIONS)
    counts("sentences that break a constraint", (len(t.needed) for t in times))
    row("  solved anew, ms", (mean(t.needed) for t in times), 1000)
    row("  – the slowest, ms", (max(t.needed, default=None) for t in times), 1000)
    row("  iterations", (mean(t.needed_iterations) for t in times))
    counts("  – the most", (max(t.needed_iterations, default=0) for t in times))
    counts(f"took {limit:g} s or more", (sum(s >= limit for s in (*t.every, *t.needed)) for t in times))
    counts("– the paper, 120 s", PAPER_LONG)
    OUT.print(table)


def pruning(args: argparse.Namespace) -> tuple[list[Goal], Any]:
    """Table 3: only sentences that break a constraint are solved; all words count in LAS."""
    data: dict[str, list[dict[str, Any]]] = {}
    goals = []
    for name in args.runs:
        LOG.print(f"pruning: {RUNS[name].title}")
        constraints, items, right, words = constraints_of(name, args), [], 0, 0
        for item in items_of(name, args):
            words += len(item)
            if any(breaks(constraint, item, item.start) for constraint in constraints):
                items.append(item)
            else:
                right += sum(item.right(*item.start)[1])
        rows = [
            prune(items, constraints, args.seconds, q, k, grow) | {"grow": grow}
            for grow in (False, True)
            for q, k in PRUNING
        ]
        columns = (">heads", ">labels", ">LAS", ">seconds", ">% certified", ">without a tree")
        title = f"{RUNS[name].title}: {len(items):,} sentences solved anew, by what a program begins with (Table 3)"
        table = new_table(title, "", *columns)
        for row in rows:
            row["LAS"] = 100 * (right + row.pop("right")) / max(words, 1)
            table.add_row(
                "grown until proven" if row["grow"] else "as it is",
                *("all" if row[what] is None else str(row[what]) for what in ("heads", "labels")),
                f"{row['LAS']:.2f}",
                figure(row["seconds"]),
                f"{row['certified_percent']:.1f}",
                str(row["without_tree"]),
            )
        OUT.print(table)
        data[name] = rows
        proven = min(row["certified_percent"] for row in rows if row["grow"])
        goals.append(Goal(f"certified where grown, the least, {RUNS[name].title}", proven, unit=" %"))
    OUT.print("the paper: LAS 84.90, 85.11, 85.14 and 351, 760, 3,640 seconds with q = 5, 10, all (heads with labels)")
    return goals, data


def random(args: argparse.Namespace) -> tuple[list[Goal], Any]:
    """All labelled trees of short sentences."""
    counts = ilp_random.compare(args.instances)
    goals = [
        Goal(f"wrong of {counts['instances']:,} random instances", counts["wrong"], 0, most=True, digits=0),
        Goal("not certified of them", counts["not certified"], 0, most=True, digits=0),
    ]
    return goals, counts


def wall(args: argparse.Namespace) -> tuple[list[Goal], Any]:
    """The whole command, in turns."""
    model, constraints = model_of("english", args), args.constraints or RUNS["english"].constraints
    ways: dict[str, list[str]] = {"without": [], "with": [p for name in constraints for p in ("--constraints", name)]}
    records: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as scratch:
        blank, output = Path(scratch, "blank.conllu"), Path(scratch, "output.conllu")
        write_conllu(map(blanked, read_conllu(treebanks(args.treebanks) / RUNS["english"].parsed)), blank)
        for number in range(args.repeats):
            for way, options in ways.items():
                LOG.print(f"gpuparse parse {way} constraints, {number + 1} of {args.repeats}")
                done = run("parse", model, blank, "-o", output, "--threads", str(args.threads), *options)
                records[way].append(parse_summary(done.stderr) | {"command_seconds": done.seconds})
    seconds = {way: statistics.median(r["command_seconds"] for r in each) for way, each in records.items()}
    parsing = {way: statistics.median(r["seconds"] for r in each) for way, each in records.items()}
    title = f"gpuparse parse, the whole English dev file, medians of {args.repeats}"
    table = new_table(title, "constraints", ">whole command, s", ">first sentence read to last written, s")
    for way in ways:
        table.add_row(way, f"{seconds[way]:.2f}", f"{parsing[way]:.2f}")
    OUT.print(table)
    goals = [
        Goal("wall time of parse, with over without", seconds["with"] / seconds["without"], 1.5, 1.1, True, " ×", 3),
        Goal("the same without start-up", parsing["with"] / parsing["without"], most=True, unit=" ×", digits=3),
    ]
    return goals, records


def training(args: argparse.Namespace) -> tuple[list[Goal], Any]:
    """Parsers that are not there."""
    for name in args.runs:
        given = args.given.get(name)
        if given is None:
            train(RUNS[name], treebanks(args.treebanks), model_of(name, args), args.threads)
    return [], {}


PARTS: dict[str, Callable[[argparse.Namespace], tuple[list[Goal], Any]]] = {
    "train": training,
    "accuracy": accuracy,
    "runtime": runtime,
    "pruning": pruning,
    "random": random,
    "wall": wall,
}


def model_of(name: str, args: argparse.Namespace) -> Path:
    return Path(args.given.get(name) or args.models / name)


def items_of(name: str, args: argparse.Namespace) -> Iterable[Scored]:
    return scored(RUNS[name], treebanks(args.treebanks), model_of(name, args), args.first)


def constraints_of(name: str, args: argparse.Namespace) -> list[lp.Constraint]:
    files = args.constraints or RUNS[name].constraints
    return [constraint for file in files for constraint in lp.load_constraints(file)]


def above_zero(text: str) -> float:
    """A number of seconds, for argparse."""
    if not float(text) > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return float(text)


def is_trial(args: argparse.Namespace) -> bool:
    """Whether less is measured than by default, or something else."""
    fewer = args.instances < INSTANCES or args.repeats < REPEATS or args.seconds < SECONDS
    return bool(args.first or args.constraints or fewer or set(args.runs) != set(RUNS))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    add_treebanks(parser)
    text = "where parsers are, or are put when they are trained; default: bench/results/ilp"
    parser.add_argument("--models", type=Path, default=RESULTS / "ilp", metavar="DIR", help=text)
    for name in ("english", "hungarian"):
        parser.add_argument(f"--{name}-model", type=Path, metavar="DIR", help="a parser that was trained before")
    text = f"treebanks and parsers: {', '.join(RUNS)}; default: all"
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS), metavar="RUN", help=text)
    text = "files of constraints, or names of those that come along, in place of each run's own"
    parser.add_argument("--constraints", nargs="+", metavar="FILE", help=text)
    parser.add_argument(
        "--first", type=whole, default=0, metavar="N", help="only the first N sentences of a parser: a trial"
    )
    text = f"the most for one sentence; default {SECONDS:g}"
    parser.add_argument("--seconds", type=above_zero, default=SECONDS, help=text)
    parser.add_argument("--instances", type=whole, default=INSTANCES, help=f"random ones; default {INSTANCES}")
    parser.add_argument("--repeats", type=whole, default=REPEATS, help=f"commands timed in wall; default {REPEATS}")
    parser.add_argument("--threads", type=whole, default=1, help="of training, scoring and parse; default 1")
    args = parser.parse_args()
    args.parts = args.parts or list(PARTS)
    if unknown := [part for part in args.parts if part not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    try:
        for file in args.constraints or ():
            lp.load_constraints(file)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    pairs = (("english", args.english_model), ("hungarian", args.hungarian_model))
    args.given = {name: path for name, path in pairs if path}
    return args


def main() -> int:
    args = arguments()
    torch.set_num_threads(args.threads)
    found = environment(["highspy", "ufal.chu-liu-edmonds"])
    print_environment(found)
    missed = 0
    for part in args.parts:
        goals, data = PARTS[part](args)
        if part == "train":
            continue
        missed |= print_goals(f"Bars, {part}", goals)
        path = RESULTS / f"ilp_{part}{'_trial' if is_trial(args) else ''}.json"
        settings = {key: str(value) for key, value in vars(args).items()}
        bars = [goal.as_json() for goal in goals]
        write_json(path, {"environment": found, "settings": settings, "data": data, "bars": bars})
        LOG.print(f"written: {path}")
    return missed


if __name__ == "__main__":
    leave(main)
