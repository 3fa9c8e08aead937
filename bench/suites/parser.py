"""Train on a treebank, parse its dev file, evaluate: accuracy, minutes, and where the time goes."""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.bars import Bar
from bench.commands import run, timed_parse
from bench.models import ENGLISH, HUNGARIAN, Treebank, train, treebank_file
from bench.output import LOG, OUT, RESULTS, Problem
from bench.registry import TREEBANKS, Args, Measured, Option, Suite, repeats, threads, whole
from gpuparse.data.conllu import read_conllu, write_conllu
from gpuparse.data.sentence import Sentence
from gpuparse.train.report import read_log

try:
    from udtools import udeval
except ImportError:
    udeval = None

SEEN = (0, 1, 3, 5)  # columns that the parser is given: ID, FORM, UPOS, FEATS


@dataclass(frozen=True)
class Language:
    """A treebank and its bars, each the must and the aim."""

    treebank: Treebank
    uas: tuple[float, float]
    las: tuple[float, float]
    minutes: tuple[float | None, float | None] = (None, None)


LANGUAGES = {
    "english": Language(ENGLISH, (89.5, 91.5), (87.0, 89.5), (90, 45)),
    "hungarian": Language(HUNGARIAN, (80, 84), (75, 80)),
}


def blanked(sentence: Sentence) -> Sentence:
    """The sentence with nothing but words, tags and features: no tree can leak, nor what goes with one (DEPS, MISC)."""
    lines = []
    for line in sentence.text.split("\n"):
        fields = line.split("\t")
        if len(fields) == 10 and not line.startswith("#"):
            line = "\t".join(value if column in SEEN else "_" for column, value in enumerate(fields))
        lines.append(line)
    return Sentence("\n".join(lines), sentence.source, sentence.line)


def training_figures(model: Path) -> dict[str, Any]:
    """From a model's log: seconds in all, epochs, parameters, and the share of tree inference in the steps."""
    try:
        log = read_log(model / "log.jsonl")
        start = next(record for record in log if record["event"] == "start")
        end = next(record for record in log if record["event"] == "end")
    except (OSError, StopIteration):
        raise Problem(f"{model}: no log of a training that was finished (log.jsonl)") from None
    epochs = [record for record in log if record["event"] == "epoch"]
    evaluating = sum(record.get("dev_seconds", 0.0) for record in epochs)
    steps = end["seconds"] - evaluating
    return {
        **{name: start[name] for name in ("parameters", "threads", "sentences", "words", "config")},
        **{name: end[name] for name in ("seconds", "best")},
        "evaluating_seconds": evaluating,
        "inference_percent": 100 * end["inference_share"] * end["seconds"] / steps,
        "epochs": len(epochs),
    }


def official(gold: Path, system: Path, ours: dict[str, Any]) -> int | None:
    """How many metrics udtools has other counts or ratios of, or of UAS and LAS none; None without udtools."""
    if udeval is None:
        return None
    read = []
    for path in (gold, system):
        with path.open(encoding="utf-8") as file:
            read.append(udeval.load_conllu(file, str(path), {}))
    theirs = udeval.evaluate(*read)
    other = len({"UAS", "LAS"} - (ours.keys() & theirs.keys()))
    for name in ours.keys() & theirs.keys():
        a, b = ours[name], theirs[name]
        pairs = [(a["correct"], b.correct), (a["gold"], b.gold_total), (a["system"], b.system_total)]
        pairs += [(a["precision"], b.precision), (a["recall"], b.recall), (a["f1"], b.f1)]
        if any(x != y for x, y in pairs):
            other += 1
            LOG.print(f"DISAGREES  {name}: {a['f1']} here, {b.f1} by udtools")
    return other


def median(records: list[dict[str, Any]], name: str) -> float:
    """Of one of the figures, or of one of the shares."""
    return statistics.median(r["shares"][name] if name in r["shares"] else r[name] for r in records)


def measure(name: str, args: Args) -> Measured:
    """A language: its parser trained, unless one is given, and its dev file parsed."""
    language = LANGUAGES[name]
    gold, learned = (treebank_file(args, file) for file in (language.treebank.parsed, language.treebank.learned))
    if args.model and (args.set or args.config):
        raise Problem("--model is trained already: --set and --config say nothing", 2)
    model, minutes = args.model, None
    if model is None:
        config = args.config or f"{name}.toml"
        if isinstance(config, Path) and not config.is_file():
            raise Problem(f"--config: {config}: no such file", 2)
        # A trial with other settings does not take the place of a model that took long to train.
        model = RESULTS / f"parser_{name}{'_trial' if args.trial else ''}"
        values = dict(setting.split("=", 1) for setting in args.set)
        took = train(model, learned, dev=gold, config=config, values=values, threads=args.threads, anew=True)
        assert took is not None
        minutes = took / 60
    training = training_figures(model)
    with tempfile.TemporaryDirectory() as scratch:
        blank, system = Path(scratch, "blank.conllu"), Path(scratch, "system.conllu")
        write_conllu(map(blanked, read_conllu(gold)), blank)
        run("parse", model, blank, "-o", system, "--threads", str(args.threads))
        metrics = json.loads(run("evaluate", gold, system, "--json").stdout)["metrics"]
        differing = official(gold, system, metrics)
        records, output = [], Path(scratch, "copies.conllu")
        for number in range(args.repeats):
            LOG.print(f"gpuparse parse, {args.copies} copies of the dev file, {number + 1} of {args.repeats}")
            records.append(timed_parse(model, *[blank] * args.copies, output=output, threads=args.threads))
    OUT.print(
        f"{name}: {training['sentences']:,} sentences, {training['words']:,} words, "
        f"{training['epochs']} epochs (best: {training['best'].get('epoch')}), {training['parameters']:,} parameters"
    )
    took = minutes if minutes is not None else training["seconds"] / 60
    whose = "whole command" if minutes is not None else "by its log, without start-up"
    not_encoder = statistics.median(100 - r["shares"]["encoder"] for r in records)
    bars = [
        Bar("UAS", 100 * metrics["UAS"]["f1"], *language.uas, digits=2),
        Bar("LAS", 100 * metrics["LAS"]["f1"], *language.las, digits=2),
        Bar("metrics that are not udtools' to the digit", differing, 0, most=True, digits=0),
        Bar(f"training, {training['threads']} threads ({whose})", took, *language.minutes, most=True, unit=" min"),
        Bar("tree inference in a training step", training["inference_percent"], 15, 5, most=True, unit=" %"),
        Bar("parse: decoding + I/O (all but the encoder)", not_encoder, 25, 10, most=True, unit=" %"),
        *(Bar(f"  {name}", median(records, name), unit=" %") for name in records[0]["shares"]),
        Bar("parse: words/s", median(records, "words_per_second"), digits=0),
    ]
    data = {"language": name, "minutes": minutes, "training": training, "metrics": metrics, "parse": records}
    return Measured(data, bars)


def setting(text: str) -> str:
    if "=" not in text:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return text


SUITE = Suite(
    "parser",
    "a parser trained on a treebank: accuracy, minutes of training, speed of gpuparse parse and where its time goes",
    {name: partial(measure, name) for name in LANGUAGES},
    [
        TREEBANKS,
        Option("model", "a model trained before on this treebank: do not train", kind=Path),
        Option("config", "default: configs/LANGUAGE.toml of the project", kind=Path, trial=True),
        Option("set", "a setting of gpuparse train, as in training.epochs=2", [], setting, again=True, trial=True),
        Option("copies", "how often the dev file is given to the command that is timed", 4, whole),
        repeats(3, "commands that are timed"),
        threads(2),
    ],
    peers=("udtools",),
    notes=("the parser sees words, UPOS and FEATS of the dev file; all other columns are blank",),
)
