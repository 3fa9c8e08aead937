"""Dual decomposition: oracles that must agree, with bounds and certificates (Rush et al. 2010, Koo et al. 2010)."""

from gpuparse.dual.branch import TAGS, TREES, tighten
from gpuparse.dual.decomposition import Agreement, DualDecomposition, Found, Oracle
from gpuparse.dual.grammars import Constituents, Lexicalized
from gpuparse.dual.joint import constituents_and_dependencies, parse_and_tag
from gpuparse.dual.oracles import HeadAutomata, SecondOrder, Tagger, Trees
from gpuparse.dual.parsing import second_order
from gpuparse.dual.soft import SoftDualDecomposition, softly
from gpuparse.dual.steps import Decreasing, Halving, Polyak, Step

__all__ = [
    "TAGS",
    "TREES",
    "Agreement",
    "Constituents",
    "Decreasing",
    "DualDecomposition",
    "Found",
    "Halving",
    "HeadAutomata",
    "Lexicalized",
    "Oracle",
    "Polyak",
    "SecondOrder",
    "SoftDualDecomposition",
    "Step",
    "Tagger",
    "Trees",
    "constituents_and_dependencies",
    "parse_and_tag",
    "second_order",
    "softly",
    "tighten",
]
