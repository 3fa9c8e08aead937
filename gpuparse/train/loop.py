"""The training loop: epochs of batches, development scores, checkpoints, and going on after a sudden end."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from gpuparse.config import Config
from gpuparse.data.batches import shuffled_batches
from gpuparse.data.sentence import Sentence
from gpuparse.models.parser import Parser
from gpuparse.models.tagger import Tagger
from gpuparse.nn.saved import FILES
from gpuparse.system.files import is_there, read_json, remove_leftovers, write_json
from gpuparse.system.quote import quoted
from gpuparse.system.stopwatch import Stopwatch
from gpuparse.train import checkpoint
from gpuparse.train.distributed import Processes, own_device, processes
from gpuparse.train.learner import Stats, read_stats
from gpuparse.train.report import Log, TrainingReport, draw_curve
from gpuparse.train.tagging import TaggingTask
from gpuparse.train.task import Parsing, Task
from gpuparse.train.treebank import Treebank, load_treebank

LOG, CURVE, FINISHED = "log.jsonl", "curve.png", "training.json"
LOG_EVERY = 20  # steps
# What a checkpoint keeps of a run besides tensors.
POSITION = ("epoch", "batch", "steps", "best", "loss", "words", "seconds", "step_seconds", "inference")


def train(
    config: Config,
    directory: Path | str,
    *,
    train: Iterable[Sentence] | None = None,
    dev: Iterable[Sentence] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: torch.device | str = "cpu",
    report: TrainingReport | None = None,
) -> Parser:
    """Train a parser and keep the best one, by LAS on the dev data, in a directory.

    Args:
        config: what to train and how; the files to learn from, unless ``train`` and ``dev`` are given.
        directory: gets the model (see ``Parser``), ``log.jsonl``, ``curve.png`` and, until training is done, its
            checkpoint.
        resume: go on from the checkpoint in ``directory``, if there is one: the weights come out the same as
            without the interruption.
        overwrite: begin anew although ``directory`` holds a model.
        report: is told how training goes.

    Under ``torchrun`` the processes share each batch. Without dev data the last weights are kept.

    Raises ValueError, in one line that names the setting, the file or the line, at settings or data that are wrong.

    Example:
        >>> import tempfile
        >>> from gpuparse.config import Config
        >>> from gpuparse.data.artificial import artificial_treebank
        >>> from gpuparse.train import train
        >>> settings = ["scorer.kind=templates", "training.objective=perceptron", "training.epochs=1"]
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     parser = train(Config.load(overrides=settings), f"{directory}/model", train=artificial_treebank(3))
        >>> len(parser.parse([["We", "saw", "it"]])[0].heads)
        3
    """
    _check_task(config, "parse")
    _train(config, directory, device, train, dev, resume, overwrite, report)
    return Parser.load(directory, own_device(device))


def train_tagger(
    config: Config, directory: Path | str, *, device: torch.device | str = "cpu", **options: Any
) -> Tagger:
    """Train a tagger and keep the best one, by accuracy on the dev data, in a directory; all as for a parser.

    Example:
        >>> import tempfile
        >>> from gpuparse.config import Config
        >>> from gpuparse.data.artificial import artificial_treebank
        >>> from gpuparse.train import train_tagger
        >>> settings = ["task=tag", "scorer.kind=templates", "training.objective=perceptron", "training.epochs=1"]
        >>> config = Config.load(overrides=settings)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     tagger = train_tagger(config, f"{directory}/model", train=artificial_treebank(3))
        >>> len(tagger.predict([["We", "saw", "it"]])[0])
        3
    """
    _check_task(config, "tag")
    _train(config, directory, device, **options)
    return Tagger.load(directory, own_device(device))


def _train(
    config: Config,
    directory: Path | str,
    device: torch.device | str,
    train: Iterable[Sentence] | None = None,
    dev: Iterable[Sentence] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: TrainingReport | None = None,
) -> None:
    """Leave a trained model in the directory."""
    directory, device = Path(directory), own_device(device)
    report = report or TrainingReport()
    kind: type[Task] = Parsing if config.task == "parse" else TaggingTask
    kind.check(config)
    _check_directory(directory, resume, overwrite)
    treebank = load_treebank(config, train, dev)
    finished = directory / FINISHED
    if resume and is_there(finished):
        _check_same(read_json(finished, inside=directory), config, treebank, directory)
        (directory / checkpoint.NAME).unlink(missing_ok=True)
        report.note(f"{directory}: training was finished before")
        return
    with processes(device) as group:
        if not group.first:
            report = TrainingReport()
        for note in treebank.notes:
            report.note(note)
        run = _Training(kind(config, treebank.train, device, group), config, directory, treebank, device, group, report)
        try:
            run.begin(resume)
            group.wait()
            run.epochs()
            run.finish()
            group.wait()
        finally:
            run.close()


class _Training:
    """One run of training, which can be stopped at any moment."""

    def __init__(
        self,
        task: Task,
        config: Config,
        directory: Path,
        treebank: Treebank,
        device: torch.device,
        group: Processes,
        report: TrainingReport,
    ) -> None:
        self.task, self.config, self.directory, self.treebank = task, config, directory, treebank
        self.device, self.group, self.report = device, group, report
        self.model, self.learner = task.model, task.learner
        self.lengths = [len(sentence) for sentence in treebank.train]
        self.epoch = self.batch = self.steps = 0
        self.best: dict[str, Any] = {}
        self.loss = self.words = 0.0  # of this epoch so far
        self.seconds = self.step_seconds = self.inference = 0.0  # in all, in steps, in their inference
        self.unread: list[tuple[int, int, Stats]] = []  # the batch, its words and what its step told
        self.saved = time.perf_counter()
        self.log: Log | None = None

    def begin(self, resume: bool) -> None:
        """Go on from the checkpoint, if that is wanted and there is one; else clear the directory of another run."""
        resumed = resume and is_there(self.directory / checkpoint.NAME)
        if not self.group.same(int(resumed), int(self.treebank.fingerprint()[:12], 16)):
            raise ValueError(
                f"{self.directory}: the processes do not see the same data and checkpoint; they need the same files"
            )
        if self.group.first:
            self.directory.mkdir(parents=True, exist_ok=True)
            for name in (*FILES, checkpoint.NAME, FINISHED, LOG, CURVE):
                remove_leftovers(self.directory / name)
        if resumed:
            self._resume()
        elif self.group.first:
            for name in ("model.json", FINISHED, checkpoint.NAME):
                (self.directory / name).unlink(missing_ok=True)

    def _resume(self) -> None:
        # Another configuration is named before its weights fail to fit.
        _check_same(checkpoint.read_position(self.directory), self.config, self.treebank, self.directory)
        position = checkpoint.load_checkpoint(self.directory, self.learner)
        checkpoint.check_position(position, self.directory)
        if position["processes"] != self.group.world:
            raise ValueError(
                f"{self.directory}: begun by {position['processes']} processes and would go on with "
                f"{self.group.world}; run as many, or begin anew with --overwrite"
            )
        for name in POSITION:
            setattr(self, name, position[name])
        if self.group.first:
            self.log = Log(self.directory / LOG, position["log_length"])
        self.report.note(f"going on with epoch {self.epoch + 1}, batch {self.batch + 1}")

    def save(self) -> None:
        """Write a checkpoint (the first process alone)."""
        if not self.group.first:
            return
        assert self.log is not None
        position = {name: getattr(self, name) for name in POSITION}
        position |= {"processes": self.group.world, "log_length": self.log.length}
        checkpoint.save_checkpoint(self.directory, self.learner, {**position, **_identity(self.config, self.treebank)})
        self.saved = time.perf_counter()

    def epochs(self) -> None:
        training = self.config.training
        if self.log is None and self.group.first:
            self.log = Log(self.directory / LOG)
            self.log.write(
                "start",
                config=self.config.to_dict(),
                sentences=len(self.lengths),
                words=sum(self.lengths),
                dev_sentences=len(self.treebank.dev),
                parameters=sum(p.numel() for p in self.model.scorer.parameters()),
                processes=self.group.world,
                threads=torch.get_num_threads(),
            )
        self.report.begin(epochs=training.epochs, epoch=self.epoch)
        while self.epoch < training.epochs:
            if training.patience and self.best and self.epoch - self.best["epoch"] >= training.patience:
                break  # the dev score has not risen for as long as the user would wait
            self._epoch()

    def _epoch(self) -> None:
        training = self.config.training
        batches = shuffled_batches(self.lengths, training.batch_words, seed=training.seed, epoch=self.epoch)
        began = time.perf_counter()
        seconds_before, words_here = self.seconds, 0
        while self.batch < len(batches):
            indices = batches[self.batch]
            words = sum(self.lengths[index] for index in indices)
            progress = (self.epoch + self.batch / len(batches)) / training.epochs
            batch = self.task.batch(self.group.part(indices))
            clock = Stopwatch(self.device)
            stats = self.learner.step(batch, words=words, progress=progress)
            self.batch, self.steps, words_here = self.batch + 1, self.steps + 1, words_here + words
            self.unread.append((self.batch, words, {**stats, "seconds_step": clock.stop()}))
            now = time.perf_counter()
            self.seconds = seconds_before + now - began
            if self.device.type == "cuda" and self.steps % LOG_EVERY and self.batch < len(batches):
                continue  # to read a loss is to wait for it
            told = self._read()
            speed = words_here / (now - began)
            self.report.step(
                epoch=self.epoch,
                batch=self.batch,
                batches=len(batches),
                loss=self.loss / self.words,
                words_per_second=speed,
            )
            if self.log is not None and self.steps % LOG_EVERY == 0:
                self.log.write("step", step=self.steps, epoch=self.epoch + 1, words_per_second=round(speed), **told)
            if now - self.saved >= training.checkpoint_seconds and self.batch < len(batches):
                self.save()
        self._end_epoch()
        self.seconds = seconds_before + time.perf_counter() - began
        self.save()

    def _read(self) -> dict[str, float]:
        """Add up what steps have told since the last time, and give the statistics of the last one."""
        found = read_stats([stats for _, _, stats in self.unread])
        for (batch, words, _), stats in zip(self.unread, found, strict=True):
            if not math.isfinite(stats["loss"]):
                raise _diverged(f"the loss of epoch {self.epoch + 1}, batch {batch} is {stats['loss']}")
            self.loss, self.words = self.loss + stats["loss"] * words, self.words + words
            self.inference += stats["seconds_inference"]
            self.step_seconds += stats.pop("seconds_step")
        self.unread = []
        return found[-1]

    def _end_epoch(self) -> None:
        """Development scores, the best model, the log."""
        record: dict[str, Any] = {
            "epoch": self.epoch + 1,
            "loss": self.loss / self.words,
            "seconds": round(self.seconds, 1),
            "inference_share": round(self.inference / self.step_seconds, 4),
        }
        better = True
        names = [f"dev_{name}" for name in self.task.scores]
        # All the processes have the same weights; the first one evaluates, and the others learn what came out.
        scores = torch.zeros(len(names), dtype=torch.float64, device=self.device)
        with self.learner.evaluation_weights():
            if not all(bool(weights.isfinite().all()) for weights in self.model.scorer.parameters()):
                raise _diverged(f"the weights after epoch {self.epoch + 1} are no numbers")
            if self.group.first and self.treebank.dev:
                began = time.perf_counter()
                try:
                    scores += scores.new_tensor(self.task.evaluate(self.treebank.dev))
                except ValueError as error:
                    what = f"the dev data cannot be {self.task.done}"
                    raise _diverged(f"after epoch {self.epoch + 1} {what}: {error}") from None
                record |= dict(zip(names, scores.tolist(), strict=True))
                record["dev_seconds"] = round(time.perf_counter() - began, 1)
            self.group.sum_([scores])
            found = dict(zip(names, scores.tolist(), strict=True)) if self.treebank.dev else {}
            if found and self.best:
                better = found[names[-1]] > self.best[names[-1]]
            if better:
                self.best = {"epoch": self.epoch + 1, **found}
                self.model.results = self.best
                if self.group.first:
                    self.model.save(self.directory)
        record["best"] = better
        if self.log is not None:
            self.report.epoch(self.log.write("epoch", **record))
        self.epoch, self.batch, self.loss, self.words = self.epoch + 1, 0, 0.0, 0.0

    def finish(self) -> None:
        """The curve, and a note that nothing is left to do."""
        if self.log is None:
            return
        self.log.write(
            "end",
            seconds=round(self.seconds, 1),
            inference_seconds=round(self.inference, 1),
            inference_share=round(self.inference / self.step_seconds, 4) if self.step_seconds else 0.0,
            best=self.best,
        )
        self.log.close()
        if not draw_curve(self.directory / LOG, self.directory / CURVE):
            self.report.note(f"no {CURVE}: matplotlib is not installed (pip install 'gpuparse[plot]')")
        done = {"finished": True, "seconds": round(self.seconds, 1), "best": self.best}
        write_json(self.directory / FINISHED, {**done, **_identity(self.config, self.treebank)})
        (self.directory / checkpoint.NAME).unlink(missing_ok=True)

    def close(self) -> None:
        if self.log is not None:
            self.log.close()


def _identity(config: Config, treebank: Treebank) -> dict[str, Any]:
    return {"config": config.to_dict(), "data": treebank.fingerprint()}


# What may differ between a run and its continuation.
_FREE = {"training": {"checkpoint_seconds"}, "data": {"train", "dev"}}


def _check_same(before: dict[str, Any], config: Config, treebank: Treebank, directory: Path) -> None:
    saved = before.get("config") if isinstance(before, dict) else None
    if not isinstance(saved, dict):
        raise ValueError(
            f"{directory}: cannot go on, the settings that it began with are not there; --overwrite begins anew"
        )
    now = config.to_dict()
    then = Config.from_dict(saved, str(directory)).to_dict()  # with what settings did not exist at the time
    changed = [("task", then.pop("task"), now.pop("task"))]
    for section, values in now.items():
        for name, value in values.items():
            if name not in _FREE.get(section, ()):
                changed.append((f"{section}.{name}", then[section][name], value))
    for name, old, value in changed:
        if old != value:
            raise ValueError(
                f"{directory}: cannot go on, {name} was {quoted(old)} and is {quoted(value)} now; "
                "leave it as it was, or begin anew with --overwrite"
            )
    if before.get("data") != treebank.fingerprint():
        raise ValueError(
            f"{directory}: cannot go on, the training or dev data are not what they were; "
            "put them back, or begin anew with --overwrite"
        )


def _check_directory(directory: Path, resume: bool, overwrite: bool) -> None:
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory}: is a file; wanted a directory for the model")
    there = [name for name in ("model.json", checkpoint.NAME, FINISHED) if (directory / name).exists()]
    if there and not (resume or overwrite):
        raise ValueError(
            f"{directory}: holds a model already ({there[0]}); --resume goes on with its training, "
            "--overwrite begins anew"
        )
    if resume and there == ["model.json"] and not (directory / LOG).exists():
        raise ValueError(f"{directory}: holds a model but no training to go on with; --overwrite begins anew")
    if resume and overwrite:
        raise ValueError("--resume and --overwrite: one or the other")


def _check_task(config: Config, task: str) -> None:
    if config.task != task:
        function = "train" if config.task == "parse" else "train_tagger"
        raise ValueError(f"config.task is {config.task!r}: {function}() trains it")


def _diverged(what: str) -> ValueError:
    return ValueError(f"training: {what}; a lower training.learning_rate or training.clip may help")
