"""Trees under constraints, by linear and integer programs."""

from gpuparse.decoding.ilp.check import violates
from gpuparse.decoding.ilp.constrained import Constrained
from gpuparse.decoding.ilp.constraints.arcs import Arcs, Span
from gpuparse.decoding.ilp.constraints.base import Constraint, Only, Soft, Words
from gpuparse.decoding.ilp.constraints.children import Children, LabelUnder, Leaf, Unique
from gpuparse.decoding.ilp.constraints.coordination import Coordination
from gpuparse.decoding.ilp.constraints.crossing import Projective
from gpuparse.decoding.ilp.files import load_constraints
from gpuparse.decoding.ilp.rows import Box, Row
from gpuparse.decoding.ilp.search import best_constrained

__all__ = [
    "Arcs",
    "Box",
    "Children",
    "Constrained",
    "Constraint",
    "Coordination",
    "LabelUnder",
    "Leaf",
    "Only",
    "Projective",
    "Row",
    "Soft",
    "Span",
    "Unique",
    "Words",
    "best_constrained",
    "load_constraints",
    "violates",
]
