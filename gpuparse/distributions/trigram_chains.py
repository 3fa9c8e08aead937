"""Chains of tags with scores of three in a row: forward and backward over pairs of tags, O(n T^3) time."""

from __future__ import annotations

from jaxtyping import Float, Float64, Int
from torch import Tensor

from gpuparse.distributions.chains import ChainDistribution
from gpuparse.tags import Lengths, as_trigrams, as_unary, trigram_scores


class TrigramChains(ChainDistribution):
    """Distribution over the sequences of tags of a sentence, a second-order linear-chain CRF.

    Args:
        unary: scores [B, n, T] of tag t at word i, float32 or float64 (or half, as float32); -inf forbids a tag.
        trigrams: scores [T, T, T] of the tags x, y, z of three words in a row.
        lengths: words of each sentence [B], 1 to n; None if all are full.
        validate_args: look at the values and raise ValueError at a NaN, +inf, bad length or a sentence without any
            chain. Default: on a CPU yes; on a GPU no, since looking waits for the device.

    See ``ChainDistribution`` for what it has.
    """

    trigrams_in_a_row = True
    name_of_pairs = "trigrams"

    def __init__(
        self, unary: Tensor, trigrams: Tensor, lengths: Lengths = None, *, validate_args: bool | None = None
    ) -> None:
        unary = as_unary(unary)
        trigrams = as_trigrams(trigrams, unary)
        super().__init__(unary, trigrams, lengths, validate_args)

    @property
    def trigrams(self) -> Float[Tensor, "T T T"]:
        """As they were given."""
        return self._rows

    @property
    def trigram_marginals(self) -> Float[Tensor, "B n-2 T T T"]:
        """Probability of each three tags of the words i, i + 1 and i + 2."""
        return self._sums("pair_marginals").unflatten(2, (self.unary.shape[2], -1))

    @property
    def _pairs(self) -> Float[Tensor, "1 1 S T"]:
        return self._rows.flatten(0, 1)[None, None]

    def _chain_scores(self, tags: Int[Tensor, "*S B n"]) -> Float64[Tensor, "*S B"]:
        return trigram_scores(self.unary, self._rows, tags, self.lengths)
