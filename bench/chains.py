"""Chains of tags: dense Viterbi, column generation and beams on trained taggers; peers, worst cases, regularisation.

The tables and the figure of Belanger et al. 2012 (Learning to speed up MAP decoding with column generation) on an
English treebank: Table 2 on its part-of-speech tags, Table 1 on the several hundred joint tags of part of speech and
features, Figure 1 with the regularisation of the transitions. All decoders are compiled from one family of kernels.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from chain_taggers import (
    AVERAGED,
    DENSE,
    DEV,
    SWEEP,
    TITLES,
    TRAIN,
    Scored,
    accuracy,
    decoders,
    draw,
    exact,
    exact_decoders,
    per_word,
    regularisation,
    scored,
    timed,
    train,
)
from commands import RESULTS, Goal, Problem, add_treebanks, leave, print_goals, treebanks, whole
from timing import LOG, OUT, Case, Contender, environment, figure, measure, new_table, print_environment, write_json
from torch import Tensor

import gpuparse as gp
from gpuparse.chain import Transitions
from gpuparse.data.conllu import read_conllu


def compare(tags: str, data: Scored, args: argparse.Namespace) -> tuple[Case, list[dict[str, Any]]]:
    """One of the paper's tables: every decoder on the same scores, in turns."""
    options = decoders(tags)
    dense = data.decode(**options[DENSE])
    rows = []
    for name, each in options.items():
        found = data.decode(**each)
        rows.append(
            {
                "decoder": name,
                "exact_percent": exact(found, dense),
                "certified_percent": 100 * float(torch.cat([t.certified for t in found]).double().mean()),
                "transitions_per_word": per_word(found, "transitions", data.words),
                "switched_percent": 100 * per_word(found, "switched", data.words),
                "rounds": float(torch.cat([t.iterations for t in found]).double().mean()),
            }
        )
    case = timed(f"tagging, {tags}", data, options, args)
    title = f"{TITLES[tags]}: {data.tags} tags, {data.sentences:,} sentences, {data.words:,} words"
    columns = (">sentences/s", f">× {DENSE}", ">% exact", ">% certified", ">transitions/word", ">rounds")
    table = new_table(title, "decoder", *columns)
    for row, timing in zip(rows, case.timings, strict=True):
        row |= {"sentences_per_second": timing.rates(), "ratio": case.ratio(timing.name, DENSE)}
        table.add_row(
            row["decoder"],
            figure(row["sentences_per_second"]["median"]),
            figure(row["ratio"]),
            f"{row['exact_percent']:.2f}",
            f"{row['certified_percent']:.1f}",
            figure(row["transitions_per_word"]),
            f"{row['rounds']:.2f}",
        )
    OUT.print(table)
    return case, rows


def random_instances(count: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Ragged batches of 100 with 1 to 180 tags, forbidden tags and transitions, ties, many magnitudes. In every third
    one words decide most, so that column generation is not left to the dense program."""
    for seed in range(count // 100):
        generator = torch.Generator().manual_seed(seed)
        n, T, scales = 1 + seed % 13, 1 + (seed * 7) % 80, ((0.3, 1.0, 4.0, 1e4)[seed % 4], (0.1, 1.0, 3.0)[seed % 3])
        if seed % 3 == 2:
            T, scales = 100 + T, ((6.0, 10.0)[seed % 2], 0.5)
        unary = scales[0] * torch.randn(100, n, T, generator=generator, dtype=torch.float64)
        transitions = scales[1] * torch.randn(T, T, generator=generator, dtype=torch.float64)
        if seed % 7 == 0:
            unary, transitions = unary.round(), transitions.round()
        if seed % 4 == 3:
            unary[..., 1:][torch.rand(100, n, T - 1, generator=generator) < 0.4] = -torch.inf
            mask = torch.rand(T, T, generator=generator) < 0.4
            mask[0, 0] = False
            transitions[mask] = -torch.inf
        dtype = (torch.float32, torch.float64)[seed % 2]
        yield unary.to(dtype), transitions.to(dtype), torch.randint(1, n + 1, (100,), generator=generator)


def random_check(count: int) -> dict[str, float]:
    """Percent of random instances in which each pricing finds the dense program's score."""
    found: dict[str, list[gp.Tagging]] = {DENSE: [], SWEEP: [], AVERAGED: []}
    for unary, transitions, lengths in random_instances(count):
        for name, each in decoders("xpos").items():
            if name in found:
                found[name].append(gp.viterbi(unary, transitions, lengths, **each))
    result = {name: exact(found[name], found[DENSE]) for name in (SWEEP, AVERAGED)}
    OUT.print(
        f"{count:,} random instances: " + ", ".join(f"{name} {value:.2f} % exact" for name, value in result.items())
    )
    return result


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


def worst_case(args: argparse.Namespace) -> list[dict[str, Any]]:
    """How much longer than the dense program column generation takes where it can leave nothing out."""
    rows = []
    table = new_table(
        f"Worst cases: time by that of {DENSE}", "scores", f">{SWEEP}", ">averaged", ">% of words switched"
    )
    for name, unary, transitions in worst_cases():
        data = Scored([(unary, torch.full((len(unary),), unary.shape[1]))], Transitions(transitions), len(unary), 0)
        options = exact_decoders()
        case = timed(name, data, options, args)
        times = {key: 1 / (case.ratio(key, DENSE) or float("nan")) for key in (SWEEP, AVERAGED)}
        steps = len(unary) * (unary.shape[1] - 1)
        switched = 100 * per_word(data.decode(**options[SWEEP]), "switched", steps)
        rows.append({"scores": name, "times": times, "switched_percent": switched})
        table.add_row(name, *(f"{times[key]:.2f}" for key in (SWEEP, AVERAGED)), f"{switched:.0f}")
    OUT.print(table)
    return rows


def against_torch_struct(args: argparse.Namespace) -> dict[str, Any]:
    """Best chains of 64 sentences of 25 words and 50 tags."""
    try:
        from torch_struct import LinearChainCRF
    except ImportError:
        LOG.print("torch-struct is not installed, so it is left out: pip install 'gpuparse[bench]'")
        return {}
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
    for contender in contenders:
        contender.run()
    case = Case("best chain", "random", 25, 64)
    measure(case, contenders, repeats=args.repeats, least=args.least, budget=20.0)
    table = new_table("torch-struct: 64 sentences of 25 words, 50 tags, random scores", "", ">sentences/s", ">×")
    for timing in case.timings:
        table.add_row(timing.name, figure(timing.rates()["median"]), figure(case.ratio(timing.name, timing.against)))
    OUT.print(table)
    return {"difference": difference, "timings": case.as_json(), "ratio": case.ratio(DENSE, "torch-struct argmax")}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_treebanks(parser)
    parser.add_argument("--xpos", type=Path, help="a tagger of XPOS; default: trained here, in bench/results")
    parser.add_argument("--joint", type=Path, help="a tagger of upos+feats; default: trained here")
    parser.add_argument("--json", type=Path, default=RESULTS / "chains.json")
    parser.add_argument("--repeats", type=whole, default=9)
    parser.add_argument("--threads", type=whole, default=1)
    parser.add_argument("--batch-words", type=whole, default=16_000, help="words of a batch, padding counted")
    parser.add_argument("--quick", action="store_true", help="short repetitions, no regularisation: a trial")
    parser.add_argument("--skip-regularisation", action="store_true")
    args = parser.parse_args()
    args.least = 0.01 if args.quick else 0.05
    if args.quick:
        args.repeats, args.skip_regularisation = 3, True
    return args


def main() -> int:
    args = arguments()
    directory = treebanks(args.treebanks)
    for name in (TRAIN, DEV):
        if not (directory / name).is_file():
            raise Problem(f"no {name} among the treebanks", 2)
    models = {"xpos": args.xpos or RESULTS / "chains_xpos", "upos+feats": args.joint or RESULTS / "chains_joint"}
    for tags, model in models.items():
        train(model, directory / TRAIN, f"data.tags={tags}", dev=directory / DEV)
    torch.set_num_threads(args.threads)
    found = environment(["torch-struct"])
    print_environment(found)
    dev = list(read_conllu(directory / DEV))
    tables, cases, right = {}, {}, {}
    for tags, model in models.items():
        tagger = gp.Tagger.load(model)
        right[tags] = accuracy(tagger, dev)
        OUT.print(f"{tags}: {right[tags]:.2f} % of the words right, {len(tagger.tags)} tags")
        cases[tags], tables[tags] = compare(tags, scored(tagger, dev, args.batch_words), args)
    random = random_check(10_000)
    peers = against_torch_struct(args)
    worst = worst_case(args)
    rows = [] if args.skip_regularisation else regularisation(directory, dev, args)
    draw(tables, rows)

    def same(name: str) -> float:
        every = [row["exact_percent"] for table in tables.values() for row in table if row["decoder"] == name]
        return min(*every, random[name])

    goals = [
        Goal(
            f"{SWEEP} = {DENSE}, 10,000 random instances and all dev sentences",
            same(SWEEP),
            100,
            None,
            unit=" %",
            digits=2,
        ),
        Goal(f"the same, {AVERAGED}", same(AVERAGED), 100, None, unit=" %", digits=2),
        Goal(f"{SWEEP} over {DENSE}, XPOS", cases["xpos"].ratio(SWEEP, DENSE), 2, 4, unit=" ×", digits=2),
        Goal(f"{SWEEP} over {DENSE}, joint tags", cases["upos+feats"].ratio(SWEEP, DENSE), 10, 40, unit=" ×"),
        Goal(f"{DENSE} over torch-struct, 50 tags, n=25, B=64", peers.get("ratio"), 20, 60, unit=" ×"),
        Goal("XPOS accuracy on the dev sentences", right["xpos"], 94, 95.5, unit=" %", digits=2),
        Goal(f"worst case: time by that of {DENSE}", max(r["times"][SWEEP] for r in worst), 1.5, None, True, " ×", 2),
        Goal("the same, averaged pricing", max(r["times"][AVERAGED] for r in worst), 1.5, None, True, " ×", 2),
    ]
    missed = print_goals("Bars", goals)
    write_json(
        args.json,
        {
            "environment": found,
            "settings": {key: str(value) for key, value in vars(args).items()},
            "tables": tables,
            "random": random,
            "torch_struct": peers,
            "worst": worst,
            "regularisation": rows,
            "accuracy": right,
            "bars": [goal.as_json() for goal in goals],
        },
    )
    LOG.print(f"written: {args.json}")
    return missed


if __name__ == "__main__":
    leave(main)
