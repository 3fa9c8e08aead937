"""Every structure of a short sentence, added up in whole numbers: nothing is rounded until differences are taken."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

Part = tuple[Any, ...]  # the name of a score and its place: ("arcs", h, m)
UNIT = 1074  # every double is a whole number of 2^-1074


def whole(x: float) -> int | None:
    """A double as a whole number of units; None for -inf."""
    if x == -math.inf:
        return None
    top, bottom = x.as_integer_ratio()
    return top << (UNIT - bottom.bit_length() + 1)


def as_float(units: int) -> float:
    try:
        return units / (1 << UNIT)
    except OverflowError:
        return math.inf if units > 0 else -math.inf


class Truth:
    """The distribution over structures that are lists of parts, given the scores of parts."""

    def __init__(self, structures: Sequence[Sequence[Part]], scores: dict[str, Tensor]) -> None:
        lists = {name: x.double().tolist() for name, x in scores.items()}
        known: dict[Part, int | None] = {}

        def value(part: Part) -> int | None:
            if part not in known:
                x = lists[part[0]]
                for i in part[1:]:
                    x = x[i]
                known[part] = whole(x)
            return known[part]

        self.structures: list[Sequence[Part]] = []
        self.scores: list[int] = []
        for parts in structures:
            values = [value(part) for part in parts]
            if None not in values:
                self.structures.append(parts)
                self.scores.append(sum(values))  # type: ignore[arg-type]
        self.known = known
        if not self.scores:
            return
        self.best = max(self.scores)
        self.relative = [as_float(score - self.best) for score in self.scores]
        weights = [math.exp(x) for x in self.relative]
        self.total = math.fsum(weights)
        self.probabilities = [w / self.total for w in weights]
        self.log_z = as_float(self.best) + math.log(self.total)
        self.entropy = math.fsum(
            p * (math.log(self.total) - x) for p, x in zip(self.probabilities, self.relative, strict=True) if p > 0
        )

    @property
    def largest(self) -> float:
        """The largest finite score of any part."""
        return max((abs(as_float(x)) for x in self.known.values() if x is not None), default=0.0)

    def marginals(self, name: str) -> dict[tuple[int, ...], float]:
        found: dict[tuple[int, ...], float] = {}
        for parts, p in zip(self.structures, self.probabilities, strict=True):
            for part in parts:
                if part[0] == name:
                    found[part[1:]] = found.get(part[1:], 0.0) + p
        return found

    def below_best(self, parts: Iterable[Part]) -> float:
        """The score of one structure less the best; -inf where it is forbidden."""
        values = [self.known[part] for part in parts]
        return -math.inf if None in values else as_float(sum(values) - self.best)  # type: ignore[arg-type]

    def size(self, parts: Iterable[Part]) -> float:
        """The sizes of a structure's parts, added up."""
        return as_float(sum(abs(self.known[part] or 0) for part in parts))

    @property
    def size_of_best(self) -> float:
        return self.size(self.structures[self.scores.index(self.best)])

    def log_prob(self, parts: Iterable[Part]) -> float:
        return self.below_best(parts) - math.log(self.total)


@cache
def trees(n: int, single_root: bool, projective: bool) -> tuple[tuple[int, ...], ...]:
    """Heads (of words 1..n) of all trees of n words."""

    def good(heads: tuple[int, ...]) -> bool:
        if single_root and heads.count(0) != 1:
            return False
        for m in range(1, n + 1):
            seen, at = set(), m
            while at:
                if at in seen:
                    return False
                seen.add(at)
                at = heads[at - 1]
        spans = [(min(h, m), max(h, m)) for m, h in enumerate(heads, 1)]
        return not projective or not any(a < c < b < d for a, b in spans for c, d in spans)

    return tuple(heads for heads in product(range(n + 1), repeat=n) if good(heads))


@cache
def arcs_of(heads: tuple[int, ...]) -> tuple[Part, ...]:
    return tuple(("arcs", h, m) for m, h in enumerate(heads, 1))


@cache
def pairs_of(heads: tuple[int, ...], siblings: bool, grandparents: bool) -> tuple[Part, ...]:
    """Arcs and pairs of arcs."""
    parts = list(arcs_of(heads))
    for m, h in enumerate(heads, 1):
        if siblings:
            between = [s for s, g in enumerate(heads, 1) if g == h and (h < s < m or m < s < h)]
            nearest = (max(between) if h < m else min(between)) if between else h
            parts.append(("siblings", h, nearest, m))
        if grandparents and h:
            parts.append(("grandparents", heads[h - 1], h, m))
    return tuple(parts)


@cache
def chains(n: int, T: int, size: int, own: bool) -> tuple[tuple[Part, ...], ...]:
    """Parts of all chains: ``size`` tags in a row are scored, at each place by ``own`` scores or by the same."""
    name = "transitions" if size == 2 else "trigrams"
    found = []
    for tags in product(range(T), repeat=n):
        parts: list[Part] = [("unary", i, t) for i, t in enumerate(tags)]
        parts += [(name, *([i] if own else []), *tags[i : i + size]) for i in range(n - size + 1)]
        found.append(tuple(parts))
    return tuple(found)


def derivations(grammar: Any, n: int, *, spans: bool = False, heads: bool = False) -> list[tuple[Part, ...]]:
    """Parts of all trees of a grammar over n words; with ``heads`` their spans have head words, and arcs."""
    columns = (grammar.parents, grammar.lefts, grammar.rights, grammar.heads)
    rules = list(zip(*(x.tolist() for x in columns), strict=True))

    def over(i: int, j: int, symbol: int) -> list[tuple[int, list[Part]]]:
        """Head words and parts."""
        if i == j:
            return [(i + 1, [("tags", i, symbol)])] if symbol < grammar.tags else []
        found: list[tuple[int, list[Part]]] = []
        for r, (parent, left, right, side) in enumerate(rules):
            for k in range(i, j) if parent == symbol else ():
                for (h, x), (g, y) in product(over(i, k, left), over(k + 1, j, right)):
                    head, other = (g, h) if side else (h, g)
                    own: list[Part] = [("rules", r)] + ([("spans", i, j, symbol)] if spans else [])
                    found.append((head, [*own, *([("arcs", head, other)] if heads else []), *x, *y]))
        return found

    tops = [(s, h, x) for s in range(len(grammar.symbols)) for h, x in over(0, n - 1, s)]
    return [tuple([("roots", s), *([("arcs", 0, h)] if heads else []), *x]) for s, h, x in tops]


def rows_to_parts(rows: Tensor, grammar: Any, spans: bool) -> tuple[Part, ...]:
    """Parts of a tree as ``ConstituencyTrees`` and ``LexicalizedTrees`` give it, in no order."""
    keys = list(zip(grammar.parents.tolist(), grammar.lefts.tolist(), grammar.rights.tolist(), strict=True))
    sides = grammar.heads.tolist()
    table = {(row[0], row[1]): row for row in rows.tolist() if row[0] >= 0}
    with_heads = rows.shape[1] == 5
    parts: list[Part] = []
    for i, j, symbol, split, *head in table.values():
        if split < 0:
            parts.append(("tags", i, symbol))
            continue
        left, right = table[i, split], table[split + 1, j]
        key = (symbol, left[2], right[2])
        if with_heads:
            side = 0 if left[4] == head[0] else 1
            parts.append(("rules", next(r for r, k in enumerate(keys) if k == key and sides[r] == side)))
            parts.append(("arcs", head[0], (right if side == 0 else left)[4]))
        else:
            parts.append(("rules", keys.index(key)))
            if spans:
                parts.append(("spans", i, j, symbol))
    top = max(table.values(), key=lambda row: row[1] - row[0])
    parts.append(("roots", top[2]))
    if with_heads:
        parts.append(("arcs", 0, top[4]))
    return tuple(parts)


def padded(values: dict[tuple[int, ...], float], like: Tensor) -> Tensor:
    """Values at their places, 0 elsewhere."""
    found = torch.zeros(like.shape, dtype=torch.float64)
    for place, value in values.items():
        found[place] = value
    return found
