"""What test_distributed runs under torchrun: training that shares its batches, that stops and goes on, that fails."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from gpuparse import cli
from gpuparse.train import loop
from gpuparse.train.gradient import GradientLearner
from gpuparse.train.online import OnlineLearner
from gpuparse.train.tagging import TagPerceptron
from tests.train.small import BILSTM, NO_DROPOUT, TAGS, TEMPLATES, TINY, run

SETTINGS = (*NO_DROPOUT, "training.learning_rate=0.01", "training.epochs=3")
RUNS = {
    "gradient": SETTINGS,
    "alone": (*SETTINGS, "training.batch_words=1"),  # batches of one sentence: one process has none
    "mira": ("training.objective=mira", *TEMPLATES),
    "mira alone": ("training.objective=mira", *TEMPLATES, "training.batch_words=1"),
    "tags": (*BILSTM, *SETTINGS),
    "tags, perceptron": (*TAGS, "training.transition_l1=1e-3"),
}
INTERRUPTED = {"gradient": GradientLearner, "mira": OnlineLearner, "tags, perceptron": TagPerceptron}


class Stop(Exception):
    """A sudden end."""


def train_all(directory: Path) -> None:
    """Every run, and some of them once more with an interruption."""
    for name, settings in RUNS.items():
        run(directory / name, *settings)
    for name, learner in INTERRUPTED.items():
        real, left = learner.step, 4

        def step(self, *arguments, real=real, **options):
            nonlocal left
            left -= 1
            if left < 0:
                raise Stop
            return real(self, *arguments, **options)

        learner.step = step
        try:
            run(directory / f"{name} again", *RUNS[name])
        except Stop:
            learner.step = real
        run(directory / f"{name} again", *RUNS[name], resume=True)


def fail(directory: Path) -> None:
    """The command line, with an error in the second process at its third step."""
    real = GradientLearner.step

    def step(self, *arguments, **options):
        if self.steps == 2 and os.environ["RANK"] == "1":
            raise ValueError("an error\non purpose")
        return real(self, *arguments, **options)

    GradientLearner.step = step
    settings = [f"--set={each}" for each in (*TINY, *SETTINGS)]
    sys.argv = ["gpuparse", "train", str(directory / "failed"), "--train", str(directory / "a.conllu"), *settings]
    cli.main()


if __name__ == "__main__":
    torch.set_num_threads(1)
    loop.draw_curve = lambda *_: True
    loop.LOG_EVERY = 1
    train_all(Path(sys.argv[1]))
    fail(Path(sys.argv[1]))
