"""From a solution to a tree: whether it is one, or the nearest one."""

from __future__ import annotations

import numpy as np
import torch

from gpuparse.decoding.ppc.program import Doubles, Ints
from gpuparse.decoding.solver import Status
from gpuparse.ops import EISNER, MATRIX_TREE

REMARKS = {
    Status.STOPPED: "not proven: the time limit",
    Status.FAILED: "not proven: the solver failed",
    Status.INFEASIBLE: "not proven: the solver failed",
    Status.LEFT: "not proven: the limit of rounds",
}
"""Why a program that has solutions was not solved, or the best tree not proven."""


def rounded(z: Doubles, arcs: Doubles, single_root: bool, projective: bool = False) -> Ints:
    """The tree of the greatest weights z [N, N]; of equal ones that with the greatest scores of arcs."""
    allowed = arcs > -np.inf
    size = np.abs(arcs[allowed]).max(initial=0.0)
    share = np.divide(arcs, size, out=np.zeros(arcs.shape), where=allowed & (size > 0))
    return best_tree(np.where(allowed, 1000 * z + share, -np.inf), single_root, projective)


def best_tree(arcs: Doubles, single_root: bool, projective: bool = False) -> Ints:
    """The tree with the greatest scores [N, N], crossing or not; -1 where there is none."""
    return (
        (EISNER if projective else MATRIX_TREE)
        .argmax((torch.from_numpy(arcs)[None],), torch.tensor([len(arcs) - 1]), single_root)[0]
        .numpy()
    )


def is_tree(heads: Ints) -> bool:
    """Whether all words come to the root."""
    up = np.maximum(heads, 0)
    for _ in range(len(heads).bit_length()):
        up = up[up]
    return not up.any()


def crosses(heads: Ints) -> bool:
    """Whether arcs cross."""
    word = np.arange(1, len(heads))
    low, high = np.minimum(heads[1:], word), np.maximum(heads[1:], word)
    first, last = low[:, None], high[:, None]
    return bool(((first < low) & (low < last) & (last < high)).any())
