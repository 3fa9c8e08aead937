"""Linear scores of tags: a weight for each feature and tag."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from gpuparse.data.tagging import TagBatch
from gpuparse.nn.tagging.scorer import ChainScorer


class TemplateTagScorer(ChainScorer):
    """The sum of the rows of weights of a word's features (``data.tagging.features``); row 0 is of none, and zero.

    Args:
        scale: of the scores; a step of the weights is worth so many.
    """

    def __init__(self, rows: int, tags: int, scale: float = 1.0) -> None:
        super().__init__(tags)
        self.weights = nn.Parameter(torch.zeros(rows, tags))
        self.scale = scale

    def forward(self, batch: TagBatch) -> Float[Tensor, "B n T"]:
        if batch.features is None:
            raise ValueError("batch: no features; encode it with the vocabulary of a tagger with templates")
        B, n, _ = batch.features.shape
        scores = embedding_bag(batch.features.flatten(0, 1), self.weights, mode="sum", padding_idx=0).view(B, n, -1)
        return scores if self.scale == 1 else self.scale * scores
