"""Scorers of tags: feature templates, or a BiLSTM, or both; each with scores of neighbouring tags."""

from gpuparse.nn.tagging.bilstm import BiLSTMTagScorer
from gpuparse.nn.tagging.scorer import ChainScorer, MeanScorer, TagScorer
from gpuparse.nn.tagging.templates import TemplateTagScorer

__all__ = ["BiLSTMTagScorer", "ChainScorer", "MeanScorer", "TagScorer", "TemplateTagScorer"]
