"""Dropout of whole vectors, and of the same places in all the words of a sentence."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn


class SentenceDropout(nn.Module):
    """Dropout with one mask a sentence, shared by its words (Gal & Ghahramani 2016)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D"]:
        if not self.training or self.p == 0:
            return x
        return x * x.new_empty(x.shape[0], 1, x.shape[2]).bernoulli_(1 - self.p).div_(1 - self.p)


def drop_vectors(vectors: list[Float[Tensor, "B N _"]], p: float) -> list[Float[Tensor, "B N _"]]:
    """Drop whole vectors of a word independently, and scale up those that are left (Dozat & Manning 2017)."""
    keep = vectors[0].new_empty(*vectors[0].shape[:2], len(vectors)).bernoulli_(1 - p)
    keep = keep * (len(vectors) / keep.sum(-1, keepdim=True).clamp(min=1))
    return [vector * keep[..., which, None] for which, vector in enumerate(vectors)]
