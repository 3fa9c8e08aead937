"""All structures of short sentences as sets of parts, and random scores of batches of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

import gpuparse as gp
from tests.oracle import all_trees

BATCH, WORDS = 50, 5
CLOSE = 1e-9  # of sums of a few dozen doubles of magnitude 1 to 10, relative


@dataclass(frozen=True)
class Counted:
    """Structures as sets of parts: of each the parts' numbers by kind [K, P], and what an oracle says of it."""

    parts: dict[str, Tensor]
    indicators: dict[str, Tensor]

    def totals(self, scores: dict[str, Tensor]) -> Tensor:
        """Scores [B, K]; parts that are not scored add nothing, what a structure has of itself always counts."""
        total = self.parts.get("base", torch.zeros(1, 1, dtype=torch.float64))[:, 0]
        for kind, x in scores.items():
            flat, counts = x.flatten(1).nan_to_num(0.0, neginf=-math.inf), self.parts[kind]
            never = (flat == -math.inf).double() @ counts.T > 0.5
            total = total + torch.where(flat == -math.inf, 0.0, flat) @ counts.T
            total = total.masked_fill(never, -math.inf)
        return total

    def same(self, indicators: dict[str, Tensor]) -> Tensor:
        """Which structures have the indicators of each sentence [B, K]."""
        found = torch.ones(1, 1, dtype=torch.bool)
        for kind, x in indicators.items():
            found = found & (x.flatten(1)[:, None] == self.indicators[kind].flatten(1)).all(-1)
        return found


def _count(heads: Tensor) -> dict[str, Tensor]:
    """The arcs, grandparents and siblings of trees [K, N]."""
    K, N = heads.shape
    parts = {"arcs": torch.zeros(K, N, N), "grandparents": torch.zeros(K, N, N, N), "siblings": torch.zeros(K, N, N, N)}
    for k, row in enumerate(heads.tolist()):
        for m in range(1, N):
            h = row[m]
            parts["arcs"][k, h, m] = 1
            if h:
                parts["grandparents"][k, row[h], h, m] = 1
            between = [s for s in range(min(h, m) + 1, max(h, m)) if row[s] == h]
            nearest = min(between, key=lambda s: abs(s - m)) if between else h
            parts["siblings"][k, h, nearest, m] = 1
    return {kind: x.double().flatten(1) for kind, x in parts.items()}


@cache
def trees(n: int, single_root: bool, projective: bool) -> Counted:
    parts = _count(all_trees(n, single_root=single_root, projective=projective).clamp(min=0))
    return Counted(parts, {"arcs": parts["arcs"].view(-1, n + 1, n + 1)})


def tag_parts(tags: Tensor, T: int) -> dict[str, Tensor]:
    """The tags and trigrams of chains [K, n]."""
    codes = (tags[:, :-2] * T + tags[:, 1:-1]) * T + tags[:, 2:]
    triples = torch.nn.functional.one_hot(codes, T**3).double().sum(1)
    return {"tags": torch.nn.functional.one_hot(tags, T).double().flatten(1), "trigrams": triples}


def derivations(grammar: gp.Grammar, n: int) -> Counted:
    """All trees of a grammar over n words; "base" is what the grammar itself gives them."""
    each = list(
        zip(*(x.tolist() for x in (grammar.parents, grammar.lefts, grammar.rights, grammar.heads)), strict=True)
    )
    scores = grammar.scores.tolist()
    Item = tuple[int, int, tuple[int, ...], tuple[tuple[int, int], ...], float]  # symbol, head, tags, arcs, score
    found: dict[tuple[int, int], list[Item]] = {}
    for i in range(n):
        found[i, i] = [(t, i + 1, (t,), (), 0.0) for t in range(grammar.tags)]
    for d in range(1, n):
        for i in range(n - d):
            found[i, i + d] = [
                (A, *((h, m) if side == 0 else (m, h))[:1], tl + tr, (*al, *ar, (h, m) if side == 0 else (m, h)), s)
                for j in range(i, i + d)
                for B, h, tl, al, sl in found[i, j]
                for C, m, tr, ar, sr in found[j + 1, i + d]
                for (A, b, c, side), own in zip(each, scores, strict=True)
                if (b, c) == (B, C)
                for s in (sl + sr + own,)
            ]
    whole = found[0, n - 1]
    heads = torch.zeros(len(whole), n + 1, dtype=torch.int64)
    for k, (_, head, _, arcs, _) in enumerate(whole):
        for h, m in (*arcs, (0, head)):
            heads[k, m] = h
    tags = torch.tensor([item[2] for item in whole], dtype=torch.int64).view(-1, n)
    base = torch.tensor([item[4] + float(grammar.roots[item[0]]) for item in whole], dtype=torch.float64)
    parts = {**_count(heads), **tag_parts(tags, grammar.tags), "base": base[:, None]}
    indicators = {"tags": parts["tags"].view(-1, n, grammar.tags), "arcs": parts["arcs"].view(-1, n + 1, n + 1)}
    return Counted(parts, indicators)


class Maker:
    """Random scores of a batch; what is never looked at is NaN."""

    def __init__(self, seed: int) -> None:
        self.g = torch.Generator().manual_seed(seed)
        self.lengths = torch.randint(1, WORDS + 1, (BATCH,), generator=self.g)
        self.N = int(self.lengths.max()) + 1
        self.single_root = bool(torch.randint(2, (), generator=self.g))
        self.rate = 0.3 * float(torch.rand((), generator=self.g)) * float(torch.rand((), generator=self.g) < 0.7)

    def normal(self, *shape: int, rate: float | None = None, size: float = 1.0) -> Tensor:
        x = size * torch.randn(shape, generator=self.g, dtype=torch.float64)
        return x.masked_fill(torch.rand(shape, generator=self.g) < (self.rate if rate is None else rate), -math.inf)

    def over_nodes(self, order: int, *, rate: float | None = None, size: float = 1.0) -> Tensor:
        x = self.normal(BATCH, *[self.N] * order, rate=rate, size=size)
        for axis in range(1, order + 1):
            past = torch.arange(self.N) > self.lengths[:, None]
            x = x.masked_fill(past.view(BATCH, *[1] * (axis - 1), self.N, *[1] * (order - axis)), math.nan)
        return x

    def over_words(self, T: int, *, rate: float | None = None) -> Tensor:
        x = self.normal(BATCH, self.N - 1, T, rate=rate)
        return x.masked_fill((torch.arange(self.N - 1) >= self.lengths[:, None])[..., None], math.nan)

    def grammar(self, *, symbols: int, tags: int, rules: int, headed: bool) -> gp.Grammar:
        codes = torch.randperm((symbols - tags) * symbols * symbols * (1 + headed), generator=self.g)[:rules]
        parents, rest = tags + codes % (symbols - tags), codes // (symbols - tags)
        names = tuple(f"s{k}" for k in range(symbols))
        children = rest % symbols, rest // symbols % symbols, rest // symbols // symbols
        return gp.Grammar(names, tags, parents, *children, self.normal(rules), self.normal(symbols, rate=0.1))

    def groups(self) -> Iterator[tuple[int, Tensor]]:
        """Sentences by their length."""
        for n in range(1, self.N):
            rows = (self.lengths == n).nonzero()[:, 0]
            if len(rows):
                yield n, rows


def cut(x: Tensor, rows: Tensor, size: int) -> Tensor:
    """[rows, size, size, ..] of what is [B, N, N, ..]."""
    return x[(rows, *[slice(size)] * (x.dim() - 1))]


def near(one: Tensor, other: Tensor, tolerance: float = 1e-7) -> Tensor:
    return (one == other) | ((one - other).abs() <= tolerance * (1 + other.abs()))
