"""Head automata: random scores, and all heads and sets of children."""

from __future__ import annotations

from itertools import chain, combinations, product
from typing import NamedTuple

import torch
from torch import Tensor

from gpuparse.decoding.parts import legal_triples
from gpuparse.ops import plain
from gpuparse.ops.automata import Before, Stars, automata
from gpuparse.structures.masks import arc_mask

INF = float("inf")


DTYPES = (torch.float32, torch.float64)


KINDS = tuple(product((True, False), repeat=3))  # whether there are up, siblings, grandparents


class Given(NamedTuple):
    down: Tensor
    up: Tensor | None
    siblings: Tensor | None
    grandparents: Tensor | None
    lengths: Tensor


def some_scores(
    kind: tuple[bool, ...], lengths: list[int], dtype: torch.dtype, seed: int, *, whole: bool = False, less: float = 0.5
) -> Given:
    """A ragged batch with forbidden entries, and NaN wherever nothing is to be read; ``whole``: many ties."""
    generator = torch.Generator().manual_seed(seed)
    counts, N = torch.tensor(lengths), max(lengths) + 1

    def rand(read: Tensor, mean: float) -> Tensor:
        x = torch.randn(read.shape, generator=generator, dtype=torch.float64) * 2 - mean
        x = x.round() if whole else x
        x[torch.rand(read.shape, generator=generator) < 0.15 * (seed % 3)] = -INF
        return torch.where(read, x, torch.nan).to(dtype)

    arc = arc_mask(counts, N)
    up, siblings, grandparents = kind
    return Given(
        rand(arc, less),
        rand(arc, 0.0) if up else None,
        rand(legal_triples("siblings", counts, N), 0.0) if siblings else None,
        rand(legal_triples("grandparents", counts, N), less) if grandparents else None,
        counts,
    )


def some_change(kind: tuple[bool, ...], seed: int) -> tuple[Given, Before, Tensor]:
    """Scores, what was found by others that differ at some nodes, and these nodes [B, N]."""
    given = some_scores(kind, [9, 4, 1, 6], torch.float64, seed)
    generator = torch.Generator().manual_seed(seed)
    down, up = given.down.clone(), None if given.up is None else given.up.clone()
    changed = torch.zeros(given.down.shape[:2], dtype=torch.bool)
    for b, n in enumerate(given.lengths.tolist()):
        for _ in range(2 if n > 1 else 0):
            p, c = (1 + torch.randperm(n, generator=generator)[:2]).tolist()
            if down[b, p, c] > -INF:
                down[b, p, c] += 1.0
                changed[b, p] = True
            if up is not None and up[b, c, p] > -INF and seed % 2:
                up[b, c, p] += 1.0
                changed[b, p] = True
    return given, Before(down, up, automata(down, up, *given[2:])), changed


def star_value(given: Given, b: int, p: int, g: int, children: tuple[int, ...]) -> float:
    """The score of a star, one term at a time; g is -1 without a head."""
    total = float(given.up[b, g, p]) if given.up is not None and g >= 0 else 0.0
    sides = ([c for c in reversed(children) if c < p], [c for c in children if c > p])
    for c in children:
        total += float(given.down[b, p, c])
        if given.grandparents is not None and g >= 0:
            total += float(given.grandparents[b, g, p, c])
    if given.siblings is not None:
        for side in sides:
            for s, m in zip([p, *side], side, strict=False):
                total += float(given.siblings[b, p, s, m])
    return total


def star_of(stars: Stars, b: int, p: int) -> tuple[int, tuple[int, ...]]:
    return int(stars.heads[b, p]), tuple(stars.children[b, p].nonzero().flatten().tolist())


def enumerated(given: Given, b: int, p: int, single_root: bool) -> float:
    """The best value over all heads and sets of children."""
    n = int(given.lengths[b])
    headed = p > 0 and (given.up is not None or given.grandparents is not None)
    best = -INF
    for g in [g for g in range(n + 1) if g != p] if headed else [-1]:
        words = [c for c in range(1, n + 1) if c not in (p, g)]
        sizes = [1] if p == 0 and single_root else range(len(words) + 1)
        for children in chain.from_iterable(combinations(words, k) for k in sizes):
            best = max(best, star_value(given, b, p, g, children))
    return best


def by_plain(given: Given, single_root: bool) -> Stars:
    return Stars(*plain.automata.automata(*given, single_root))


def equal(found: Stars, expected: Stars) -> None:
    for name, one, other in zip(Stars._fields, found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), name
        assert torch.equal(one, other), name
