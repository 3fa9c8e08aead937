"""Scores of tags by a bidirectional LSTM."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from gpuparse.config import ScorerConfig
from gpuparse.data.tagging import TagBatch, TagVocabulary
from gpuparse.nn.dropout import SentenceDropout
from gpuparse.nn.embedding import TokenEmbedding, token_vectors
from gpuparse.nn.encoder import BiLSTM
from gpuparse.nn.tagging.scorer import ChainScorer


class BiLSTMTagScorer(ChainScorer):
    """Embeddings of words and characters, or a pretrained encoder, or both → BiLSTM → one linear layer."""

    def __init__(self, config: ScorerConfig, vocabulary: TagVocabulary, pretrained: nn.Module | None = None) -> None:
        super().__init__(len(vocabulary.tags))
        self.embedding = TokenEmbedding(config, vocabulary) if config.word or config.chars else None
        self.pretrained = pretrained
        width = self.embedding.out_features if self.embedding else 0
        if pretrained is not None:
            width += int(pretrained.out_features)  # type: ignore[arg-type]
        self.encoder = BiLSTM(width, config.hidden, config.layers, config.encoder_dropout)
        self.dropout = SentenceDropout(config.encoder_dropout)
        self.linear = nn.Linear(self.encoder.out_features, len(vocabulary.tags))

    def forward(self, batch: TagBatch) -> Float[Tensor, "B n T"]:
        x = self.dropout(self.encoder(token_vectors(batch, self.embedding, self.pretrained), batch.lengths))
        return self.linear(x[:, 1:]).float()  # the root has no tag
