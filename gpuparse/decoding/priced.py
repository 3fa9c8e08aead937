"""Column generation in the dynamic program (Riedel, Smith & McCallum 2012, section 4.5): best projective trees under
pairs of arcs, most of which are never scored.

Trees are found by bounds of what is not scored, pairs that they use are scored, and so on until no tree can be better
than the one that is known, or until arcs are left that few trees have: the exact program is then run on these alone.
``gpuparse.ops.priced`` and ``kernels/open_arcs.cuh`` do the work.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from gpuparse.decoding.parts import DenseParts, Parts, TakenParts
from gpuparse.decoding.scores import Scores
from gpuparse.ops import priced
from gpuparse.ops.library import takes_kernels
from gpuparse.system.quote import quoted

KERNEL = "grandsiblings_priced"


def check_pricing(value: Any, name: str) -> None:
    """Raise ValueError unless it is a value of the option ``pricing``."""
    if not (isinstance(value, bool) or (isinstance(value, str) and value == "auto")):
        raise ValueError(f'{name} must be True, False or "auto", got {quoted(value)}')


def families_to_price(scores: Scores, pricing: bool | str) -> dict[str, priced.Pairs] | None:
    """The pairs as kernels score them, with their bounds, by kind; None: all are to be scored.

    By default ("auto") those of a CPU are priced if some of them are scored lazily, but for siblings that are products
    of vectors: to score all of these takes less than to find out which to score. On a GPU the dense program has more to
    do side by side. Families that no kernel can score are not, nor any where there are no kernels, or where
    siblings and grandparents are of different dtypes, or where there are grandsiblings.
    """
    if (
        scores.grandsiblings is not None
        or pricing is False
        or (pricing == "auto" and (scores.arcs.device.type != "cpu" or not any(map(_is_lazy, scores.parts))))
    ):
        return None
    scorers = [parts.scorer() for parts in scores.parts]
    kinds = {None if scorer is None else scorer.values.dtype for scorer in scorers}
    if None in kinds or len(kinds) > 1:
        return None
    if pricing == "auto" and not all(scorer and takes_kernels(scorer.values, KERNEL) for scorer in scorers):
        return None
    if pricing == "auto" and any(scorer and scorer.siblings and scorer.kind == "trilinear" for scorer in scorers):
        return None
    return {
        kind: priced.Pairs(scorer, parts.bound(1 if kind == "siblings" else 0).double())
        for kind, parts, scorer in zip(scores.second_order, scores.parts, scorers, strict=True)
        if scorer is not None
    }


def price_trees(
    scores: Scores, pairs: dict[str, priced.Pairs], *, single_root: bool
) -> tuple[Int[Tensor, "B N"], Int[Tensor, " B"], dict[str, Tensor]]:
    """Heads of best trees under arcs (without labels) and pairs, -1 where there is none; rounds; ``stats`` of a parse.
    Counting for ``Parts.scored`` waits for the device."""
    found = priced.argmax(
        scores.arcs.detach().double(),
        scores.lengths,
        pairs.get("siblings"),
        pairs.get("grandparents"),
        single_root=single_root,
    )
    siblings, grandparents = torch.stack([found.siblings, found.grandparents]).sum(1).tolist()
    for parts in scores.parts:
        parts.scored += siblings if parts.kind == "siblings" else grandparents
    share = found.arcs.double() / scores.lengths.double().clamp(min=1.0) ** 2
    stats = {"scored": found.siblings + found.grandparents, "arcs": share, "exact": found.exact > 0}
    return found.heads, found.rounds, stats


def _is_lazy(parts: Parts) -> bool:
    """Whether there is something to be saved."""
    if isinstance(parts, TakenParts):
        return _is_lazy(parts.whole)
    return not isinstance(parts, DenseParts)
