"""The neural scorer: embeddings, an encoder, biaffine arcs and labels, trilinear pairs of arcs."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from gpuparse.config import ScorerConfig
from gpuparse.data.batches import Batch
from gpuparse.data.vocab import Vocabulary
from gpuparse.decoding.scores import Scores
from gpuparse.nn.biaffine import BiaffineArcs, BiaffineLabels
from gpuparse.nn.dropout import SentenceDropout
from gpuparse.nn.embedding import TokenEmbedding, token_vectors
from gpuparse.nn.encoder import BiLSTM
from gpuparse.nn.trilinear import Trilinear


class LabelScores(Protocol):
    """Scores of the labels of a batch's arcs."""

    def __call__(self, heads: Int64[Tensor, "B N"]) -> Float[Tensor, "B N L"]:
        """Of each word's arc from its head."""

    def every(self, sentences: Int64[Tensor, " K"]) -> Float[Tensor, "K N N L"]:
        """Of every arc, head first, of some sentences."""


class Scored(NamedTuple):
    """What a scorer says of a batch: scores of trees, and of the labels once the heads are known."""

    scores: Scores
    label_scores: LabelScores

    def all_labels(self, sentences: Int64[Tensor, " K"] | None = None) -> Float[Tensor, "K N N L"]:
        """Scores of the labels of every arc: much, for a few sentences; by default of all."""
        arcs = self.scores.arcs
        return self.label_scores.every(torch.arange(len(arcs), device=arcs.device) if sentences is None else sentences)


class _BiaffineLabelScores:
    """Scores of labels, for given heads or for all of them."""

    def __init__(self, labels: BiaffineLabels, x: Float[Tensor, "B N D"]) -> None:
        self.labels, self.x = labels, x

    def __call__(self, heads: Int64[Tensor, "B N"]) -> Float[Tensor, "B N L"]:
        return self.labels(self.x, heads).float()

    def every(self, sentences: Int64[Tensor, " K"]) -> Float[Tensor, "K N N L"]:
        return self.labels.every(self.x[sentences]).float()


class NeuralScorer(nn.Module):
    """Embeddings → encoder → scores."""

    def __init__(self, config: ScorerConfig, vocabulary: Vocabulary, pretrained: nn.Module | None = None) -> None:
        super().__init__()
        sizes = (config.word, config.chars, config.tag, config.feats)
        self.embedding = TokenEmbedding(config, vocabulary) if any(sizes) else None
        self.pretrained = pretrained
        width = self.embedding.out_features if self.embedding else 0
        if pretrained is not None:
            width += int(pretrained.out_features)  # type: ignore[arg-type]
        self.encoder = BiLSTM(width, config.hidden, config.layers, config.encoder_dropout)
        width = self.encoder.out_features
        self.dropout = SentenceDropout(config.encoder_dropout)
        self.arcs = BiaffineArcs(width, config.arc, config.mlp_dropout)
        self.labels = BiaffineLabels(width, config.label, len(vocabulary.labels), config.mlp_dropout)
        self.grandparents = Trilinear(width, config.grandparents, config.mlp_dropout) if config.grandparents else None
        self.siblings = (
            Trilinear(width, config.siblings, config.mlp_dropout, kind="siblings") if config.siblings else None
        )

    def encode(self, batch: Batch) -> Float[Tensor, "B N D"]:
        """One vector a node."""
        return self.dropout(self.encoder(token_vectors(batch, self.embedding, self.pretrained), batch.lengths))

    def forward(self, batch: Batch) -> Scored:
        x = self.encode(batch)
        scores = Scores(
            self.arcs(x).float(),
            batch.lengths,
            grandparents=self.grandparents(x, batch.lengths) if self.grandparents else None,
            siblings=self.siblings(x, batch.lengths) if self.siblings else None,
            validate_args=False if self.training else None,
        )
        return Scored(scores, _BiaffineLabelScores(self.labels, x))
