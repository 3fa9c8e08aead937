"""Certificates on treebanks: every one of them checked by its proof, and what proofs cost.

verify: all dev sentences by trained second-order parsers, decoded with proofs, which ``gpuparse.verify`` then checks.
cost: the time of decoding with proofs over that without, batch by batch in turns. exact: all sentences by every method
for every kind of pairs, trees that cross and trees that do not: how many are certified, and whether the certified ones
score the same whatever the method. Against another checkout
(``python -m bench compare``): the time of decoding, batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

import gpuparse as gp
from bench.bars import Bar, none_of
from bench.output import LOG, show_records, titled
from bench.parsers import Sums, fresh, options, scored
from bench.registry import TIME_LIMIT, Args, Measured, Option, Suite, Timed, whole
from bench.timing import timed
from gpuparse.decoding.proofs import Proof

# kind of parser, method, options
Way = tuple[str, str, dict[str, Any]]
WAYS: tuple[Way, ...] = (
    ("trilinear", "ppc", {"exact": True}),
    ("trilinear", "auto", {"exact": True}),
    ("both", "dd", {"exact": True}),
)
COSTS: tuple[Way, ...] = (("trilinear", "ppc", {"exact": True}), ("trilinear", "ilp", {}))
MOST = 1.2  # times as long with proofs
EXACT: dict[str, tuple[bool, dict[str, Any]]] = {  # projective or not, and options
    "auto": (False, {"exact": True}),
    "ppc": (False, {"exact": True}),
    "auto-projective": (True, {"exact": True}),
    "ppc-projective": (True, {"exact": True}),
}
SAME = 1e-6  # of scores, relative to those above 1


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


def check(scores: gp.Scores, parse: gp.Parse) -> tuple[int, list[str]]:
    """How many certificates were verified, each by itself, and why others were not."""
    assert parse.proof is not None
    every, refused = scores.dense(), []
    proven = parse.certified.nonzero()[:, 0].tolist()
    for b in proven:
        row = torch.tensor([b])
        proof = Proof({0: parse.proof.leaves[b]} if b in parse.proof.leaves else {})
        try:
            gp.verify(every.take(row), replace(parse.take(row), proof=proof))
        except ValueError as error:
            refused.append(f"sentence {b} of {int(scores.lengths[b])} words: {error}")
    return len(proven) - len(refused), refused


def verify(args: Args) -> Measured:
    """All sentences by each method, and their certificates by the checker."""
    results: dict[str, Any] = {}
    for title, name, way in runs(args, WAYS):
        sums, refused = Sums(), []
        for scores in batches(name, way[0], args):
            found, seconds = timed(partial(decode, scores, way, args, proof=True))
            (verified, wrong), checking = timed(partial(check, scores, found))
            assert found.proof is not None
            sums.add(sentences=len(found.heads), certified=int(found.certified.sum()), verified=verified)
            leaves = sum(len(leaves) for leaves in found.proof.leaves.values())
            sums.add(leaves=leaves, seconds=seconds, checking=checking)
            for line in wrong:
                LOG.print(f"{title}: {line}")
            refused += wrong
            LOG.print(f"{title}: {sums['sentences']:.0f} sentences, {sums['verified']:.0f} verified")
        results[title] = {**sums, "refused": refused}
    columns = {"": "title", **{f">{x}": f"{x}:.0f" for x in ("sentences", "certified", "verified", "leaves")}}
    columns |= {">s decoding": "seconds:.1f", ">s checking": "checking:.1f"}
    show_records("Certificates by their proofs", columns, titled(results))
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
        figures = {"ratio": sums["with"] / sums["without"], "least": min(ratios), "most": max(ratios)}
        results[title] = {**sums, **figures, "by_batch": ratios}
    columns = {"": "title", ">sentences": "sentences:.0f", ">s without proofs": "without:.2f"}
    columns |= {">s with proofs": "with:.2f", ">ratio": "ratio:.3f", ">batches, from": "least:.2f", ">to": "most:.2f"}
    show_records("What proofs cost", columns, titled(results))
    named = ((f"with proofs over without proofs, {title}", r["ratio"]) for title, r in results.items())
    return Measured(results, [Bar(*each, MOST, most=True, unit=" ×", digits=3) for each in named])


def families(kind: str, scores: gp.Scores) -> Iterator[tuple[str, gp.Scores]]:
    """The scores with their pairs; where there are two kinds of these, with each alone too."""
    yield kind, scores
    if len(scores.second_order) > 1:
        yield f"{kind}, siblings alone", scores.with_parts(scores.siblings, None)
        yield f"{kind}, grandparents alone", scores.with_parts(None, scores.grandparents)


def exact(args: Args) -> Measured:
    """Shares of certified sentences by every method, and certified ones whose scores differ between methods."""
    results: dict[str, Any] = {}
    for kind in args.kinds:
        for name in args.languages:
            for batch in batches(name, kind, args):
                for family, scores in families(kind, batch):
                    _every_method(f"{name}, {family}", scores, args, results)
            LOG.print(f"{name}, {kind}: done")
    columns = {"": "title", **{f">{x}": f"{x}:.0f" for x in ("sentences", "certified", "different")}}
    columns |= {">sentences/s": "rate:.1f", ">slowest batch, s": "slowest:.2f"}
    for r in results.values():
        r["rate"] = r["sentences"] / r["seconds"]
    show_records("Certified with exact=True", columns, titled(results))
    bars = [none_of("certified scores that differ between methods", sum(int(r["different"]) for r in results.values()))]
    bars += [Bar(f"certified, {title}", 100 * r["certified"] / r["sentences"], 100.0) for title, r in results.items()]
    return Measured(results, bars)


def _every_method(title: str, scores: gp.Scores, args: Args, results: dict[str, Any]) -> None:
    """One batch, by every method; what comes of it is added to the results."""
    known: dict[bool, gp.Parse] = {}
    for method, (projective, how) in EXACT.items():
        if method not in args.methods:
            continue
        sums = results.setdefault(f"{title}, {method}", Sums())
        limit = {} if projective and method.startswith("auto") else {"time_limit": args.time_limit}
        run = partial(gp.decode, fresh(scores), method.split("-")[0], projective=projective, **how, **limit)
        found, seconds = timed(run)
        first = known.setdefault(projective, found)
        apart = (found.score - first.score).abs() > SAME * first.score.abs().clamp(min=1.0)
        different = (apart & found.certified & first.certified).sum()
        sums.add(sentences=len(found.heads), certified=found.certified.sum(), different=different, seconds=seconds)
        sums["slowest"] = max(sums["slowest"], seconds)


def timed_decoding(args: Args) -> Iterator[Timed]:
    """Decoding, batch by batch."""
    for title, name, way in runs(args, COSTS):
        for scores in batches(name, way[0], args):
            count = lambda parse: {"sentences": len(parse.heads), "certified": int(parse.certified.sum())}  # noqa: E731
            yield Timed(title, partial(decode, scores, way, args), count)


SUITE = Suite(
    "certificates",
    "certificates of second-order parsing, every one checked by its proof; what proofs cost",
    {"verify": verify, "cost": cost, "exact": exact},
    options(
        Option("words", "longest sentences", 10**9, whole),
        TIME_LIMIT,
        Option("methods", "of the part exact", list(EXACT), many=True, choices=list(EXACT)),
        kinds=("trilinear", "both"),
        named=("english", "hungarian"),
    ),
    timed=timed_decoding,
)
