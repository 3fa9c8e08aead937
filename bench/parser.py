"""Train on a treebank, parse its dev file, evaluate: accuracy, minutes, and where the time goes.

    python bench/parser.py english             # trains, about as long as its bar allows
    python bench/parser.py hungarian
    python bench/parser.py english --model DIR # a model trained before, on this treebank

Exits with 1 if a must is missed or a figure could not be had, and with 2 at wrong usage.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands import (
    PROJECT,
    RESULTS,
    Finished,
    Goal,
    Problem,
    add_treebanks,
    leave,
    parse_summary,
    print_goals,
    run,
    treebanks,
    whole,
)
from timing import LOG, OUT, environment, print_environment, write_json

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

    files: str
    uas: tuple[float, float]
    las: tuple[float, float]
    minutes: tuple[float, float] | tuple[None, None] = (None, None)


LANGUAGES = {
    "english": Language("en_ewt-ud", (89.5, 91.5), (87.0, 89.5), (90, 45)),
    "hungarian": Language("hu_szeged-ud", (80, 84), (75, 80)),
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


def train(args: argparse.Namespace, model: Path, train_file: Path, dev: Path) -> float:
    """Train a model; the minutes of the whole command."""
    if not args.config.is_file():
        raise Problem(f"{args.config}: no such file; name a configuration by --config", 2)
    LOG.print(f"gpuparse train {model} with {args.config.name}")
    settings = [part for setting in args.settings for part in ("--set", setting)]
    files = ("--train", train_file, "--dev", dev, "--config", args.config)
    done = run("train", model, *files, "--threads", str(args.threads), "--overwrite", *settings, show=True)
    return done.seconds / 60


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
        "seconds": end["seconds"],
        "evaluating_seconds": evaluating,
        "inference_percent": 100 * end["inference_share"] * end["seconds"] / steps,
        "epochs": len(epochs),
        "best": end["best"],
        "parameters": start["parameters"],
        "threads": start["threads"],
        "sentences": start["sentences"],
        "words": start["words"],
        "config": start["config"],
    }


def official(gold: Path, system: Path, ours: dict[str, Any]) -> bool | None:
    """Whether udtools gives the same counts and ratios for all its metrics that we have; None without udtools."""
    if udeval is None:
        LOG.print("udtools is not installed, so nothing is compared with it: pip install 'gpuparse[bench]'")
        return None
    read = []
    for path in (gold, system):
        with path.open(encoding="utf-8") as file:
            read.append(udeval.load_conllu(file, str(path), {}))
    theirs = udeval.evaluate(*read)
    same = True
    for name in ours.keys() & theirs.keys():
        a, b = ours[name], theirs[name]
        pairs = [(a["correct"], b.correct), (a["gold"], b.gold_total), (a["system"], b.system_total)]
        pairs += [(a["precision"], b.precision), (a["recall"], b.recall), (a["f1"], b.f1)]
        if any(x != y for x, y in pairs):
            same = False
            LOG.print(f"DISAGREES  {name}: {a['f1']} here, {b.f1} by udtools")
    return same and {"UAS", "LAS"} <= ours.keys() & theirs.keys()


def measure_parse(args: argparse.Namespace, model: Path, blank: Path, output: Path) -> list[dict[str, Any]]:
    """The figures of parsing the dev file, several times over, in one command; one record a repetition."""
    records = []
    for number in range(args.repeats):
        LOG.print(f"gpuparse parse, {args.copies} copies of the dev file, {number + 1} of {args.repeats}")
        done: Finished = run(
            "parse", model, *[blank] * args.copies, "-o", output, "--threads", str(args.threads), watch=True
        )
        records.append(parse_summary(done.stderr) | {"command_seconds": done.seconds, "peak_megabytes": done.peak})
    return records


def median(records: list[dict[str, Any]], name: str) -> float:
    """Of one of the figures, or of one of the shares."""
    return statistics.median(r["shares"][name] if name in r["shares"] else r[name] for r in records)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("language", choices=LANGUAGES)
    add_treebanks(parser)
    parser.add_argument("--model", type=Path, metavar="DIR", help="a model trained before: do not train")
    parser.add_argument("--config", type=Path, help="default: configs/LANGUAGE.toml of the project")
    text = "a setting for gpuparse train, as in training.epochs=2; may be repeated"
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="NAME=VALUE", help=text)
    text = "of train and of parse; default 2, as the bars have it"
    parser.add_argument("--threads", type=whole, default=2, help=text)
    text = "how often the dev file is given to the command that is timed; default 4"
    parser.add_argument("--copies", type=whole, default=4, help=text)
    parser.add_argument("--repeats", type=whole, default=3, help="commands that are timed; default 3")
    text = "default: parser_LANGUAGE.json (with --set or --config: parser_LANGUAGE_trial.json) in bench/results"
    parser.add_argument("--json", type=Path, help=text)
    args = parser.parse_args()
    if args.model and (args.settings or args.config):
        parser.error("--model is trained already: --set and --config say nothing")
    # A trial with other settings does not take the place of a model that took long to train.
    args.name = f"parser_{args.language}" + ("_trial" if args.settings or args.config else "")
    args.config = args.config or PROJECT / "configs" / f"{args.language}.toml"
    args.json = args.json or RESULTS / f"{args.name}.json"
    return args


def main() -> int:
    args = arguments()
    language = LANGUAGES[args.language]
    train_file, gold = (treebanks(args.treebanks) / f"{language.files}-{part}.conllu" for part in ("train", "dev"))
    for path in (train_file, gold):
        if not path.is_file():
            raise Problem(f"{path.name} is not among the treebanks", 2)
    found = environment(["udtools"])
    print_environment(found)
    model, minutes = args.model, None
    if model is None:
        model = RESULTS / args.name
        minutes = train(args, model, train_file, gold)
    training = training_figures(model)
    with tempfile.TemporaryDirectory() as scratch:
        blank, system = Path(scratch, "blank.conllu"), Path(scratch, "system.conllu")
        write_conllu(map(blanked, read_conllu(gold)), blank)
        run("parse", model, blank, "-o", system, "--threads", str(args.threads))
        metrics = json.loads(run("evaluate", gold, system, "--json").stdout)["metrics"]
        agrees = official(gold, system, metrics)
        records = measure_parse(args, model, blank, Path(scratch, "copies.conllu"))

    OUT.print(
        f"{args.language}: {training['sentences']:,} sentences, {training['words']:,} words, "
        f"{training['epochs']} epochs (best: {training['best'].get('epoch')}), {training['parameters']:,} parameters"
    )
    OUT.print("the parser sees words, UPOS and FEATS of the dev file; all other columns are blank")
    told = {None: "not compared with udtools", True: "udtools: the same to the digit", False: "udtools: DISAGREES"}
    OUT.print(told[agrees])
    took = minutes if minutes is not None else training["seconds"] / 60
    whose = "whole command" if minutes is not None else "by its log, without start-up"
    not_encoder = statistics.median(100 - r["shares"]["encoder"] for r in records)
    goals = [
        Goal("UAS", 100 * metrics["UAS"]["f1"], *language.uas, digits=2),
        Goal("LAS", 100 * metrics["LAS"]["f1"], *language.las, digits=2),
        Goal(f"training, {training['threads']} threads ({whose})", took, *language.minutes, most=True, unit=" min"),
        Goal("tree inference in a training step", training["inference_percent"], 15, 5, most=True, unit=" %"),
        Goal("parse: decoding + I/O (all but the encoder)", not_encoder, 25, 10, most=True, unit=" %"),
        *(Goal(f"  {name}", median(records, name), unit=" %") for name in records[0]["shares"]),
        Goal("parse: words/s", median(records, "words_per_second"), digits=0),
    ]
    missed = print_goals(f"Bars, {language.files}-dev (parse: median of {args.repeats})", goals)
    data = {
        "environment": found,
        "arguments": {"threads": args.threads, "copies": args.copies, "settings": args.settings},
        "language": args.language,
        "minutes": minutes,
        "training": training,
        "metrics": metrics,
        "udtools_agrees": agrees,
        "parse": records,
        "bars": [goal.as_json() for goal in goals],
    }
    write_json(args.json, data)
    LOG.print(f"written: {args.json}")
    return int(missed or not agrees)


if __name__ == "__main__":
    leave(main)
