"""What the commands that read and write corpora share: the run, a bar, the sentences that fail, the last line."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gpuparse.cli.common import count, fail, one_line, reason, say
from gpuparse.cli.corpus import CorpusReport, Failure, parse_corpus
from gpuparse.cli.corpus.inputs import sizes
from gpuparse.cli.memory import steady_memory
from gpuparse.data.sentence import Sentence
from gpuparse.nn.saved import model_files
from gpuparse.system.files import open_file

_NAMED = 1000  # failures that are named; the rest is counted


class Run(NamedTuple):
    """How a command goes over a corpus, as its options say."""

    inputs: list[str] | None
    output: str
    batch_words: int
    max_words: int | None
    threads: int | None
    resume: bool
    overwrite: bool
    quiet: bool


class Work(NamedTuple):
    """What a command does to sentences."""

    predict: Callable[[list[Sentence]], list[Any]]
    fill: Callable[[Sentence, Any], Sentence] | None  # see parse_corpus
    settings: dict[str, Any]  # what the output depends on
    probe: Callable[[list[Sentence]], Any] | None = None  # predict without what depends on the sentence
    told: Callable[[CorpusReport], str] | None = None  # what else is said at the end
    unfilled: Callable[[Sentence, Failure | None], Sentence] | None = None  # see parse_corpus


def stream(begin: Callable[[], Work], run: Run, *, verb: tuple[str, str], confidence: bool = False) -> None:
    """Run a command over a corpus, say what was done, and leave with 1 if anything was not.

    Args:
        begin: loads what is needed.
        verb: what is done, as in parse, parsed.
    """
    inputs, output, batch_words, max_words, threads, resume, overwrite, quiet = run
    paths = inputs or ["-"]
    if resume and overwrite:
        fail("--resume goes on with an interrupted run and --overwrite forgets it: choose one", 2)
    if resume and output == "-":
        fail("--resume needs an output file (-o): what went to standard output cannot be gone on with", 2)
    if not inputs and sys.stdin.isatty() and not quiet:
        say("gpuparse: reading CoNLL-U from the terminal")
    try:
        known = sizes(paths)
        if threads is not None:
            torch.set_num_threads(threads)
        work = begin()
        try:
            # What is wrong with the options is wrong with any sentence.
            (work.probe or work.predict)([Sentence.from_words(["a", "b"])])
        except ValueError as error:
            fail(str(error), 2)
        view = _View(verb, paths, known, quiet or (output == "-" and sys.stdout.isatty()))
        begun = time.perf_counter()
        with view.bar, steady_memory():
            report = parse_corpus(
                paths,
                output,
                work.predict,
                fill=work.fill,
                unfilled=work.unfilled,
                batch_words=batch_words,
                confidence=confidence,
                max_words=max_words,
                resume=resume,
                overwrite=overwrite,
                settings=work.settings,
                on_failure=view.name,
                progress=view.update,
            )
    except KeyboardInterrupt:
        kept = output != "-" and os.path.exists(f"{os.path.realpath(output)}.partial")
        fail("interrupted; pass --resume to go on" if kept else "interrupted", 130)
    except (OSError, ValueError) as error:
        fail(reason(error))
    if not quiet and report.finished_before:
        say(f"gpuparse: {output} is complete, nothing to resume; leave out --resume to {verb[0]} anew")
    elif not quiet:
        say(summary(report, time.perf_counter() - begun))
        if work.told is not None:
            say(work.told(report))
    if report.failed:
        fail(f"{count(report.failed, 'sentence')} of {report.sentences:,} written un{verb[1]}")


_ING = {"parse": "parsing", "tag": "tagging"}


class _View:
    """What is shown meanwhile: a bar on a terminal, and the sentences that fail."""

    def __init__(self, verb: tuple[str, str], paths: list[str], known: list[int | None], hidden: bool) -> None:
        self.left = f"written un{verb[1]}"
        self.console = Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn(_ING[verb[0]]),
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
        self.task = self.bar.add_task(verb[0], total=total, counts="")
        self.begun = time.perf_counter()
        self.named = 0

    def update(self, report: CorpusReport) -> None:
        """Move the bar."""
        if not self.bar.disable:
            speed = (report.words - report.earlier_words) / max(time.perf_counter() - self.begun, 1e-9)
            self.bar.update(self.task, completed=report.bytes, counts=f"{report.words:,} words, {speed:,.0f}/s")

    def name(self, failure: Failure) -> None:
        """Say which sentence failed."""
        self.named += 1
        if self.named <= _NAMED:
            self._say(f"gpuparse: {failure}; {self.left}")
        elif self.named == _NAMED + 1:
            self._say(f"gpuparse: {_NAMED:,} sentences named; further ones that fail are only counted")

    def _say(self, line: str) -> None:
        if self.bar.disable:
            say(line)
        else:
            self.console.print(one_line(line), markup=False, soft_wrap=True)


def fingerprint(model: Path) -> str:
    """A digest of what the model's answers depend on."""
    digest = hashlib.blake2b(digest_size=16)
    for path in model_files(model):
        with open_file(path, inside=model) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def summary(report: CorpusReport, wall: float) -> str:
    """One line: counts, speed and where the time went."""
    words = report.words - report.earlier_words
    line = f"{count(report.sentences, 'sentence')}, {count(report.words, 'word')}"
    if report.earlier_sentences:
        line += f" ({report.earlier_sentences:,} and {report.earlier_words:,} before the interruption)"
    line += f" in {wall:.1f} s, {words / max(wall, 1e-9):,.0f} words/s"
    seconds = report.within
    shares = {"encoder": seconds["encode"], "batching": seconds["batch"]}
    shares |= {"decoding": seconds["decode"] + seconds["labels"]}
    shares |= {"reading and writing": report.seconds["read"] + report.seconds["write"]}
    told = ", ".join(f"{name} {100 * spent / max(wall, 1e-9):.1f} %" for name, spent in shares.items())
    return f"{line}: {told}"
