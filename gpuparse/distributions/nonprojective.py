"""All trees: the matrix-tree theorem by elimination without subtraction, O(n^3) time and O(n^2) memory."""

from __future__ import annotations

from gpuparse.distributions.trees import TreeDistribution
from gpuparse.ops import MATRIX_TREE


class NonProjectiveTrees(TreeDistribution):
    """Distribution over all dependency trees of a sentence."""

    structure = MATRIX_TREE
    projective = False
    mass_error = 1e-13  # the marginals' rounding is absolute
