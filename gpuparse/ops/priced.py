"""The best projective tree under pairs of arcs of which few are scored, as an operator.

Column generation in the dynamic program (Riedel, Smith & McCallum 2012, section 4.5): see ``kernels/open_arcs.cuh``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from gpuparse.ops import plain
from gpuparse.ops.backend import Backend, Kernel, Long
from gpuparse.ops.launch import NUMBERS, check_like, kernels_for, launch, square
from gpuparse.ops.library import define, takes_kernels
from gpuparse.ops.pricing import AT_ONCE, KINDS, Scorer
from gpuparse.structures.masks import grandparent_mask, sibling_mask

COUNTS = 5
NONE = -1

Outputs = tuple[Tensor, Tensor]


class Pairs(NamedTuple):
    """Siblings or grandparents.

    Attributes:
        scorer: what scores them (``Parts.scorer``).
        bound: no less than any score of a pair whose outer (siblings) or lower (grandparents) arc is h -> m, in
            float64: ``Parts.bound(1)`` of siblings, ``Parts.bound(0)`` of grandparents.
    """

    scorer: Scorer
    bound: Float64[Tensor, "B N N"]


class PricedTrees(NamedTuple):
    """Best trees, and what was done for them.

    Attributes:
        heads: [B, N]; all -1 where there is no tree.
        siblings, grandparents: how many were scored [B].
        rounds: trees of bounds that were looked at [B].
        arcs: those that were open in the end, or alive where the exact program was run [B].
        exact: whether it was, on these; else the tree was proven best before [B].
    """

    heads: Int64[Tensor, "B N"]
    siblings: Int64[Tensor, " B"]
    grandparents: Int64[Tensor, " B"]
    rounds: Int64[Tensor, " B"]
    arcs: Int64[Tensor, " B"]
    exact: Int64[Tensor, " B"]


def launch_priced(kinds: list[int], ranks: list[int], *given: Any, backend: Backend | None = None) -> Outputs:
    """Run grandsiblings_priced.cu. Of siblings and grandparents the tensors of the scorer, and the bound."""
    arcs, lengths, siblings, grandparents, single_root = given
    B, N = arcs.shape[:2]
    backend = backend or kernels_for(arcs)
    outputs = arcs.new_empty((B, N), dtype=torch.int64), arcs.new_zeros((B, COUNTS), dtype=torch.int64)
    rows = N * (-(-N // 8) * 8)
    doubles = (N + 1) * sum(ranks) + 7 * rows + 5 * N * rows + 5 * square(N)
    columns = sum(-(-rank // AT_ONCE) * AT_ONCE for rank in ranks)
    ints = columns + 8 * N * N + 14 * N + 64
    values = siblings[0] if siblings[0] is not None else grandparents[0]
    launch(
        backend,
        Kernel("grandsiblings_priced", NUMBERS[torch.float64 if values is None else values.dtype]),
        [arcs.contiguous(), lengths.contiguous(), *siblings, *grandparents, *outputs],
        sentences=B,
        nodes=N * N,
        work=20 * N**3,
        doubles=doubles,
        ints=(ints,),
        tail=[Long(doubles), Long(ints), kinds[0], ranks[0], kinds[1], ranks[1], B, N, int(single_root)],
    )
    return outputs


def _like_priced(kinds: object, ranks: object, arcs: Tensor, *_: object) -> Outputs:
    B, N = arcs.shape[:2]
    return arcs.new_empty((B, N), dtype=torch.int64), arcs.new_empty((B, COUNTS), dtype=torch.int64)


_priced_op = define(
    "grandsiblings_priced(int[] kinds, int[] ranks, Tensor arcs, Tensor lengths, Tensor?[] siblings, "
    "Tensor?[] grandparents, bool single_root) -> (Tensor, Tensor)",
    launch_priced,
    _like_priced,
)


def argmax(
    arcs: Float64[Tensor, "B N N"],
    lengths: Int[Tensor, " B"],
    siblings: Pairs | None,
    grandparents: Pairs | None,
    *,
    single_root: bool,
    backend: Backend | None = None,
) -> PricedTrees:
    """Best trees under arcs and pairs, without a gradient; nothing waits for the device.

    Args:
        arcs: float64; -inf forbids an arc.
        siblings, grandparents: one of them at least, scorers of one dtype.
        backend: None: that of the device.

    Best as the dense program's are: of trees whose scores differ by no more than rounding any may be found. Where
    kernels are not there, all pairs are scored.
    """
    _check(arcs, lengths, siblings, grandparents)
    like = (siblings or grandparents).scorer.values  # type: ignore[union-attr]
    if backend is None and not takes_kernels(like, "grandsiblings_priced"):
        return _plain(arcs, lengths, siblings, grandparents, single_root)
    given: list[Any] = []
    for pairs in (siblings, grandparents):
        x = None if pairs is None else pairs.scorer
        tensors = (None,) * 5 if x is None else (x.values, x.second, x.third, x.index, x.relations)
        given.append([*tensors, None if pairs is None else pairs.bound.contiguous()])
    kinds = [NONE if pairs is None else KINDS[pairs.scorer.kind] for pairs in (siblings, grandparents)]
    ranks = [0 if pairs is None else pairs.scorer.rank for pairs in (siblings, grandparents)]
    args = kinds, ranks, arcs, lengths, given[0], given[1], single_root
    heads, told = _priced_op(*args) if backend is None else launch_priced(*args, backend=backend)
    return PricedTrees(heads, *told.unbind(1))


def _plain(
    arcs: Tensor, lengths: Tensor, siblings: Pairs | None, grandparents: Pairs | None, single_root: bool
) -> PricedTrees:
    """The dense program, every pair scored: the reference."""
    B, N = arcs.shape[:2]
    every = torch.cartesian_prod(*(torch.arange(k, device=arcs.device) for k in (B, N, N, N))).T
    sentence, i, j, k = every
    beside, above = None, None
    none = torch.zeros_like(lengths)
    counts = [none, none]
    if siblings is not None:
        beside = siblings.scorer.score(sentence, j, i, k).view(B, N, N, N)
        counts[0] = sibling_mask(lengths, N).flatten(1).sum(1)
    if grandparents is not None:
        above = grandparents.scorer.score(sentence, i, j, k).view(B, N, N, N)
        counts[1] = grandparent_mask(lengths, N).flatten(1).sum(1)
    heads = plain.second_order.argmax((arcs, beside, above), lengths, single_root)
    ones = torch.ones_like(lengths)
    return PricedTrees(heads, counts[0], counts[1], ones, lengths**2, ones)


def _check(arcs: Tensor, lengths: Tensor, siblings: Pairs | None, grandparents: Pairs | None) -> None:
    """Raise ValueError where shapes, dtypes or devices do not fit."""
    if arcs.dim() != 3 or arcs.shape[1] != arcs.shape[2] or arcs.shape[1] < 2:
        raise ValueError(f"arcs must have shape [B, N, N] with N = words + 1 >= 2, got {list(arcs.shape)}")
    B, N = arcs.shape[:2]
    check_like("arcs", arcs, torch.float64, arcs.shape, arcs.device)
    check_like("lengths", lengths, torch.int64, (B,), arcs.device)
    families = {"siblings": siblings, "grandparents": grandparents}
    given = {name: pairs for name, pairs in families.items() if pairs is not None}
    if not given:
        raise ValueError("siblings or grandparents must be given")
    for name, pairs in given.items():
        scorer = pairs.scorer
        check_like(f"bound of {name}", pairs.bound, torch.float64, (B, N, N), arcs.device)
        if scorer.siblings != (name == "siblings"):
            raise ValueError(f"{name} must have a scorer of their kind")
        nodes = scorer.values.shape[:2] if scorer.index is None else scorer.index.shape[1:3]
        wanted = (B, N + int(scorer.siblings and scorer.index is not None))
        if tuple(nodes) != wanted or scorer.values.device != arcs.device:
            raise ValueError(
                f"scorer of {name} must be of {B} sentences and {N} nodes on {arcs.device} like arcs, "
                f"got {list(nodes)} on {scorer.values.device}"
            )
        if scorer.values.dtype not in NUMBERS:
            found = str(scorer.values.dtype).removeprefix("torch.")
            raise ValueError(f"scorer of {name} must be of float32 or float64, got {found}; convert what it is made of")
    if len({pairs.scorer.values.dtype for pairs in given.values()}) > 1:
        raise ValueError("siblings and grandparents must have scorers of one dtype")
