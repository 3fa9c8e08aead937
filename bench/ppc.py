"""Parse, price and cut: the tables of Riedel, Smith and McCallum (2012), on treebanks at hand.

    python bench/ppc.py [train] [table1] [table2] [exact] [random] [--languages danish,...] [--kinds templates,...]

table1: the linear program by parse, price and cut against brute force, the same solver, one thread each; runtime by
length as PNG. table2: the three polytopes by brute force. exact: with branch and bound, all dev sentences. random:
small instances against all trees. Parsers are trained by belief propagation, into bench/results/ppc.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from commands import RESULTS, Goal, add_treebanks, leave, print_goals, treebanks, whole
from enumeration import all_trees
from ppc_models import KINDS, LANGUAGES, Scored, scored, train
from timing import LOG, OUT, environment, new_table, print_environment, write_json
from torch import Tensor

import gpuparse as gp
from gpuparse.lp.grandparents import POLYTOPES
from gpuparse.parts import legal_triples

PARTS = ("train", "table1", "table2", "exact", "random")
PAPER_1 = {  # speed over brute force, percent scored, added and integral, UAS
    "italian": (7.6, 6, 5, 98, 88),
    "hungarian": (3.8, 12, 7, 97, 81),
    "danish": (3.9, 13, 7, 97, 88),
}
PAPER_2 = {  # of Hungarian: speed relative to arcgp, percent integral
    "arcgp": (1.0, 71),
    "onegp": (1.62, 3),
    "all": (1.05, 97),
}


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


def table1(name: str, kind: str, args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Brute force and parse, price and cut on the sentences of a language, batch by batch."""
    count = Count()
    apart = objective = 0.0
    rows = []
    for batch in _batches(name, kind, args, directory, args.words):
        scores, lengths = batch.scores, batch.scores.lengths
        legal = int(legal_triples("grandparents", lengths, scores.arcs.shape[1]).sum())
        found, seconds = timed(fresh(scores), "ppc", threads=1)
        whole_, brute = timed(fresh(scores), "lp", lazy_rows=args.lazy_rows)
        difference = (found.stats["relaxed"] - whole_.stats["relaxed"]).abs()
        apart = max(apart, float((difference / whole_.stats["relaxed"].abs().clamp(min=1.0)).max()))
        objective += float(found.stats["relaxed"].sum())
        count.add(
            sentences=len(lengths),
            words=int(lengths.sum()),
            legal=legal,
            seconds=seconds,
            brute=brute,
            scored=int(found.stats["scored"].sum()),
            added=int(found.stats["added"].sum()),
            integral=int(found.stats["integral"].sum()),
            iterations=int(found.iterations.sum()),
            right=right(found.heads, batch.heads),
        )
        rows.append((float(lengths.double().mean()), seconds / len(lengths), brute / len(lengths)))
        LOG.print(f"{name}, {kind}: {int(count['sentences'])} sentences, longest {int(lengths.max())}")
    return {
        "sentences": int(count["sentences"]),
        "ratio": count["brute"] / count["seconds"],
        "per_second": count["sentences"] / count["seconds"],
        "scored": 100 * count["scored"] / count["legal"],
        "added": 100 * count["added"] / count["legal"],
        "objective": objective / count["sentences"],
        "objective_difference": apart,
        "integral": 100 * count["integral"] / count["sentences"],
        "uas": 100 * count["right"] / count["words"],
        "iterations": count["iterations"] / count["sentences"],
        "by_length": rows,
    }


def table2(name: str, kind: str, args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """The three polytopes by brute force."""
    counts = {polytope: Count() for polytope in POLYTOPES}
    for batch in _batches(name, kind, args, directory, args.words2):
        for polytope, count in counts.items():
            found, seconds = timed(fresh(batch.scores), "lp", polytope=polytope)
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
        }
        for polytope, count in counts.items()
    }


def exact(name: str, kind: str, args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """All sentences with branch and bound."""
    count = Count()
    for batch in _batches(name, kind, args, directory, 10**9):
        found, seconds = timed(batch.scores, "ppc", exact=True, time_limit=args.time_limit)
        count.add(
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
        "integral": 100 * count["integral"] / count["sentences"],
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


def draw(results: dict[str, dict[str, Any]]) -> None:
    from matplotlib.figure import Figure

    page = Figure(figsize=(6, 4), layout="constrained")
    axes = page.add_subplot()
    for name, result in results.items():
        rows = sorted(result["by_length"])
        line = axes.plot([x for x, _, _ in rows], [1000 * y for _, y, _ in rows], label=f"{name}, price and cut")
        axes.plot([x for x, _, _ in rows], [1000 * y for _, _, y in rows], ":", color=line[0].get_color())
    axes.set(xlabel="words", ylabel="ms a sentence (dotted: brute force)", yscale="log")
    axes.legend()
    RESULTS.mkdir(parents=True, exist_ok=True)
    page.savefig(RESULTS / "ppc.png", dpi=150)
    LOG.print("written: bench/results/ppc.png")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; default: all")
    add_treebanks(parser)
    parser.add_argument("--languages", default=",".join(LANGUAGES))
    parser.add_argument("--kinds", default=",".join(KINDS))
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
    for given, known in ((args.parts, PARTS), (args.languages, LANGUAGES), (args.kinds, KINDS)):
        for name in given:
            if name not in known:
                parser.error(f"{name!r} is none of {', '.join(known)}")
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
        tables = {f"{name}, {kind}": table1(name, kind, args, directory) for name, kind in pairs}
        results["table1"] = tables
        columns = (
            *(">×", ">/s", ">% scored", ">% added", ">% integral", ">UAS", ">objective", ">off by", ">rounds"),
            "paper ×, %",
        )
        table = new_table(f"Table 1: over brute force, up to {args.words} words", "", *columns)
        for title, r in tables.items():
            paper = PAPER_1.get(title.split(",")[0])
            table.add_row(
                f"{title} ({r['sentences']})",
                *(f"{r[k]:.1f}" for k in ("ratio", "per_second", "scored", "added", "integral", "uas", "objective")),
                f"{r['objective_difference']:.0e}",
                f"{r['iterations']:.1f}",
                " / ".join(map(str, paper)) if paper else "",
            )
        OUT.print(table)
        draw(tables)
        goals += goals1(tables)
    if "table2" in args.parts:
        results["table2"] = two = {f"{name}, {kind}": table2(name, kind, args, directory) for name, kind in pairs}
        table = new_table(
            f"Table 2: polytopes by brute force, up to {args.words2} words", "", "", ">×", ">% integral", ">UAS"
        )
        for title, r in two.items():
            for polytope, x in r.items():
                table.add_row(title, polytope, f"{x['ratio']:.2f}", f"{x['integral']:.1f}", f"{x['uas']:.2f}")
        OUT.print(table)
        OUT.print("paper, Hungarian: " + ", ".join(f"{k} {a} × {b} %" for k, (a, b) in PAPER_2.items()))
        tighter = [r["all"]["integral"] - r["arcgp"]["integral"] for r in two.values()]
        goals.append(Goal("integral, all less arcgp, the least", min(tighter), 0.0, unit=" points", digits=2))
    if "exact" in args.parts:
        results["exact"] = proofs = {f"{name}, {kind}": exact(name, kind, args, directory) for name, kind in pairs}
        table = new_table(
            "With branch and bound", "", ">sentences", ">% certified", ">% integral", ">nodes", ">/s", ">UAS"
        )
        for title, r in proofs.items():
            table.add_row(
                title,
                str(r["sentences"]),
                *(f"{r[k]:.2f}" for k in ("certified", "integral", "branches", "per_second", "uas")),
            )
        OUT.print(table)
        goals.append(Goal("certified with exact=True, the least", min(r["certified"] for r in proofs.values()), 100.0))
        goals.append(
            Goal(
                "integral, polytope all, the least",
                min(r["integral"] for r in proofs.values()),
                97,
                99,
                unit=" %",
                digits=2,
            )
        )
    if "random" in args.parts:
        results["random"] = small = random(args.instances)
        OUT.print(f"random: {small}")
        goals.append(Goal(f"wrong of {small['instances']} random instances", small["wrong"], 0, most=True, digits=0))
    write_json(RESULTS / f"ppc{suffix}.json", results)
    return print_goals("Bars", goals)


def goals1(tables: dict[str, dict[str, Any]]) -> list[Goal]:
    """Those of table1."""
    hungarian, english = tables.get("hungarian, templates"), tables.get("english, trilinear")
    goals = [
        Goal(
            "objective off that of brute force, by its size, the most, × 1e6",
            1e6 * max(r["objective_difference"] for r in tables.values()),
            1.0,
            most=True,
            digits=3,
        )
    ]
    if hungarian:
        goals.append(Goal("over brute force, Hungarian, templates", hungarian["ratio"], 8, 25, unit=" ×"))
        goals.append(Goal("scored, Hungarian, templates", hungarian["scored"], 12, 5, most=True, unit=" %"))
    if english:
        goals.append(Goal("scored, English, trilinear", english["scored"], 25, 10, most=True, unit=" %"))
    return goals


if __name__ == "__main__":
    leave(main)
