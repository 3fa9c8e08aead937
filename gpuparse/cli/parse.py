"""``gpuparse parse``: a corpus of any size, parsed by a trained model."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gpuparse.cli.common import count, fail
from gpuparse.cli.memory import steady_memory
from gpuparse.corpus import Failure, Report, parse_corpus
from gpuparse.corpus.driver import BATCH_WORDS
from gpuparse.corpus.inputs import sizes
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import Sentence
from gpuparse.parser import Parser

_NAMED = 1000  # failures that are named; the rest is counted


def parse(
    model: Annotated[Path, typer.Argument(help="The directory of a trained model.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(help="CoNLL-U files, *.gz too; - or none is standard input. Several are parsed to one output."),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="The file to write, *.gz is packed; - is standard output.")
    ] = "-",
    method: Annotated[str, typer.Option(help="How to find the best tree: auto, mst, eisner.")] = "auto",
    projective: Annotated[
        bool | None,
        typer.Option("--projective/--non-projective", help="Which trees to allow.", show_default="as in training"),
    ] = None,
    single_root: Annotated[
        bool | None,
        typer.Option(
            "--single-root/--multi-root", help="One word under the root, or any number.", show_default="as in training"
        ),
    ] = None,
    confidence: Annotated[
        bool,
        typer.Option("--confidence", help="Write each arc's probability to MISC, as Confidence=0.9731."),
    ] = False,
    batch_words: Annotated[int, typer.Option(min=1, help="Words of a batch, padding counted.")] = BATCH_WORDS,
    max_words: Annotated[
        int | None, typer.Option(min=1, help="Leave longer sentences unparsed.", show_default="no limit")
    ] = None,
    device: Annotated[str, typer.Option(help="Where to run: cpu, cuda, cuda:1.")] = "cpu",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads on the CPU.", show_default="one for each core")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with a run that was interrupted; leaves a complete output alone."),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Forget a run that was interrupted; also lets the output replace an input."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Parse CoNLL-U files: HEAD and DEPREL are replaced, all else stays as it is.

    A sentence that cannot be parsed is named on stderr and written as it was; the exit code is then 1.
    """
    paths = inputs or ["-"]
    if resume and overwrite:
        fail("--resume goes on with an interrupted run and --overwrite forgets it: choose one", 2)
    if resume and output == "-":
        fail("--resume needs an output file (-o): what went to standard output cannot be gone on with", 2)
    if not inputs and sys.stdin.isatty() and not quiet:
        typer.echo("gpuparse: reading CoNLL-U from the terminal", err=True)
    try:
        known = sizes(paths)
        if threads is not None:
            torch.set_num_threads(threads)
        parser = Parser.load(model, device)
        options: dict[str, Any] = {"method": method, "projective": projective, "single_root": single_root}

        def predict(sentences: list[Sentence]) -> list[Prediction]:
            return parser.predict(sentences, confidence=confidence, batch_words=batch_words, **options)

        try:
            predict([Sentence.from_words(["a", "b"])])  # what is wrong with the options is wrong with any sentence
        except ValueError as error:
            fail(str(error), 2)
        parser.seconds = dict.fromkeys(parser.seconds, 0.0)
        view = _View(paths, known, quiet or (output == "-" and sys.stdout.isatty()))
        begun = time.perf_counter()
        with view.bar, steady_memory():
            report = parse_corpus(
                paths,
                output,
                predict,
                batch_words=batch_words,
                confidence=confidence,
                max_words=max_words,
                resume=resume,
                overwrite=overwrite,
                settings={"model": _fingerprint(model), "device": device, **options},
                on_failure=view.name,
                progress=view.update,
            )
    except KeyboardInterrupt:
        kept = output != "-" and os.path.exists(f"{os.path.realpath(output)}.partial")
        fail("interrupted; pass --resume to go on" if kept else "interrupted", 130)
    except OSError as error:
        if not error.filename:
            raise
        fail(f"{error.filename}: {error.strerror}")
    except ValueError as error:
        fail(str(error))
    _finish(report, parser.seconds, time.perf_counter() - begun, output, quiet)


class _View:
    """What is shown while parsing: a bar on a terminal, and the sentences that fail."""

    def __init__(self, paths: list[str], known: list[int | None], hidden: bool) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn("parsing"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=hidden or not self.console.is_terminal,
        )
        plain = [size for path, size in zip(paths, known, strict=True) if size is not None and not path.endswith(".gz")]
        total = sum(plain) if len(plain) == len(paths) else None
        self.task = self.bar.add_task("parse", total=total, counts="")
        self.begun = time.perf_counter()
        self.named = 0

    def update(self, report: Report) -> None:
        """Move the bar."""
        if not self.bar.disable:
            speed = (report.words - report.earlier_words) / max(time.perf_counter() - self.begun, 1e-9)
            self.bar.update(self.task, completed=report.bytes, counts=f"{report.words:,} words, {speed:,.0f}/s")

    def name(self, failure: Failure) -> None:
        """Say which sentence failed."""
        self.named += 1
        if self.named <= _NAMED:
            self._say(f"gpuparse: {failure}; written unparsed")
        elif self.named == _NAMED + 1:
            self._say(f"gpuparse: {_NAMED:,} sentences named; further ones that fail are only counted")

    def _say(self, line: str) -> None:
        line = line.encode("utf-8", "backslashreplace").decode()  # input that is not UTF-8
        if self.bar.disable:
            typer.echo(line, err=True)
        else:
            self.console.print(line, markup=False, soft_wrap=True)


def _fingerprint(model: Path) -> str:
    """A digest of what the model's parses depend on."""
    digest = hashlib.blake2b(digest_size=16)
    encoder = sorted(path for path in (model / "encoder").rglob("*") if path.is_file())
    for path in (*(model / name for name in ("config.toml", "vocabulary.json", "model.safetensors")), *encoder):
        with open(path, "rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _finish(report: Report, seconds: dict[str, float], wall: float, output: str, quiet: bool) -> None:
    """Say what was done, and leave with 1 if anything was not."""
    if report.finished_before:
        if not quiet:
            typer.echo(f"gpuparse: {output} is complete, nothing to resume; leave out --resume to parse anew", err=True)
        return
    if not quiet:
        typer.echo(summary(report, seconds, wall), err=True)
    if report.failed:
        fail(f"{count(report.failed, 'sentence')} of {report.sentences:,} written unparsed")


def summary(report: Report, seconds: dict[str, float], wall: float) -> str:
    """One line: counts, speed and where the time went."""
    words = report.words - report.earlier_words
    line = f"{count(report.sentences, 'sentence')}, {count(report.words, 'word')}"
    if report.earlier_sentences:
        line += f" ({report.earlier_sentences:,} and {report.earlier_words:,} before the interruption)"
    line += f" in {wall:.1f} s, {words / max(wall, 1e-9):,.0f} words/s"
    shares = {
        "encoder": seconds.get("encode", 0.0),
        "batching": seconds.get("batch", 0.0),
        "decoding": seconds.get("decode", 0.0) + seconds.get("labels", 0.0),
        "reading and writing": report.seconds["read"] + report.seconds["write"],
    }
    told = ", ".join(f"{name} {100 * spent / max(wall, 1e-9):.1f} %" for name, spent in shares.items())
    return f"{line}: {told}"
