"""Losses of a batch of trees: likelihood, head selection, structured hinge, beliefs; of first or second order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import cross_entropy

from gpuparse.decoding.bp.parsing import log_partition, squared_loss
from gpuparse.decoding.dual.soft import softly
from gpuparse.decoding.scores import Scores
from gpuparse.structures.masks import word_mask

SCHEDULE = "serial"  # of belief propagation: in parallel strong pairs swing to and fro, and their scores run away
Objective = Callable[[Scores, Int64[Tensor, "B N"]], Float[Tensor, " B"]]


def negative_log_likelihood(
    scores: Scores, heads: Int64[Tensor, "B N"], *, projective: bool, single_root: bool
) -> Float[Tensor, " B"]:
    """−log p(heads), exactly, over all (projective) trees; ``heads`` are known to be one of them."""
    log_partition = scores.trees(projective=projective, single_root=single_root).log_partition
    return log_partition - scores.total(heads).to(log_partition.dtype)


def head_selection(scores: Scores, heads: Int64[Tensor, "B N"]) -> Float[Tensor, " B"]:
    """Each word chooses its head by itself, no tree wanted: Σ_m −log softmax(arcs[·, m])[head of m]."""
    arcs, lengths, nodes = scores.arcs, scores.lengths, scores.arcs.shape[-1]
    inside = torch.arange(nodes, device=arcs.device) <= lengths[:, None]
    itself = torch.eye(nodes, dtype=torch.bool, device=arcs.device)
    allowed = inside[:, :, None] & ~itself
    columns = arcs.masked_fill(~allowed, -torch.inf).transpose(1, 2)[:, 1:]  # [B, n, N], a row a modifier
    # A column past the end is all −inf, and its loss is not asked for.
    columns = torch.where(inside[:, 1:, None], columns, 0.0)
    losses = cross_entropy(columns.flatten(0, 1), heads[:, 1:].flatten(), ignore_index=-1, reduction="none")
    return losses.view(len(arcs), -1).sum(-1)


def structured_hinge(
    scores: Scores, heads: Int64[Tensor, "B N"], *, projective: bool, single_root: bool, margin: float
) -> Float[Tensor, " B"]:
    """max over trees of score + ``margin`` × wrong heads, minus the score of ``heads``: cost-augmented decoding."""
    with torch.no_grad():
        costly = augmented(scores, heads, margin, validate_args=False)
        best = costly.trees(projective=projective, single_root=single_root).argmax
    wrong = ((best != heads) & word_mask(scores.lengths, heads.shape[-1])).sum(-1)
    return (scores.total(best) + margin * wrong - scores.total(heads)).clamp(min=0).to(scores.arcs.dtype)


def augmented(
    scores: Scores, heads: Int64[Tensor, "B N"], margin: float, *, validate_args: bool | None = None
) -> Scores:
    """The scores, with ``margin`` more for every wrong head."""
    cost = torch.full_like(scores.arcs, margin).scatter_(1, heads.clamp(min=0)[:, None], 0.0)
    parts: dict[str, Any] = {kind: getattr(scores, kind) for kind in scores.kinds}
    return Scores(scores.arcs + cost, scores.lengths, **parts, validate_args=validate_args)


def label_loss(scores: Float[Tensor, "B N L"], labels: Int64[Tensor, "B N"]) -> Float[Tensor, " B"]:
    """Σ_m −log softmax(scores[m])[label of m], given the right heads; labels of −1 do not count."""
    losses = cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-1, reduction="none")
    return losses.view(labels.shape).sum(-1)


def bethe_likelihood(
    scores: Scores, heads: Int64[Tensor, "B N"], *, projective: bool, single_root: bool, iterations: int
) -> Float[Tensor, " B"]:
    """−log p(heads) as belief propagation has it; the gradient is what the factors believe less what is right."""
    options = {"iterations": iterations, "tolerance": 1e-4, "schedule": SCHEDULE}
    log_z = log_partition(scores, projective=projective, single_root=single_root, **options)
    return (log_z - scores.total(heads)).to(scores.arcs.dtype)


def belief_loss(
    scores: Scores, heads: Int64[Tensor, "B N"], *, projective: bool, single_root: bool, iterations: int
) -> Float[Tensor, " B"]:
    """Σ over links of (belief − truth)², its gradient through all iterations."""
    options = {"iterations": iterations, "tolerance": 0.0, "schedule": SCHEDULE, "recompute": True}
    loss = squared_loss(scores, heads, projective=projective, single_root=single_root, **options)
    return loss.to(scores.arcs.dtype)


def soft_dual(
    scores: Scores, heads: Int64[Tensor, "B N"], *, single_root: bool, iterations: int
) -> Float[Tensor, " B"]:
    """L_1(u) after some iterations of soft dual decomposition, less the score of ``heads``: trees by matrix-tree and
    projective ones of second order by inside and outside, that come to agree on arcs; its gradient goes through all of
    it. No less than -log p(heads) would be if both were one distribution over projective trees."""
    value = softly(scores, single_root=single_root, iterations=iterations).value
    return (value - scores.total(heads)).to(scores.arcs.dtype)


def tree_objective(
    name: Literal["nll", "local", "hinge", "bp", "bp_l2", "dd"],
    *,
    projective: bool,
    single_root: bool,
    margin: float,
    iterations: int = 5,
    dd_iterations: int = 5,
) -> Objective:
    """The loss of a tree by its name in the configuration."""
    if name == "local":
        return head_selection
    if name in ("bp", "bp_l2"):
        loss = bethe_likelihood if name == "bp" else belief_loss
        return partial(loss, projective=projective, single_root=single_root, iterations=iterations)
    if name == "dd":
        return partial(soft_dual, single_root=single_root, iterations=dd_iterations)
    if name == "hinge":
        return partial(structured_hinge, projective=projective, single_root=single_root, margin=margin)
    return partial(negative_log_likelihood, projective=projective, single_root=single_root)
