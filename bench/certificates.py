"""Certificates on treebanks: every one of them checked by its proof, what proofs cost, and what has become slower.

    python bench/certificates.py [verify] [cost] [before] [--languages english,hungarian] [--first 20]

verify: all dev sentences by trained second-order parsers, decoded with proofs, which ``gpuparse.verify`` then checks.
cost: the time of decoding with proofs over that without, batch by batch in turns.
before: the time of decoding over that of another checkout (``--before DIR``), batch by batch in turns.

Parsers are those of bench/ppc.py (trilinear) and of bench/dual.py (both); one that is not there is trained by
bench/ppc.py train --kinds trilinear,both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from commands import PROJECT, RESULTS, Goal, Problem, add_treebanks, check_names, leave, print_goals, treebanks, whole
from ppc_models import KINDS, LANGUAGES, scored
from timing import LOG, OUT, environment, new_table, print_environment, write_json

import gpuparse as gp
from gpuparse.proofs import Proof

PARTS = ("verify", "cost", "before")
WAYS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    # kind of parser, method, options
    ("trilinear", "ppc", {"exact": True}),
    ("trilinear", "auto", {"exact": True}),
    ("both", "dd", {"exact": True}),
)
LIMITS = {"What proofs cost": 1.2, "Against another checkout": 1.05}
COSTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("trilinear", "ppc", {"exact": True, "threads": 1}),
    ("trilinear", "ilp", {}),
)


def batches(name: str, kind: str, args: argparse.Namespace, directory: Path) -> Iterator[gp.Scores]:
    """The scores of the sentences, lazily scored as the parser gives them."""
    options = {"most": args.words, "first": args.first, "batch_words": args.batch_words}
    for batch in scored(name, kind, directory, args.models, **options):
        yield batch.scores


def fresh(scores: gp.Scores) -> gp.Scores:
    """The same without anything known of its parts."""
    parts = {name: getattr(scores, name) for name in ("grandparents", "siblings")}
    parts = {name: None if x is None else x.to(x.device) for name, x in parts.items()}
    return gp.Scores(scores.arcs, scores.lengths, **parts, validate_args=False)


def timed(scores: gp.Scores, method: str, options: dict[str, Any], **more: Any) -> tuple[gp.Parse, float]:
    scores = fresh(scores)
    begun = time.perf_counter()
    found = gp.decode(scores, method, **options, **more)
    return found, time.perf_counter() - begun


def sentences_of(scores: gp.Scores, parse: gp.Parse) -> Iterator[tuple[int, gp.Scores, gp.Parse]]:
    """Each sentence by itself."""
    assert parse.proof is not None
    for b, n in enumerate(scores.lengths.tolist()):
        at = slice(n + 1)
        parts = {
            kind: x.dense()[b : b + 1, at, at, at] for kind, x in zip(scores.second_order, scores.parts, strict=True)
        }
        leaves = parse.proof.leaves
        own = replace(
            parse,
            heads=parse.heads[b : b + 1, at],
            labels=None if parse.labels is None else parse.labels[b : b + 1, at],
            **{name: getattr(parse, name)[b : b + 1] for name in ("score", "bound", "certified", "iterations")},
            proof=Proof({0: leaves[b]} if b in leaves else {}),
        )
        yield b, gp.Scores(scores.arcs[b : b + 1, at, at], **parts, validate_args=False), own


def check(scores: gp.Scores, parse: gp.Parse) -> tuple[int, list[str]]:
    """How many certificates were verified, and why others were not."""
    verified, refused = 0, []
    for b, own, answer in sentences_of(scores, parse):
        if not bool(answer.certified[0]):
            continue
        try:
            gp.verify(own, answer)
            verified += 1
        except ValueError as error:
            refused.append(f"sentence {b} of {int(scores.lengths[b])} words: {error}")
    return verified, refused


def verify(
    name: str, kind: str, method: str, options: dict[str, Any], args: argparse.Namespace, directory: Path
) -> Any:
    """All sentences by one method, and their certificates by the checker."""
    sums = {"sentences": 0, "certified": 0, "verified": 0, "leaves": 0, "seconds": 0.0, "checking": 0.0}
    refused: list[str] = []
    limit = {"time_limit": args.time_limit}
    for scores in batches(name, kind, args, directory):
        found, seconds = timed(scores, method, options, **limit, proof=True)
        begun = time.perf_counter()
        verified, wrong = check(scores, found)
        sums["checking"] += time.perf_counter() - begun
        assert found.proof is not None
        sums["seconds"] += seconds
        sums["sentences"] += len(found.heads)
        sums["certified"] += int(found.certified.sum())
        sums["verified"] += verified
        sums["leaves"] += sum(len(leaves) for leaves in found.proof.leaves.values())
        for line in wrong:
            LOG.print(f"{name}, {kind}, {method}: {line}")
        refused += wrong
        LOG.print(f"{name}, {kind}, {method}: {sums['sentences']} sentences, {sums['verified']} verified")
    return {**sums, "refused": refused}


def cost(name: str, kind: str, method: str, options: dict[str, Any], args: argparse.Namespace, directory: Path) -> Any:
    """Seconds with proofs and without, in turns, the best of some; which is first alternates."""
    sums = {True: 0.0, False: 0.0}
    sentences, ratios = 0, []
    for number, scores in enumerate(batches(name, kind, args, directory)):
        own = {True: math.inf, False: math.inf}
        for turn in range(args.repeats):
            for proof in (True, False) if (number + turn) % 2 else (False, True):
                _, seconds = timed(scores, method, options, time_limit=args.time_limit, proof=proof)
                own[proof] = min(own[proof], seconds)
        sums = {proof: sums[proof] + own[proof] for proof in sums}
        ratios.append(own[True] / own[False])
        sentences += len(scores.arcs)
        LOG.print(f"{name}, {kind}, {method}: {sentences} sentences, with proofs {own[True] / own[False]:.2f} ×")
    return {
        "sentences": sentences,
        "with": sums[True],
        "without": sums[False],
        "ratio": sums[True] / sums[False],
        "by_batch": ratios,
    }


class Side:
    """A checkout that decodes batches of a parser's sentences in a process of its own."""

    def __init__(self, checkout: Path, given: dict[str, Any]) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__).with_name("side.py"))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=checkout, env=environment, text=True, **pipes)  # type: ignore[call-overload]
        self.checkout = checkout
        begun = self.ask(given)
        self.batches = int(begun["batches"])
        if Path(begun["gpuparse"]).parents[1] != checkout:
            raise Problem(f"{begun['gpuparse']} was imported, which is not in {checkout}")

    def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise Problem(f"{self.checkout}: it ended with exit code {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def before(
    name: str, kind: str, method: str, options: dict[str, Any], args: argparse.Namespace, directory: Path
) -> Any:
    """Seconds of this checkout and of another one, in turns, the best of some; which is first alternates."""
    limits = {"most": args.words, "first": args.first, "batch_words": args.batch_words}
    given = {"name": name, "kind": kind, "directory": str(directory.resolve()), "models": str(args.models.resolve())}
    sides = {now: Side(PROJECT if now else args.before, {**given, **limits}) for now in (True, False)}
    seconds, certified, sentences, ratios = {True: 0.0, False: 0.0}, {True: 0, False: 0}, 0, []
    for batch in range(sides[True].batches):
        asked = {"batch": batch, "method": method, "options": {**options, "time_limit": args.time_limit}}
        own: dict[bool, dict[str, Any]] = {}
        for turn in range(args.repeats):
            for now in (True, False) if (batch + turn) % 2 else (False, True):
                found = sides[now].ask(asked)
                own[now] = min(own.get(now, found), found, key=lambda x: x["seconds"])
        for now in sides:
            seconds[now] += own[now]["seconds"]
            certified[now] += own[now]["certified"]
        sentences += own[True]["sentences"]
        ratios.append(own[True]["seconds"] / own[False]["seconds"])
        ratio = seconds[True] / seconds[False]
        LOG.print(f"{name}, {kind}, {method}: {sentences} sentences, {ratio:.3f} × as long as before")
    for side in sides.values():
        side.end()
    times = {"with": seconds[True], "without": seconds[False], "ratio": seconds[True] / seconds[False]}
    return {"sentences": sentences, **times, "by_batch": ratios, "certified": certified[True], "was": certified[False]}


def report_verify(results: dict[str, Any]) -> list[Goal]:
    columns = (">sentences", ">certified", ">verified", ">leaves", ">s decoding", ">s checking")
    table = new_table("Certificates by their proofs", "", *columns)
    for title, r in results.items():
        counts = (str(r[key]) for key in ("sentences", "certified", "verified", "leaves"))
        table.add_row(title, *counts, f"{r['seconds']:.1f}", f"{r['checking']:.1f}")
    OUT.print(table)
    missed = sum(r["certified"] - r["verified"] for r in results.values())
    return [Goal("certificates that were not verified", missed, 0, most=True, digits=0)]


def report_cost(results: dict[str, Any]) -> list[Goal]:
    return _report_times(results, "What proofs cost", "without proofs", "with proofs")


def report_before(results: dict[str, Any]) -> list[Goal]:
    return _report_times(results, "Against another checkout", "before", "now")


def _report_times(results: dict[str, Any], title: str, one: str, other: str) -> list[Goal]:
    table = new_table(title, "", ">sentences", f">s {one}", f">s {other}", ">ratio", ">batches, from", ">to")
    for way, r in results.items():
        seconds = f"{r['without']:.2f}", f"{r['with']:.2f}", f"{r['ratio']:.3f}"
        table.add_row(way, str(r["sentences"]), *seconds, f"{min(r['by_batch']):.2f}", f"{max(r['by_batch']):.2f}")
    OUT.print(table)
    limit = LIMITS[title]
    return [
        Goal(f"{other} over {one}, {way}", r["ratio"], limit, most=True, unit=" ×", digits=3)
        for way, r in results.items()
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; default: all")
    add_treebanks(parser)
    parser.add_argument("--languages", default="english,hungarian")
    parser.add_argument("--kinds", default="trilinear,both")
    parser.add_argument("--models", type=Path, default=RESULTS / "ppc")
    parser.add_argument("--words", type=whole, default=10**9, help="longest sentences; default: all")
    parser.add_argument("--first", type=int, default=0, help="so many sentences of a parser: a trial")
    parser.add_argument("--batch-words", type=whole, default=500)
    parser.add_argument("--repeats", type=whole, default=3, help="of cost and before, of which the best counts")
    parser.add_argument("--before", type=Path, metavar="DIR", help="a checkout to compare with")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for a sentence")
    args = parser.parse_args()
    args.languages, args.kinds = args.languages.split(","), args.kinds.split(",")
    check_names(parser, (args.parts, PARTS), (args.languages, LANGUAGES), (args.kinds, KINDS))
    args.parts = args.parts or [part for part in PARTS if part != "before" or args.before]
    if "before" in args.parts and args.before is None:
        parser.error("before: wanted --before DIR, another checkout")
    args.before = args.before and args.before.resolve()
    return args


def main() -> int:
    args = arguments()
    torch.set_num_threads(1)
    results: dict[str, Any] = {"environment": environment([])}
    print_environment(results["environment"])
    directory = treebanks(args.treebanks)
    goals: list[Goal] = []
    path = RESULTS / f"certificates{'_trial' if args.first else ''}.json"
    for part, run, report, ways in (
        ("verify", verify, report_verify, WAYS),
        ("cost", cost, report_cost, COSTS),
        ("before", before, report_before, COSTS),
    ):
        if part not in args.parts:
            continue
        results[part] = {
            f"{name}, {kind}, {method}": run(name, kind, method, options, args, directory)
            for kind, method, options in ways
            if kind in args.kinds
            for name in args.languages
        }
        if results[part]:
            goals += report(results[part])
        write_json(path, results)
    return print_goals("Bars", goals)


if __name__ == "__main__":
    leave(main)
