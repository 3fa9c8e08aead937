"""Scorers by their configuration."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from gpuparse.config import ScorerConfig
from gpuparse.data.vocab import Vocabulary
from gpuparse.nn.huggingface import PretrainedEncoder
from gpuparse.nn.scorer import NeuralScorer
from gpuparse.nn.templates import TemplateConfig, TemplateScorer, mcdonald

PRETRAINED = "encoder"  # the directory of a pretrained encoder's files within a model's


def build_scorer(config: ScorerConfig, vocabulary: Vocabulary, directory: Path | None = None) -> nn.Module:
    """The scorer that ``config`` describes, untrained.

    Args:
        directory: of a saved model, whose weights will be loaded: its pretrained encoder is made from the files
            there, and nothing else is fetched.
    """
    if config.kind == "templates":
        return TemplateScorer(
            TemplateConfig(
                bits=config.bits,
                label_bits=config.label_bits,
                grandparents=mcdonald.GRANDPARENTS if config.grandparents else (),
                siblings=mcdonald.SIBLINGS if config.siblings else (),
            ),
            vocabulary,
        )
    pretrained = None
    if config.pretrained:
        if directory is not None:
            pretrained = PretrainedEncoder.from_directory(directory / PRETRAINED)
        else:
            pretrained = PretrainedEncoder(
                config.pretrained,
                layers=config.pretrained_layers,
                freeze=config.pretrained_freeze,
                dropout=config.embedding_dropout,
            )
    return NeuralScorer(config, vocabulary, pretrained)


def save_files(scorer: nn.Module, directory: Path) -> None:
    """Write what a scorer needs besides its weights."""
    if isinstance(scorer, NeuralScorer) and isinstance(scorer.pretrained, PretrainedEncoder):
        scorer.pretrained.save(directory / PRETRAINED)
