"""How sure a parser is of a tree, of its arcs and of what else there may be."""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from gpuparse.decoding.bp.belief_propagation import Beliefs
from gpuparse.decoding.bp.parsing import beliefs_of, expected_score
from gpuparse.decoding.scores import Scores
from gpuparse.distributions import TreeDistribution


class Certainty:
    """Under the distribution over trees: exact, unless trees may cross and pairs of arcs have scores.

    Attributes:
        estimated: "bp" where what is said is what belief propagation makes of it; None where it is exact.
    """

    def __init__(self, scores: Scores, *, projective: bool, single_root: bool) -> None:
        self.scores = scores
        self.estimated: str | None = "bp" if scores.kinds and not projective else None
        self._trees = {"projective": projective, "single_root": single_root}

    @cached_property
    def _exact(self) -> TreeDistribution:
        return self.scores.trees(**self._trees)

    @cached_property
    def _beliefs(self) -> Beliefs:
        return beliefs_of(self.scores, **self._trees, variables="heads", schedule="serial")

    @property
    def marginals(self) -> Float[Tensor, "B N N"]:
        """The probability of each arc."""
        return self._beliefs.links if self.estimated else self._exact.marginals

    @property
    def entropy(self) -> Float[Tensor, " B"]:
        """In nats."""
        if not self.estimated:
            return self._exact.entropy()
        log_z = self._beliefs.log_partition
        entropy = (log_z - expected_score(self._beliefs, self.scores)).clamp(min=0)
        return torch.where(log_z.isneginf(), 0.0, entropy)

    def of_arcs(self, heads: Int64[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        """The probability of each word's arc."""
        return self.marginals.gather(1, heads.clamp(min=0)[:, None])[:, 0]

    def of_trees(self, heads: Int64[Tensor, "*k B N"], scores: Float64[Tensor, "*k B"]) -> Float[Tensor, "*k B"]:
        """The probability of trees with these scores; 0 of ranks that do not exist, behind the first."""
        if self.estimated:
            return (scores - self._beliefs.log_partition).clamp(max=0).exp()
        there = (heads >= 0).any(-1)
        first = heads.reshape(-1, *heads.shape[-2:])[0]
        log_prob = self._exact.log_prob(torch.where(there[..., None], heads, first))
        return torch.where(there, log_prob, -torch.inf).exp()
