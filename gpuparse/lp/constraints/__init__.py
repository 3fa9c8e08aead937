"""What a tree may be asked for beyond its score. A constraint is a small object that gives rows for a sentence."""

from gpuparse.lp.constraints.arcs import Arcs, Span
from gpuparse.lp.constraints.base import Constraint, Only, Soft, Words
from gpuparse.lp.constraints.children import Children, LabelUnder, Leaf, Unique
from gpuparse.lp.constraints.coordination import Coordination
from gpuparse.lp.constraints.crossing import Projective

__all__ = [
    "Arcs",
    "Children",
    "Constraint",
    "Coordination",
    "LabelUnder",
    "Leaf",
    "Only",
    "Projective",
    "Soft",
    "Span",
    "Unique",
    "Words",
]
