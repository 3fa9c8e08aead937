"""Pricing grandparents: the kernel against vectorised numpy, time per triple that is looked at.

Rounds of parsing: the questions that parse, price and cut asks on dev sentences, under parsers of the suite ppc
(Hungarian by templates, English by trilinear scores), asked again. They are what the bar is about. Extremes: 5 % or all
of the arcs are not settled by their bound, nothing is known yet, all of their triples are scored, and about one in ten
is found.
Numpy does the same for the whole batch at once, in the better of two ways: the candidates in a list, or (trilinear) all
grandparents of an arc by matrix products; what it can make ready once a batch is not timed. Medians.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch

import gpuparse as gp
from bench.bars import Bar, none_of
from bench.output import OUT, show_records, titled
from bench.parsers import Sums, scored
from bench.registry import TREEBANKS, Args, Measured, Option, Suite, models, repeats, threads, whole
from bench.timing import timed
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.batches import collate
from gpuparse.data.vocab import Vocabulary
from gpuparse.decoding.parts import Parts
from gpuparse.decoding.ppc import pricing
from gpuparse.nn.templates import TemplateConfig, TemplateScorer, mcdonald
from gpuparse.nn.trilinear import TrilinearParts
from gpuparse.ops.pricing import Priced, Scorer, code, price
from gpuparse.system.defaults import BATCH_WORDS

MUST, TOLERANCE, CLOSE, FOUND = 10.0, 1e-6, 1e-3, 0.1
WAYS = ("numpy, listed", "numpy, products")
Array = np.ndarray[Any, Any]
Candidates = tuple[Array, Array, Array, Array]  # sentence, g, p, c
NumpyScore = Callable[[Candidates, Array, Array, Array, Array], Array]


def trilinear_parts(B: int, N: int, rank: int) -> Parts:
    generator = torch.Generator().manual_seed(0)
    grand, parent, child = (torch.randn(B, N, rank, generator=generator) for _ in range(3))
    return TrilinearParts(grand, parent, child, torch.full((B,), N - 1), kind="grandparents")


def template_parts(B: int, N: int) -> Parts:
    """Random weights; sentences put together from those of the artificial treebank, to be of one length."""
    made = list(artificial_treebank(2000, seed=0))
    vocabulary = Vocabulary.build(made, min_count=1)
    model = TemplateScorer(TemplateConfig(grandparents=mcdonald.GRANDPARENTS), vocabulary)
    torch.nn.init.normal_(model.weights, generator=torch.Generator().manual_seed(0))
    long = sorted((s for s in made if len(s) >= N - 1), key=len)[:B]
    assert len(long) == B, "too few long sentences"
    batch = collate([vocabulary.encode(sentence, tree=False) for sentence in long], vocabulary.chars)
    cut = {name: getattr(batch, name)[:, :N].contiguous() for name in ("words", "prefixes", "tags", "feats")}
    batch = type(batch)(**{**vars(batch), **cut, "lengths": torch.full((B,), N - 1)})
    with torch.no_grad():
        parts = model(batch).scores.grandparents
    assert parts is not None
    return parts


def some_duals(parts: Parts, share: float) -> dict[str, Any]:
    """Duals that leave a share of the arcs open, with about one in ten of their triples above the ceiling."""
    generator = torch.Generator().manual_seed(1)
    B, N = parts.lengths.shape[0], parts.nodes
    over_g, over_c = (parts.bound(axis).double().contiguous() for axis in (0, 2))
    with torch.no_grad():
        high = parts.dense()[:, :, 1:, 1:].double().quantile(1 - FOUND, 1)
    ceiling = torch.where(over_g > -torch.inf, over_g, 0.0) + 0.01
    open_ = torch.rand(B, N - 1, N - 1, generator=generator) < share
    ceiling[:, 1:, 1:] = torch.where(open_, torch.minimum(high, over_g[:, 1:, 1:]), ceiling[:, 1:, 1:])
    ceiling[:, 0] = 0.0
    zero = torch.zeros_like(ceiling)
    known = torch.full((B, N, N, N), torch.nan, dtype=torch.float64)
    found = {"ceiling": ceiling, "floor": zero - torch.inf, "kappa": zero}
    return {**found, "over_g": over_g, "over_c": over_c, "known": known}


def numpy_price(
    score: NumpyScore, lengths: Array, duals: dict[str, Array], tolerance: float
) -> tuple[Candidates, Array, int]:
    """What the kernel does: triples in its order, their reduced costs, and how many were looked at."""
    ceiling, kappa, over_g, over_c, known = (duals[name] for name in ("ceiling", "kappa", "over_g", "over_c", "known"))
    N = ceiling.shape[1]
    node = np.arange(N)
    settled = over_g <= ceiling
    with np.errstate(invalid="ignore"):
        spare = np.where(settled, ceiling - np.maximum(over_g, duals["floor"]), 0.0)
    spare[:, 0] = np.maximum(ceiling[:, 0], 0.0)
    inside = node <= lengths[:, None]
    words = inside & (node >= 1)
    b, p, c = np.nonzero(~settled & words[:, :, None] & words[:, None] & (node[:, None] != node))
    above = over_c.swapaxes(1, 2)[b, p], kappa.swapaxes(1, 2)[b, p]  # [A, N], over g
    high = ceiling[b, p, c][:, None]
    legal = inside[b] & (node != p[:, None]) & (node != c[:, None]) & (ceiling.swapaxes(1, 2)[b, p] < np.inf)
    before = known[b, p, c]  # [A, N], over g
    new = np.isnan(before)
    value = np.where(new, np.minimum(above[0], over_g[b, p, c][:, None]), before)
    arc, g = np.nonzero(legal & (value - high - above[1] > tolerance))

    def enough(arc: Array, g: Array, r: Array) -> Array:
        pair = (b[arc] * N + g) * N + p[arc]
        return np.bincount(pair, r, minlength=spare.size)[pair] > spare.ravel()[pair]

    kept = enough(arc, g, (value - high - above[1])[arc, g])
    arc, g = arc[kept], g[kept]
    triples = b[arc], g, p[arc], c[arc]
    exact = np.where(new[arc, g], score(triples, arc, b, p, c), before[arc, g])
    known[b[arc], p[arc], c[arc], g] = exact
    r = exact - high[arc, 0] - above[1][arc, g]
    positive = r > tolerance
    arc, g, r = arc[positive], g[positive], r[positive]
    kept = enough(arc, g, r)
    arc, g = arc[kept], g[kept]
    return (b[arc], g, p[arc], c[arc]), r[kept], int(legal.sum())


def numpy_trilinear(factors: list[Array]) -> tuple[NumpyScore, ...]:
    first, second, third = (x.astype(np.float64) for x in factors)

    def listed(triples: Candidates, *_: Array) -> Array:
        b, g, p, c = triples
        total: Array = np.einsum("kr,kr,kr->k", first[b, g], second[b, p], third[b, c])
        return total.astype(np.float32)

    def products(triples: Candidates, arc: Array, b: Array, p: Array, c: Array) -> Array:
        below, ends = second[b, p] * third[b, c], np.searchsorted(b, np.arange(len(first) + 1))
        blocks = [below[ends[i] : ends[i + 1]] @ first[i].T for i in range(len(first))]
        return np.concatenate(blocks)[arc, triples[1]].astype(np.float32)

    return listed, products


def numpy_templates(scorer: Scorer) -> tuple[NumpyScore, ...]:
    assert scorer.index is not None and scorer.relations is not None
    T, weights = scorer.rank, scorer.values.numpy()
    grand, parent, child = scorer.index[..., :T]
    node = torch.arange(grand.shape[1])
    gp, gc, pc = scorer.relations[:, code(node[:, None], node).clamp(min=0), :T]
    upper = (grand[:, :, None] + parent[:, None] + gp).numpy()
    lower, across = (child[:, None] + pc).numpy(), gc.numpy()

    def listed(triples: Candidates, *_: Array) -> Array:
        b, g, p, c = triples
        return weights.take(upper[b, g, p] + lower[b, p, c] + across[g, c]).sum(1)

    return (listed,)


@dataclass(frozen=True)
class Round:
    """A question to pricing, with what is known before."""

    lengths: torch.Tensor
    duals: dict[str, Any]
    tolerance: float


def rounds_of(scores: gp.Scores) -> list[Round]:
    """What parse, price and cut asks of a batch."""
    asked = []

    def note(scorer: Scorer, lengths: torch.Tensor, *, tolerance: float, room: int, **duals: Any) -> Priced:
        asked.append(Round(lengths.clone(), {name: x.clone() for name, x in duals.items()}, tolerance))
        return price(scorer, lengths, **duals, tolerance=tolerance, room=room)

    with mock.patch.object(pricing, "price", note):
        gp.decode(scores, "ppc", threads=1)
    return asked


def median(run: Callable[[], Any], known: torch.Tensor, repeat: int) -> float:
    """Seconds, from what is known now every time; it is so again at the end."""
    times, before = [], known.isnan()
    run()
    scored = (before & ~known.isnan()).view(-1).nonzero()[:, 0]
    for _ in range(repeat):
        known.view(-1)[scored] = torch.nan
        times.append(timed(run)[1])
    known.view(-1)[scored] = torch.nan
    return statistics.median(times)


def compare(parts: Parts, rounds: list[Round], repeat: int, sums: Sums) -> None:
    """Add the figures of some rounds of a batch."""
    scorer = parts.scorer()
    assert scorer is not None
    if isinstance(parts, TrilinearParts):
        plain = numpy_trilinear([x.numpy() for x in parts.factors])
    else:
        plain = numpy_templates(scorer)
    for asked in rounds:
        lengths, known = asked.lengths, asked.duals["known"]
        arrays = {name: x.numpy() for name, x in asked.duals.items()}
        before = known.clone()

        def kernel(room: int, asked: Round = asked) -> Priced:
            return price(scorer, asked.lengths, **asked.duals, tolerance=asked.tolerance, room=room)

        priced = kernel(parts.nodes**3)
        known.copy_(before)
        looked, most = int(priced.looked.sum()), int(priced.count.max())
        counts = {"scored": int(priced.scored.sum()), "found": int(priced.count.sum())}
        sums.add(looked=looked, **counts, kernel=median(partial(kernel, max(1, most)), known, repeat))
        there = torch.arange(priced.r.shape[1]) < priced.count[:, None]
        sentence = there.nonzero()[:, :1]
        mine = torch.cat((sentence, priced.triples[there]), 1)[priced.r[there] > CLOSE].tolist()
        for way, score in enumerate(plain):
            run = partial(numpy_price, score, lengths.numpy(), arrays, asked.tolerance)
            (b, g, p, c), r, seen = run()
            known.copy_(before)
            same = seen == looked and np.stack((b, g, p, c), 1)[r > CLOSE].tolist() == mine
            sums.add(other=not same, **{WAYS[way]: median(run, known, repeat)})


def rounds(args: Args) -> Measured:
    """The rounds of some batches of a language's dev sentences."""
    results: dict[str, Sums] = {}
    for name, kind in (("hungarian", "templates"), ("english", "trilinear")):
        results[f"{kind}, {name}"] = sums = Sums()
        every = list(scored(name, kind, args, most=40, first=0, batch_words=BATCH_WORDS))
        for batch in every[:: max(1, len(every) // args.batches)]:
            assert batch.scores.grandparents is not None
            compare(batch.scores.grandparents, rounds_of(batch.scores), args.repeats, sums)
    bars = [Bar(f"over numpy, {title}", ratio(sums), MUST, unit=" ×") for title, sums in results.items()]
    return report(f"Rounds of parsing, median of {args.repeats}", results, bars)


def extremes(args: Args) -> Measured:
    """Random scores, few or all arcs open."""
    B, N = args.batch, args.words + 1
    families = {f"trilinear, R = {args.rank}": trilinear_parts(B, N, args.rank), "templates": template_parts(B, N)}
    results: dict[str, Sums] = {}
    for family, parts in families.items():
        for share in (0.05, 1.0):
            results[f"{family}, {share:.0%} of the arcs open"] = sums = Sums()
            compare(parts, [Round(parts.lengths, some_duals(parts, share), TOLERANCE)], args.repeats, sums)
    return report(f"{args.words} words, {B} sentences, median of {args.repeats}", results, [])


def ratio(sums: Sums) -> float:
    """How many times as long as the kernel the better way of numpy takes."""
    return min(sums[way] for way in WAYS if way in sums) / sums["kernel"]


def report(title: str, results: dict[str, Sums], bars: list[Bar]) -> Measured:
    data: dict[str, dict[str, float]] = {}
    for name, sums in results.items():
        per_triple = 1e9 * sums["kernel"] / sums["looked"]
        data[name] = {**sums, "ratio": ratio(sums), "kernel_ns": per_triple, "numpy_ns": ratio(sums) * per_triple}
    columns = {"scores": "title", ">triples": "looked:.0f", ">scored": "scored:.0f", ">found": "found:.0f"}
    columns |= {">kernel ns/triple": "kernel_ns:.1f", ">numpy ns/triple": "numpy_ns:.1f", ">ratio": "ratio:.1f"}
    show_records(title, columns, titled(data))
    other = [name for name, sums in results.items() if sums["other"]]
    for name in other:
        OUT.print(f"{name}: numpy finds other triples")
    return Measured(data, [*bars, none_of("cases in which numpy finds other triples", len(other))])


SUITE = Suite(
    "pricing",
    "the pricing kernel against vectorised numpy: nanoseconds by triple",
    {"rounds": rounds, "extremes": extremes},
    [
        TREEBANKS,
        models("ppc"),
        Option("words", "words of a sentence of extremes", 30, whole, trial=True),
        Option("batch", "its sentences", 32, whole, trial=True),
        Option("rank", "of its trilinear scores", 64, whole),
        Option("batches", "of each parser's sentences", 6, whole, trial=True),
        repeats(21),
        threads(),
    ],
)
