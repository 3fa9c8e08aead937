"""Chains of tags with scores of three in a row: forward and backward over pairs of tags, O(n T^3) time."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float, Float64, Int
from torch import Tensor

from gpuparse.distributions.chains import ChainDistribution
from gpuparse.structures.tags import Lengths, as_trigrams, as_unary, trigram_scores


class TrigramChains(ChainDistribution):
    """Distribution over the sequences of tags of a sentence, a second-order linear-chain CRF.

    Args:
        unary, lengths, validate_args: as for ``TagChains``.
        trigrams: scores [T, T, T] of the tags x, y, z of three words in a row.

    Attributes:
        trigrams: as given.
        trigram_marginals: probability of each three tags in a row [B, n - 2, T, T, T].

    The others, and the methods, are those of ``TagChains``.

    Example:
        >>> import torch, gpuparse as gp
        >>> trigrams = torch.zeros(2, 2, 2)
        >>> trigrams[0, 1, 0] = 3.0
        >>> chains = gp.TrigramChains(torch.zeros(1, 3, 2), trigrams)
        >>> chains.argmax, chains.max
        (tensor([[0, 1, 0]]), tensor([3.]))
        >>> chains.trigram_marginals.shape
        torch.Size([1, 1, 2, 2, 2])
    """

    parts: ClassVar[dict[str, int]] = {"unary": 3, "trigrams": 4}  # all sentences share them
    trigrams_in_a_row = True
    trigrams: Float[Tensor, "T T T"]

    def __init__(
        self, unary: Tensor, trigrams: Tensor, lengths: Lengths = None, *, validate_args: bool | None = None
    ) -> None:
        unary = as_unary(unary)
        self._begin(unary, as_trigrams(trigrams, unary), lengths, validate_args)

    @property
    def trigram_marginals(self) -> Float[Tensor, "B n-2 T T T"]:
        """Probability of each three tags of the words i, i + 1 and i + 2."""
        return self._sums("trigrams").unflatten(2, (self.unary.shape[2], -1))

    @property
    def _pairs(self) -> Float[Tensor, "1 1 S T"]:
        return self.trigrams.flatten(0, 1)[None, None]

    def _chain_scores(self, tags: Int[Tensor, "*S B n"]) -> Float64[Tensor, "*S B"]:
        return trigram_scores(self.unary, self.trigrams, tags, self.lengths)
