"""From a fractional solution to a tree."""

from __future__ import annotations

import numpy as np
import torch

from gpuparse.decoding.ppc.program import Doubles, Ints
from gpuparse.decoding.solver import Status
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
    size = np.abs(arcs[allowed]).max(initial=0.0)
    share = np.divide(arcs, size, out=np.zeros(arcs.shape), where=allowed & (size > 0))
    return best_tree(np.where(allowed, 1000 * z + share, -np.inf), single_root)


def best_tree(arcs: Doubles, single_root: bool) -> Ints:
    """The spanning tree with the greatest scores [N, N]; -1 where there is none."""
    return MATRIX_TREE.argmax(torch.from_numpy(arcs)[None], torch.tensor([len(arcs) - 1]), single_root)[0].numpy()
