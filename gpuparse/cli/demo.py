"""The whole way on the built-in treebank, in a minute or two: train, parse, evaluate, draw.

``python -m gpuparse.cli.demo [DIRECTORY] [--quick]``: results on stdout, progress on stderr, files in the directory.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from gpuparse.config import Config, ScorerConfig, TrainingConfig
from gpuparse.data.artificial import builtin_treebank
from gpuparse.data.conllu import write_conllu
from gpuparse.evaluate import Evaluation, evaluate
from gpuparse.render import ParsedFile, parses, tree_text, write_page
from gpuparse.system import startup
from gpuparse.train import TrainingReport, train
from gpuparse.train.treebank import is_projective

_SMALL = ScorerConfig(embedding_dropout=0.2, encoder_dropout=0.2, mlp_dropout=0.2)
# Small enough for a minute or two.
FULL = Config(
    scorer=replace(_SMALL, word=64, char=24, chars=48, tag=24, feats=48, hidden=128, layers=2, arc=160, label=64),
    training=TrainingConfig(epochs=15, batch_words=1000, learning_rate=4e-3),
)
# To see that it works, not how well.
QUICK = Config(
    scorer=replace(_SMALL, word=32, char=16, chars=24, tag=16, feats=16, hidden=48, layers=1, arc=64, label=32),
    training=TrainingConfig(epochs=4, batch_words=400, learning_rate=1e-2, average=0.9),
)
QUICK_SENTENCES = 300  # to train on; the others are left out

SCORES = {
    "UAS": "head",
    "LAS": "head and label",
    "Root": "the word under the root",
    "UEM": "whole trees",
    "LEM": "whole trees with labels",
}
SHORT, LONG = 5, 14  # words of a sentence that is printed, if there is such a one


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demonstration; an error is one line."""
    options = argparse.ArgumentParser(
        prog="python -m gpuparse.cli.demo", description="Train, parse, evaluate and draw."
    )
    options.add_argument("directory", metavar="DIRECTORY", nargs="?", default="demo", help="gets the files (demo)")
    options.add_argument("--quick", action="store_true", help="some seconds instead of minutes, and a worse parser")
    given = options.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a stream that has no box characters
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # fast enough, and threads that share busy cores wait for each other
    try:
        with startup.interruptible():
            _run(Path(given.directory), given.quick)
    except (ValueError, OSError) as error:
        print(f"gpuparse: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        torch.set_num_threads(threads)


def _run(directory: Path, quick: bool) -> None:
    begun = time.perf_counter()
    console = Console(highlight=False)
    progress = _Progress()
    model, page = directory / "model", directory / "trees.html"
    files = {"gold": directory / "gold.conllu", "parsed": directory / "parsed.conllu"}
    _check_free(model)
    torch.set_flush_denormal(True)

    learned, dev, gold = builtin_treebank("train"), builtin_treebank("dev"), builtin_treebank("test")
    learned = learned[:QUICK_SENTENCES] if quick else learned
    progress.note(f"training on {len(learned):,} sentences, {sum(map(len, learned)):,} words")
    with progress.bar:
        parser = train(QUICK if quick else FULL, model, train=learned, dev=dev, overwrite=True, report=progress)
    parsing, words = time.perf_counter(), sum(map(len, gold))
    parsed = parser.parse(gold, confidence=True)
    progress.note(f"parsed {words:,} words, {words / (time.perf_counter() - parsing):,.0f} a second")
    write_conllu(gold, files["gold"])
    write_conllu(parsed, files["parsed"])
    tally = write_page(parsed, page, gold=gold, title="The built-in treebank", note="The test sentences, as parsed")

    console.print(_scores(evaluate(gold, parsed)))
    for title, parse in _chosen(list(parses(parsed, gold))):
        console.print(Text(f"\n{title}", "bold"))
        console.print(Text(_drawn(parse)), soft_wrap=True)
    console.print()
    for name, what in {
        str(page): f"{tally.shown} trees, wrong arcs marked: open it in a browser",
        str(model): f"the parser, for gpuparse parse {model} FILE",
        f"gpuparse evaluate --breakdown {files['gold']} {files['parsed']}": "says more of its mistakes",
    }.items():
        console.print(Text.assemble((name, "bold"), f"  {what}"), soft_wrap=True)
    progress.note(f"all of it took {time.perf_counter() - begun:.0f} s")


def _check_free(model: Path) -> None:
    """An earlier demonstration is written over, another model is not."""
    if (model / "config.toml").exists() and Config.load(model / "config.toml") not in (FULL, QUICK):
        raise ValueError(f"{model}: holds a model that is not the demonstration's; remove it or give another DIRECTORY")


class _Progress(TrainingReport):
    """A bar where stderr is a terminal, and a line an epoch."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        columns = (TextColumn("training"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)
        self.task = self.bar.add_task("", total=None)
        self.epochs = 1

    def note(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)

    def begin(self, *, epochs: int, epoch: int) -> None:
        self.epochs = epochs
        self.bar.update(self.task, total=epochs)

    def step(self, *, epoch: int, batch: int, batches: int, loss: float, words_per_second: float) -> None:
        self.bar.update(self.task, completed=epoch + batch / batches)

    def epoch(self, record: dict[str, Any]) -> None:
        dev = f"dev UAS {100 * record['dev_uas']:.2f}  LAS {100 * record['dev_las']:.2f}"
        self.note(f"epoch {record['epoch']:>2}/{self.epochs}  loss {record['loss']:.3f}  {dev}")


def _scores(result: Evaluation) -> Table:
    table = Table("", "", "", title="Right on the test sentences, %", box=None, pad_edge=False, show_header=False)
    table.title_justify, table.title_style = "left", "bold"
    table.columns[1].justify = "right"
    for name, meaning in SCORES.items():
        table.add_row(name, f"{100 * result.metrics[name].f1:.2f}", meaning)
    return table


def _chosen(found: list[ParsedFile]) -> list[tuple[str, ParsedFile]]:
    """Short sentences to print: all right with crossing arcs, with one mistake, and with both crossing and mistakes."""

    def crossing(parse: ParsedFile) -> bool:
        return not is_projective(parse.gold_heads or [])

    kinds = {
        "Crossing arcs, all right": [p for p in found if crossing(p) and not p.wrong],
        "One word wrong (×: what it should be)": [p for p in found if p.right_labels == len(p.words) - 1],
        "Crossing arcs and mistakes": [p for p in found if crossing(p) and p.wrong],
    }
    chosen: list[tuple[str, ParsedFile]] = []
    for title, those in kinds.items():
        left = [parse for parse in those if all(parse is not other for _, other in chosen)]
        if left:
            chosen.append((title, min(left, key=lambda p: (not SHORT <= len(p.words) <= LONG, len(p.words)))))
    return chosen


def _drawn(parse: ParsedFile) -> str:
    """The tree as it was parsed, and at the words that are wrong what is right."""
    assert parse.gold_heads is not None and parse.gold_labels is not None and parse.outcomes is not None
    width = max(map(len, parse.labels))
    labels = []
    for label, sure, outcome, right, head in zip(
        parse.labels, parse.confidence, parse.outcomes, parse.gold_labels, parse.gold_heads, strict=True
    ):
        wrong = "" if outcome in ("right", "subtype") else f"  × {right} of {parse.words[head - 1] if head else 'ROOT'}"
        labels.append(f"{label:<{width}}  {sure:.2f}{wrong}")
    return tree_text([-1, *parse.heads], parse.words, labels)


if __name__ == "__main__":
    main()
