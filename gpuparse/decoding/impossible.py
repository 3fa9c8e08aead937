"""Pairs that no best tree has are forbidden, so that none is too large for what can matter.

A pair needs both of its arcs. An arc that is forbidden has none; nor has one that is masked by a large finite number: a
first-order bound of the trees that have it is below the score of a tree that is known. The latter is looked for only
where values may be looked at.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from gpuparse.decoding import certificates
from gpuparse.decoding.parts import DenseParts, Kind, Parts
from gpuparse.decoding.scores import Scores
from gpuparse.ops import EISNER, MATRIX_TREE
from gpuparse.structures.masks import arc_mask, word_mask

ROUNDS = 2  # the second has better bounds
FAR = 2.0**13  # times as far from the first-order bound as a tree that is known: a mask, not only a bad arc


class Bounds:
    """What trees that have an arc can score at most, of the scores that were asked for last."""

    def __init__(self) -> None:
        self.kept: tuple[Scores, Float64[Tensor, "B N N"], Float64[Tensor, "B N N"]] | None = None

    def of(self, scores: Scores) -> tuple[Float64[Tensor, "B N N"], Float64[Tensor, "B N N"]]:
        """The most that each arc can add, -inf where there is none, and the size of what is added up, which may
        cancel."""
        if self.kept is None or self.kept[0] is not scores:
            most = scores.fold_labels().arcs.detach().double()
            sizes = scores.arcs.detach().double().abs()
            if scores.labels is not None:
                sizes = sizes + scores.labels.detach().double().amax(-1).abs()
            for kind, parts in zip(scores.second_order, scores.parts, strict=True):
                over = parts.bound(0 if kind == "grandparents" else 1).double()
                if kind == "grandparents":
                    over[:, 0] = 0.0
                most, sizes = most + over, sizes + over.abs()
            most = torch.where(arc_mask(scores.lengths, most.shape[1]), most, -torch.inf)
            self.kept = scores, most, sizes
        return self.kept[1:]


def without_impossible(
    scores: Scores,
    *,
    projective: bool,
    single_root: bool,
    every_tree: bool = True,
    known: Int[Tensor, "B N"] | None = None,
    bounds: Bounds | None = None,
) -> Scores:
    """The same with pairs forbidden that no best tree has, where pairs are dense; ``scores`` itself if it has none, or
    has grandsiblings.

    Args:
        every_tree: whether all trees are asked for, not only those that satisfy constraints.
        known: heads of good trees, -1 where there is none.
        bounds: kept from one call for the next.
    """
    bounds = bounds or Bounds()
    if scores.grandsiblings is not None or not any(isinstance(parts, DenseParts) for parts in scores.parts):
        return scores
    never = scores.fold_labels().arcs.detach().isneginf()
    found = _forbid(scores, never)
    if scores.validates and every_tree:
        for _ in range(ROUNDS):
            more = never | _masked(found, bounds, projective, single_root, known)
            if not (more & ~never).any():
                break
            never, found = more, _forbid(found, more)
    return found


def _forbid(scores: Scores, never: Bool[Tensor, "B N N"]) -> Scores:
    """Without the dense pairs that need one of these arcs; the same object if there are none to forbid."""
    if scores.validates and not never.any():
        return scores
    found: dict[str, Parts | None] = {"siblings": scores.siblings, "grandparents": scores.grandparents}
    for kind, parts in zip(scores.second_order, scores.parts, strict=True):
        if isinstance(parts, DenseParts):
            values = parts.values.masked_fill(without_arcs(kind, never), -torch.inf)
            if not (scores.validates and torch.equal(values, parts.values)):
                found[kind] = DenseParts(values, scores.lengths, kind=kind, validate_args=False)
    if found["siblings"] is scores.siblings and found["grandparents"] is scores.grandparents:
        return scores
    return scores.with_parts(found["siblings"], found["grandparents"])


def without_arcs(kind: Kind, never: Bool[Tensor, "B N N"]) -> Bool[Tensor, "B N N N"]:
    """The pairs that need one of these arcs."""
    if kind == "grandparents":
        return never[..., None] | never[:, None]
    first = torch.eye(never.shape[1], dtype=torch.bool, device=never.device)[..., None]  # (h, h, m) has no sibling
    return never[:, :, None] | (never[..., None] & ~first)


def _masked(
    scores: Scores, bounds: Bounds, projective: bool, single_root: bool, known: Int[Tensor, "B N"] | None
) -> Bool[Tensor, "B N N"]:
    """Arcs that are masked: without them a tree is better by far than any with them."""
    N = scores.arcs.shape[1]
    most, sizes = bounds.of(scores)
    word = word_mask(scores.lengths, N)
    best, first = most.max(1)
    best = torch.where(word, best, 0.0)
    gap = torch.where(most.isfinite(), best[:, None] - most, -torch.inf)

    def size_of(heads: Tensor) -> Tensor:
        return torch.where(word, sizes.gather(1, heads.clamp(min=0)[:, None])[:, 0], 0.0).sum(1)

    size = size_of(first)
    if not bool((gap.flatten(1).amax(1) > size).any()):  # whatever trees are known
        return torch.zeros_like(gap, dtype=torch.bool)
    heads = (EISNER if projective else MATRIX_TREE).argmax((most,), scores.lengths, single_root)
    score = scores.total(heads).detach()  # -inf without a tree
    if known is not None:
        score = torch.maximum(score, scores.total(known).detach())
    size = score.abs() + size + size_of(heads)
    away = (best.sum(1) - score).clamp(min=0.0) + certificates.rounding(N, size)
    return gap > (FAR * away + size)[:, None, None]
