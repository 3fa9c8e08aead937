"""Certificates on treebanks: every one of them checked by its proof, and what proofs cost.

verify: all dev sentences by trained second-order parsers, decoded with proofs, which ``gpuparse.verify`` then checks.
cost: the time of decoding with proofs over that without, batch by batch in turns. Against another checkout
(``python -m bench compare``): the time of decoding, batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import gpuparse as gp
from bench.bars import Bar, none_of
from bench.output import LOG, cells, show
from bench.parsers import KINDS, LANGUAGES, Sums, fresh, scored
from bench.registry import (
    BATCH_WORDS,
    FIRST,
    TIME_LIMIT,
    TREEBANKS,
    Args,
    Measured,
    Option,
    Suite,
    Timed,
    languages,
    models,
    threads,
    whole,
)
from bench.timing import timed
from gpuparse.proofs import Proof

# kind of parser, method, options
Way = tuple[str, str, dict[str, Any]]
WAYS: tuple[Way, ...] = (
    ("trilinear", "ppc", {"exact": True}),
    ("trilinear", "auto", {"exact": True}),
    ("both", "dd", {"exact": True}),
)
COSTS: tuple[Way, ...] = (
    ("trilinear", "ppc", {"exact": True}),
    ("trilinear", "ilp", {}),
)
MOST = 1.2  # times as long with proofs


def runs(args: Args, ways: tuple[Way, ...]) -> Iterator[tuple[str, str, Way]]:
    """Title, language and way of all that is asked for."""
    for way in ways:
        for name in args.languages if way[0] in args.kinds else ():
            yield f"{name}, {way[0]}, {way[1]}", name, way


def batches(name: str, kind: str, args: Args) -> Iterator[gp.Scores]:
    """The scores of the sentences, lazily scored as the parser gives them."""
    for batch in scored(name, kind, args, most=args.words):
        yield batch.scores


def decode(scores: gp.Scores, way: Way, args: Args, **more: Any) -> gp.Parse:
    return gp.decode(fresh(scores), way[1], **way[2], time_limit=args.time_limit, **more)


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


def verify(args: Args) -> Measured:
    """All sentences by each method, and their certificates by the checker."""
    results: dict[str, Any] = {}
    for title, name, way in runs(args, WAYS):
        sums, refused = Sums(), []
        for scores in batches(name, way[0], args):
            found, seconds = timed(partial(decode, scores, way, args, proof=True))
            (verified, wrong), checking = timed(partial(check, scores, found))
            assert found.proof is not None
            sums.add(
                sentences=len(found.heads),
                certified=int(found.certified.sum()),
                verified=verified,
                leaves=sum(len(leaves) for leaves in found.proof.leaves.values()),
                seconds=seconds,
                checking=checking,
            )
            for line in wrong:
                LOG.print(f"{title}: {line}")
            refused += wrong
            LOG.print(f"{title}: {sums['sentences']:.0f} sentences, {sums['verified']:.0f} verified")
        results[title] = {**sums, "refused": refused}
    columns = (">sentences", ">certified", ">verified", ">leaves", ">s decoding", ">s checking")
    counts, times = ("sentences", "certified", "verified", "leaves"), ("seconds", "checking")
    rows = [(title, *cells(r, counts, ".0f"), *cells(r, times, ".1f")) for title, r in results.items()]
    show("Certificates by their proofs", ("", *columns), rows)
    missed = sum(int(r["certified"] - r["verified"]) for r in results.values())
    return Measured(results, [none_of("certificates that were not verified", missed)])


def cost(args: Args) -> Measured:
    """Seconds with proofs and without, in turns; which is first alternates."""
    results: dict[str, Any] = {}
    for title, name, way in runs(args, COSTS):
        sums, ratios = Sums(), []
        for number, scores in enumerate(batches(name, way[0], args)):
            own = {}
            for proof in (True, False) if number % 2 else (False, True):
                own[proof] = timed(partial(decode, scores, way, args, proof=proof))[1]
            ratios.append(own[True] / own[False])
            sums.add(sentences=len(scores.arcs), **{"with": own[True], "without": own[False]})
            LOG.print(f"{title}: {sums['sentences']:.0f} sentences, with proofs {ratios[-1]:.2f} ×")
        results[title] = {**sums, "ratio": sums["with"] / sums["without"], "by_batch": ratios}
    rows, bars = [], []
    for title, r in results.items():
        spread = (f"{end(r['by_batch']):.2f}" for end in (min, max))
        figures = (f"{r['without']:.2f}", f"{r['with']:.2f}", f"{r['ratio']:.3f}")
        rows.append((title, f"{r['sentences']:.0f}", *figures, *spread))
        bars.append(Bar(f"with proofs over without proofs, {title}", r["ratio"], MOST, most=True, unit=" ×", digits=3))
    columns = (">sentences", ">s without proofs", ">s with proofs", ">ratio", ">batches, from", ">to")
    show("What proofs cost", ("", *columns), rows)
    return Measured(results, bars)


def timed_decoding(args: Args) -> Iterator[Timed]:
    """Decoding, batch by batch."""
    for title, name, way in runs(args, COSTS):
        for scores in batches(name, way[0], args):
            yield Timed(title, partial(decode, scores, way, args), _counted)


def _counted(parse: gp.Parse) -> dict[str, int]:
    return {"sentences": len(parse.heads), "certified": int(parse.certified.sum())}


SUITE = Suite(
    "certificates",
    "certificates of second-order parsing, every one checked by its proof; what proofs cost",
    {"verify": verify, "cost": cost},
    [
        TREEBANKS,
        models("ppc"),
        languages(LANGUAGES, ("english", "hungarian")),
        Option("kinds", "parsers", ["trilinear", "both"], many=True, choices=list(KINDS)),
        Option("words", "longest sentences", 10**9, whole),
        FIRST,
        BATCH_WORDS,
        TIME_LIMIT,
        threads(),
    ],
    timed=timed_decoding,
)
