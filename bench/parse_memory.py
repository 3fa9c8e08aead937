"""Peak memory of `gpuparse parse` on a small file and on a very large one.

    python bench/parse_memory.py [--sentences 1000000] [--model DIR]

The files hold artificial sentences of natural lengths, the same 10,000 over and over in another order, each with a name
of its own. They lie in the system's temporary directory (TMPDIR says where): about 5 GB for 1,000,000 sentences and
their parses. Exits with 1 if the large file takes more than 10 % more memory, and with 2 at wrong usage.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from commands import RESULTS, TINY, Goal, Problem, leave, parse_summary, print_goals, run, settings, whole
from timing import LOG, OUT, environment, figure, new_table, print_environment, write_json

from gpuparse.data.artificial import artificial_treebank

FEW = 10_000
MUST = 10.0  # percent


def pool(longest: int) -> list[str]:
    """Different sentences of at most so many words, without the line that names them."""
    short = (s.text.split("\n", 1)[1] for s in artificial_treebank(1 << 40) if len(s) <= longest)
    return list(islice(short, FEW))


def write_corpus(path: Path, texts: Sequence[str], sentences: int) -> None:
    """The texts again and again, in a new order each time, each time with new names."""
    random, order = Random(0), list(texts)
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, sentences, len(order)):
            random.shuffle(order)
            file.writelines(f"# sent_id = {n}\n{text}" for n, text in enumerate(order[: sentences - start], start))


def measure(model: Path, corpus: Path, output: Path, threads: int) -> dict[str, Any]:
    """Parse a file and watch the memory."""
    done = run("parse", model, corpus, "-o", output, "--threads", str(threads), watch=True)
    if done.peak is None:
        raise Problem("the memory of a process can be watched on Linux only (/proc)")
    summary = parse_summary(done.stderr)
    return summary | {
        "peak_megabytes": done.peak,
        "command_seconds": done.seconds,
        "sentences_per_second": summary["sentences"] / summary["seconds"] if summary["seconds"] else None,
        "input_bytes": corpus.stat().st_size,
        "resident_megabytes": done.resident,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    text = f"of the large file; default 1000000 (the small one has {FEW})"
    parser.add_argument("--sentences", type=whole, default=1_000_000, help=text)
    parser.add_argument("--longest", type=whole, default=60, help="words of a sentence at most; default 60")
    text = "a trained model; default: a tiny one is trained on the built-in treebank"
    parser.add_argument("--model", type=Path, metavar="DIR", help=text)
    parser.add_argument("--threads", type=whole, default=2, help="of parse; default 2")
    parser.add_argument("--json", type=Path, default=RESULTS / "parse_memory.json")
    args = parser.parse_args()
    if args.longest < 4:
        parser.error("--longest: shorter sentences than of 4 words are too rare")
    return args


def main() -> int:
    args = arguments()
    found = environment([])
    print_environment(found)
    with tempfile.TemporaryDirectory() as scratch:
        model = args.model
        if model is None:
            model = Path(scratch, "model")
            LOG.print("training a tiny model")
            run("train", model, *settings(TINY | {"training.epochs": 3}), "--threads", str(args.threads))
        LOG.print("making sentences")
        texts = pool(args.longest)
        corpus, output = Path(scratch, "corpus.conllu"), Path(scratch, "parsed.conllu")
        records = []
        for sentences in (FEW, args.sentences):
            write_corpus(corpus, texts, sentences)
            LOG.print(f"gpuparse parse, {sentences:,} sentences, {corpus.stat().st_size / 1e6:,.0f} MB")
            records.append(measure(model, corpus, output, args.threads))
            output.unlink()
    table = new_table(
        "gpuparse parse", ">sentences", ">words", ">MB of input", ">peak MB", ">seconds", ">sentences/s", ">words/s"
    )
    for record in records:
        table.add_row(
            f"{record['sentences']:,}",
            f"{record['words']:,}",
            figure(record["input_bytes"] / 1e6),
            f"{record['peak_megabytes']:,.1f}",
            figure(record["seconds"]),
            figure(record["sentences_per_second"]),
            figure(record["words_per_second"]),
        )
    OUT.print(table)
    small, large = (record["peak_megabytes"] for record in records)
    goals = [Goal("more memory for the large file", 100 * (large / small - 1), MUST, most=True, unit=" %")]
    missed = print_goals(f"Bar (ratio of the peaks: {large / small:.3f})", goals)
    data = {"environment": found, "longest": args.longest, "threads": args.threads, "runs": records}
    write_json(args.json, data | {"ratio": large / small, "bars": [goal.as_json() for goal in goals]})
    LOG.print(f"written: {args.json}")
    return missed


if __name__ == "__main__":
    leave(main)
