"""What ``gpuparse train`` shows meanwhile."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gpuparse.cli.common import one_line
from gpuparse.train import TrainingReport


class Terminal(TrainingReport):
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
