"""Exact distributions over dependency trees, chains of tags and trees of a grammar, one file each."""

from gpuparse.distributions import divergence  # noqa: F401 (registers it with torch)
from gpuparse.distributions.chains import ChainDistribution
from gpuparse.distributions.constituency import ConstituencyTrees
from gpuparse.distributions.lexicalized import LexicalizedTrees
from gpuparse.distributions.nonprojective import NonProjectiveTrees
from gpuparse.distributions.projective import ProjectiveTrees
from gpuparse.distributions.second_order import SecondOrderTrees
from gpuparse.distributions.tag_chains import TagChains
from gpuparse.distributions.trees import TreeDistribution
from gpuparse.distributions.trigram_chains import TrigramChains

__all__ = [
    "ChainDistribution",
    "ConstituencyTrees",
    "LexicalizedTrees",
    "NonProjectiveTrees",
    "ProjectiveTrees",
    "SecondOrderTrees",
    "TagChains",
    "TreeDistribution",
    "TrigramChains",
]
