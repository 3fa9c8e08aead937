"""Dual decomposition: oracles that must agree, with bounds and certificates (Rush et al. 2010, Koo et al. 2010)."""

from gpuparse.decoding.dual.agreement import Agreement, Found, Oracle
from gpuparse.decoding.dual.branch import TAGS, TREES, tighten
from gpuparse.decoding.dual.decomposition import DualDecomposition
from gpuparse.decoding.dual.grammars import Constituents, Lexicalized
from gpuparse.decoding.dual.joint import constituents_and_dependencies, parse_and_tag
from gpuparse.decoding.dual.oracles import HeadAutomata, SecondOrderOracle, TaggerOracle, TreeOracle
from gpuparse.decoding.dual.parsing import second_order
from gpuparse.decoding.dual.soft import SoftDualDecomposition, softly
from gpuparse.decoding.dual.steps import Decreasing, Halving, Polyak, Step

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
    "SecondOrderOracle",
    "SoftDualDecomposition",
    "Step",
    "TaggerOracle",
    "TreeOracle",
    "constituents_and_dependencies",
    "parse_and_tag",
    "second_order",
    "softly",
    "tighten",
]
