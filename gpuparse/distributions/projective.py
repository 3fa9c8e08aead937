"""Projective trees: Eisner's algorithm, O(n^3) time and O(n^2) memory."""

from __future__ import annotations

from gpuparse.distributions.trees import TreeDistribution
from gpuparse.ops import EISNER


class ProjectiveTrees(TreeDistribution):
    """Distribution over the trees that can be drawn above the sentence without crossing arcs (the root at the left)."""

    structure = EISNER
    projective = True
