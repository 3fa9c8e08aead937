"""All trees: the matrix-tree theorem by elimination without subtraction, O(n^3) time and O(n^2) memory."""

from __future__ import annotations

from jaxtyping import Bool
from torch import Tensor

from gpuparse.distributions.trees import TreeDistribution
from gpuparse.ops import MATRIX_TREE
from gpuparse.trees import arcs_in_some_tree


class NonProjectiveTrees(TreeDistribution):
    """Distribution over all dependency trees of a sentence."""

    structure = MATRIX_TREE
    projective = False

    def _in_some_tree(self, allowed: Bool[Tensor, "B N N"]) -> Bool[Tensor, "B N N"]:
        # By the graph alone: the marginals' rounding is absolute, so a rare arc and an impossible one look the same.
        return arcs_in_some_tree(allowed, self.lengths, single_root=self.single_root)
