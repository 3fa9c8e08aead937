"""Training a parser: the data, the losses, the loop, checkpoints."""

from gpuparse.train.loop import train
from gpuparse.train.report import Report

__all__ = ["Report", "train"]
