"""Projective trees: Eisner's algorithm, O(n^3) time and O(n^2) memory."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor

from gpuparse.distributions.trees import TreeDistribution
from gpuparse.ops import EISNER


class ProjectiveTrees(TreeDistribution):
    """Distribution over the trees that can be drawn above the sentence without crossing arcs (the root at the left)."""

    structure = EISNER
    projective = True

    def _in_some_tree(self, allowed: Bool[Tensor, "B N N"]) -> Bool[Tensor, "B N N"]:
        # All trees alike: no arc's share of them is below 6.75^-n, and what is in none has exactly 0.
        alike = torch.where(allowed, 0.0, -torch.inf).double()
        uniform = ProjectiveTrees(alike, self.lengths, single_root=self.single_root, validate_args=False)
        return uniform.marginals > 0
