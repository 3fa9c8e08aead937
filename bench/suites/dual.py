"""Dual decomposition: the tables of Rush, Sontag, Collins and Jaakkola (2010) on English, and what oracles are worth.

tagger: a grammar and a trigram tagger (tables 1 and 3). dependencies: a lexicalised grammar and a second-order parser
(tables 1 and 2, figure 5 as PNG). koo: non-projective trees with grandparents and siblings, certificates and speed.
batched: a batch at once against its sentences one by one. soft: a scorer with grandparents trained through the
decomposition, and one without. The parsers are those of the suite ppc.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import gpuparse as gp
from bench.artificial import make_scores, second_order
from bench.bars import Bar
from bench.models import is_trained
from bench.output import LOG, Problem, show
from bench.parsers import FOLDS, LANGUAGES, Sums, fresh, options, scored
from bench.registry import Args, Measured, Option, Suite, Timed, seconds, whole
from bench.suites.dual_joint import dependencies, tagger
from bench.suites.dual_tables import report_koo, report_soft
from bench.timing import Case, Contender, measure, timed
from gpuparse.cli.demo import QUICK
from gpuparse.config import Config
from gpuparse.data.artificial import builtin_treebank
from gpuparse.decoding.parts import count_triples
from gpuparse.evaluate import evaluate
from gpuparse.train import train

KOO = ("english", "danish")
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (("dd", {}), ("auto", {"exact": True}))


def koo(args: Args) -> Measured:
    """Certificates of all dev sentences, without and with what goes on until all is proven; the latter also one by one,
    for the slowest."""
    results: dict[str, dict[str, Any]] = {}
    for name in KOO:
        folds = 1 if LANGUAGES[name][0].learned else FOLDS
        for kind in ("both", "trilinear"):
            missing = [fold for fold in range(folds) if not is_trained(args.models / f"{name}_{kind}_{fold}")]
            if missing:
                parser = f"{name}_{kind}_{missing[0]}"
                LOG.print(f"{name}, {kind}: not measured: no trained parser {parser} (bench run ppc train)")
                continue
            for method, how in WAYS:
                title = f"{name}, {kind}{', exact' if how else ''}"
                results[title] = _decoded(name, kind, args, method, how)
                LOG.print(f"{title}: {results[title]['certified']:.2f} % of {results[title]['sentences']} certified")
    return Measured(results, report_koo(results, len(KOO)))


def _decoded(name: str, kind: str, args: Args, method: str, how: dict[str, Any]) -> dict[str, Any]:
    sums, open_, alone = Sums(), [], []
    limits = {"time_limit": args.time_limit} if how else {}
    for batch in scored(name, kind, args):
        found, seconds = timed(partial(gp.decode, fresh(batch.scores), method, **how, **limits))
        every = sum(int(count_triples(parts.kind, parts.lengths).sum()) for parts in batch.scores.parts)
        sums.add(seconds=seconds, pairs=every, **batch.counts(found))
        for b in range(len(batch.heads) if how else 0):
            one = fresh(batch.scores).take(torch.tensor([b]))
            alone.append((timed(partial(gp.decode, one, method, **how, **limits))[1], int(batch.scores.lengths[b])))
        gaps = ((found.bound - found.score) / found.score.abs().clamp(min=1))[~found.certified]
        open_ += list(zip(batch.scores.lengths[~found.certified].tolist(), gaps.tolist(), strict=True))
    return {
        "method": f"{method}{', exact' if how else ''}",
        "exact": bool(how),
        "sentences": int(sums["sentences"]),
        "certified": sums.percent("certified", "sentences"),
        "iterations": sums["iterations"] / sums["sentences"],
        "per_second": sums["sentences"] / sums["seconds"],
        "scored": sums.percent("scored", "pairs"),
        "slowest": max(alone)[0] if alone else None,
        "words_of_slowest": max(alone)[1] if alone else None,
        "uas": sums.percent("right", "words"),
        "not_certified": [{"words": n, "relative_gap": gap} for n, gap in open_],
    }


AT_ONCE, ALONE = "at once", "one by one"


def batch_of(kind: str, B: int, n: int) -> tuple[gp.Scores, list[gp.Scores]]:
    """A batch, and each of its sentences."""
    every = second_order(n, B, "grandparents", "siblings", arcs=make_scores(kind, n, B, False))
    parts: dict[str, Any] = {k: x.dense() for k, x in zip(every.second_order, every.parts, strict=True)}
    single = [gp.Scores(every.arcs[b : b + 1], **{k: x[b : b + 1] for k, x in parts.items()}) for b in range(B)]
    return every, single


def batched(args: Args, *, B: int = 64, n: int = 20, iterations: int = 50, repeats: int = 3) -> Measured:
    """The fastest of some repetitions, in turns: a batch at once, and each of its sentences alone."""
    results: dict[str, dict[str, Any]] = {}
    for kind in ("random", "peaked"):
        every, single = batch_of(kind, B, n)
        at_once = partial(gp.decode, every, "dd", iterations=iterations)

        def alone(single: list[gp.Scores] = single) -> list[gp.Parse]:
            return [gp.decode(one, "dd", iterations=iterations) for one in single]

        found = at_once()
        off = float((torch.cat([parse.score for parse in alone()]) - found.score).abs().max())
        if off > 1e-6:
            raise Problem(f"batched: scores one by one are off those at once by {off:.2g}")
        case = Case("batched", kind, n, B)
        measure(case, [Contender(AT_ONCE, at_once, ALONE, True), Contender(ALONE, alone, None, True)], repeats=repeats)
        results[kind] = {
            "together": case.rate(AT_ONCE, "max"),
            "alone": case.rate(ALONE, "max"),
            "ratio": case.ratio(AT_ONCE, ALONE, "max"),
            "iterations": float(found.iterations.double().mean()),
        }
    rows = [(kind, *(f"{x:.1f}" for x in r.values())) for kind, r in results.items()]
    columns = ("scores", f">{AT_ONCE}, /s", f">{ALONE}, /s", ">×", ">iterations")
    show(f"{B} sentences of {n} words, {iterations} iterations", columns, rows)
    least = min(r["ratio"] for r in results.values())
    return Measured(results, [Bar("batched: at once over one by one, the least", least, 5, 15, unit=" ×")])


def timed_batches(args: Args) -> Iterator[Timed]:
    """Iterations alone, without branch and bound."""
    for kind in ("random", "peaked"):
        yield Timed(f"dd, {kind}", partial(gp.decode, batch_of(kind, 64, 20)[0], "dd", iterations=50, nodes=0))


def soft(args: Args, *, sentences: int = 600, epochs: int = 8, grandparents: int = 16) -> Measured:
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
    for seed in range(1, args.seeds + 1):
        for name, config in kinds.items():
            config = replace(config, training=replace(config.training, seed=seed))
            with tempfile.TemporaryDirectory() as directory:
                parser, took = timed(partial(train, config, Path(directory) / name, train=learned))
            seconds[name] += took
            found[name].append(100 * evaluate(held_out, parser.parse(held_out)).metrics["UAS"].f1)
            LOG.print(f"soft, seed {seed}, {name}: {found[name][-1]:.2f} after {seconds[name]:.0f} s in all")
    sizes = {"sentences": len(held_out), "learned": len(learned), "seeds": list(range(1, args.seeds + 1))}
    data = {**sizes, **found, "seconds": seconds}
    return Measured(data, report_soft(data))


SUITE = Suite(
    "dual",
    "dual decomposition on English: joint parsing, figure 5 as PNG; certificates; a batch at once; soft training",
    {"tagger": tagger, "dependencies": dependencies, "koo": koo, "batched": batched, "soft": soft},
    options(
        Option("words", "longest sentences of tagger", 30, whole),
        Option("words2", "longest sentences of dependencies", 20, whole),
        Option("min-count", "how often a rule must be seen", 1, whole),
        Option("no-relations", "grammars whose phrases do not know relations", False, bool),
        Option("tagger-weights", "of the tagger, to choose from", [0.5, 1.0, 2.0, 4.0], float, many=True),
        Option("arcs-weight", "of model 1's arcs against its rules", 1.0, float),
        Option("gamma", "weights of the parser, to choose from", [1.0, 2.0, 4.0, 8.0, 16.0], float, many=True),
        Option("tuned", "sentences, the first, by which weights are chosen", 100, whole),
        Option("time-limit", "seconds for each sentence of koo, exact", 60.0, seconds),
        Option("seeds", "of soft", 3, whole, trial=True),
    ),
    timed=timed_batches,
)
