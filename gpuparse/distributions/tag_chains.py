"""Chains of tags with scores of neighbours: the forward and the backward algorithm, O(n T^2) time."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float, Float64, Int
from torch import Tensor

from gpuparse.distributions.chains import ChainDistribution
from gpuparse.structures.tags import Lengths, as_scores, as_transitions, as_unary, chain_scores


class TagChains(ChainDistribution):
    """Distribution over the sequences of tags of a sentence, a linear-chain CRF.

    Args:
        unary: scores [B, n, T] of tag t at word i, float32 or float64 (or half, as float32); -inf forbids a tag.
        transitions: scores [T, T] of tag y right after tag x, or [B, n - 1, T, T] of x at word i and y at i + 1.
        lengths: words of each sentence [B], 1 to n; None if all are full.
        validate_args: look at the values and raise ValueError at a NaN, +inf, bad length or a sentence without any
            chain. Default: on a CPU yes; on a GPU no, since looking waits for the device.

    Attributes:
        unary, transitions, lengths: as given, lengths as int64 [B].
        log_partition: log Z [B].
        marginals: probability of each tag of each word [B, n, T].
        transition_marginals: probability of each two tags of neighbours [B, n - 1, T, T].
        argmax, max: tags [B, n] of a best chain (-1 past the end), and its score [B].

    ``topk(k)`` gives tags [k, B, n] and scores [k, B], ``sample((s,))`` tags [s, B, n], ``score(tags)`` and
    ``log_prob(tags)`` [..., B], ``entropy()`` and ``torch.distributions.kl_divergence(p, q)`` [B]. All but structures
    is differentiable (``StructuredDistribution``). ``given(required, forbidden)``: the same under a condition, tags
    [B, n] that are known (-1 elsewhere) and those [B, n, T] that words may not have.

    Example:
        >>> import torch, gpuparse as gp
        >>> stay = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> chains = gp.TagChains(torch.zeros(2, 3, 2), stay, lengths=[3, 2])
        >>> tags, scores = chains.topk(2)
        >>> scores
        tensor([[2., 1.],
                [2., 1.]])
        >>> chains.transition_marginals[1, 0]
        tensor([[0.3655, 0.1345],
                [0.1345, 0.3655]])
        >>> chains.given(required=torch.tensor([[-1, 1, -1], [-1, 1, -1]])).marginals[0, 0]
        tensor([0.2689, 0.7311])
    """

    parts: ClassVar[dict[str, int]] = {"unary": 3, "transitions": 4}
    trigrams_in_a_row = False
    transitions: Float[Tensor, "*shape"]

    def __init__(
        self, unary: Tensor, transitions: Tensor, lengths: Lengths = None, *, validate_args: bool | None = None
    ) -> None:
        unary, transitions = as_unary(unary), as_scores(transitions, "transitions")
        as_transitions(transitions, unary)
        self._begin(unary, transitions, lengths, validate_args)

    @property
    def transition_marginals(self) -> Float[Tensor, "B n-1 T T"]:
        """Probability of each two tags of word i and word i + 1."""
        return self._sums("transitions")

    @property
    def _pairs(self) -> Float[Tensor, "b p T T"]:
        return as_transitions(self.transitions, self.unary)

    def _chain_scores(self, tags: Int[Tensor, "*S B n"]) -> Float64[Tensor, "*S B"]:
        return chain_scores(self.unary, self._pairs, tags, self.lengths)
