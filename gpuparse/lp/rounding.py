"""From a fractional solution to a tree."""

from __future__ import annotations

import numpy as np
import torch

from gpuparse.lp.grandparents import Doubles, Ints
from gpuparse.lp.solver import Status
from gpuparse.ops import MATRIX_TREE

REMARKS = {
    Status.STOPPED: "not proven: the time limit",
    Status.FAILED: "not proven: the solver failed",
    Status.INFEASIBLE: "not proven: the solver failed",
}
"""Why a program that has solutions was not solved."""


def rounded(z: Doubles, arcs: Doubles, single_root: bool) -> Ints:
    """The spanning tree of the greatest weights z [N, N]; of equal ones that with the greatest scores of arcs."""
    allowed = arcs > -np.inf
    scale = 1 + np.abs(arcs[allowed]).max(initial=0.0)
    weights = torch.from_numpy(np.where(allowed, 1000 * scale * z + np.where(allowed, arcs, 0.0), -np.inf))
    return MATRIX_TREE.argmax(weights[None], torch.tensor([len(z) - 1]), single_root)[0].numpy()
