"""Parse, price and cut: the tables of Riedel, Smith and McCallum (2012), on treebanks at hand.

table1: the linear program by parse, price and cut against brute force, the same solver, one thread each, of the paper's
polytope ("all"); the tighter one beside it; runtime by length as PNG. table2: all polytopes by brute force, the tighter
one against parse, price and cut. exact: with branch and bound, all dev sentences. Parsers are trained by belief
propagation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import gpuparse as gp
from bench.bars import Bar
from bench.output import LOG
from bench.parsers import LANGUAGES, Sums, fresh, options, pairs, scored, train_parsers
from bench.registry import TIME_LIMIT, Args, Measured, Option, Suite, Timed, whole
from bench.suites.ppc_tables import Results, report1, report2, report3
from bench.timing import timed
from gpuparse.decoding.parts import legal_triples
from gpuparse.decoding.ppc.program import POLYTOPES


def decode(scores: gp.Scores, method: str, **options: Any) -> tuple[gp.Parse, float]:
    """With nothing known of the parts before; and the seconds."""
    again = fresh(scores)
    return timed(lambda: gp.decode(again, method, **options))


def off_by(found: gp.Parse, whole_: gp.Parse) -> float:
    """The greatest difference of two linear programs' values, relative to those above 1."""
    one, other = found.stats["relaxed"], whole_.stats["relaxed"]
    return float(((one - other).abs() / other.abs().clamp(min=1.0)).max())


def relaxed(name: str, kind: str, args: Args) -> dict[str, Any]:
    """Brute force and parse, price and cut on the sentences of a language, batch by batch."""
    count, rows = Sums(), []
    apart = 0.0
    for batch in scored(name, kind, args, most=args.words):
        scores, lengths = batch.scores, batch.scores.lengths
        legal = sum(int(legal_triples(pairs, lengths, scores.arcs.shape[1]).sum()) for pairs in scores.second_order)
        found, seconds = decode(scores, "ppc", threads=1, polytope="all")
        tight, of_tight = decode(scores, "ppc", threads=1)
        whole_, brute = decode(scores, "lp", polytope="all", lazy_rows=args.lazy_rows)
        apart = max(apart, off_by(found, whole_))
        count.add(legal=legal, seconds=seconds, tight=of_tight, brute=brute, **batch.counts(found))
        count.add(**{f"{name}_tight": float(tight.stats[name].sum()) for name in ("scored", "integral")})
        rows.append((float(lengths.double().mean()), seconds / len(lengths), brute / len(lengths)))
        LOG.print(f"{name}, {kind}: {int(count['sentences'])} sentences, longest {int(lengths.max())}")
    sentences = count["sentences"]
    return {
        "sentences": int(sentences),
        "ratio": count["brute"] / count["seconds"],
        "ratio_tight": count["brute"] / count["tight"],
        "per_second": sentences / count["seconds"],
        "scored": count.percent("scored", "legal"),
        "scored_tight": count.percent("scored_tight", "legal"),
        "added": count.percent("added", "legal"),
        "objective": count["relaxed"] / sentences,
        "objective_difference": apart,
        "integral": count.percent("integral", "sentences"),
        "integral_tight": count.percent("integral_tight", "sentences"),
        "uas": count.percent("right", "words"),
        "iterations": count["iterations"] / sentences,
        "by_length": rows,
    }


def polytopes(name: str, kind: str, args: Args) -> dict[str, Any]:
    """The polytopes by brute force; the value of the tightest, by parse, price and cut too."""
    LOG.print(f"table 2: {name}, {kind}")
    counts, apart = {polytope: Sums() for polytope in POLYTOPES}, 0.0
    for batch in scored(name, kind, args, most=args.words2):
        for polytope, count in counts.items():
            found, seconds = decode(batch.scores, "lp", polytope=polytope)
            if polytope == "tight":
                apart = max(apart, off_by(decode(batch.scores, "ppc", threads=1)[0], found))
            count.add(seconds=seconds, **batch.counts(found))
    return {
        polytope: {
            "ratio": counts["arcgp"]["seconds"] / count["seconds"],
            "integral": count.percent("integral", "sentences"),
            "uas": count.percent("right", "words"),
            **({"objective_difference": apart} if polytope == "tight" else {}),
        }
        for polytope, count in counts.items()
    }


def proven(name: str, kind: str, args: Args) -> dict[str, Any]:
    """All sentences with branch and bound."""
    count = Sums()
    for batch in scored(name, kind, args):
        found, seconds = decode(batch.scores, "ppc", exact=True, time_limit=args.time_limit)
        of_all, _ = decode(batch.scores, "ppc", polytope="all", time_limit=args.time_limit)
        more = {"integral_all": of_all.stats["integral"], "branched": found.stats["branches"] > 0}
        count.add(seconds=seconds, **batch.counts(found), **{name: float(x.sum()) for name, x in more.items()})
    return {
        "sentences": int(count["sentences"]),
        "certified": count.percent("certified", "sentences"),
        "not_certified": int(count["sentences"] - count["certified"]),
        "integral_tight": count.percent("integral", "sentences"),
        "integral_all": count.percent("integral_all", "sentences"),
        "branches": count["branches"] / max(1.0, count["branched"]),
        "per_second": count["sentences"] / count["seconds"],
        "uas": count.percent("right", "words"),
    }


def part(
    measure: Callable[[str, str, Args], dict[str, Any]], report: Callable[[Results, Args], Sequence[Bar]], args: Args
) -> Measured:
    """One of the tables, over all languages and kinds of parsers."""
    found = {f"{name}, {kind}": measure(name, kind, args) for name, kind in pairs(args)}
    return Measured(found, report(found, args))


def train(args: Args) -> Measured:
    train_parsers(args)
    return Measured(None)


def timed_decoding(args: Args) -> Iterator[Timed]:
    for name, kind in pairs(args):
        for batch in scored(name, kind, args, most=args.words):
            for title, how in (("", {}), (", exact", {"exact": True})):
                run = partial(decode, batch.scores, "ppc", threads=1, **how)
                yield Timed(f"{name}, {kind}{title}", run)


SUITE = Suite(
    "ppc",
    "parse, price and cut against the whole linear program; polytopes; branch and bound; runtime by length as PNG",
    {
        "train": train,
        "table1": partial(part, relaxed, report1),
        "table2": partial(part, polytopes, report2),
        "exact": partial(part, proven, report3),
    },
    options(
        Option("words", "longest sentences of table1", 40, whole),
        Option("words2", "longest sentences of table2", 25, whole),
        TIME_LIMIT,
        Option("lazy-rows", "brute force adds rows of pairs where violated", False, bool),
        kinds=("templates", "trilinear"),
        named=list(LANGUAGES),
    ),
    timed=timed_decoding,
)
