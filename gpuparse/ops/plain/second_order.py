"""Projective trees with scores of pairs of arcs, by diagonals, over any sum: O(n^3), with grandparents O(n^4).

Siblings: Eisner (1996). Grandparents, with or without siblings, and grandsiblings: model 1 of Koo & Collins (2010), in
which siblings' scores depend on the head of their head. Spans go from node i to node i + d. R and L are complete spans
headed at their left and right end, P and Q incomplete ones, ended by the arc i -> i+d and i+d -> i, X what lies between
two children in a row of the same head. With grandparents every span has one entry for each head of its own head (X: for
the head of both ends), else just one. An entry whose index lies in the span means nothing and is never read. The root's
own head is node 0.

Charts [B, i, t, G] are kept by start (widths ascending in t) or by end (descending), as in plain/eisner.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gpuparse.ops.plain import generic
from gpuparse.ops.plain.semiring import NEG_INF, clean, logsumexp, maximum
from gpuparse.structures.masks import (
    arc_mask,
    grandparent_mask,
    grandsibling_mask,
    previous_sibling,
    sibling_mask,
    word_mask,
)

Kinds = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]
Scores = tuple[Tensor, Tensor | None, Tensor | None] | Kinds
"""arcs [B, N, N] (h, m), siblings [B, N, N, N] (h, s, m), grandparents [B, N, N, N] (g, h, m) and, if they are named,
grandsiblings [B, N, N, N, N] (g, h, s, m); those that there are."""


def all_kinds(scores: Scores) -> Kinds:
    """All four of them."""
    arcs, siblings, grandparents, *more = scores
    return arcs, siblings, grandparents, more[0] if more else None


def _prepare(
    scores: Scores, lengths: Int64[Tensor, " B"], single_root: bool
) -> tuple[Float[Tensor, "B G N N"], Float[Tensor, "B G N N N"] | None, Float[Tensor, " B"]]:
    """Scores of arcs under each grandparent [g, h, m], of siblings (g, h, s, m), -inf where they are not read; the sum
    of the shifts: each word's best total is 0, which keeps digits."""
    arcs, siblings, grandparents, grandsiblings = all_kinds(scores)
    nodes = arcs.shape[-1]
    w = clean(arcs, lengths)[:, None]
    if grandparents is not None or grandsiblings is not None:
        read = grandparent_mask(lengths, nodes)
        root = torch.zeros_like(read)
        root[:, 0, 0] = True  # a word under the root has no grandparent, and one entry
        above = 0.0 if grandparents is None else grandparents.double()
        w = w + torch.where(read, above, torch.where(root, 0.0, NEG_INF))
    top = w.detach().amax(1)
    beside = None
    if siblings is not None or grandsiblings is not None:
        read = sibling_mask(lengths, nodes)
        if single_root:
            read[:, 0, 1:] = False
        beside = torch.where(read, 0.0 if siblings is None else siblings.double(), NEG_INF)[:, None]
        if grandsiblings is not None:
            under_root = (torch.arange(nodes, device=arcs.device) == 0)[:, None, None]
            unread = torch.where(under_root, 0.0, NEG_INF)
            beside = beside + torch.where(grandsibling_mask(lengths, nodes), grandsiblings.double(), unread)
        top = top + beside.detach().amax((1, 3))
    c = top.amax(1)
    c = torch.where(c == NEG_INF, 0.0, c)
    return w - c[:, None, None, :], beside, c.sum(1)


def _inside(
    scores: Scores, lengths: Int64[Tensor, " B"], single_root: bool, add: Callable[[Tensor, int], Tensor]
) -> Float[Tensor, " B"]:
    """Z of each sentence, its products being + and its sums `add(x, dim)`."""
    w, beside, shift = _prepare(scores, lengths, single_root)
    batch, heads, nodes, _ = w.shape
    node = torch.arange(nodes, device=w.device)

    def at(chart: Float[Tensor, "B i t G"], ahead: int) -> Float[Tensor, "B i t 1"]:
        """Of spans in row i, the entries of head i + ahead."""
        return chart if heads == 1 else chart.diagonal(ahead, 1, 3).transpose(1, 2)[..., None]

    def pairs(h: Tensor, s: Tensor, m: Tensor) -> Tensor:
        """Scores of siblings in a row; without them, one child of the root if there is to be a single one."""
        if beside is not None:
            return beside[:, :, h, s, m].movedim(1, -1)
        return torch.where((h == 0) & (s > 0) & single_root, NEG_INF, 0.0).double()[None, ..., None]

    one = w.new_zeros(batch, nodes, 1, heads)
    r_start, r_end, l_start, l_end = one, one, one, one  # R(0, i) = L(0, i) = 1
    p_start, q_end, x_start, x_end = one[:, :, :0], one[:, :, :0], one[:, :, :0], one[:, :, :0]
    z = [one[:, 0, 0, 0]]
    for d in range(1, nodes):
        # spans of width d start at 0 .. N-1-d and end at d .. N-1
        r_start, l_start, p_start, x_start = r_start[:, :-1], l_start[:, :-1], p_start[:, :-1], x_start[:, :-1]
        r_end, l_end, q_end, x_end = r_end[:, 1:], l_end[:, 1:], q_end[:, 1:], x_end[:, 1:]
        i, e = node[: nodes - d, None], node[d:, None]
        between = i + node[1:d]

        # P^g(d, i) = w^g(i, i+d) [ s(i, i, i+d) L^i(d-1, i+1) + sum_t P^g(t, i) X^i(d-t, i+t) s(i, i+t, i+d) ]
        first = at(l_end[:, :, :1], 0) + pairs(i, i, e)
        later = p_start + at(x_end, 0) + pairs(i.expand_as(between), between, e.expand_as(between))
        p = w.diagonal(d, 2, 3).transpose(1, 2) + add(torch.cat([first.expand(-1, -1, -1, heads), later], 2), 2)
        # Q alike, from the right
        first = at(r_start[:, :, -1:], d) + pairs(e, e, i)
        later = q_end + at(x_start, d) + pairs(e.expand_as(between), between, i.expand_as(between))
        q = w.diagonal(-d, 2, 3).transpose(1, 2) + add(torch.cat([first.expand(-1, -1, -1, heads), later], 2), 2)
        # X^h(d, i) = sum over t = 0 .. d-1 of R^h(t, i) L^h(d-1-t, i+t+1)
        x = add(r_start + l_end, 2)[:, :, None]

        # R^g(d, i) = sum over t = 1 .. d of P^g(t, i) R^i(d-t, i+t);  L^g(d, i) = sum of L^{i+d}(t, i) Q^g(d-t, i+t)
        p_start = torch.cat([p_start, p[:, :, None]], 2)
        q_end = torch.cat([q[:, :, None], q_end], 2)
        r = add(p_start + at(r_end, 0), 2)[:, :, None]
        l = add(at(l_start, d) + q_end, 2)[:, :, None]  # noqa: E741
        z.append(r[:, 0, 0, 0])

        r_start, l_start, x_start = (torch.cat(c, 2) for c in ((r_start, r), (l_start, l), (x_start, x)))
        r_end, l_end, x_end = (torch.cat(c, 2) for c in ((r, r_end), (l, l_end), (x, x_end)))
    return torch.stack(z, 1).gather(1, lengths[:, None]).squeeze(1) + shift


def log_partition(scores: Scores, lengths: Int64[Tensor, " B"], single_root: bool) -> Float[Tensor, " B"]:
    """log Z over projective trees in float64; -inf where there is no tree."""
    return _inside(scores, lengths, single_root, logsumexp)


def masks(scores: Scores, lengths: Int64[Tensor, " B"]) -> list[Bool[Tensor, "*shape"] | None]:
    """True at the scores that are read."""
    nodes = scores[0].shape[-1]
    kinds = zip(scores, (arc_mask, sibling_mask, grandparent_mask, grandsibling_mask), strict=False)
    return [None if x is None else mask(lengths, nodes) for x, mask in kinds]


def derivative(
    scores: Scores, lengths: Int64[Tensor, " B"], single_root: bool, directions: Sequence[Scores] = ()
) -> list[Tensor]:
    """Derivatives of log Z by the scores that there are, all but one of them along `directions`: without directions the
    probabilities of all parts. Differentiable if an input is; zeros for a sentence without a tree."""
    found = generic.derivative(lambda s, n: log_partition(s, n, single_root), masks, scores, lengths, directions)
    return [x for x in found if x is not None]


def argmax(scores: Scores, lengths: Int64[Tensor, " B"], single_root: bool) -> Int64[Tensor, "B N"]:
    """Heads of a best tree: -1 at node 0, past the end, and everywhere if there is no tree.

    The derivative of the best score is the indicator of the best tree's arcs. Equals: the first split.
    """
    arcs = scores[0]
    with torch.inference_mode(False), torch.enable_grad():
        x = arcs.detach().double().clone().requires_grad_()
        siblings, grandparents, both = (None if s is None else s.detach().clone() for s in all_kinds(scores)[1:])
        best = _inside((x, siblings, grandparents, both), lengths.clone(), single_root, maximum)
        (used,) = generic._gradients(best, [x], False)
    read = word_mask(lengths, arcs.shape[-1]) & (best.detach() > NEG_INF)[:, None]
    return torch.where(read, used.argmax(1), -1)


def tree_scores(scores: Scores, heads: Int64[Tensor, "*S B N"], lengths: Int64[Tensor, " B"]) -> Float[Tensor, "*S B"]:
    """Scores of trees in float64, differentiable; -inf where a word has no head (-1)."""
    nodes = heads.shape[-1]
    word = word_mask(lengths, nodes)
    head = torch.where(word, heads, 0).clamp(0, nodes - 1)
    m = torch.arange(nodes, device=heads.device).expand_as(head)

    def part(values: Tensor, used: Tensor, *at: Tensor) -> Tensor:
        flat = torch.zeros_like(at[0])
        for index in at:
            flat = flat * nodes + torch.where(used, index, 0)  # no gradient from nodes that are not there
        flat = flat.movedim(-2, 0).flatten(1)  # [B, S * N], so that the gradient needs no copy of the scores a sample
        picked = values.flatten(1).gather(1, flat).reshape(heads.shape[-2], *heads.shape[:-2], nodes).movedim(0, -2)
        return torch.where(used, picked, 0.0).sum(-1, dtype=torch.float64)

    arcs, siblings, grandparents, grandsiblings = all_kinds(scores)
    total = part(arcs, word.expand_as(head), head, m)
    above, under_word = head.gather(-1, head), word & (head >= 1)
    if siblings is not None:
        total = total + part(siblings, word.expand_as(head), head, previous_sibling(head, word), m)
    if grandparents is not None:
        total = total + part(grandparents, under_word, above, head, m)
    if grandsiblings is not None:
        total = total + part(grandsiblings, under_word, above, head, previous_sibling(head, word), m)
    return torch.where((word & (heads < 0)).any(-1), NEG_INF, total)


@torch.no_grad()
def sample(scores: Scores, lengths: Int64[Tensor, " B"], single_root: bool, num: int) -> Int64[Tensor, "num B N"]:
    """Exact samples, heads [num, B, N], from torch's generator; -1 for a sentence without a tree."""
    first, *rest = all_kinds(scores)
    siblings, grandparents, both = (None if x is None else x.repeat(num, *[1] * (x.dim() - 1)) for x in rest)

    def log_z(arcs: Tensor, lengths: Tensor, root: bool) -> Tensor:
        return log_partition((arcs, siblings, grandparents, both), lengths, root)

    return generic.sample(log_z, first, lengths, single_root, num)


Argmax = Callable[[Scores, Tensor, bool], Tensor]


def topk(
    argmax: Argmax, scores: Scores, lengths: Int64[Tensor, " B"], single_root: bool, k: int
) -> Int64[Tensor, "k B N"]:
    """The k best trees, heads [k, B, N], best first; -1 for ranks that do not exist."""
    arcs, siblings, grandparents, grandsiblings = all_kinds(scores)

    def solve(forbidden: Bool[Tensor, "B q N N"]) -> tuple[Int64[Tensor, "B q N"], Float[Tensor, "B q"]]:
        # one set after the other, for the scores of pairs are many
        sets = [torch.where(barred, NEG_INF, arcs) for barred in forbidden.unbind(1)]
        rest = siblings, grandparents, grandsiblings
        heads = torch.stack([argmax((x, *rest), lengths, single_root) for x in sets])
        return heads.transpose(0, 1), tree_scores(scores, heads, lengths).T

    return generic.lawler_murty(solve, lengths, arcs.shape[-1], k)
