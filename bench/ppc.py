"""Parse, price and cut: the tables of Riedel, Smith and McCallum (2012), on treebanks at hand.

    python bench/ppc.py [train] [table1] [table2] [exact] [random] [--languages danish,...] [--kinds templates,...]

table1: the linear program by parse, price and cut against brute force, the same solver, one thread each, of the paper's
polytope ("all"); the tighter one beside it; runtime by length as PNG. table2: all polytopes by brute force, the tighter
one against parse, price and cut. exact: with branch and bound, all dev sentences. random: small instances against all
trees. Parsers are trained by belief propagation, into bench/results/ppc.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from commands import RESULTS, Goal, add_treebanks, check_names, leave, print_goals, treebanks, whole
from enumeration import all_trees
from ppc_models import KINDS, LANGUAGES, Scored, scored, train
from ppc_tables import report1, report2, report3
from timing import LOG, OUT, environment, print_environment, write_json
from torch import Tensor

import gpuparse as gp
from gpuparse.lp.grandparents import POLYTOPES
from gpuparse.parts import legal_triples

PARTS = ("train", "table1", "table2", "exact", "random")


class Count:
    """Sums over the sentences of a run."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}

    def add(self, **values: float) -> None:
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)

    def __getitem__(self, name: str) -> float:
        return self.sums.get(name, 0.0)


def timed(scores: gp.Scores, method: str, **options: Any) -> tuple[gp.Parse, float]:
    begun = time.perf_counter()
    found = gp.decode(scores, method, **options)
    return found, time.perf_counter() - begun


def fresh(scores: gp.Scores) -> gp.Scores:
    """The same without anything known of its parts."""
    parts = scores.grandparents
    assert parts is not None
    return gp.Scores(scores.arcs, scores.lengths, grandparents=parts.to(parts.device), validate_args=False)


def right(heads: Tensor, gold: Tensor) -> int:
    return int(((heads == gold) & (gold >= 0)).sum())


def off_by(found: gp.Parse, whole_: gp.Parse) -> float:
    """The greatest difference of two linear programs' values, relative to those above 1."""
    one, other = found.stats["relaxed"], whole_.stats["relaxed"]
    return float(((one - other).abs() / other.abs().clamp(min=1.0)).max())


def table1(name: str, kind: str, args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Brute force and parse, price and cut on the sentences of a language, batch by batch."""
    count, rows = Count(), []
    apart = objective = 0.0
    for batch in _batches(name, kind, args, directory, args.words):
        scores, lengths = batch.scores, batch.scores.lengths
        legal = int(legal_triples("grandparents", lengths, scores.arcs.shape[1]).sum())
        found, seconds = timed(fresh(scores), "ppc", threads=1, polytope="all")
        tight, of_tight = timed(fresh(scores), "ppc", threads=1)
        whole_, brute = timed(fresh(scores), "lp", polytope="all", lazy_rows=args.lazy_rows)
        apart = max(apart, off_by(found, whole_))
        objective += float(found.stats["relaxed"].sum())
        count.add(
            sentences=len(lengths),
            words=int(lengths.sum()),
            legal=legal,
            seconds=seconds,
            tight=of_tight,
            brute=brute,
            scored=int(found.stats["scored"].sum()),
            added=int(found.stats["added"].sum()),
            scored_tight=int(tight.stats["scored"].sum()),
            integral=int(found.stats["integral"].sum()),
            integral_tight=int(tight.stats["integral"].sum()),
            iterations=int(found.iterations.sum()),
            right=right(found.heads, batch.heads),
        )
        rows.append((float(lengths.double().mean()), seconds / len(lengths), brute / len(lengths)))
        LOG.print(f"{name}, {kind}: {int(count['sentences'])} sentences, longest {int(lengths.max())}")
    sentences = count["sentences"]
    return {
        "sentences": int(sentences),
        "ratio": count["brute"] / count["seconds"],
        "ratio_tight": count["brute"] / count["tight"],
        "per_second": sentences / count["seconds"],
        "scored": 100 * count["scored"] / count["legal"],
        "scored_tight": 100 * count["scored_tight"] / count["legal"],
        "added": 100 * count["added"] / count["legal"],
        "objective": objective / sentences,
        "objective_difference": apart,
        "integral": 100 * count["integral"] / sentences,
        "integral_tight": 100 * count["integral_tight"] / sentences,
        "uas": 100 * count["right"] / count["words"],
        "iterations": count["iterations"] / sentences,
        "by_length": rows,
    }


def table2(name: str, kind: str, args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """The polytopes by brute force; the value of the tightest, by parse, price and cut too."""
    LOG.print(f"table 2: {name}, {kind}")
    counts, apart = {polytope: Count() for polytope in POLYTOPES}, 0.0
    for batch in _batches(name, kind, args, directory, args.words2):
        for polytope, count in counts.items():
            found, seconds = timed(fresh(batch.scores), "lp", polytope=polytope)
            if polytope == "tight":
                apart = max(apart, off_by(gp.decode(fresh(batch.scores), "ppc", threads=1), found))
            count.add(
                sentences=len(batch.heads),
                words=int(batch.scores.lengths.sum()),
                seconds=seconds,
                integral=int(found.stats["integral"].sum()),
                right=right(found.heads, batch.heads),
            )
    return {
        polytope: {
            "ratio": counts["arcgp"]["seconds"] / count["seconds"],
            "integral": 100 * count["integral"] / count["sentences"],
            "uas": 100 * count["right"] / count["words"],
            **({"objective_difference": apart} if polytope == "tight" else {}),
        }
        for polytope, count in counts.items()
    }


def exact(name: str, kind: str, args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """All sentences with branch and bound."""
    count = Count()
    for batch in _batches(name, kind, args, directory, 10**9):
        found, seconds = timed(fresh(batch.scores), "ppc", exact=True, time_limit=args.time_limit)
        of_all = gp.decode(fresh(batch.scores), "ppc", polytope="all", time_limit=args.time_limit)
        count.add(
            integral_all=int(of_all.stats["integral"].sum()),
            sentences=len(found.heads),
            words=int(batch.scores.lengths.sum()),
            seconds=seconds,
            certified=int(found.certified.sum()),
            integral=int(found.stats["integral"].sum()),
            branched=int((found.stats["branches"] > 0).sum()),
            branches=int(found.stats["branches"].sum()),
            right=right(found.heads, batch.heads),
        )
    return {
        "sentences": int(count["sentences"]),
        "certified": 100 * count["certified"] / count["sentences"],
        "not_certified": int(count["sentences"] - count["certified"]),
        "integral_tight": 100 * count["integral"] / count["sentences"],
        "integral_all": 100 * count["integral_all"] / count["sentences"],
        "branches": count["branches"] / max(1.0, count["branched"]),
        "per_second": count["sentences"] / count["seconds"],
        "uas": 100 * count["right"] / count["words"],
    }


def _batches(name: str, kind: str, args: argparse.Namespace, directory: Path, most: int) -> Iterator[Scored]:
    options = {"most": most, "first": args.first, "batch_words": args.batch_words}
    batches: Iterator[Scored] = scored(name, kind, directory, args.models, **options)
    yield from batches


def totals(arcs: Tensor, parts: Tensor, trees: Tensor) -> Tensor:
    """Scores [T, B] of trees [T, N] under arcs and grandparents of B sentences."""
    word = torch.arange(1, trees.shape[1])
    heads = trees[:, 1:]
    above = trees.clamp(min=0).gather(1, heads)
    pairs = torch.where(heads > 0, parts[:, above, heads, word], 0.0)
    return (arcs[:, heads, word] + pairs).sum(-1).T


def random(instances: int) -> dict[str, int]:
    """Trees and bounds against all trees: 1 to 6 words, both root modes, forbidden arcs and parts, no tree at all."""
    generator = torch.Generator().manual_seed(0)
    wrong = certified = treeless = done = 0
    while done < instances:
        n, single = int(torch.randint(1, 7, (1,), generator=generator)), bool(done // 50 % 2)
        shape = (50, n + 1, n + 1)
        arcs = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
        parts = torch.randn(*shape, n + 1, generator=generator, dtype=torch.float64)
        parts *= 4 * torch.rand(50, 1, 1, 1, generator=generator)
        for x, share in ((arcs, 0.15), (parts, 0.3)):
            x[torch.rand(x.shape, generator=generator) < share * torch.rand((), generator=generator)] = -math.inf
        best = totals(arcs, parts, all_trees(n, single, False)).amax(0)
        there = best > -math.inf
        done, treeless = done + 50, treeless + int((~there).sum())
        for proven in (True, False):
            scores = gp.Scores(arcs, grandparents=parts, validate_args=False)
            found = gp.decode(scores, "ppc", single_root=single, exact=proven)
            off = found.certified & ((found.score - best).abs() > 1e-7)
            low = there & (found.bound < best - 1e-9)
            none = ~there & (found.certified | (found.heads[:, 1] >= 0))
            lost = there & (found.heads[:, 1] < 0)
            open_ = there & ~found.certified & proven
            wrong += int((off | low | none | lost | open_).sum())
            certified += int(found.certified.sum()) if proven else 0
    return {"instances": done, "wrong": wrong, "certified": certified, "without a tree": treeless}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; default: all")
    add_treebanks(parser)
    parser.add_argument("--languages", default=",".join(LANGUAGES))
    parser.add_argument("--kinds", default="templates,trilinear")
    parser.add_argument("--models", type=Path, default=RESULTS / "ppc")
    parser.add_argument("--words", type=whole, default=40, help="longest sentences of table1")
    parser.add_argument("--words2", type=whole, default=25, help="longest sentences of table2")
    parser.add_argument("--first", type=int, default=0, help="so many sentences of a parser: a trial")
    parser.add_argument("--batch-words", type=whole, default=500)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for a sentence of exact")
    parser.add_argument("--lazy-rows", action="store_true", help="brute force adds rows of pairs where violated")
    parser.add_argument("--instances", type=whole, default=10_000)
    parser.add_argument("--threads", type=whole, default=1)
    args = parser.parse_args()
    args.languages, args.kinds = args.languages.split(","), args.kinds.split(",")
    check_names(parser, (args.parts, PARTS), (args.languages, LANGUAGES), (args.kinds, KINDS))
    args.parts = args.parts or list(PARTS)
    return args


def main() -> int:
    args = arguments()
    torch.set_num_threads(args.threads)
    found = environment([])
    print_environment(found)
    goals: list[Goal] = []
    pairs = [(name, kind) for kind in args.kinds for name in args.languages]
    results: dict[str, Any] = {"environment": found}
    suffix = "_trial" if args.first else ""
    if set(args.parts) & {"train", "table1", "table2", "exact"}:
        directory = treebanks(args.treebanks)
    if "train" in args.parts:
        for name, kind in pairs:
            train(name, kind, directory, args.models, args.threads)
    if "table1" in args.parts:
        results["table1"] = {f"{name}, {kind}": table1(name, kind, args, directory) for name, kind in pairs}
        goals += report1(results["table1"], args.words)
        write_json(RESULTS / f"ppc{suffix}.json", results)
    if "table2" in args.parts:
        results["table2"] = {f"{name}, {kind}": table2(name, kind, args, directory) for name, kind in pairs}
        goals += report2(results["table2"], args.words2)
        write_json(RESULTS / f"ppc{suffix}.json", results)
    if "exact" in args.parts:
        results["exact"] = {f"{name}, {kind}": exact(name, kind, args, directory) for name, kind in pairs}
        goals += report3(results["exact"])
        write_json(RESULTS / f"ppc{suffix}.json", results)
    if "random" in args.parts:
        results["random"] = small = random(args.instances)
        OUT.print(f"random: {small}")
        goals.append(Goal(f"wrong of {small['instances']} random instances", small["wrong"], 0, most=True, digits=0))
    write_json(RESULTS / f"ppc{suffix}.json", results)
    return print_goals("Bars", goals)


if __name__ == "__main__":
    leave(main)
