"""Rules and their log-probabilities, by their frequency in trees."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from gpuparse.data.brackets import Constituent
from gpuparse.structures.grammars import Grammar

_FIRST = -(1 << 62)  # before any count


class Rule(NamedTuple):
    """A -> B C, and which of B (0) and C (1) has the head."""

    parent: str
    left: str
    right: str
    head: int


def read_grammar(
    trees: Iterable[Constituent],
    *,
    min_count: int = 1,
    smoothing: float = 0.0,
    tags: Sequence[str] = (),
    dtype: torch.dtype = torch.float32,
) -> Grammar:
    """The grammar of binary trees whose phrases know their heads (``binarise``, ``lexicalise``).

    Args:
        min_count: rules that are rarer go, but for those without which a symbol of the trees would be in no tree of
            the grammar: of these the commonest stay, as few as it takes.
        smoothing: what is added to the count of each rule that stays and of each symbol seen at a root.
        tags: that must be in the grammar, seen or not; others are added as they are seen.
        dtype: of the scores, log P(A -> B C | A) and log P(A is the root).
    """
    if min_count < 1:
        raise ValueError(f"min_count: {min_count} is below 1")
    if not 0 <= smoothing < float("inf"):
        raise ValueError(f"smoothing: {smoothing} is not a number from 0 on")
    counts: Counter[Rule] = Counter()
    roots: Counter[str] = Counter()
    words: Counter[str] = Counter(dict.fromkeys(tags, 0))
    for tree in trees:
        roots[tree.label] += 1
        todo = [tree]
        while todo:
            node = todo.pop()
            if node.word is not None:
                words[node.label] += 1
                continue
            if len(node.children) != 2 or node.head not in (0, 1):
                raise ValueError(
                    f"trees: {node.label!r} is not of two children, one of them the head; binarise them first"
                )
            left, right = node.children
            counts[Rule(node.label, left.label, right.label, node.head)] += 1
            todo.extend(node.children)
    if not words:
        raise ValueError("trees: there are none; a grammar needs one at least")
    phrases = sorted({rule.parent for rule in counts})
    both = sorted(set(phrases) & set(words))
    if both:
        raise ValueError(f"trees: {both[0]!r} is a phrase and a tag of a word; a name can be one of them only")
    symbols = (*sorted(words), *phrases)
    index = {symbol: number for number, symbol in enumerate(symbols)}
    kept = sorted(_kept(counts, words, roots, min_count))
    table = torch.tensor(
        [(index[rule.parent], index[rule.left], index[rule.right], rule.head) for rule in kept], dtype=torch.int64
    ).reshape(-1, 4)
    weights = torch.tensor([counts[rule] + smoothing for rule in kept], dtype=torch.float64)
    totals = torch.zeros(len(symbols), dtype=torch.float64).index_add_(0, table[:, 0], weights)
    top = torch.tensor([roots[symbol] + smoothing if roots[symbol] else 0.0 for symbol in symbols], dtype=torch.float64)
    parents, lefts, rights, heads = (column.contiguous() for column in table.unbind(1))
    return Grammar(
        symbols=symbols,
        tags=len(words),
        parents=parents,
        lefts=lefts,
        rights=rights,
        heads=heads,
        scores=(weights / totals[parents]).log().to(dtype),
        roots=(top / top.sum()).log().to(dtype),
    )


def add_heads(rows: Int64[Tensor, "M 4"], grammar: Grammar) -> Int64[Tensor, "M 5"]:
    """Rows (i, j, symbol, split) of a tree, in any order, with the nodes of their head words (from 1) as a last column.

    Where a rule is there with both heads, the better of them is taken. Rows of -1 past a sentence's end get -1.
    """
    best: dict[tuple[int, int, int], tuple[float, int]] = {}
    parts = (grammar.parents, grammar.lefts, grammar.rights, grammar.heads, grammar.scores)
    for parent, left, right, side, score in zip(*(part.tolist() for part in parts), strict=True):
        if (parent, left, right) not in best or score > best[parent, left, right][0]:
            best[parent, left, right] = score, side
    table = rows.tolist()
    spans: dict[tuple[int, int], tuple[int, int]] = {}  # symbol and head
    for i, j, symbol, k in sorted(table, key=lambda row: row[1] - row[0]):
        if i < 0:
            continue
        if i == j:
            spans[i, j] = symbol, i + 1
            continue
        try:
            pair = spans[i, k], spans[k + 1, j]
        except KeyError:
            raise ValueError(f"rows: ({i}, {j}) is split at {k}, and a half of it is missing") from None
        if (symbol, pair[0][0], pair[1][0]) not in best:
            names = " ".join(grammar.symbols[one] for one in (pair[0][0], pair[1][0]))
            raise ValueError(f"rows: the grammar has no rule {grammar.symbols[symbol]} -> {names}")
        spans[i, j] = symbol, pair[best[symbol, pair[0][0], pair[1][0]][1]][1]
    heads = [spans[row[0], row[1]][1] if row[0] >= 0 else -1 for row in table]
    return torch.cat([rows, torch.tensor(heads, dtype=torch.int64, device=rows.device)[:, None]], 1)


def _kept(counts: Counter[Rule], tags: Iterable[str], roots: Iterable[str], min_count: int) -> set[Rule]:
    """The common rules, and of the others what it takes to derive words from every symbol and every symbol from a root.

    Symbols are won one by one, as in Prim's algorithm: by a common rule if there is one, else by the commonest.
    """
    kept = {rule for rule, count in counts.items() if count >= min_count}
    if len(kept) == len(counts):
        return kept

    def entry(rule: Rule) -> tuple[int, Rule]:
        return (_FIRST if rule in kept else -counts[rule], rule)

    # From the words up: a parent is won as soon as both children are.
    under: defaultdict[str, list[Rule]] = defaultdict(list)
    missing: dict[Rule, int] = {}
    for rule in counts:
        children = {rule.left, rule.right}
        missing[rule] = len(children)
        for child in children:
            under[child].append(rule)
    won: set[str] = set()
    heap: list[tuple[int, Rule]] = []

    def win(symbol: str) -> None:
        won.add(symbol)
        for rule in under[symbol]:
            missing[rule] -= 1
            if not missing[rule]:
                heapq.heappush(heap, entry(rule))

    for tag in tags:
        win(tag)
    while heap:
        _, rule = heapq.heappop(heap)
        if rule.parent not in won:
            kept.add(rule)
            win(rule.parent)
    # From the roots down: children are won as soon as their parent is.
    below: defaultdict[str, list[Rule]] = defaultdict(list)
    for rule in counts:
        below[rule.parent].append(rule)
    reached = set(roots)
    heap = [entry(rule) for symbol in reached for rule in below[symbol]]
    heapq.heapify(heap)
    while heap:
        _, rule = heapq.heappop(heap)
        new = {rule.left, rule.right} - reached
        if new:
            kept.add(rule)
            reached |= new
            for symbol in new:
                for other in below[symbol]:
                    heapq.heappush(heap, entry(other))
    return kept
