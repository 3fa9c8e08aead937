"""What the suite ilp counts and times: trees right, constraints broken, seconds and iterations by length."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import gpuparse as gp
from bench.parsers import Sums
from bench.suites.ilp_models import Scored
from bench.timing import timed
from gpuparse import lp

try:
    from ufal.chu_liu_edmonds import chu_liu_edmonds
except ImportError:
    chu_liu_edmonds = None

BUCKETS = ((1, 10), (11, 20), (21, 30), (31, 40), (41, 50), (51, 10**9))


def count(sums: Sums, heads: Sequence[bool], labelled: Sequence[bool]) -> None:
    """Add a sentence: which of its words have the right head, and which the right label as well."""
    sums.add(words=len(heads), sentences=1, UAS=sum(heads), LAS=sum(labelled), UC=all(heads), LC=all(labelled))


def percents(sums: Sums) -> dict[str, float]:
    """Of words and of sentences that are right."""
    of = {"LAS": "words", "UAS": "words", "LC": "sentences", "UC": "sentences"}
    return {name: sums.percent(name, total) for name, total in of.items()}


@dataclass
class Broken:
    """Sentences that break a constraint: by their gold tree, without constraints, with them."""

    name: str
    gold: int = 0
    before: int = 0
    after: int = 0


@dataclass
class Outcome:
    """One treebank parsed without constraints and under them."""

    before: Sums = field(default_factory=Sums)
    after: Sums = field(default_factory=Sums)
    counts: Counter[str] = field(default_factory=Counter)
    """better, worse: words right only under constraints, or only without. Sentences: solved_anew, whose tree broke a
    constraint; infeasible, proven to be, which keep their tree; not_proven; breaking, which break a hard constraint and
    were not proven infeasible."""
    broken: list[Broken] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)


def describe(constraint: lp.Constraint) -> str:
    """A constraint in few words: its kind and what is not by default."""
    if isinstance(constraint, lp.Soft):
        return f"soft ({constraint.weight:g}): {describe(constraint.constraint)}"

    def text(value: Any) -> str:
        if isinstance(value, (frozenset, tuple)):
            return "/".join(sorted(text(each) or "root" for each in value))
        return str(value)

    given = {each.name: getattr(constraint, each.name) for each in fields(constraint)}  # type: ignore[arg-type]
    defaults = {each.name: each.default for each in fields(constraint)}  # type: ignore[arg-type]
    parts = [f"{name} {text(value)}" for name, value in given.items() if value != defaults[name]]
    whole_text = " ".join((type(constraint).__name__.lower(), *parts))
    return whole_text if len(whole_text) <= 70 else whole_text[:69] + "…"


def breaks(constraint: lp.Constraint, item: Scored, tree: tuple[list[int], list[int]], hard: bool = False) -> bool:
    """Whether a tree breaks a constraint; with ``hard`` only where that must not be."""
    return any(not hard or math.isinf(row.weight) for row in constraint.violated(item.words, *tree))


def solve(
    item: Scored, constraints: Sequence[lp.Constraint], limit: float, **options: Any
) -> tuple[lp.Constrained, float]:
    """The best tree under constraints, and the seconds it took; scores are given, as in the paper."""
    run = partial(lp.best_constrained, item.scores, item.words, constraints, seconds=limit, **options)
    return timed(run)


def sign_test(better: int, worse: int) -> float:
    """Two-sided probability of as uneven a split, or a more uneven one, by chance."""
    n, k = better + worse, min(better, worse)
    return float(min(1, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n))


def parse_all(items: Iterable[Scored], constraints: Sequence[lp.Constraint], limit: float) -> Outcome:
    """Parse without constraints, and anew under them where they are broken, as ``gpuparse parse`` does."""
    outcome = Outcome(broken=[Broken(describe(constraint)) for constraint in constraints])
    for item in items:
        before = after = item.start
        if any(breaks(constraint, item, before) for constraint in constraints):
            outcome.counts["solved_anew"] += 1
            answer, _ = solve(item, constraints, limit, start=item.start)
            impossible = answer.heads is None and answer.certified
            outcome.counts.update(infeasible=impossible, not_proven=not answer.certified)
            if impossible:
                outcome.conflicts.append("; ".join(answer.conflict))
            if answer.heads is not None and answer.labels is not None:
                after = answer.heads, answer.labels
            hard = any(breaks(constraint, item, after, hard=True) for constraint in constraints)
            outcome.counts["breaking"] += hard and not impossible
        gold = [-1, *item.gold_heads], [-1, *(item.words.labels.get(name, -1) for name in item.gold_labels)]
        for broken, constraint in zip(outcome.broken, constraints, strict=True):
            broken.gold += breaks(constraint, item, gold)
            broken.before += breaks(constraint, item, before)
            broken.after += breaks(constraint, item, after)
        one, other = item.right(*before), item.right(*after)
        count(outcome.before, *one)
        count(outcome.after, *other)
        pairs = Counter(zip(one[1], other[1], strict=True))
        outcome.counts.update(better=pairs[False, True], worse=pairs[True, False])
    return outcome


def mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def percentile(values: Sequence[int], share: float) -> int | None:
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else None


@dataclass
class Times:
    """Of one bucket of lengths: seconds and iterations of each sentence."""

    mst: list[float] = field(default_factory=list)
    ufal: list[float] = field(default_factory=list)
    every: list[float] = field(default_factory=list)  # every sentence, from nothing
    needed: list[float] = field(default_factory=list)  # those that break a constraint, from their tree
    every_iterations: list[int] = field(default_factory=list)
    needed_iterations: list[int] = field(default_factory=list)


def times_of(items: Iterable[Scored], constraints: Sequence[lp.Constraint], limit: float) -> list[Times]:
    """By bucket. The first sentence is solved once before, so that nothing is loaded while the clock runs."""
    times = [Times() for _ in BUCKETS]
    for number, item in enumerate(items):
        if not number:
            solve(item, constraints, limit)
            gp.mst(item.arcs)
        bucket = next(own for own, (low, high) in zip(times, BUCKETS, strict=True) if low <= len(item) <= high)
        bucket.mst.append(timed(partial(gp.mst, item.arcs))[1])
        if chu_liu_edmonds is not None:
            matrix = item.arcs[0].double().T.contiguous().numpy()  # [modifier, head]
            bucket.ufal.append(timed(partial(chu_liu_edmonds, matrix))[1])
        answer, seconds = solve(item, constraints, limit)
        bucket.every.append(seconds)
        bucket.every_iterations.append(answer.iterations)
        if any(breaks(constraint, item, item.start) for constraint in constraints):
            answer, seconds = solve(item, constraints, limit, start=item.start)
            bucket.needed.append(seconds)
            bucket.needed_iterations.append(answer.iterations)
    return times


def prune(items: Sequence[Scored], q: int | None, k: int | None, **how: Any) -> dict[str, Any]:
    """What comes of programs that begin with so many heads and labels; ``how``: as of ``solve``."""
    sums = Sums()
    for item in items:
        sizes: dict[str, Any] = {"heads": q or len(item) + 1, "labels": k or len(item.names)}
        answer, seconds = solve(item, start=item.start, **sizes, **how)
        tree = item.start if answer.heads is None or answer.labels is None else (answer.heads, answer.labels)
        sums.add(
            seconds=seconds, certified=answer.certified, none=answer.heads is None, right=sum(item.right(*tree)[1])
        )
    percent = 100 * sums["certified"] / max(len(items), 1)
    figures = {"seconds": sums["seconds"], "certified_percent": percent, "without_tree": int(sums["none"])}
    return {"heads": q, "labels": k, "right": sums["right"], **figures}
