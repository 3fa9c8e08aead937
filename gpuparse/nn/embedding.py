"""The vectors that words begin with: of the word, its characters, its tag, its features."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import embedding

from gpuparse.config import ScorerConfig
from gpuparse.data.batches import Batch, Tokens
from gpuparse.data.tagging import TagBatch, TagVocabulary
from gpuparse.data.vocab import PAD, UNKNOWN, Vocabulary
from gpuparse.nn.dropout import drop_vectors

WIDTHS = (2, 3, 4)


class CharacterEncoder(nn.Module):
    """A word's vector from its characters: convolutions of several widths, and the largest value of each."""

    def __init__(self, characters: int, embedding: int, out: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding, padding_idx=PAD)
        parts = [out // len(WIDTHS) + (which < out % len(WIDTHS)) for which in range(len(WIDTHS))]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(embedding, part, width, padding=width - 1)
            for width, part in zip(WIDTHS, parts, strict=True)
            if part
        )

    def forward(self, chars: Int64[Tensor, "U C"]) -> Float[Tensor, "U out"]:
        # Zeros stand before and after the word. What lies past them is kept out, so that a form's vector does not
        # depend on the longest form beside it.
        length = (chars != PAD).sum(-1)
        x = self.embedding(chars).transpose(1, 2)  # [U, E, C]
        parts = []
        for convolution in self.convolutions:
            y = convolution(x)
            width = y.shape[-1] - chars.shape[-1]
            outside = torch.arange(y.shape[-1], device=chars.device) >= (length + width)[:, None]
            parts.append(y.masked_fill(outside[:, None], -torch.inf).amax(-1))
        return torch.cat(parts, -1)


class TokenEmbedding(nn.Module):
    """The parts' vectors side by side; in training whole parts are dropped. A tagger has none of tags and features."""

    def __init__(self, config: ScorerConfig, vocabulary: Vocabulary | TagVocabulary) -> None:
        super().__init__()
        self.dropout = config.embedding_dropout
        self.out_features = config.word + config.chars
        self.word = _table(len(vocabulary.words), config.word)
        self.tag = self.feats = None
        if isinstance(vocabulary, Vocabulary):
            self.tag = _table(len(vocabulary.tags), config.tag)
            self.feats = _table(len(vocabulary.feats), config.feats)
            self.out_features += config.tag + config.feats
        self.chars = CharacterEncoder(len(vocabulary.chars), config.char, config.chars) if config.chars else None

    def forward(self, batch: Tokens) -> Float[Tensor, "B N D"]:
        vectors = []
        if self.word is not None:
            vectors.append(self.word(batch.words))
        if self.chars is not None:
            vectors.append(embedding(batch.forms, self.chars(batch.chars)))
        if isinstance(batch, Batch):
            if self.tag is not None:
                vectors.append(self.tag(batch.tags))
            if self.feats is not None:
                vectors.append(self.feats(batch.feats).sum(-2))  # PAD's vector is zero
        if self.training and self.dropout > 0:
            vectors = drop_vectors(vectors, self.dropout)
        return torch.cat(vectors, -1)


def _table(size: int, width: int) -> nn.Embedding | None:
    if not width:
        return None
    table = nn.Embedding(size, width, padding_idx=PAD)
    with torch.no_grad():
        table.weight.mul_(0.5)
        # What training never sees stays without a vector, as if it had been dropped.
        table.weight[UNKNOWN] = table.weight[PAD] = 0
    return table


def token_vectors(
    batch: Batch | TagBatch, embedding: nn.Module | None, pretrained: nn.Module | None
) -> Float[Tensor, "B N D"]:
    """Those of an embedding and of a pretrained encoder side by side, or of one of them."""
    parts = [] if embedding is None else [embedding(batch)]
    if pretrained is not None:
        parts.append(pretrained([forms[1:] for forms in batch.texts], batch.words.device))
    return torch.cat(parts, -1)
