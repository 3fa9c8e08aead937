"""What a tree may be asked for beyond its score. A constraint is a small object that gives rows for a sentence."""

from gpuparse.decoding.ilp.constraints.arcs import Arcs, Span
from gpuparse.decoding.ilp.constraints.base import Constraint, Only, Soft, Words
from gpuparse.decoding.ilp.constraints.children import Children, LabelUnder, Leaf, Unique
from gpuparse.decoding.ilp.constraints.coordination import Coordination
from gpuparse.decoding.ilp.constraints.crossing import Projective

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
