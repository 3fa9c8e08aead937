"""Dual decomposition: the tables of Rush, Sontag, Collins and Jaakkola (2010) on English, and what oracles are worth.

    python bench/dual.py [tagger] [dependencies] [koo] [random] [oracles] [batched] [soft] [--first N] [--models DIR]

tagger: a grammar and a trigram tagger (tables 1 and 3). dependencies: a lexicalised grammar and a second-order parser
(tables 1 and 2, figure 5 as PNG). koo: non-projective trees with grandparents and siblings, certificates and speed.
random: every problem on short sentences against all structures; oracles: each oracle likewise. batched: a batch at once
against its sentences one by one. soft: a scorer with grandparents trained through the decomposition, and one without.
The parsers are trained by `python bench/ppc.py train --languages english,danish --kinds trilinear,both`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from commands import RESULTS, Goal, Problem, add_treebanks, leave, print_goals, treebanks, whole
from dual_joint import dependencies, tagger
from dual_oracles import oracles
from dual_random import random
from dual_tables import report_batched, report_dependencies, report_koo, report_small, report_soft, report_tagger
from ppc_models import LANGUAGES, folds, scored
from timing import LOG, environment, make_scores, print_environment, write_json

import gpuparse as gp
from gpuparse.config import Config
from gpuparse.data.artificial import builtin_treebank
from gpuparse.demo import QUICK
from gpuparse.evaluate import evaluate
from gpuparse.train import train

PARTS = ("tagger", "dependencies", "koo", "random", "oracles", "batched", "soft")
KOO = ("english", "danish")


def koo(args: argparse.Namespace, directory: Path) -> dict[str, dict[str, Any]]:
    """Certificates of all dev sentences, without and with what goes on until all is proven.

    Grandparents and siblings go on by branch and bound, grandparents alone by parse, price and cut.
    """
    ways: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "both": [("dd", {}), ("dd", {"exact": True})],
        "trilinear": [("dd", {}), ("auto", {"exact": True})],
    }
    results = {}
    for name in KOO:
        for kind, methods in ways.items():
            models = [args.models / f"{name}_{kind}_{fold}" for fold in range(len(folds(LANGUAGES[name], directory)))]
            missing = [model.name for model in models if not (model / "training.json").is_file()]
            if missing:
                LOG.print(f"{name}, {kind}: not measured: no trained parser {missing[0]}; see ppc_models.train")
                continue
            for method, options in methods:
                title = f"{name}, {kind}{', exact' if options else ''}"
                results[title] = _decoded(name, kind, args, directory, method, options)
                LOG.print(f"{title}: {results[title]['certified']:.2f} % of {results[title]['sentences']} certified")
    return results


def _decoded(
    name: str, kind: str, args: argparse.Namespace, directory: Path, method: str, options: dict[str, Any]
) -> dict[str, Any]:
    sums = dict.fromkeys(("sentences", "words", "right", "certified", "iterations"), 0)
    seconds, open_ = 0.0, []
    limits = {"time_limit": args.time_limit, "nodes": 10**6} if options else {}
    size = {"most": 10**9, "first": args.first, "batch_words": args.batch_words}
    for batch in scored(name, kind, directory, args.models, **size):
        begun = time.perf_counter()
        found = gp.decode(batch.scores, method, **options, **limits)
        seconds += time.perf_counter() - begun
        sums["sentences"] += len(found.heads)
        sums["words"] += int(batch.scores.lengths.sum())
        sums["right"] += int(((found.heads == batch.heads) & (batch.heads >= 0)).sum())
        sums["certified"] += int(found.certified.sum())
        sums["iterations"] += int(found.iterations.sum())
        gaps = ((found.bound - found.score) / found.score.abs().clamp(min=1))[~found.certified]
        open_ += list(zip(batch.scores.lengths[~found.certified].tolist(), gaps.tolist(), strict=True))
    return {
        "method": f"{method}{', exact' if options else ''}",
        "exact": bool(options),
        "sentences": sums["sentences"],
        "certified": 100 * sums["certified"] / sums["sentences"],
        "iterations": sums["iterations"] / sums["sentences"],
        "per_second": sums["sentences"] / seconds,
        "uas": 100 * sums["right"] / sums["words"],
        "not_certified": [{"words": n, "relative_gap": gap} for n, gap in open_],
    }


def batched(*, B: int = 64, n: int = 20, iterations: int = 50, repeats: int = 3) -> dict[str, dict[str, float]]:
    """The fastest of some repetitions, in turns: a batch at once, and each of its sentences alone."""
    results = {}
    for kind, size in (("random", 1.0), ("peaked", 1.0)):
        g = torch.Generator().manual_seed(n)
        arcs = make_scores(kind, n, B, False)
        parts = {name: size * torch.randn(B, n + 1, n + 1, n + 1, generator=g) for name in ("grandparents", "siblings")}
        every = gp.Scores(arcs, **parts)
        single = [gp.Scores(arcs[b : b + 1], **{k: x[b : b + 1] for k, x in parts.items()}) for b in range(B)]
        together, alone, trees, found = [], [], [], gp.decode(every, "dd", iterations=iterations)
        for _ in range(repeats):
            begun = time.perf_counter()
            found = gp.decode(every, "dd", iterations=iterations)
            middle = time.perf_counter()
            trees = [gp.decode(one, "dd", iterations=iterations).score for one in single]
            together.append(middle - begun)
            alone.append(time.perf_counter() - middle)
        off = float((torch.cat(trees) - found.score).abs().max())
        if off > 1e-6:
            raise Problem(f"batched: scores one by one are off those at once by {off:.2g}")
        results[kind] = {
            "together": B / min(together),
            "alone": B / min(alone),
            "ratio": min(alone) / min(together),
            "iterations": float(found.iterations.double().mean()),
        }
        LOG.print(f"batched, {kind}: {results[kind]}")
    return results


def soft(*, seeds: int, sentences: int, epochs: int, grandparents: int) -> dict[str, Any]:
    """The same small scorer, over projective trees: first order by its likelihood, and grandparents through the soft
    dual decomposition."""
    learned, held_out = builtin_treebank("train")[:sentences], builtin_treebank("test")
    base = replace(QUICK.training, projective=True, epochs=epochs)
    kinds = {
        "nll": Config(scorer=QUICK.scorer, training=base),
        "dd": Config(scorer=replace(QUICK.scorer, grandparents=grandparents), training=replace(base, objective="dd")),
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}
    seconds = dict.fromkeys(kinds, 0.0)
    for seed in range(1, seeds + 1):
        for name, config in kinds.items():
            begun = time.perf_counter()
            with tempfile.TemporaryDirectory() as directory:
                config = replace(config, training=replace(config.training, seed=seed))
                parser = train(config, Path(directory) / name, train=learned)
            seconds[name] += time.perf_counter() - begun
            found[name].append(100 * evaluate(held_out, parser.parse(held_out)).metrics["UAS"].f1)
            LOG.print(f"soft, seed {seed}, {name}: {found[name][-1]:.2f} after {seconds[name]:.0f} s in all")
    sizes = {"sentences": len(held_out), "learned": len(learned), "seeds": list(range(1, seeds + 1))}
    return {**sizes, **found, "seconds": seconds}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; default: all")
    add_treebanks(parser)
    parser.add_argument("--models", type=Path, default=RESULTS / "ppc", help="parsers of bench/ppc.py")
    parser.add_argument("--first", type=int, default=0, help="so many sentences: a trial")
    parser.add_argument("--words", type=whole, default=30, help="longest sentences of tagger")
    parser.add_argument("--words2", type=whole, default=20, help="longest sentences of dependencies")
    parser.add_argument("--min-count", type=whole, default=1, help="how often a rule must be seen")
    parser.add_argument("--no-relations", action="store_true", help="grammars whose phrases do not know relations")
    parser.add_argument("--tagger-weights", default="0.5,1,2,4", help="of the tagger, to choose from")
    parser.add_argument("--arcs-weight", type=float, default=1.0, help="of model 1's arcs against its rules")
    parser.add_argument("--gamma", default="1,2,4,8,16", help="weights of the dependency parser, to choose from")
    parser.add_argument("--tuned", type=whole, default=100, help="sentences, the first, by which weights are chosen")
    parser.add_argument("--batch-words", type=whole, default=500)
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds for a batch of koo, exact")
    parser.add_argument("--instances", type=whole, default=10_000, help="of random and of oracles")
    parser.add_argument("--seeds", type=whole, default=3, help="of soft")
    parser.add_argument("--threads", type=whole, default=1)
    args = parser.parse_args()
    for name in args.parts:
        if name not in PARTS:
            parser.error(f"{name!r} is none of {', '.join(PARTS)}")
    for name in ("gamma", "tagger_weights"):
        try:
            setattr(args, name, [float(text) for text in getattr(args, name).split(",")])
        except ValueError:
            parser.error(f"{name}: {getattr(args, name)!r} is not numbers with commas between")
    args.parts = args.parts or list(PARTS)
    return args


def main() -> int:
    args = arguments()
    torch.set_num_threads(args.threads)
    found = environment([])
    print_environment(found)
    results: dict[str, Any] = {"environment": found}
    goals: list[Goal] = []
    if set(args.parts) & {"tagger", "dependencies", "koo"}:
        directory = treebanks(args.treebanks)
    options: dict[str, Any] = {"first": args.first, "tuned": args.tuned}
    options |= {"min_count": args.min_count, "relations": not args.no_relations}
    if "tagger" in args.parts:
        results["tagger"] = tagger(directory, most=args.words, weights=args.tagger_weights, **options)
        goals += report_tagger(results["tagger"])
    if "dependencies" in args.parts:
        own = {"most": args.words2, "weights": args.gamma, "arcs": args.arcs_weight}
        results["dependencies"] = dependencies(directory, args.models, **own, **options)
        goals += report_dependencies(results["dependencies"])
    if "koo" in args.parts:
        results["koo"] = koo(args, directory)
        goals += report_koo(results["koo"], len(KOO))
    if "random" in args.parts:
        results["random"] = random(args.instances)
        goals += report_small("random", results["random"])
    if "oracles" in args.parts:
        results["oracles"] = oracles(args.instances)
        goals += report_small("oracles", results["oracles"])
    if "batched" in args.parts:
        results["batched"] = batched()
        goals += report_batched(results["batched"])
    if "soft" in args.parts:
        results["soft"] = soft(seeds=args.seeds, sentences=600, epochs=8, grandparents=16)
        goals += report_soft(results["soft"])
    results["goals"] = [goal.as_json() for goal in goals]
    write_json(RESULTS / f"dual{'_trial' if args.first else ''}.json", results)
    return print_goals("Bars", goals)


if __name__ == "__main__":
    leave(main)
