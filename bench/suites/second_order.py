"""Exact second-order trees: sentences per second of log Z and the marginals of all parts, against plain torch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from bench.bars import Bar
from bench.output import show
from bench.registry import Args, Measured, Option, Suite, Timed, repeats, threads, whole
from bench.timing import Case, Contender, measure
from gpuparse.ops import second_order
from gpuparse.ops.plain import second_order as plain
from gpuparse.ops.plain.second_order import Scores

FAMILIES = ("siblings", "grandparents", "both")
DTYPES = (torch.float32, torch.float64)
OURS, PLAIN = "gpuparse", "plain torch"
MUST = 50.0


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


def timed(args: Args) -> Iterator[Timed]:
    lengths = torch.full((args.batch,), args.words)
    for family in FAMILIES:
        for dtype in DTYPES:
            scores = scores_of(family, dtype, args)
            yield Timed(f"{family}, {dtype}", partial(second_order.marginals, scores, lengths, True))


SUITE = Suite(
    "second_order",
    "second-order projective trees: log Z and marginals, sentences a second against plain torch",
    {"speed": speed},
    [
        Option("words", "words of a sentence", 40, whole, trial=True),
        Option("batch", "sentences", 32, whole, trial=True),
        repeats(9),
        threads(),
    ],
    timed=timed,
)
