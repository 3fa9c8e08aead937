"""Chains of tags: dense Viterbi, column generation and beams on trained taggers; peers, worst cases, regularisation.

The tables and the figure of Belanger et al. 2012 (Learning to speed up MAP decoding with column generation) on an
English treebank: Table 2 on its part-of-speech tags, Table 1 on the several hundred joint tags of part of speech and
features, Figure 1 with the regularisation of the transitions. All decoders are compiled from one family of kernels.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import gpuparse as gp
from bench.bars import Bar
from bench.models import ENGLISH, train, treebank_file
from bench.output import LOG, OUT, RESULTS, figure, plot, show, show_records
from bench.registry import QUICK, TREEBANKS, Args, Measured, Option, Suite, Timed, effort, repeats, threads, whole
from bench.suites import chain_taggers as taggers
from bench.suites.chain_taggers import AVERAGED, DENSE, SWEEP, Scored
from bench.timing import Case, Contender, measure
from gpuparse.decoding.viterbi import Transitions

TITLE = f"{DENSE} over torch-struct, 50 tags, n=25, B=64"


def compare(tags: str, data: Scored, args: Args) -> tuple[Case, list[dict[str, Any]]]:
    """One of the paper's tables: every decoder on the same scores, in turns."""
    options = taggers.decoders(tags)
    dense = data.decode(**options[DENSE])
    case = taggers.timed(f"tagging, {tags}", data, options, args)
    rows: list[dict[str, Any]] = []
    for timing in case.timings:
        found = data.decode(**options[timing.name])
        rows.append(
            {
                "decoder": timing.name,
                "sentences_per_second": timing.rates(),
                "rate": timing.rates()["median"],
                "ratio": case.ratio(timing.name, DENSE),
                "exact_percent": taggers.exact(found, dense),
                "certified_percent": 100 * float(torch.cat([t.certified for t in found]).double().mean()),
                "transitions_per_word": taggers.per_word(found, "transitions", data.words),
                "switched_percent": 100 * taggers.per_word(found, "switched", data.words),
                "rounds": float(torch.cat([t.iterations for t in found]).double().mean()),
            }
        )
    title = f"{taggers.TITLES[tags]}: {data.tags} tags, {data.sentences:,} sentences, {data.words:,} words"
    columns = {
        "decoder": "decoder",
        ">sentences/s": "rate:~",
        f">× {DENSE}": "ratio:~",
        ">% exact": "exact_percent:.2f",
    }
    columns |= {">% certified": "certified_percent:.1f", ">transitions/word": "transitions_per_word:~"}
    show_records(title, columns | {">rounds": "rounds:.2f"}, rows)
    return case, rows


def tagging(args: Args) -> Measured:
    """Tables 1 and 2: taggers, trained where they are not given, and all decoders on their scores."""
    models = {"xpos": args.xpos or RESULTS / "chains_xpos", "upos+feats": args.joint or RESULTS / "chains_joint"}
    dev, file = taggers.dev_sentences(args), treebank_file(args, ENGLISH.parsed)
    tables, cases, right = {}, {}, {}
    for tags, model in models.items():
        values = {"data.tags": tags}
        train(model, treebank_file(args, ENGLISH.learned), dev=file, config=taggers.CONFIG, values=values, task="tag")
        tagger = gp.Tagger.load(model)
        right[tags] = taggers.accuracy(tagger, dev)
        OUT.print(f"{tags}: {right[tags]:.2f} % of the words right, {len(tagger.tags)} tags")
        cases[tags], tables[tags] = compare(tags, taggers.scored(tagger, dev, args.batch_words), args)
    plot(
        args.out / "chains_speed.png",
        [partial(taggers.draw_speed, *item) for item in tables.items()],
        width=12,
        height=4.2,
    )

    def same(name: str) -> float:
        return min(row["exact_percent"] for table in tables.values() for row in table if row["decoder"] == name)

    bars = [
        Bar(f"{SWEEP} = {DENSE}, all dev sentences", same(SWEEP), 100, unit=" %", digits=2),
        Bar(f"the same, {AVERAGED}", same(AVERAGED), 100, unit=" %", digits=2),
        Bar(f"{SWEEP} over {DENSE}, XPOS", cases["xpos"].ratio(SWEEP, DENSE), 2, 4, unit=" ×", digits=2),
        Bar(f"{SWEEP} over {DENSE}, joint tags", cases["upos+feats"].ratio(SWEEP, DENSE), 10, 40, unit=" ×"),
        Bar("XPOS accuracy on the dev sentences", right["xpos"], 94, 95.5, unit=" %", digits=2),
    ]
    return Measured({"tables": tables, "accuracy": right}, bars)


def worst_cases() -> Iterator[tuple[str, Tensor, Tensor]]:
    """Scores that leave nothing to leave out: name, unary [B, n, T], transitions [T, T]."""
    for T, B, n in ((50, 200, 25), (320, 8, 25)):
        generator = torch.Generator().manual_seed(T)
        noise, pairs = torch.randn(B, n, T, generator=generator), torch.randn(T, T, generator=generator)
        yield f"transitions decide, {T} tags", 0.01 * noise, 10 * pairs
        yield f"no score says anything, {T} tags", torch.zeros(B, n, T), torch.zeros(T, T)
        yield f"words and transitions alike, {T} tags", noise, pairs
        cycle = torch.full((T, T), -torch.inf)
        cycle[torch.arange(T), torch.arange(T).roll(1)] = 0.0
        yield f"one tag may follow each, {T} tags", noise, cycle
        half = torch.where(torch.rand(T, T, generator=generator) < 0.5, pairs, -torch.inf)
        yield f"half the transitions forbidden, {T} tags", noise, half
        yield f"two words, {T} tags", noise[:, :2].contiguous(), 10 * pairs


def worst_data() -> Iterator[tuple[str, Scored]]:
    for name, unary, transitions in worst_cases():
        batches = [(unary, torch.full((len(unary),), unary.shape[1]))]
        yield name, Scored(batches, Transitions(transitions), len(unary), len(unary) * (unary.shape[1] - 1))


def worst(args: Args) -> Measured:
    """How much longer than the dense program column generation takes where it can leave nothing out."""
    rows: list[dict[str, Any]] = []
    for name, data in worst_data():
        case = taggers.timed(name, data, taggers.exact_decoders(), args)
        times = {key: 1 / (case.ratio(key, DENSE) or float("nan")) for key in (SWEEP, AVERAGED)}
        switched = 100 * taggers.per_word(data.decode(**taggers.exact_decoders()[SWEEP]), "switched", data.words)
        rows.append({"scores": name, "times": times, "switched_percent": switched})
    shown = {"scores": "scores", f">{SWEEP}": f"{SWEEP}:.2f", ">averaged": f"{AVERAGED}:.2f"}
    records = [{**row, **row["times"]} for row in rows]
    show_records(
        f"Worst cases: time by that of {DENSE}", shown | {">% of words switched": "switched_percent:.0f"}, records
    )
    most = [max(row["times"][key] for row in rows) for key in (SWEEP, AVERAGED)]
    titles = (f"worst case: time by that of {DENSE}", "the same, averaged pricing")
    return Measured(rows, [Bar(*bar, 1.5, None, True, " ×", 2) for bar in zip(titles, most, strict=True)])


def timed_decoding(args: Args) -> Iterator[Timed]:
    """Every exact decoder on the worst cases and on scores of a natural kind: words decide most."""
    g = torch.Generator().manual_seed(0)
    natural = [(6 * torch.randn(200, 25, T, generator=g), torch.randn(T, T, generator=g)) for T in (50, 320)]
    lengths = torch.full((200,), 25)
    usual = {f"words decide, {len(t)} tags": Scored([(u, lengths)], Transitions(t), 200, 0) for u, t in natural}
    for name, data in (*usual.items(), *worst_data()):
        for decoder, each in taggers.exact_decoders().items():
            yield Timed(f"{name}, {decoder}", partial(data.decode, **each))


def peers(args: Args) -> Measured:
    """Best chains of 64 sentences of 25 words and 50 tags."""
    try:
        from torch_struct import LinearChainCRF
    except ImportError:
        return Measured({}, [Bar(TITLE, None, 20, 60)])
    generator = torch.Generator().manual_seed(0)
    unary, transitions = torch.randn(64, 25, 50, generator=generator), torch.randn(50, 50, generator=generator)
    # Its potentials are [B, n - 1, tag, tag before], with the unary scores in them.
    potentials = transitions.t() + unary[:, 1:, :, None]
    potentials[:, 0] += unary[:, 0, None, :]
    ready = Transitions(transitions)

    warnings.filterwarnings("ignore", module="torch_struct")

    def peer() -> Tensor:
        return LinearChainCRF(potentials).argmax.detach()

    ours = gp.viterbi(unary, transitions, method="dense").score
    difference = float(((peer() * potentials.detach()).flatten(1).sum(1).double() - ours).abs().max())
    if difference > 1e-3:
        LOG.print(f"torch-struct disagrees by {difference:.2g}")
    contenders = [
        Contender("torch-struct argmax", peer),
        Contender(DENSE, lambda: gp.viterbi(unary, transitions, method="dense"), "torch-struct argmax", True),
        Contender("TagChains.argmax", lambda: gp.TagChains(unary, transitions).argmax, "torch-struct argmax", True),
        Contender(SWEEP, lambda: gp.viterbi(unary, ready), "torch-struct argmax", True),
    ]
    case = measure(Case("best chain", "random", 25, 64), contenders, **effort(args, 9), budget=20.0)
    rows = [(t.name, figure(t.rates()["median"]), figure(case.ratio(t.name, t.against))) for t in case.timings]
    show("torch-struct: 64 sentences of 25 words, 50 tags, random scores", ("", ">sentences/s", ">×"), rows)
    ratio, fastest = (case.ratio(DENSE, "torch-struct argmax", by) for by in ("median", "max"))
    data = {"difference": difference, "timings": case.as_json()}
    return Measured(data, [Bar(TITLE, ratio, 20, 60, unit=" ×", fastest=fastest)])


SUITE = Suite(
    "chains",
    "taggers trained on English; dense Viterbi, column generation and beams; torch-struct; worst cases; regularisation",
    {"tagging": tagging, "peers": peers, "worst": worst, "regularisation": taggers.regularisation},
    [
        TREEBANKS,
        Option("xpos", "a tagger of XPOS; default: trained here, in bench/results", kind=Path),
        Option("joint", "a tagger of upos+feats; default: trained here", kind=Path),
        Option("batch-words", "words of a batch, padding counted", 16_000, whole),
        repeats(None, "repetitions, in turns (9; with --quick 3)"),
        threads(),
        QUICK,
    ],
    peers=("torch-struct",),
    timed=timed_decoding,
)
