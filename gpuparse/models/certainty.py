"""How sure a parser is of a tree, of its arcs and of what else there may be."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from gpuparse.decoding.bp.parsing import beliefs_of, expected_score
from gpuparse.decoding.scores import Scores
from gpuparse.distributions import TreeDistribution


class Certainty(NamedTuple):
    """Under the distribution over trees.

    Attributes:
        marginals: the probability of each arc.
        log_partition: log Z.
        entropy: in nats.
        trees: the distribution; None where the others are what belief propagation makes of them.
    """

    marginals: Float[Tensor, "B N N"]
    log_partition: Float[Tensor, " B"]
    entropy: Float[Tensor, " B"]
    trees: TreeDistribution | None

    @classmethod
    def of(cls, scores: Scores, *, projective: bool, single_root: bool) -> Certainty:
        """Exactly, unless trees may cross and pairs of arcs have scores."""
        if projective or not scores.kinds:
            trees = scores.trees(projective=projective, single_root=single_root)
            return cls(trees.marginals, trees.log_partition, trees.entropy(), trees)
        single: dict[str, bool] = {"projective": False, "single_root": single_root}
        beliefs = beliefs_of(scores, **single, variables="heads", schedule="serial")
        log_z = beliefs.log_partition
        entropy = (log_z - expected_score(beliefs, scores)).clamp(min=0)
        return cls(beliefs.links, log_z, torch.where(log_z.isneginf(), 0.0, entropy), None)

    @property
    def estimated(self) -> str | None:
        """How they were estimated; None where they are exact."""
        return "bp" if self.trees is None else None

    def of_arcs(self, heads: Int64[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        """The probability of each word's arc."""
        return self.marginals.gather(1, heads.clamp(min=0)[:, None])[:, 0]

    def of_trees(self, heads: Int64[Tensor, "*k B N"], scores: Float64[Tensor, "*k B"]) -> Float[Tensor, "*k B"]:
        """The probability of trees with these scores; 0 of ranks that do not exist, behind the first."""
        if self.trees is None:
            return (scores - self.log_partition).clamp(max=0).exp()
        there = (heads >= 0).any(-1)
        first = heads.reshape(-1, *heads.shape[-2:])[0]
        log_prob = self.trees.log_prob(torch.where(there[..., None], heads, first))
        return torch.where(there, log_prob, -torch.inf).exp()
