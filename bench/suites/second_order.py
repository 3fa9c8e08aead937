"""Exact second-order trees.

speed: sentences per second of log Z and the marginals of all parts, against plain torch.
priced: the best projective tree by trained parsers, pairs scored lazily, against the dense program in turns: the same
trees, how many times as fast, the share of pairs that is scored. Sentences of about 40 words.
artificial: the same on scores that are made up: arcs of a random projective tree are above the others, and pairs are
trilinear. Whatever it shows, trained scores may be different.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch

import gpuparse as gp
from bench.artificial import make_scores
from bench.bars import Bar, none_of
from bench.output import LOG, show, show_records, titled
from bench.parsers import KINDS, LANGUAGES, Sums, scored
from bench.registry import (
    BATCH_WORDS,
    FIRST,
    TREEBANKS,
    Args,
    Measured,
    Option,
    Suite,
    Timed,
    languages,
    models,
    repeats,
    threads,
    whole,
)
from bench.timing import Case, Contender, measure
from bench.timing import timed as timed_call
from gpuparse.decoding.parts import Kind, Parts
from gpuparse.nn.templates.parts import TemplateParts
from gpuparse.nn.trilinear import TrilinearParts
from gpuparse.ops import second_order
from gpuparse.ops.plain import second_order as plain
from gpuparse.ops.plain.second_order import Scores
from gpuparse.structures.masks import grandparent_mask, sibling_mask

FAMILIES = ("siblings", "grandparents", "both")
DTYPES = (torch.float32, torch.float64)
OURS, PLAIN = "gpuparse", "plain torch"
MUST = 50.0
FASTER, AIM = 2.0, 10.0  # times as fast as the dense program
SHARE, LEAST = 25.0, 8.0  # percent of the pairs
NEAR = 5  # words more or fewer
ARTIFICIAL: dict[str, tuple[Kind, ...]] = {
    "siblings": ("siblings",),
    "grandparents": ("grandparents",),
    "both": ("siblings", "grandparents"),
}
RANK = 32
MASKS = {"siblings": sibling_mask, "grandparents": grandparent_mask}


def scores_of(family: str, dtype: torch.dtype, args: Args) -> Scores:
    generator = torch.Generator().manual_seed(1)
    N = args.words + 1
    shapes = (N, N), (N, N, N), (N, N, N)
    arcs, siblings, grandparents = (torch.randn(args.batch, *s, generator=generator).to(dtype) for s in shapes)
    return arcs, siblings if family != "grandparents" else None, grandparents if family != "siblings" else None


def speed(args: Args) -> Measured:
    """Single root, all sentences of one length."""
    lengths = torch.full((args.batch,), args.words)
    rows, cases, bars = [], [], []
    for family in FAMILIES:
        for dtype in DTYPES:
            scores, name = scores_of(family, dtype, args), str(dtype).removeprefix("torch.")
            contenders = [
                Contender(OURS, partial(second_order.marginals, scores, lengths, True), PLAIN, True),
                Contender(PLAIN, partial(plain.derivative, scores, lengths, True)),
            ]
            case = Case(family, name, args.words, args.batch)
            cases.append(measure(case, contenders, repeats=args.repeats, budget=5.0))
            ratio = case.ratio(OURS, PLAIN)
            rows.append((family, name, f"{case.rate(OURS):.0f}", f"{case.rate(PLAIN):.1f}", f"{ratio:.0f}"))
            if family == "siblings":
                fastest = case.ratio(OURS, PLAIN, "max")
                bars.append(Bar(f"siblings over plain torch, {name}", ratio, MUST, unit=" ×", fastest=fastest))
    title = f"log Z and marginals, {args.words} words, {args.batch} sentences, {args.threads} thread(s), medians"
    show(title, ("family", "dtype", ">sentences/s", ">plain torch", ">ratio"), rows)
    return Measured([record for case in cases for record in case.as_json()], bars)


def anew(scores: gp.Scores) -> gp.Scores:
    """The same pairs, without what kernels were told of them."""

    def forget(parts: Parts | None) -> Parts | None:
        made = copy.copy(parts)
        if isinstance(made, TemplateParts):
            made._scorer = None
        return made

    return scores.with_parts(forget(scores.siblings), forget(scores.grandparents))


def against_dense(title: str, batches: Iterable[gp.Scores], args: Args) -> dict[str, Any]:
    """Both programs in turns, batch by batch; the medians of each batch's times added up."""
    sums, ratios = Sums(), []
    for scores in batches:
        times: dict[bool, list[float]] = {True: [], False: []}
        found: dict[bool, gp.Parse] = {}
        for turn in range(args.repeats + 1):  # the first is not counted
            for pricing in (True, False) if turn % 2 else (False, True):
                run = partial(gp.decode, anew(scores), "eisner", pricing=pricing)
                found[pricing], seconds = timed_call(run)
                if turn:
                    times[pricing].append(seconds)
        mine, dense = found[True], found[False]
        apart = (mine.score - dense.score).abs() > 1e-6 * dense.score.abs().clamp(min=1.0)
        pairs = sum(MASKS[kind](scores.lengths, scores.arcs.shape[1]).sum() for kind in scores.second_order)
        counts: dict[str, Any] = {
            "sentences": len(mine.heads),
            "words": scores.lengths.sum(),
            "pairs": pairs,
            "wrong": apart.sum(),
        }
        counts |= {"other": (mine.heads != dense.heads).any(1).sum(), "rounds": mine.iterations.sum()}
        counts |= {name: x.sum() for name, x in mine.stats.items()}
        sums.add(**counts, priced=median(times[True]), dense=median(times[False]))
        ratios.append(median(times[False]) / median(times[True]))
        sums.add(fastest=min(times[True]), dense_fastest=min(times[False]))
        LOG.print(
            f"{title}: {sums['sentences']:.0f} sentences, {ratios[-1]:.1f} ×, {sums.percent('scored', 'pairs'):.1f} %"
        )
    every = max(sums["sentences"], 1.0)
    return {
        **sums,
        "ratio": sums["dense"] / sums["priced"] if ratios else None,
        "ratio_of_fastest": sums["dense_fastest"] / sums["fastest"] if ratios else None,
        "least": min(ratios, default=None),
        "most": max(ratios, default=None),
        "share": sums.percent("scored", "pairs") if ratios else None,
        "alive": 100 * sums["arcs"] / every,
        "each": sums["rounds"] / every,
        "programs": sums.percent("exact", "sentences"),
        "ms": 1000 * sums["priced"] / every,
    }


def show_priced(results: dict[str, dict[str, Any]], args: Args, *, bars: bool) -> Measured:
    columns = {"": "title", ">sentences": "sentences:.0f", ">ms": "ms:.2f", ">× dense": "ratio:.1f"}
    columns |= {">batches, from": "least:.1f", ">to": "most:.1f", ">% scored": "share:.1f", ">% arcs": "alive:.1f"}
    columns |= {">rounds": "each:.1f", ">% exact program": "programs:.0f", ">other trees": "other:.0f"}
    title = f"The best projective tree, pairs scored lazily, {args.words} words ± {NEAR}, {args.threads} thread(s)"
    show_records(title, columns, titled({name: r for name, r in results.items() if r["ratio"] is not None}))
    reached = [none_of("trees that score less or more", int(sum(r["wrong"] for r in results.values())))]
    for name, r in results.items() if bars else ():
        fastest = r["ratio_of_fastest"]
        reached.append(Bar(f"dense over priced, {name}", r["ratio"], FASTER, AIM, unit=" ×", fastest=fastest))
        reached.append(Bar(f"pairs scored, {name}", r["share"], SHARE, LEAST, most=True, unit=" %"))
    return Measured(results, reached)


def priced(args: Args) -> Measured:
    """By trained parsers."""
    results = {}
    for kind in args.kinds:
        for name in args.languages:
            found = scored(name, kind, args, least=max(1, args.words - NEAR), most=args.words + NEAR)
            title = f"{name}, {kind}"
            results[title] = against_dense(title, (batch.scores for batch in found), args)
    return show_priced(results, args, bars=True)


def made_up(kinds: tuple[Kind, ...], args: Args, size: float) -> Iterator[gp.Scores]:
    """Batches as those of a treebank; pairs of about the given size."""
    generator = torch.Generator().manual_seed(1)
    B, N = max(1, args.batch_words // args.words), args.words + 1
    for _ in range(max(1, args.batch // B)):
        arcs = make_scores("peaked", args.words, B, True)
        families: dict[str, Any] = {}
        for kind in kinds:
            factors = torch.randn(3, B, N, RANK, generator=generator) * (size / RANK**0.5) ** (1 / 3)
            families[kind] = TrilinearParts(*factors, kind=kind)
        yield gp.Scores(arcs, **families)


def artificial(args: Args) -> Measured:
    """Arcs of a random tree are 12 above noise of 1.5; pairs have standard deviations of 0.3, 0.5 and 1."""
    results = {}
    for family, kinds in ARTIFICIAL.items():
        for size in (0.3, 0.5, 1.0):
            title = f"{family}, pairs of {size}"
            results[title] = against_dense(title, made_up(kinds, args, size), args)
    return show_priced(results, args, bars=False)


def timed(args: Args) -> Iterator[Timed]:
    lengths = torch.full((args.batch,), args.words)
    for family in FAMILIES:
        for dtype in DTYPES:
            scores = scores_of(family, dtype, args)
            yield Timed(f"{family}, {dtype}", partial(second_order.marginals, scores, lengths, True))


SUITE = Suite(
    "second_order",
    "second-order projective trees: log Z and marginals against plain torch; the best with few pairs scored",
    {"speed": speed, "priced": priced, "artificial": artificial},
    [
        Option("words", "words of a sentence", 40, whole, trial=True),
        Option("batch", "sentences", 32, whole, trial=True),
        Option("kinds", "parsers", ["trilinear", "both", "templates"], many=True, choices=list(KINDS)),
        languages(LANGUAGES, ("english", "danish")),
        TREEBANKS,
        models("ppc"),
        FIRST,
        BATCH_WORDS,
        repeats(9),
        threads(),
    ],
    timed=timed,
)
