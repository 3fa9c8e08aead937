"""Training parsers and taggers: the data, the losses, the loop, checkpoints."""

from gpuparse.train.loop import train, train_tagger
from gpuparse.train.report import TrainingReport

__all__ = ["TrainingReport", "train", "train_tagger"]
