"""Trees by linear and integer programs."""

from gpuparse.lp.check import violates
from gpuparse.lp.constrained import Constrained
from gpuparse.lp.constraints import (
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
from gpuparse.lp.files import load_constraints
from gpuparse.lp.ilp import best_constrained
from gpuparse.lp.rows import Box, Row

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
