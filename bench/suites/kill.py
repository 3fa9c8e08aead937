"""Kill -9 at random moments of `gpuparse train` and of `gpuparse parse`, then --resume: is the result the same?

Every run is killed once, every other run a second time after it was resumed, and then resumed to its end. Its weights
(parse: its output file) must be those of a run that nobody disturbed, to the byte.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.bars import Bar, none_of
from bench.commands import COMMAND, TINY, failure, settings
from bench.output import LOG, Problem, show
from bench.registry import Args, Measured, Option, Suite, at_least, whole
from gpuparse.cli.corpus.output import progress_of
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.conllu import write_conllu
from gpuparse.train.checkpoint import NAME, read_position
from gpuparse.train.loop import FINISHED
from gpuparse.train.report import read_log

ENOUGH = 2 / 3  # of the kills must fall after something was saved
AFTER_SAVE = 0.85  # of the kills are meant to
TRIES = 6


@dataclass
class Training:
    """Of a tiny model on the built-in treebank, with a checkpoint every few batches."""

    epochs: int
    name: str = "train"
    longer: str = "--epochs"
    """The option that makes it longer."""

    def command(self, target: Path) -> list[str]:
        """The command that makes ``target``, without --resume."""
        options = TINY | {"training.epochs": self.epochs, "training.checkpoint_seconds": 0.25}
        return ["train", str(target), *settings(options), "--threads", "1"]

    def saved(self, target: Path) -> str:
        """What there is to go on from, in words; nothing if there is nothing."""
        if not (target / NAME).is_file():
            return ""
        position = read_position(target)
        return f"epoch {position['epoch'] + 1}, batch {position['batch'] + 1}"

    def complete(self, target: Path) -> bool:
        """Whether nothing is left to do."""
        return (target / FINISHED).is_file()

    def differences(self, target: Path, wanted: Path) -> list[str]:
        """What is not as in the undisturbed run."""
        names = ("model.safetensors", "vocabulary.json", "config.toml", "model.json")
        found = [name for name in names if (target / name).read_bytes() != (wanted / name).read_bytes()]
        return found + ["losses in log.jsonl"] * (_losses(target) != _losses(wanted))


def _losses(model: Path) -> list[tuple[Any, ...]]:
    names = ("event", "step", "epoch", "loss", "gradient_norm", "learning_rate", "dev_uas", "dev_las")
    return [tuple(record.get(name) for name in names) for record in read_log(model / "log.jsonl")]


@dataclass
class Parsing:
    """Of a file of many windows of short sentences."""

    model: Path
    corpus: Path
    name: str = "parse"
    longer: str = "--sentences"

    def command(self, target: Path) -> list[str]:
        return ["parse", str(self.model), str(self.corpus), "-o", str(target), "--confidence", "--threads", "1"]

    def saved(self, target: Path) -> str:
        try:
            progress = json.loads(Path(progress_of(str(target))).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ""
        sentences = progress["state"]["sentences"]
        return f"{sentences:,} sentences" if sentences else ""

    def complete(self, target: Path) -> bool:
        return target.is_file()

    def differences(self, target: Path, wanted: Path) -> list[str]:
        found = ["the output"] * (target.read_bytes() != wanted.read_bytes())
        return found + [path.name for path in target.parent.iterdir() if path != target]


Job = Training | Parsing


class Kill(NamedTuple):
    """One of them."""

    seconds: float  # after the command's start
    saved: str  # what could be gone on from


@dataclass
class Run:
    """A run that was killed and resumed."""

    job: str
    number: int
    kills: list[Kill] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Undisturbed(NamedTuple):
    """How long a run takes until the first thing is saved, and in all."""

    target: Path
    first: float
    seconds: float


def start(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=file)


def undisturbed(job: Job, target: Path) -> Undisturbed:
    """Run to the end, and watch when the first thing is saved."""
    LOG.print(f"{job.name}, undisturbed")
    target.parent.mkdir()
    log = target.parent.with_suffix(".log")
    begun, first = time.perf_counter(), 0.0
    process = start(job.command(target), log)
    try:
        while process.poll() is None:
            if not first and job.saved(target):
                first = time.perf_counter() - begun
            time.sleep(0.01)
    except BaseException:
        process.kill()
        raise
    seconds = time.perf_counter() - begun
    if process.returncode:
        raise failure(job.name, process.returncode, log.read_text(errors="replace"))
    if not first:
        raise Problem(f"gpuparse {job.name} saved nothing before its end ({seconds:.1f} s); raise {job.longer}")
    return Undisturbed(target, first, seconds)


def kill(job: Job, target: Path, delay: float | None, *, after_save: bool = False, resume: bool = False) -> Kill | None:
    """Run and kill -9 after so many seconds, from its start or from its first save; None if it was done by then.

    Without a delay it is left to run to its end.
    """
    log = target.parent.with_suffix(".log")
    begun = time.perf_counter()
    process = start([*job.command(target), *(["--resume"] if resume else [])], log)
    try:
        while after_save and not job.saved(target) and process.poll() is None:
            time.sleep(0.01)
        process.wait(delay)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()  # SIGKILL
        process.wait()
    if process.returncode not in (0, -signal.SIGKILL) or (process.returncode and delay is None):
        raise failure(job.name, process.returncode, log.read_text(errors="replace"))
    if process.returncode == 0 or job.complete(target):
        return None
    return Kill(time.perf_counter() - begun, job.saved(target))


def disturbed(job: Job, number: int, scratch: Path, seed: int, normal: Undisturbed) -> Run:
    """One run: kill, resume, perhaps kill again, resume, compare."""
    random, run, begun = Random(f"{seed} {job.name} {number}"), Run(job.name, number), time.perf_counter()
    # How fast a command starts changes with the machine's load: moments after the first save are counted from it.
    after_save = random.random() < AFTER_SAVE
    delay = random.random() * (normal.seconds - normal.first if after_save else normal.first)
    for attempt in range(TRIES):
        target = scratch / f"{job.name}-{number}-{attempt}" / normal.target.name
        target.parent.mkdir()
        if found := kill(job, target, delay, after_save=after_save):
            break
        delay *= 0.8  # it was done by then, faster than the undisturbed one
    else:
        raise Problem(f"gpuparse {job.name} was done {TRIES} times before it could be killed; raise {job.longer}")
    run.kills.append(found)
    if number % 2:
        again = kill(job, target, random.uniform(0.5, 1.0) * normal.seconds, resume=True)
        run.kills += [again] if again else []
    kill(job, target, None, resume=True)
    run.differences = job.differences(target, normal.target)
    run.seconds = time.perf_counter() - begun
    moments = ", ".join(f"{each.seconds:.2f} s ({each.saved or 'nothing saved'})" for each in run.kills)
    LOG.print(f"{job.name} {number}: killed after {moments}: {', '.join(run.differences) or 'the same'}")
    return run


def kill_and_resume(args: Args) -> Measured:
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        training = Training(args.epochs)
        normal = {"train": undisturbed(training, scratch / "undisturbed-train" / "model")}
        corpus = scratch / "corpus.conllu"
        short = (s for s in artificial_treebank(1 << 40, seed=args.seed) if len(s) <= args.longest)
        write_conllu(islice(short, args.sentences), corpus)
        parsing = Parsing(normal["train"].target, corpus)
        normal["parse"] = undisturbed(parsing, scratch / "undisturbed-parse" / "parsed.conllu")
        jobs: list[Job] = [training, parsing]
        wanted = [(job, number) for number in range(1, args.runs + 1) for job in jobs]
        with ThreadPoolExecutor(args.jobs) as workers:
            waiting = [workers.submit(disturbed, *each, scratch, args.seed, normal[each[0].name]) for each in wanted]
            try:
                runs = [each.result() for each in waiting]
            except BaseException:
                workers.shutdown(cancel_futures=True)
                raise
    rows, bars = [], []
    for job in jobs:
        mine = [run for run in runs if run.job == job.name]
        kills = [each for run in mine for each in run.kills]
        middle = sum(bool(each.saved) for each in kills)
        differing = sum(bool(run.differences) for run in mine)
        times = normal[job.name]
        rows.append((f"gpuparse {job.name}", f"{times.seconds:.1f}", f"{times.first:.1f}", len(kills), middle))
        bars.append(none_of(f"runs of {job.name} that differ in a byte", differing))
        bars.append(Bar(f"kills of {job.name} after a save", 100 * middle / len(kills), 100 * ENOUGH, unit=" %"))
    columns = ("command", ">undisturbed, s", ">first save, s", ">kills", ">after a save")
    show(f"Kill -9 and resume, {args.runs} runs each", columns, rows)
    data = {
        "undisturbed": {name: {"first_save": n.first, "seconds": n.seconds} for name, n in normal.items()},
        "runs": [asdict(run) for run in runs],
    }
    return Measured(data, bars)


SUITE = Suite(
    "kill",
    "kill -9 at random moments of gpuparse train and parse, then --resume: the same to the byte",
    {"kill": kill_and_resume},
    [
        Option("runs", "of train and of parse", 10, whole, trial=True),
        Option("seed", "of the moments", 0, at_least(0)),
        Option("epochs", "of the training", 4, whole),
        Option("sentences", "that are parsed", 48_000, whole),
        Option("longest", "words of a sentence at most", 12, whole),
        Option("jobs", "runs at a time, each in one thread", min(2, os.cpu_count() or 1), whole),
    ],
)
