"""What follows from a log-partition function or an argmax alone, for any family of trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gpuparse.ops.plain.semiring import NEG_INF, clean
from gpuparse.structures.masks import arc_mask, word_mask

Arcs = Float[Tensor, "B N N"]
LogPartition = Callable[[Tensor, Tensor, bool], Tensor]
"""(arcs [B, N, N], lengths [B], single_root) -> log Z [B], differentiable."""

Argmax = Callable[[Tensor, Tensor, bool], Tensor]
"""(arcs [B, N, N], lengths [B], single_root) -> heads [B, N]."""


Scores = Sequence[Tensor | None]
"""Scores in some order, or something like each of them; None where there is none."""


def _gradients(y: Float[Tensor, "*dims"], leaves: Sequence[Tensor], create_graph: bool) -> list[Tensor]:
    """Gradients of the sum of y: zeros if y does not depend on them at all."""
    if not y.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    return list(torch.autograd.grad(y.sum(), leaves, create_graph=create_graph, materialize_grads=True))


def derivative(
    log_partition: Callable[[Any, Tensor], Tensor],
    masks: Callable[[Any, Tensor], Sequence[Tensor | None]],
    scores: Scores,
    lengths: Int64[Tensor, " B"],
    directions: Sequence[Scores] = (),
) -> list[Tensor | None]:
    """Derivatives of log Z by the scores that there are, all but one of them along `directions`: without directions the
    expected numbers of all parts. Differentiable if an input is; zeros for a sentence without a structure.

    `log_partition` takes scores and lengths and gives log Z [B]; `masks` takes the same and tells what is read.
    """
    there = [k for k, x in enumerate(scores) if x is not None]
    given = [x for bundle in (scores, *directions) for x in bundle if x is not None]
    keep = torch.is_grad_enabled() and any(x.requires_grad for x in given)
    with torch.inference_mode(False), torch.enable_grad():
        lengths = lengths.clone()
        # nodes of their own in the graph: directions may depend on the scores and are constants here
        x = [None if s is None else s.double().clone() for s in scores]
        x = [s if s is None or (keep and s.requires_grad) else s.detach().requires_grad_() for s in x]
        leaves = [s for s in x if s is not None]
        value = log_partition(x, lengths)
        for direction in directions:
            parts = _gradients(value, leaves, True)
            value, read = torch.zeros_like(value), masks(scores, lengths)
            for k, part in zip(there, parts, strict=True):
                v, mask = direction[k], read[k]
                if v is not None and mask is not None:
                    value = value + (part * torch.where(mask, v.double().clone(), 0.0)).flatten(1).sum(1)
        dtype = given[0].dtype
        found = [g.to(dtype) for g in _gradients(value, leaves, keep)]
    results = iter(found if keep else [g.detach() for g in found])
    return [None if s is None else next(results) for s in scores]


def marginals(
    log_partition: LogPartition, arcs: Arcs, lengths: Int64[Tensor, " B"], single_root: bool, *directions: Arcs
) -> Arcs:
    """Probability of every arc: the gradient of log Z, or with directions its derivative along these. Zeros for a
    sentence without a tree.

    Right to rounding in the absolute: an arc that is in no tree may get some 1e-16 instead of 0.
    """
    (found,) = derivative(
        lambda scores, lengths: log_partition(scores[0], lengths, single_root),
        lambda scores, lengths: [arc_mask(lengths, scores[0].shape[-1])],
        (arcs,),
        lengths,
        [(v,) for v in directions],
    )
    assert found is not None
    return found


hvp = third = marginals  # along one direction, and along two


def _draw(p: Float[Tensor, "S N"]) -> Int64[Tensor, " S"]:
    """An index for each row of weights p [S, N] by inverting its sums, never one of weight 0."""
    upto = p.cumsum(1)
    u = torch.rand_like(upto[:, :1]) * upto[:, -1:]
    hit = (upto > u) & (p > 0)
    # no hit is only possible by rounding (or if all of p is 0)
    return torch.where(hit.any(1), hit.long().argmax(1), p.argmax(1))


@torch.no_grad()
def sample(
    log_partition: LogPartition,
    arcs: Float[Tensor, "B N N"],
    lengths: Int64[Tensor, " B"],
    single_root: bool,
    num: int,
) -> Int64[Tensor, "num B N"]:
    """Exact samples, heads [num, B, N], from torch's generator; -1 for a sentence without a tree.

    p(tree) = product over m of p(head of m | heads of the words before m): marginals, with those heads fixed.
    """
    batch, nodes, _ = arcs.shape
    node = torch.arange(nodes, device=arcs.device)
    w = clean(arcs, lengths).repeat(num, 1, 1)
    lengths = lengths.repeat(num)
    possible = log_partition(w, lengths, single_root) > NEG_INF

    def fix(m: int, head: Int64[Tensor, " S"]) -> Float[Tensor, "S N N"]:
        """The scores w with every other head of word m forbidden."""
        forbidden = (node != head[:, None])[:, :, None] & (node == m)
        return torch.where(forbidden, NEG_INF, w)

    heads = [torch.full_like(lengths, -1)]
    for m in range(1, nodes):
        p = marginals(log_partition, w, lengths, single_root)[:, :, m].clamp(min=0)
        head = _draw(p)
        # rounding may give a head of probability 0 some 1e-16: where that was drawn, take the likeliest head
        some = log_partition(fix(m, head), lengths, single_root) > NEG_INF
        head = torch.where(some, head, p.argmax(1))
        w = fix(m, head)
        heads.append(head)
    read = word_mask(lengths, nodes) & possible[:, None]
    return torch.where(read, torch.stack(heads, 1), -1).view(num, batch, nodes)


def _tree_score(w: Float[Tensor, "S N N"], heads: Int64[Tensor, "S N"], words: Bool[Tensor, "S N"]) -> Tensor:
    """Score [S] of the trees `heads` [S, N] under clean scores w; -inf if a word has no head."""
    arc = w.gather(1, heads.clamp(min=0)[:, None, :]).squeeze(1)
    arc = torch.where(heads >= 0, arc, NEG_INF)
    return torch.where(words, arc, 0.0).sum(1)


Solve = Callable[[Tensor], tuple[Tensor, Tensor]]
"""forbidden arcs [B, q, N, N] -> heads [B, q, N] of a best tree of each of q sets of trees, and their scores [B, q]."""


@torch.no_grad()
def lawler_murty(solve: Solve, lengths: Int64[Tensor, " B"], nodes: int, k: int) -> Int64[Tensor, "k B N"]:
    """The k best trees, heads [k, B, N], best first (Lawler-Murty); -1 for ranks that do not exist.

    A candidate is the best tree of a set of trees: those with its own heads at the words 1 .. p and none of
    the `barred` heads at word p + 1. Taking it out of its set leaves the disjoint sets q = p .. n-1, in which
    the trees agree with it at the words 1 .. q and not at q + 1.
    """
    batch, n = len(lengths), nodes - 1
    if n == 0:
        return torch.full((k, batch, nodes), -1, dtype=torch.int64, device=lengths.device)
    node = torch.arange(nodes, device=lengths.device)
    q = node[:n]

    # for every child q: which words it fixes and which one it bars from
    fixes = (node >= 1) & (node <= q[:, None])  # [q, m]
    bars = node == q[:, None] + 1  # [q, m]

    # candidates, best first: score [B, c], heads [B, c, N], p [B, c], barred [B, c, N]
    heads, score = solve(torch.zeros(batch, 1, nodes, nodes, dtype=torch.bool, device=lengths.device))
    p = torch.zeros_like(lengths)[:, None]
    barred = torch.zeros_like(heads, dtype=torch.bool)
    ranks = []
    for rank in range(k):
        # the best candidate left, if any
        best, tree, at, never = score[:, 0], heads[:, 0], p[:, 0], barred[:, 0]
        exists = best > NEG_INF
        ranks.append(torch.where(exists[:, None], tree, -1))
        if rank == k - 1:
            break

        # children: bar its head of word q+1 [B, q, h], and what was barred there before if q = p
        own = node == tree[:, 1:, None]
        child_barred = own | ((q == at[:, None])[:, :, None] & never[:, None, :])
        other = node[:, None] != tree[:, None, None, :]  # h is not the tree's head of m: [B, 1, h, m]
        child_heads, child_score = solve((fixes[:, None, :] & other) | (bars[:, None, :] & child_barred[..., None]))
        real = exists[:, None] & (q >= at[:, None]) & (q < lengths[:, None])
        child_score = torch.where(real, child_score, NEG_INF)

        # keep no more candidates than there are ranks to fill; older ones first among equals
        score = torch.cat([score[:, 1:], child_score], 1)
        heads = torch.cat([heads[:, 1:], child_heads], 1)
        p = torch.cat([p[:, 1:], q.expand(batch, n)], 1)
        barred = torch.cat([barred[:, 1:], child_barred], 1)
        score, order = score.sort(dim=1, descending=True, stable=True)
        score, order = score[:, : k - 1 - rank], order[:, : k - 1 - rank]
        wide = order[..., None].expand(-1, -1, nodes)
        heads, p, barred = heads.gather(1, wide), p.gather(1, order), barred.gather(1, wide)
    return torch.stack(ranks)


def topk(argmax: Argmax, arcs: Arcs, lengths: Int64[Tensor, " B"], single_root: bool, k: int) -> Int64[Tensor, "k B N"]:
    """The k best trees, heads [k, B, N], best first; -1 for ranks that do not exist."""
    nodes = arcs.shape[-1]
    w = clean(arcs, lengths)
    words = word_mask(lengths, nodes)

    def solve(forbidden: Bool[Tensor, "B q N N"]) -> tuple[Int64[Tensor, "B q N"], Float[Tensor, "B q"]]:
        sets = forbidden.shape[:2]
        each = [x.repeat_interleave(sets[1], 0) for x in (lengths, words)]
        child = torch.where(forbidden, NEG_INF, w[:, None]).flatten(0, 1)
        heads = argmax(child, each[0], single_root)
        return heads.unflatten(0, sets), _tree_score(child, heads, each[1]).unflatten(0, sets)

    return lawler_murty(solve, lengths, nodes, k)
