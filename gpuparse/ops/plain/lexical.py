"""Head-lexicalised binary trees, by widths of spans: O(n^4 R) (Eisner & Satta 1999).

The chart is that of kernels/lexical.cuh: a span of a symbol has an entry for each word h, inside the span the trees
with the head word h, outside of it the same trees below the head h (hooks). Words are counted from 0 in spans and from
1 as heads. A tree is rows (i, j, symbol, split, head) of its spans i..j, as ``gpuparse.LexicalizedTrees`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Float64, Int, Int32, Int64
from torch import Tensor

from gpuparse.ops.plain import generic
from gpuparse.ops.plain.semiring import NEG_INF, clean
from gpuparse.structures.masks import arc_mask

Scores = tuple[Tensor, Tensor, Tensor, Tensor]
"""tags [B, n, T], arcs [B, N, N], rules [1 or B, R] and roots [S] (or, for sums, [B, S])."""


@dataclass(frozen=True, eq=False)
class Rules:
    """Rules A -> B C as the kernels take them.

    ``table``, int32 and flat, is Rules of kernels/lexical.cuh: [3, S + 1] and [3, R, 4].
    """

    parents: Int64[Tensor, " R"]
    lefts: Int64[Tensor, " R"]
    rights: Int64[Tensor, " R"]
    heads: Int64[Tensor, " R"]
    table: Int32[Tensor, " size"]

    @classmethod
    def of(cls, parents: Tensor, lefts: Tensor, rights: Tensor, heads: Tensor, symbols: int) -> Rules:
        index = torch.arange(len(parents), device=parents.device)
        firsts, entries = [], []
        for by, others in ((parents, (lefts, rights)), (lefts, (parents, rights)), (rights, (parents, lefts))):
            order = by.argsort(stable=True)
            firsts.append(torch.searchsorted(by[order], torch.arange(symbols + 1, device=by.device)))
            entries.append(torch.stack([*others, heads, index], 1)[order])
        table = torch.cat([torch.stack(firsts).flatten(), torch.stack(entries).flatten()]).to(torch.int32)
        return cls(parents, lefts, rights, heads, table)

    @classmethod
    def from_table(cls, table: Int32[Tensor, " size"], symbols: int) -> Rules:
        entries = table[3 * (symbols + 1) :].reshape(3, -1, 4).long()
        by_parent, by_left, _ = (x[x[:, 3].argsort()] for x in entries)
        return cls(by_left[:, 0], by_parent[:, 0], by_parent[:, 1], by_parent[:, 2], table)

    def find(self, symbols: int, parent: Tensor, left: Tensor, right: Tensor, head: Tensor) -> Int64[Tensor, "*S"]:
        """The numbers of rules, -1 for those that there are not."""
        if len(self.parents) == 0:
            return torch.full_like(parent, -1)

        def code(a: Tensor, b: Tensor, c: Tensor, side: Tensor) -> Tensor:
            return ((a * symbols + b) * symbols + c) * 2 + side

        codes, order = code(self.parents, self.lefts, self.rights, self.heads).sort()
        wanted = code(parent, left, right, head)
        at = torch.searchsorted(codes, wanted.contiguous()).clamp(max=len(codes) - 1)
        return torch.where(codes[at] == wanted, order[at], -1)


# ----------------------------------------------------------------------------------------------------------------- sums

Group = Callable[[Tensor, Tensor, int], Tensor]
"""Sums over groups: (x [..., k, n], the group of each of the k, how many there are) -> [..., groups, n]."""


def _tops(x: Float[Tensor, "*S k n"], groups: Int64[Tensor, " k"], size: int) -> Float[Tensor, "*S groups n"]:
    """The greatest of each group, -inf where there is none."""
    none = x.new_full((*x.shape[:-2], size, x.shape[-1]), NEG_INF)
    return none.scatter_reduce(-2, groups[:, None].expand_as(x), x.detach(), "amax")


def _log_sums(x: Float[Tensor, "*S k n"], groups: Int64[Tensor, " k"], size: int) -> Float[Tensor, "*S groups n"]:
    """logsumexp of each group; -inf with zero derivatives where all of it is -inf, as ``semiring.logsumexp``."""
    m = _tops(x, groups, size)
    m = torch.where(m == NEG_INF, 0.0, m)
    y = torch.zeros_like(m).index_add(-2, groups, torch.exp(x - m.index_select(-2, groups)))
    some = y > 0
    return torch.where(some, torch.log(torch.where(some, y, 1.0)) + m, NEG_INF)


class _Choose(torch.autograd.Function):
    """Sums whose derivative goes to one summand alone: a best one (the first of equals), or one drawn at random."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, groups: Tensor, size: int, draw: bool) -> Tensor:
        value = _log_sums(x, groups, size) if draw else _tops(x, groups, size)
        if draw:  # the greatest after noise of Gumbel's is one drawn by the weights
            x = x - torch.empty_like(x).exponential_().log()
        k = torch.arange(x.shape[-2], device=x.device)[:, None].expand_as(x)
        found = x == _tops(x, groups, size).index_select(-2, groups)
        first = torch.full_like(value, x.shape[-2], dtype=torch.int64)
        first = first.scatter_reduce(-2, groups[:, None].expand_as(x), torch.where(found, k, x.shape[-2]), "amin")
        ctx.save_for_backward(first.index_select(-2, groups) == k, groups)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        chosen, groups = ctx.saved_tensors
        return torch.where(chosen, grads[0].index_select(-2, groups), 0.0), None, None, None


def _best(x: Tensor, groups: Tensor, size: int) -> Tensor:
    return _Choose.apply(x, groups, size, False)


def _drawn(x: Tensor, groups: Tensor, size: int) -> Tensor:
    return _Choose.apply(x, groups, size, True)


def _inside(
    scores: Scores, rules: Rules, lengths: Int64[Tensor, " B"], group: Group, spans: Tensor | None = None
) -> Float64[Tensor, " B"]:
    """Z of each sentence; ``spans`` [B, n, n, S, n]: scores of i..j, symbol and head word (from 0), if any."""
    tags, arcs, by_rule, roots = scores
    B, n, T = tags.shape
    S = roots.shape[-1]
    word = torch.arange(n, device=tags.device)
    real = (word < lengths[:, None])[:, :, None]
    w = clean(arcs, lengths)
    by_rule = by_rule.double()[:, None, :, None]

    def add(x: Tensor) -> Tensor:
        """Sums over the last dimension."""
        x = x[..., None]
        return group(x, torch.zeros(x.shape[-2], dtype=torch.int64, device=x.device), 1)[..., 0, 0]

    charts: list[Tensor] = []
    z = [torch.zeros_like(w[:, 0, 0])]
    for d in range(n):
        first = word[: n - d, None]
        if d == 0:
            of_tags = torch.where(real, tags.double(), NEG_INF)
            of_symbols = torch.cat([of_tags, of_tags.new_full((B, n, S - T), NEG_INF)], 2)[..., None]
            inside = torch.where((first == word)[:, None, :], of_symbols, NEG_INF)
        else:
            parts = [w.new_full((B, n - d, 0, n), NEG_INF)]
            for t in range(d):
                left = charts[t][:, : n - d].index_select(2, rules.lefts)
                right = charts[d - t - 1][:, t + 1 : t + 1 + n - d].index_select(2, rules.rights)
                on_left = ((word >= first) & (word <= first + t))[:, None, :]
                on_right = ((word > first + t) & (word <= first + d))[:, None, :]
                may = torch.where((rules.heads == 0)[:, None], on_left, on_right)
                parts.append(torch.where(may, left + right + by_rule, NEG_INF))
            inside = group(torch.cat(parts, 2), rules.parents.repeat(d), S)
        if spans is not None:
            inside = inside + spans.diagonal(d, 1, 2).movedim(-1, 1)
        z.append(add((inside[:, 0] + roots.double()[..., None] + w[:, 0, 1:][:, None, :]).flatten(1)))
        hooks = add(inside[:, :, :, None, :] + w[:, None, None, 1:, 1:])
        own = ((word >= first) & (word <= first + d))[:, None, :]
        charts.append(torch.where(own, inside, hooks))
    return torch.stack(z, 1).gather(1, lengths[:, None]).squeeze(1)


def log_partition(scores: Scores, rules: Rules, lengths: Int64[Tensor, " B"]) -> Float64[Tensor, " B"]:
    """log Z in float64; -inf where there is no tree."""
    return _inside(scores, rules, lengths, _log_sums)


def masks(scores: Scores, lengths: Int64[Tensor, " B"]) -> list[Bool[Tensor, "*shape"]]:
    """Which of the tags, arcs, rules and roots are read."""
    tags, arcs, by_rule, roots = scores
    word = torch.arange(tags.shape[1], device=tags.device) < lengths[:, None]
    everything = [torch.ones((1, x.shape[-1]), dtype=torch.bool, device=x.device) for x in (by_rule, roots)]
    return [word[:, :, None].expand_as(tags), arc_mask(lengths, arcs.shape[1]), *everything]


# ---------------------------------------------------------------------------------------------------------------- trees


def _trees(scores: Scores, rules: Rules, lengths: Int64[Tensor, " B"], group: Group) -> Int64[Tensor, "B M 5"]:
    """The derivative by the scores of spans is 1 at those of the tree that was chosen."""
    B, n, _ = scores[0].shape
    S = len(scores[3])
    with torch.inference_mode(False), torch.enable_grad():
        tags, arcs, by_rule, roots = (x.detach().clone() for x in scores)
        spans = torch.zeros(B, n, n, S, n, dtype=torch.float64, device=tags.device, requires_grad=True)
        value = _inside((tags, arcs, by_rule, roots), rules, lengths.clone(), group, spans)
        (used,) = generic._gradients(value, [spans], False)
    used = used.flip(2).flatten(1, 2).flatten(2) > 0  # i ascending, j descending: spans before their parts
    there = used.any(2) & (value.detach() > NEG_INF)[:, None]
    at = torch.where(there, torch.arange(n * n, device=used.device), n * n).sort(1).values[:, : 2 * n - 1]
    found = at < n * n
    at = at.clamp(max=n * n - 1)
    what = used.long().argmax(2).gather(1, at)
    i, j = at // n, n - 1 - at % n
    split = torch.where(i < j, j.roll(-1, 1), -1)  # the left part is the next span
    rows = torch.stack([i, j, what // n, split, what % n + 1], 2)
    return torch.where(found[..., None], rows, -1)


def argmax(scores: Scores, rules: Rules, lengths: Int64[Tensor, " B"]) -> Int64[Tensor, "B M 5"]:
    """A best tree, -1 past its rows, and everywhere if there is none."""
    return _trees(scores, rules, lengths, _best)


def sample(scores: Scores, rules: Rules, lengths: Int64[Tensor, " B"], num: int) -> Int64[Tensor, "num B M 5"]:
    """Exact samples from torch's generator; -1 for a sentence without a tree."""
    tags, arcs, by_rule, roots = scores
    B = len(lengths)
    by_rule = by_rule.repeat(num, 1) if by_rule.shape[0] == B else by_rule
    many = (tags.repeat(num, 1, 1), arcs.repeat(num, 1, 1), by_rule, roots)
    return _trees(many, rules, lengths.repeat(num), _drawn).unflatten(0, (num, B))


@dataclass(frozen=True)
class LexicalParts:
    """What a tree is made of; all [..., B, M], in the order of spans before their parts and from left to right."""

    first: Tensor
    last: Tensor
    symbol: Tensor
    head: Tensor
    inner: Tensor  # which rows are spans of a rule
    leaf: Tensor  # and which are words
    left: Tensor  # symbols of the parts of a span
    right: Tensor
    side: Tensor  # the part that has the head
    other: Tensor  # the head word of the other
    good: Tensor  # [..., B]: whether all spans fit together


def parts(trees: Int[Tensor, "*S B M 5"]) -> LexicalParts:
    """The rows of trees, in any order, taken apart."""
    M = trees.shape[-2]
    n = (M + 1) // 2
    rows = trees.long()
    code = rows[..., 0] * n + n - 1 - rows[..., 1]
    code = torch.where(rows[..., 0] >= 0, code, n * n)
    rows = rows.gather(-2, code.argsort(dim=-1, stable=True)[..., None].expand_as(rows))
    i, j, symbol, split, head = rows.unbind(-1)
    number = torch.arange(M, device=rows.device)
    there = i >= 0
    inner, leaf = there & (i < j), there & (i == j)
    at = [(number + 1).expand_as(i), number + 2 * (split - i + 1)]

    def of(child: Tensor, x: Tensor) -> Tensor:
        return x.gather(-1, child.clamp(0, M - 1))

    left, right = at
    fits = (of(left, i) == i) & (of(left, j) == split) & (of(right, i) == split + 1) & (of(right, j) == j)
    fits = fits & (i <= split) & (split < j) & (right < M)
    side = torch.where(head == of(left, head), 0, 1)
    fits = fits & (head == torch.where(side == 0, of(left, head), of(right, head)))
    good = torch.where(inner, fits, leaf & (split == -1) & (head == i + 1) | ~there & (i == -1))
    count = there.sum(-1)
    good = good.all(-1) & (count == 2 * j[..., 0] + 1) & (i[..., 0] == 0)
    other = torch.where(side == 0, of(right, head), of(left, head))
    return LexicalParts(i, j, symbol, head, inner, leaf, of(left, symbol), of(right, symbol), side, other, good)


def heads_of(trees: Int[Tensor, "*S B M 5"]) -> Int64[Tensor, "*S B N"]:
    """The dependency trees of lexicalised trees; -1 at node 0 and past the end."""
    p, N = parts(trees), (trees.shape[-2] + 1) // 2 + 1
    heads = torch.full((*p.first.shape[:-1], N + 1), -1, dtype=torch.int64, device=trees.device)
    heads = heads.scatter(-1, torch.where(p.inner, p.other, N).clamp(0, N), p.head)
    top = torch.where(p.first[..., :1] >= 0, p.head[..., :1], N).clamp(0, N)
    return heads.scatter(-1, top, torch.zeros_like(top))[..., :N]


def tags_of(trees: Int[Tensor, "*S B M 5"]) -> Int64[Tensor, "*S B n"]:
    """The tags of words; -1 past the end."""
    p, n = parts(trees), (trees.shape[-2] + 1) // 2
    tags = torch.full((*p.first.shape[:-1], n + 1), -1, dtype=torch.int64, device=trees.device)
    return tags.scatter(-1, torch.where(p.leaf, p.first, n).clamp(0, n), p.symbol)[..., :n]


def tree_scores(
    scores: Scores, rules: Rules, trees: Int[Tensor, "*S B M 5"], lengths: Int64[Tensor, " B"]
) -> Float64[Tensor, "*S B"]:
    """Scores in float64, differentiable; -inf for what is not a tree of this grammar and length."""
    tags, arcs, by_rule, roots = scores
    B, n, T = tags.shape
    S, R, N = len(roots), len(rules.parents), arcs.shape[1]
    p = parts(trees)
    rule = rules.find(S, p.symbol, p.left, p.right, p.side)
    fine = torch.where(p.inner, rule >= 0, ~p.leaf | (p.symbol >= 0) & (p.symbol < T))
    good = p.good & fine.all(-1) & (p.last[..., 0] == lengths - 1)

    def gather(values: Tensor, index: Tensor, used: Tensor) -> Tensor:
        """Sums of values [b, k] at index [..., B, m] where it is used."""
        used = used & good[..., None]
        flat = torch.where(used, index, 0).movedim(-2, 0).flatten(1)  # no copy of the values for each sample
        picked = values.expand(B, -1).gather(1, flat).reshape(B, *index.shape[:-2], index.shape[-1]).movedim(0, -2)
        return torch.where(used, picked, 0.0).sum(-1, dtype=torch.float64)

    total = gather(tags.reshape(B, n * T), p.first * T + p.symbol, p.leaf)
    total = total + gather(arcs.reshape(B, N * N), p.head * N + p.other, p.inner)
    total = total + gather(arcs[:, 0], p.head[..., :1], p.first[..., :1] == 0)
    total = total + gather(roots[None], p.symbol[..., :1], p.first[..., :1] == 0)
    if R:
        total = total + gather(by_rule, rule, p.inner)
    return torch.where(good, total, NEG_INF)
