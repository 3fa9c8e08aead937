"""The k best trees of every sentence, exactly, whatever their scores are of.

Where a dynamic program has them (first order; projective trees of any order), they are its. Trees that may cross under
pairs of arcs are found by Lawler's partition: the best tree of all others without one of its arcs, by "auto" with
``exact=True``.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from gpuparse.decoding.methods import decode
from gpuparse.decoding.scores import Scores
from gpuparse.ops.plain.generic import lawler_murty


def k_best(
    scores: Scores, k: int, *, projective: bool = False, single_root: bool = True
) -> tuple[Int64[Tensor, "k B N"], Float64[Tensor, "k B"]]:
    """The k best trees (1 to 64), best first, and their scores, labels left out; ranks that do not exist have heads of
    -1 and a score of -inf. Waits for the device where trees may cross under pairs of arcs.

    Example:
        >>> import torch, gpuparse as gp
        >>> from gpuparse.decoding.nbest import k_best
        >>> heads, score = k_best(gp.Scores(torch.tensor([[[0.0, 1.0, 4.0], [0.0, 0.0, 3.0], [0.0, 2.0, 0.0]]])), 3)
        >>> heads[:, 0].tolist(), score[:, 0].tolist()
        ([[-1, 2, 0], [-1, 0, 1], [-1, -1, -1]], [6.0, 4.0, -inf])
    """
    if projective or not scores.kinds:
        trees = scores.trees(projective=projective, single_root=single_root)
        heads, score = trees.topk(k)
        return heads, score.double()
    lengths = scores.lengths
    rows = torch.arange(len(lengths), device=lengths.device)

    def solve(forbidden: Bool[Tensor, "B q N N"]) -> tuple[Int64[Tensor, "B q N"], Float64[Tensor, "B q"]]:
        sets = forbidden.shape[:2]
        some = scores.take(rows.repeat_interleave(sets[1]))
        arcs = some.arcs.masked_fill(forbidden.flatten(0, 1), -torch.inf)
        barred = some.with_arcs(arcs, validate_args=False)  # there may be no tree
        found = decode(barred, exact=True, single_root=single_root)
        return found.heads.unflatten(0, sets), found.score.detach().unflatten(0, sets)

    heads = lawler_murty(solve, lengths, scores.arcs.shape[1], k)
    return heads, torch.where((heads >= 0).any(-1), scores.total(heads).detach(), -torch.inf)
