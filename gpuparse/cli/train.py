"""``gpuparse train``: learn a parser or a tagger from a treebank."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gpuparse.cli.common import fail, one_line, put
from gpuparse.config import Config
from gpuparse.train import Report, train_tagger
from gpuparse.train import train as train_parser


def train(
    model: Annotated[Path, typer.Argument(help="The directory of the model, made here.", metavar="MODEL")],
    task: Annotated[
        Literal["parse", "tag"] | None,
        typer.Option(help="What is learned: a parser, or a tagger.", show_default="parse, or what --config says"),
    ] = None,
    data: Annotated[
        str, typer.Option("--train", help="CoNLL-U to learn from (- for stdin, .gz). Default: the built-in treebank.")
    ] = "",
    dev: Annotated[str, typer.Option(help="CoNLL-U that says when it was best (by LAS, or by accuracy of tags).")] = "",
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting, as in training.epochs=10; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where a run in MODEL stopped; from the start if there is none.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin anew though MODEL holds a model.")] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out sentences that are malformed or no tree, and name them.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads; 0: as many as torch would.", min=0)] = 0,
    show: Annotated[bool, typer.Option("--show-config", help="Print the settings as TOML and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Train a parser, or a tagger, on CoNLL-U and keep the best one in MODEL.

    MODEL gets the settings (config.toml), a log (log.jsonl) and a curve (curve.png) as well. Run it under torchrun to
    share the batches among processes.
    """
    if resume and overwrite:
        fail("--resume goes on with an interrupted run and --overwrite forgets it: choose one", 2)
    given = list(settings or [])
    given += [f"task={task}"] if task else []
    given += [f"data.train={_quoted(data)}"] if data else []
    given += [f"data.dev={_quoted(dev)}"] if dev else []
    given += ['data.on_bad="skip"'] if skip_bad else []
    resolved = Config.load(config, given)
    if show:
        put(resolved.to_toml(), end="")
        return
    if threads:
        torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    report = Report() if quiet else _Terminal(resolved.task == "tag")
    try:
        run = train_parser if resolved.task == "parse" else train_tagger
        run(resolved, model, resume=resume, overwrite=overwrite, device=device, report=report)
    except KeyboardInterrupt:
        fail("interrupted; pass --resume to go on", 130)
    finally:
        if isinstance(report, _Terminal):
            report.close()


def _quoted(text: str) -> str:
    """A value as ``--set`` takes it."""
    return tomli_w.dumps({"value": text}).removeprefix("value = ").rstrip("\n")


class _Terminal(Report):
    """A progress bar where stderr is a terminal, and a line an epoch on stderr."""

    def __init__(self, tags: bool) -> None:
        self.tags = tags
        self.console = Console(stderr=True, highlight=False)
        self.progress = Progress(
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]:.3f}  {task.fields[speed]:,.0f} words/s"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self.task = self.progress.add_task("", total=None, epoch=0, epochs=0, loss=0.0, speed=0.0)
        self.epochs = 1

    def note(self, text: str) -> None:
        self.console.print(one_line(f"gpuparse: {text}"), markup=False, soft_wrap=True)

    def begin(self, *, epochs: int, epoch: int) -> None:
        self.epochs = epochs
        self.progress.update(self.task, total=epochs, completed=epoch, epoch=epoch + 1, epochs=epochs)
        self.progress.start()

    def step(self, *, epoch: int, batch: int, batches: int, loss: float, words_per_second: float) -> None:
        self.progress.update(
            self.task, completed=epoch + batch / batches, epoch=epoch + 1, loss=loss, speed=words_per_second
        )

    def epoch(self, record: dict[str, Any]) -> None:
        text = f"epoch {record['epoch']:>3}/{self.epochs}  loss {record['loss']:.3f}"
        if "dev_las" in record:
            text += f"  dev UAS {100 * record['dev_uas']:.2f}  LAS {100 * record['dev_las']:.2f}"
        if "dev_accuracy" in record:
            text += f"  dev accuracy {100 * record['dev_accuracy']:.2f}"
        text += "  *" if record["best"] else "   "
        inference = "tag inference" if self.tags else "tree inference"
        text += f"  {record['seconds']:.0f} s, {100 * record['inference_share']:.1f} % in {inference}"
        self.console.print(text, markup=False, soft_wrap=True)

    def close(self) -> None:
        self.progress.stop()
