"""``gpuparse train``: learn a parser or a tagger from a treebank."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tomli_w
import typer

from gpuparse.cli.common import fail, put
from gpuparse.cli.options import Quiet
from gpuparse.config import Config
from gpuparse.system import startup


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
    quiet: Quiet = False,
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
    with startup.importing():
        import torch

        from gpuparse.cli.terminal import Terminal
        from gpuparse.train import TrainingReport, train_tagger
        from gpuparse.train import train as train_parser

    if threads:
        torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    report = TrainingReport() if quiet else Terminal(resolved.task == "tag")
    try:
        run = train_parser if resolved.task == "parse" else train_tagger
        run(resolved, model, resume=resume, overwrite=overwrite, device=device, report=report)
    except KeyboardInterrupt:
        fail("interrupted; pass --resume to go on", 130)
    finally:
        if isinstance(report, Terminal):
            report.close()


def _quoted(text: str) -> str:
    """A value as ``--set`` takes it."""
    return tomli_w.dumps({"value": text}).removeprefix("value = ").rstrip("\n")
