"""Losses of a batch of trees: exact likelihood, head selection, structured hinge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import cross_entropy

from gpuparse.distributions import NonProjectiveTrees, ProjectiveTrees
from gpuparse.mst import mst
from gpuparse.trees import is_word

Objective = Callable[[Float[Tensor, "B N N"], Int64[Tensor, " B"], Int64[Tensor, "B N"]], Float[Tensor, " B"]]


def negative_log_likelihood(
    arcs: Float[Tensor, "B N N"],
    lengths: Int64[Tensor, " B"],
    heads: Int64[Tensor, "B N"],
    *,
    projective: bool,
    single_root: bool,
) -> Float[Tensor, " B"]:
    """−log p(heads), exactly, over all (projective) trees; ``heads`` are known to be one of them."""
    trees = ProjectiveTrees if projective else NonProjectiveTrees
    log_partition = trees(arcs, lengths, single_root=single_root, validate_args=False).log_partition
    return log_partition - _sum_arcs(arcs, heads)


def head_selection(
    arcs: Float[Tensor, "B N N"], lengths: Int64[Tensor, " B"], heads: Int64[Tensor, "B N"]
) -> Float[Tensor, " B"]:
    """Each word chooses its head by itself, no tree wanted: Σ_m −log softmax(arcs[·, m])[head of m]."""
    nodes = arcs.shape[-1]
    inside = torch.arange(nodes, device=arcs.device) <= lengths[:, None]
    itself = torch.eye(nodes, dtype=torch.bool, device=arcs.device)
    allowed = inside[:, :, None] & ~itself
    columns = arcs.masked_fill(~allowed, -torch.inf).transpose(1, 2)[:, 1:]  # [B, n, N], a row a modifier
    # A column past the end is all −inf, and its loss is not asked for.
    columns = torch.where(inside[:, 1:, None], columns, 0.0)
    losses = cross_entropy(columns.flatten(0, 1), heads[:, 1:].flatten(), ignore_index=-1, reduction="none")
    return losses.view(len(arcs), -1).sum(-1)


def structured_hinge(
    arcs: Float[Tensor, "B N N"],
    lengths: Int64[Tensor, " B"],
    heads: Int64[Tensor, "B N"],
    *,
    projective: bool,
    single_root: bool,
    margin: float,
) -> Float[Tensor, " B"]:
    """max over trees of score + ``margin`` × wrong heads, minus the score of ``heads``: cost-augmented decoding."""
    cost = torch.full_like(arcs, margin).scatter_(1, heads.clamp(min=0)[:, None], 0.0)
    augmented = arcs.detach() + cost
    if projective:
        best = ProjectiveTrees(augmented, lengths, single_root=single_root, validate_args=False).argmax
    else:
        best = mst(augmented, lengths, single_root=single_root, validate_args=False)
    wrong = ((best != heads) & is_word(lengths, arcs.shape[-1])).sum(-1)
    return (_sum_arcs(arcs, best) + margin * wrong - _sum_arcs(arcs, heads)).clamp(min=0)


def _sum_arcs(arcs: Float[Tensor, "B N N"], heads: Int64[Tensor, "B N"]) -> Float[Tensor, " B"]:
    chosen = arcs.gather(1, heads.clamp(min=0)[:, None])[:, 0]
    return torch.where(heads >= 0, chosen, 0.0).sum(-1)


def label_loss(scores: Float[Tensor, "B N L"], labels: Int64[Tensor, "B N"]) -> Float[Tensor, " B"]:
    """Σ_m −log softmax(scores[m])[label of m], given the right heads; labels of −1 do not count."""
    losses = cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-1, reduction="none")
    return losses.view(labels.shape).sum(-1)


def tree_objective(
    name: Literal["nll", "local", "hinge"], *, projective: bool, single_root: bool, margin: float
) -> Objective:
    """The loss of the arcs by its name in the configuration."""
    if name == "local":
        return head_selection
    if name == "hinge":
        return lambda arcs, lengths, heads: structured_hinge(
            arcs, lengths, heads, projective=projective, single_root=single_root, margin=margin
        )
    return lambda arcs, lengths, heads: negative_log_likelihood(
        arcs, lengths, heads, projective=projective, single_root=single_root
    )
