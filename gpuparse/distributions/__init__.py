"""Exact distributions over dependency trees, one file each."""

from gpuparse.distributions.nonprojective import NonProjectiveTrees
from gpuparse.distributions.projective import ProjectiveTrees
from gpuparse.distributions.trees import TreeDistribution

__all__ = ["NonProjectiveTrees", "ProjectiveTrees", "TreeDistribution"]
