"""Maximum spanning arborescences of a batch of sentences."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from gpuparse.ops import MATRIX_TREE
from gpuparse.ops.checks import check_scores
from gpuparse.ops.shifts import best_tree
from gpuparse.structures.masks import arc_mask
from gpuparse.structures.trees import Lengths, as_arcs, as_flag, as_lengths, can_validate, no_tree_error


def mst(
    arcs: Tensor, lengths: Lengths = None, *, single_root: bool = True, validate_args: bool | None = None
) -> Int[Tensor, "B N"]:
    """Heads of a best non-projective tree of each sentence (Chu-Liu, Edmonds; O(n^2)), the same every time.

    Args:
        arcs: scores [B, N, N] of head -> modifier; -inf forbids an arc. float32 or float64; half precision is
            taken as float32, here and below.
        lengths: words of each sentence [B], 1 to N - 1; None if all are full.
        single_root: one word hangs on the root (default), or any number.
        validate_args: raise ValueError at a NaN, +inf, bad length or a sentence without any tree. Default: on a CPU
            yes; on a GPU no, since looking waits for the device (such sentences get heads of -1).

    Example:
        >>> import torch, gpuparse as gp
        >>> gp.mst(torch.tensor([[[0.0, 1.0, 4.0], [0.0, 0.0, 3.0], [0.0, 2.0, 0.0]]]))
        tensor([[-1,  2,  0]])
    """
    arcs = as_arcs(arcs)
    lengths, single_root = as_lengths(lengths, arcs, validate_args), as_flag(single_root, "single_root")
    validates = can_validate(arcs, validate_args)
    if validates and check_scores(arcs, lengths)[1]:
        heads = best_tree(
            {"arcs": torch.where(arc_mask(lengths, arcs.shape[1]), arcs.detach(), 0.0)},
            lengths,
            MATRIX_TREE,
            single_root,
        )
    else:
        heads = MATRIX_TREE.argmax((arcs.detach(),), lengths, single_root)
    if validates and arcs.shape[0] and int(heads.select(1, 1).min()) < 0:
        sentence = int((heads[:, 1] < 0).nonzero()[0])
        raise no_tree_error(arcs, lengths, sentence, projective=False, single_root=single_root)
    return heads
