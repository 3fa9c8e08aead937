"""The inference kernels as torch operators: ``torch.ops.gpuparse.*``, with fake implementations and autograd.

Each function here takes the operator where kernels serve the device, and the plain torch path where none do.
"""

from gpuparse.ops import automata, bp, chains, multipliers, priced, pricing, second_order, viterbi
from gpuparse.ops.checks import check_flags
from gpuparse.ops.family import Family
from gpuparse.ops.trees import EISNER, MATRIX_TREE

__all__ = [
    "EISNER",
    "MATRIX_TREE",
    "Family",
    "automata",
    "bp",
    "chains",
    "check_flags",
    "multipliers",
    "priced",
    "pricing",
    "second_order",
    "viterbi",
]
