"""Trees under constraints, by linear and integer programs."""

from gpuparse.decoding.ilp.check import violates
from gpuparse.decoding.ilp.constrained import Constrained
from gpuparse.decoding.ilp.constraints import (
    Arcs,
    Children,
    Constraint,
    Coordination,
    LabelUnder,
    Leaf,
    Only,
    Projective,
    Soft,
    Span,
    Unique,
    Words,
)
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
