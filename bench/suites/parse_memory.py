"""Peak memory of `gpuparse parse` on a small file and on a very large one.

The files hold artificial sentences of natural lengths, the same 10,000 over and over in another order, each with a name
of its own. They lie in the system's temporary directory (TMPDIR says where): about 5 GB for 1,000,000 sentences and
their parses.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from bench.bars import Bar
from bench.commands import TINY, timed_parse
from bench.models import train
from bench.output import LOG, Problem, show_records
from bench.registry import Args, Measured, Option, Suite, at_least, threads, whole
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


def parse(model: Path, corpus: Path, output: Path, threads: int) -> dict[str, Any]:
    """Parse a file and watch the memory."""
    found = timed_parse(model, corpus, output=output, threads=threads)
    if found["peak_megabytes"] is None:
        raise Problem("the memory of a process can be watched on Linux only (/proc)")
    rate = found["sentences"] / found["seconds"] if found["seconds"] else None
    return found | {"sentences_per_second": rate, "input_bytes": corpus.stat().st_size}


def memory(args: Args) -> Measured:
    with tempfile.TemporaryDirectory() as scratch:
        model = args.model or Path(scratch, "model")
        if args.model is None:
            train(model, values=TINY | {"training.epochs": 3}, threads=args.threads)
        LOG.print("making sentences")
        texts = pool(args.longest)
        corpus, output = Path(scratch, "corpus.conllu"), Path(scratch, "parsed.conllu")
        records = []
        for sentences in (FEW, args.sentences):
            write_corpus(corpus, texts, sentences)
            LOG.print(f"gpuparse parse, {sentences:,} sentences, {corpus.stat().st_size / 1e6:,.0f} MB")
            records.append(parse(model, corpus, output, args.threads))
            output.unlink()
    columns = {">sentences": "sentences", ">words": "words", ">bytes of input": "input_bytes:~"}
    columns |= {">peak MB": "peak_megabytes:,.1f", ">seconds": "seconds:~"}
    columns |= {">sentences/s": "sentences_per_second:~", ">words/s": "words_per_second:~"}
    show_records("gpuparse parse", columns, records)
    small, large = (record["peak_megabytes"] for record in records)
    more = 100 * (large / small - 1)
    return Measured(records, [Bar("more memory for the large file", more, MUST, most=True, unit=" %")])


SUITE = Suite(
    "parse_memory",
    "peak memory of gpuparse parse on 1,000,000 sentences against 10,000",
    {"memory": memory},
    [
        Option("sentences", f"of the large file (the small one has {FEW})", 1_000_000, whole, trial=True),
        Option("longest", "words of a sentence at most; shorter ones than of 4 are too rare", 60, at_least(4)),
        Option("model", "a trained model; default: a tiny one is trained on the built-in treebank", kind=Path),
        threads(2),
    ],
)
