"""Binary trees of a grammar in Chomsky normal form, by widths, over any sum: O(n^3 R).

Rules A -> B C are given as ``grammar``: one int32 array that ``index_rules`` makes of their symbols, in the orders that
kernels/cky.cuh wants. Symbols below T are tags and stand over one word, the others over more.

A tree is rows [2n - 1, 4] (first word, last word, symbol, last word of the left child), parents before their children
and left before right; the last number of a tag's row is -1, and rows past the last are -1.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int32, Int64
from torch import Tensor

from gpuparse.ops.plain.generic import _draw
from gpuparse.ops.plain.semiring import NEG_INF, logsumexp, maximum

Scores = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""tags [B, n, T], rules [B, R], roots [B, S] and, if there are any, spans [B, n, n, S] (first word, last word)."""


def index_rules(symbols: Int64[Tensor, "3 R"], S: int) -> Int32[Tensor, " size"]:
    """Parents, lefts and rights as one array; then sorted by each: starts [S + 1], rules, and the other two symbols."""
    parts = [symbols.flatten()]
    for which in range(3):
        order = symbols[which].argsort(stable=True)
        edges = torch.arange(S + 1, device=symbols.device)
        starts = torch.searchsorted(symbols[which][order].contiguous(), edges)
        parts += [starts, order, *(symbols[k][order] for k in range(3) if k != which)]
    return torch.cat(parts).to(torch.int32)


def symbols_of(grammar: Int32[Tensor, " size"], R: int) -> Int64[Tensor, "3 R"]:
    """Parents, lefts and rights."""
    return grammar[: 3 * R].view(3, R).long()


def masks(scores: Scores, lengths: Int64[Tensor, " B"]) -> list[Bool[Tensor, "*shape"] | None]:
    """True at the scores that are read."""
    tags, rules, roots, spans = scores
    n, T = tags.shape[1:]
    word = torch.arange(n, device=tags.device)
    inside = word < lengths[:, None]
    found: list[Tensor | None] = [inside[:, :, None].expand_as(tags)]
    found += [torch.ones_like(x, dtype=torch.bool) for x in (rules, roots)]
    if spans is None:
        return [*found, None]
    inner = torch.arange(spans.shape[3], device=tags.device) >= T
    return [*found, ((word[:, None] < word) & inside[:, None, :])[..., None] & inner]


def _collect(x: Float[Tensor, "B i R"], parents: Int64[Tensor, " R"], S: int, best: bool) -> Float[Tensor, "B i S"]:
    """Log of the sum of exp(x) over the rules of each parent, or the greatest x (without a gradient)."""
    low = x.new_full((*x.shape[:2], S), NEG_INF)
    top = low.scatter_reduce(2, parents.expand_as(x), x.detach(), "amax")
    if best:
        return top
    top = torch.where(top == NEG_INF, 0.0, top)
    y = torch.zeros_like(low).index_add(2, parents, torch.exp(x - top[..., parents]))
    some = y > 0
    return torch.where(some, torch.log(torch.where(some, y, 1.0)) + top, NEG_INF)


def _inside(
    scores: Scores, grammar: Tensor, lengths: Int64[Tensor, " B"], best: bool
) -> tuple[list[Float[Tensor, "B i S"]], Float[Tensor, "B S"]]:
    """Cells of each width from 1 on, and what each symbol scores over all and at the root: sums, or the best."""
    tags, rules, roots, spans = _clean(scores, lengths)
    (batch, n, T), S, R = tags.shape, roots.shape[1], rules.shape[1]
    parents, lefts, rights = symbols_of(grammar, R)
    add = maximum if best else logsumexp
    cells = [torch.cat([tags, tags.new_full((batch, n, S - T), NEG_INF)], 2)]
    for w in range(2, n + 1):
        many = n + 1 - w
        splits = [cells[t - 1][:, :many, lefts] + cells[w - t - 1][:, t : t + many, rights] for t in range(1, w)]
        cell = _collect(add(torch.stack(splits, 2), 2) + rules[:, None], parents, S, best)
        cells.append(cell if spans is None else cell + spans.diagonal(w - 1, 1, 2).transpose(1, 2))
    whole = torch.stack([cell[:, 0] for cell in cells], 1)  # [B, n, S]
    at = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, S)
    return cells, whole.gather(1, at).squeeze(1) + roots


def _clean(scores: Scores, lengths: Int64[Tensor, " B"]) -> Scores:
    """In float64, -inf where they are not read."""
    tags, rules, roots, spans = (
        None if x is None or read is None else torch.where(read, x.double(), NEG_INF)
        for x, read in zip(scores, masks(scores, lengths), strict=True)
    )
    assert tags is not None and rules is not None and roots is not None
    return tags, rules, roots, spans


def log_partition(scores: Scores, grammar: Tensor, lengths: Int64[Tensor, " B"]) -> Float[Tensor, " B"]:
    """log Z in float64; -inf where there is no tree."""
    top = (
        scores[0].detach().double().amax(2).nan_to_num(0.0, 0.0, 0.0)
    )  # a word's best tag becomes 0: that keeps digits
    inside = torch.arange(top.shape[1], device=top.device) < lengths[:, None]
    top = torch.where(inside, top, 0.0)
    _, at_root = _inside((scores[0].double() - top[:, :, None], *scores[1:]), grammar, lengths, False)
    return torch.where(lengths > 0, logsumexp(at_root, 1) + top.sum(1), 0.0)


Choose = Callable[[Float[Tensor, "M ways"]], Int64[Tensor, " M"]]


def _take_apart(
    cells: list[Tensor],
    at_root: Float[Tensor, "B S"],
    rules: Float[Tensor, "B R"],
    grammar: Tensor,
    lengths: Int64[Tensor, " B"],
    choose: Choose,
) -> Int64[Tensor, "B rows 4"]:
    """A tree of each sentence from the top down, `choose` saying which way a cell was made."""
    B, n, S = cells[0].shape
    R = rules.shape[1]
    symbols = symbols_of(grammar, R)
    full = [torch.cat([c, c.new_full((B, n - c.shape[1], S), NEG_INF)], 1) for c in cells]
    chart = torch.stack(full, 1).flatten(1)  # (w - 1, i, s)
    t = torch.arange(1, max(n, 2), device=rules.device)
    exists = (at_root > NEG_INF).any(1) & (lengths > 0)
    stack = torch.zeros(B, n + 2, 3, dtype=torch.int64, device=rules.device)
    stack[:, 0] = torch.stack([choose(at_root), lengths, torch.zeros_like(lengths)], 1)
    top = exists.long()
    rows = []
    for _ in range(2 * n - 1):
        some = top > 0
        top = (top - 1).clamp(min=0)
        symbol, w, i = stack.gather(1, top[:, None, None].expand(-1, 1, 3)).squeeze(1).unbind(1)
        inner = some & (w > 1)

        size = w[:, None]
        left = (t - 1) * n + i[:, None]
        right = (size - t - 1).clamp(0, n - 1) * n + (i[:, None] + t).clamp(max=n - 1)
        ways = rules[:, :, None]
        for place, child in ((left, symbols[1]), (right, symbols[2])):
            index = place[:, None] * S + child[:, None]  # [B, R, t]
            ways = ways + chart.gather(1, index.flatten(1)).view_as(index)
        ways = torch.where((symbols[0] == symbol[:, None])[:, :, None] & (t < size)[:, None], ways, NEG_INF)
        way = choose(ways.flatten(1)) if R else torch.zeros_like(w)
        rule, words = way // len(t), way % len(t) + 1
        split = torch.where(inner, i + words - 1, -1)
        row = torch.stack([i, i + w - 1, symbol, split], 1)
        rows.append(torch.where(some[:, None], row, -1))
        if R:
            for cells_of in ((symbols[2][rule], w - words, i + words), (symbols[1][rule], words, i)):
                pushed = stack.scatter(1, top[:, None, None].expand(-1, 1, 3), torch.stack(cells_of, 1)[:, None])
                stack = torch.where(inner[:, None, None], pushed, stack)
                top = top + inner.long()
    return torch.stack(rows, 1)


@torch.no_grad()
def argmax(scores: Scores, grammar: Tensor, lengths: Int64[Tensor, " B"]) -> Int64[Tensor, "B rows 4"]:
    """A best tree; -1 everywhere if there is none. Equals: the first symbol at the root, rule, split."""
    cells, at_root = _inside(scores, grammar, lengths, True)
    return _take_apart(cells, at_root, scores[1].double(), grammar, lengths, lambda x: x.argmax(1))


@torch.no_grad()
def sample(scores: Scores, grammar: Tensor, lengths: Int64[Tensor, " B"], num: int) -> Int64[Tensor, "num B rows 4"]:
    """Exact samples from torch's generator; -1 for a sentence without a tree."""
    cells, at_root = _inside(scores, grammar, lengths, False)
    rules = scores[1].double()

    def draw(x: Float[Tensor, "M ways"]) -> Int64[Tensor, " M"]:
        return _draw(torch.exp(x - x.amax(1, keepdim=True).clamp(min=-1e300)))

    trees = []
    once = max(1, 2**22 // max(1, rules.numel() * cells[0].shape[1]))  # so many at a time
    for first in range(0, num, once):
        many = min(once, num - first)
        copies = [x.repeat(many, *[1] * (x.dim() - 1)) for x in (*cells, at_root, rules, lengths)]
        found = _take_apart(copies[: len(cells)], copies[-3], copies[-2], grammar, copies[-1], draw)
        trees.append(found.unflatten(0, (many, len(lengths))))
    shape = (0, len(lengths), 2 * cells[0].shape[1] - 1, 4)
    return torch.cat(trees) if trees else lengths.new_empty(shape)
