"""Trees by linear and integer programs."""

from gpuparse.lp import constraints
from gpuparse.lp.check import violates
from gpuparse.lp.constrained import Constrained
from gpuparse.lp.constraints import *  # noqa: F403
from gpuparse.lp.files import load_constraints
from gpuparse.lp.ilp import best_constrained
from gpuparse.lp.rows import Box, Row

__all__ = ["Box", "Constrained", "Row", "best_constrained", "load_constraints", "violates"]
__all__ += constraints.__all__
