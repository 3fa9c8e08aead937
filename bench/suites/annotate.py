"""What annotators get from exact inference: corrections saved by solving again, probabilities, constraints kept to.

annotator: one wrong arc of the parse is corrected and the rest is solved again, until the tree is gold; against the
arcs that are wrong in the first parse. The wrong arc is the least certain one, or the one that the parser is surest of,
which says more about the rest. calibration: the probability of the whole tree against how often it is right, in ten
bins, on the second half of the dev file; as it is, and with a temperature fitted on the first half. constraints: at
most one subject and one object, on the best trees, on spanning trees found again up to five times without the worse
of two, and under constraints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import gpuparse as gp
from bench.bars import Bar
from bench.models import check_trained, train, treebank_file
from bench.output import LOG, show
from bench.registry import FIRST, TREEBANKS, Args, Measured, Suite, languages, models, threads
from bench.suites.parser import LANGUAGES, blanked
from gpuparse import lp
from gpuparse.data.conllu import read_conllu
from gpuparse.data.partial import Partial
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import Sentence
from gpuparse.evaluate import evaluate

BINS = 10
TEMPERATURES = [1.0 + 0.05 * step for step in range(-10, 41)]
AGAIN = 5
RULES = {"subjects": ("nsubj", "csubj"), "objects": ("obj",)}


def loaded(name: str, args: Args) -> tuple[gp.Parser, list[Sentence]]:
    """A language's parser, and the gold sentences of its dev file."""
    parser = gp.Parser.load(check_trained(Path(args.models) / name, "annotate"))
    gold = list(read_conllu(treebank_file(args, LANGUAGES[name].treebank.parsed)))
    return parser, gold[: args.first or None]


def train_parsers(args: Args) -> Measured:
    for name in args.languages:
        bank = LANGUAGES[name].treebank
        learned, dev = (treebank_file(args, file) for file in (bank.learned, bank.parsed))
        train(Path(args.models) / name, learned, dev=dev, config=f"{name}.toml", threads=args.threads)
    return Measured(None)


ORDERS: dict[str, Callable[[Sequence[int], Sequence[float]], int]] = {
    "least certain first": lambda wrong, sure: min(wrong, key=lambda m: sure[m - 1]),
    "surest first": lambda wrong, sure: max(wrong, key=lambda m: sure[m - 1]),
}


def corrections(parser: gp.Parser, gold: Sequence[Sentence], order: str) -> dict[str, int]:
    """How many arcs are corrected, by hand in the first parse and with the rest solved again."""
    given = [blanked(sentence) for sentence in gold]
    known = [Partial.nothing(len(sentence)) for sentence in gold]
    live, by_hand, asked, rounds = list(range(len(gold))), 0, 0, 0
    while live:
        found = parser.predict([given[i] for i in live], partial=[known[i] for i in live], confidence=True)
        left = []
        for i, one in zip(live, found, strict=True):
            wrong = [m for m, pair in enumerate(zip(one.heads, gold[i].heads, strict=True), 1) if pair[0] != pair[1]]
            by_hand += len(wrong) if rounds == 0 else 0
            if wrong:
                word = ORDERS[order](wrong, one.confidence or [])
                known[i] = known[i].require(gold[i].heads[word - 1], word)
                asked += 1
                left.append(i)
        live, rounds = left, rounds + 1
        LOG.print(f"round {rounds}: {len(live)} sentences left")
    return {"sentences": len(gold), "by_hand": by_hand, "solved_again": asked, "rounds": rounds}


def annotator(args: Args) -> Measured:
    records, bars = [], []
    for name in args.languages:
        parser, gold = loaded(name, args)
        for order in ORDERS:
            found = corrections(parser, gold, order)
            fewer = 100 * (1 - found["solved_again"] / max(1, found["by_hand"]))
            records.append({"language": name, "order": order, **found, "fewer": fewer})
            must, aim = (15, 35) if order == "least certain first" else (None, None)
            bars.append(Bar(f"{name}, {order}: fewer corrections than by hand", fewer, must, aim, unit=" %"))
    columns = ("", "", ">sentences", ">by hand", ">solved again", ">fewer")
    names = ("language", "order", "sentences", "by_hand", "solved_again")
    rows = [(*(record[name] for name in names), f"{record['fewer']:.1f} %") for record in records]
    show("Corrections until all trees are gold", columns, rows)
    return Measured(records, bars)


def tree_log_probs(
    parser: gp.Parser, gold: Sequence[Sentence], temperature: float
) -> list[tuple[float, float, bool, int]]:
    """Of each sentence the log-probabilities of the best tree and of the gold one, whether they are one, and words."""
    found = []
    training = parser.config.training
    for indices in parser.batches(gold, 2000):
        some = [gold[i] for i in indices]
        with torch.inference_mode():
            scores = parser.scorer(parser._batch([blanked(sentence) for sentence in some])).scores
            arcs = scores.with_arcs(scores.arcs.double() / temperature)
            trees = arcs.trees(projective=training.projective, single_root=training.single_root)
            heads = torch.full(arcs.arcs.shape[:2], -1)
            for row, sentence in zip(heads, some, strict=True):
                row[1 : len(sentence) + 1] = torch.tensor(sentence.heads)
            best = trees.argmax
            same = (best == heads).all(1)
            each = zip(trees.log_prob(best).tolist(), trees.log_prob(heads).tolist(), same.tolist(), some, strict=True)
            found += [(own, true, right, len(sentence)) for own, true, right, sentence in each]
    return found


def off_by(told: Sequence[tuple[float, bool]]) -> tuple[float, list[dict[str, float]]]:
    """The expected calibration error, in percent, and its bins."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for p, right in told:
        bins[min(BINS - 1, int(p * BINS))].append((p, right))
    records, error = [], 0.0
    for own in bins:
        if own:
            sure, share = (sum(float(pair[k]) for pair in own) / len(own) for k in (0, 1))
            error += len(own) / len(told) * abs(sure - share)
            records.append({"sentences": len(own), "probability": sure, "right": share})
    return 100 * error, records


def calibration(args: Args) -> Measured:
    records, bars = [], []
    for name in args.languages:
        parser, gold = loaded(name, args)
        half = len(gold) // 2
        losses = {t: -sum(true for _, true, _, _ in tree_log_probs(parser, gold[:half], t)) for t in TEMPERATURES}
        fitted = min(losses, key=lambda t: losses[t])
        record: dict[str, Any] = {"language": name, "temperature": fitted}
        for what, t in (("as it is", 1.0), ("fitted", fitted)):
            told = [(math.exp(own), right) for own, _, right, _ in tree_log_probs(parser, gold[half:], t)]
            record[what], record[f"bins, {what}"] = off_by(told)
        records.append(record)
        bars.append(Bar(f"{name}: error of the tree's probability, as it is", record["as it is"], unit=" %", most=True))
        bars.append(Bar(f"{name}: the same, temperature fitted", record["fitted"], 4, unit=" %", most=True))
    rows = [
        (r["language"], f"{r['temperature']:.2f}", f"{r['as it is']:.1f} %", f"{r['fitted']:.1f} %") for r in records
    ]
    columns = ("", ">temperature of the first half", ">error as it is", ">fitted")
    show("Calibration of whole trees, ten bins, second half of dev", columns, rows)
    return Measured(records, bars)


def doubled(one: Prediction) -> list[tuple[int, int]]:
    """Pairs of words with the same head that are both its subjects, or both its objects."""
    seen: dict[tuple[int, str], int] = {}
    found = []
    for word, (head, label) in enumerate(zip(one.heads, one.deprels, strict=True), 1):
        for kind, names in RULES.items():
            if label.partition(":")[0] in names:
                if (head, kind) in seen:
                    found.append((seen[head, kind], word))
                seen.setdefault((head, kind), word)
    return found


def run_again(parser: gp.Parser, given: Sequence[Sentence], first: Sequence[Prediction]) -> list[Prediction]:
    """Trees found again up to five times, each time without the less certain arc of two that exclude each other."""
    found, known = list(first), [Partial.nothing(len(sentence)) for sentence in given]
    for _ in range(AGAIN):
        rows = [i for i, one in enumerate(found) if doubled(one)]
        for i in rows:
            sure = found[i].confidence or []
            for pair in doubled(found[i]):
                word = min(pair, key=lambda m: sure[m - 1])
                head = found[i].heads[word - 1]
                if known[i].heads[word - 1] is None or len(known[i].heads[word - 1] or ()) > 1:
                    known[i] = known[i].forbid(head, word)
        again = parser.predict([given[i] for i in rows], partial=[known[i] for i in rows], confidence=True)
        for i, one in zip(rows, again, strict=True):
            found[i] = one
    return found


def constraints(args: Args) -> Measured:
    records, bars = [], []
    for name in args.languages:
        parser, gold = loaded(name, args)
        given = [blanked(sentence) for sentence in gold]
        labels = parser.vocabulary.labels.names
        rules = [
            lp.Children(labels=frozenset(x for x in labels if x.partition(":")[0] in names), at_most=1)
            for names in RULES.values()
        ]
        first = parser.predict(given, confidence=True)
        ways: Mapping[str, Sequence[Prediction]] = {
            "best trees": first,
            "run again five times": run_again(parser, given, first),
            "under constraints": parser.predict(given, constraints=rules),
        }
        las = {}
        for way, found in ways.items():
            trees = [sentence.with_parse(one.heads, one.deprels) for sentence, one in zip(gold, found, strict=True)]
            las[way] = 100 * evaluate(gold, trees).metrics["LAS"].f1
            left = sum(len(doubled(one)) for one in found)
            records.append({"language": name, "way": way, "violations": left, "las": las[way]})
        bars.append(Bar(f"{name}: violations under constraints", records[-1]["violations"], 0, most=True, digits=0))
        best = max(las["best trees"], las["run again five times"])
        bars.append(
            Bar(
                f"{name}: LAS under constraints less the better of the others",
                las["under constraints"] - best,
                0,
                digits=2,
            )
        )
    rows = [(r["language"], r["way"], r["violations"], f"{r['las']:.2f}") for r in records]
    show("At most one subject and one object under a head", ("", "trees", ">violations left", ">LAS"), rows)
    return Measured(records, bars)


SUITE = Suite(
    "annotate",
    "corrections saved by solving again, calibration of whole trees, violations of constraints",
    {"train": train_parsers, "annotator": annotator, "calibration": calibration, "constraints": constraints},
    [TREEBANKS, models("annotate"), languages(["hungarian", "english"]), FIRST, threads()],
)
