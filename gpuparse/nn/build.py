"""Scorers by their configuration."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from gpuparse.config import ScorerConfig
from gpuparse.data.tagging import TagVocabulary
from gpuparse.data.vocab import Vocabulary
from gpuparse.nn.huggingface import PretrainedEncoder
from gpuparse.nn.scorer import NeuralScorer
from gpuparse.nn.tagging import BiLSTMTagScorer, ChainScorer, MeanScorer, TagScorer, TemplateTagScorer
from gpuparse.nn.templates import TemplateConfig, TemplateScorer, mcdonald

PRETRAINED = "encoder"  # the directory of a pretrained encoder's files within a model's
FEATURE_SCALE = 5.0


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
    return NeuralScorer(config, vocabulary, _pretrained(config, directory))


def build_tag_scorer(config: ScorerConfig, vocabulary: TagVocabulary, directory: Path | None = None) -> TagScorer:
    """The same for taggers."""
    if ("templates" in config.kind) != (vocabulary.features is not None):
        raise ValueError(f"vocabulary: features are wanted for templates alone, and scorer.kind is {config.kind!r}")
    members: list[ChainScorer] = []
    if config.kind != "templates":
        members.append(BiLSTMTagScorer(config, vocabulary, _pretrained(config, directory)))
    if vocabulary.features is not None:
        # Most features are rare. Beside a network, at a network's rate, they would learn next to nothing.
        scale = FEATURE_SCALE if members else 1.0
        members.append(TemplateTagScorer(vocabulary.features.count, len(vocabulary.tags), scale))
    return members[0] if len(members) == 1 else MeanScorer(members)


def _pretrained(config: ScorerConfig, directory: Path | None) -> PretrainedEncoder | None:
    if not config.pretrained:
        return None
    if directory is not None:
        return PretrainedEncoder.from_directory(directory / PRETRAINED)
    return PretrainedEncoder(
        config.pretrained,
        layers=config.pretrained_layers,
        freeze=config.pretrained_freeze,
        dropout=config.embedding_dropout,
    )


def save_files(scorer: nn.Module, directory: Path) -> None:
    """Write what a scorer needs besides its weights."""
    for module in scorer.modules():
        if isinstance(module, PretrainedEncoder):
            module.save(directory / PRETRAINED)
