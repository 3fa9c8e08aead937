"""Chains of tags with scores of neighbours: the forward and the backward algorithm, O(n T^2) time."""

from __future__ import annotations

from jaxtyping import Float, Float64, Int
from torch import Tensor

from gpuparse.distributions.chains import ChainDistribution
from gpuparse.tags import Lengths, as_scores, as_transitions, as_unary, chain_scores


class TagChains(ChainDistribution):
    """Distribution over the sequences of tags of a sentence, a linear-chain CRF.

    Args:
        unary: scores [B, n, T] of tag t at word i, float32 or float64 (or half, as float32); -inf forbids a tag.
        transitions: scores [T, T] of tag y right after tag x, or [B, n - 1, T, T] of x at word i and y at i + 1.
        lengths: words of each sentence [B], 1 to n; None if all are full.
        validate_args: look at the values and raise ValueError at a NaN, +inf, bad length or a sentence without any
            chain. Default: on a CPU yes; on a GPU no, since looking waits for the device.

    See ``ChainDistribution`` for what it has.
    """

    trigrams_in_a_row = False
    name_of_pairs = "transitions"

    def __init__(
        self, unary: Tensor, transitions: Tensor, lengths: Lengths = None, *, validate_args: bool | None = None
    ) -> None:
        unary, transitions = as_unary(unary), as_scores(transitions, "transitions")
        as_transitions(transitions, unary)
        super().__init__(unary, transitions, lengths, validate_args)

    @property
    def transitions(self) -> Float[Tensor, "*shape"]:
        """As they were given: [T, T] or [B, n - 1, T, T]."""
        return self._rows

    @property
    def transition_marginals(self) -> Float[Tensor, "B n-1 T T"]:
        """Probability of each two tags of word i and word i + 1."""
        return self._sums("pair_marginals")

    @property
    def _pairs(self) -> Float[Tensor, "b p T T"]:
        return as_transitions(self._rows, self.unary)

    def _chain_scores(self, tags: Int[Tensor, "*S B n"]) -> Float64[Tensor, "*S B"]:
        return chain_scores(self.unary, self._pairs, tags, self.lengths)
