"""Factors one by one: their edges, all assignments to them and what they weigh; and the sums over these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import Tensor

from gpuparse import bp
from tests.oracle import all_trees

NEG_INF = float("-inf")
Edge = tuple[int, tuple[int, ...]]  # which of the family's message tensors, and where in it


@dataclass
class Factor:
    """Edges to links, all assignments [A, E] that do not weigh 0, and their log weights [A]."""

    edges: list[Edge]
    values: Tensor
    scores: Tensor


def words(lengths: Tensor, b: int) -> range:
    return range(1, int(lengths[b]) + 1)


def links(lengths: Tensor, b: int) -> list[tuple[int, int]]:
    return [(h, m) for m in words(lengths, b) for h in range(int(lengths[b]) + 1) if h != m]


def factor(edges: list[Edge], score) -> Factor:
    """A factor by its function of (true, false, ...)."""
    values = torch.tensor(list(product([False, True], repeat=len(edges)))).view(-1, len(edges))
    scores = torch.tensor([float(score(*row)) for row in values.tolist()], dtype=torch.float64)
    return Factor(edges, values[scores > NEG_INF], scores[scores > NEG_INF])


def both(a: Edge, b: Edge, score: float) -> Factor:
    return factor([a, b], lambda x, y: score if x and y else 0.0)


def tree(projective: bool, single_root: bool, lengths: Tensor, b: int) -> Iterator[Factor]:
    n = int(lengths[b])
    arcs = links(lengths, b)
    trees = all_trees(n, single_root=single_root, projective=projective)
    values = torch.stack([trees[:, m] == h for h, m in arcs], 1)
    yield Factor([(0, (b, *arc)) for arc in arcs], values, torch.zeros(len(trees), dtype=torch.float64))


def heads(count, lengths: Tensor, b: int) -> Iterator[Factor]:
    for j in words(lengths, b):
        edges = [(0, (b, i, j)) for i in range(int(lengths[b]) + 1) if i != j]
        yield factor(edges, lambda *x: 0.0 if count(sum(x)) else NEG_INF)


def exactly_one(lengths: Tensor, b: int) -> Iterator[Factor]:
    return heads(lambda k: k == 1, lengths, b)


def at_most_one(lengths: Tensor, b: int) -> Iterator[Factor]:
    return heads(lambda k: k <= 1, lengths, b)


def not_two(lengths: Tensor, b: int) -> Iterator[Factor]:
    for (i, j), (k, l) in product(links(lengths, b), repeat=2):  # noqa: E741
        if j == l and i < k:
            yield both((0, (b, i, j, k)), (0, (b, k, j, i)), NEG_INF)


def no_two_cycle(lengths: Tensor, b: int) -> Iterator[Factor]:
    for i, j in links(lengths, b):
        if 1 <= i < j:
            yield both((0, (b, i, j)), (0, (b, j, i)), NEG_INF)


def link(arcs: Tensor, lengths: Tensor, b: int) -> Iterator[Factor]:
    for i, j in links(lengths, b):
        yield factor([(0, (b, i, j))], lambda x, s=float(arcs[b, i, j]): s if x else 0.0)


def pair(pairs: Tensor, scores: Tensor, lengths: Tensor, b: int) -> Iterator[Factor]:
    for p, row in enumerate(pairs[b].tolist()):
        if min(row) >= 0:
            yield both((0, (b, p)), (1, (b, p)), float(scores[b, p]))


def grand(scores: Tensor, lengths: Tensor, b: int) -> Iterator[Factor]:
    for (g, p), (q, c) in product(links(lengths, b), repeat=2):
        if p == q and g != c:
            yield both((0, (b, g, p, c)), (1, (b, g, p, c)), float(scores[b, g, p, c]))


def sib(scores: Tensor, lengths: Tensor, b: int) -> Iterator[Factor]:
    for (h, j), (i, k) in product(links(lengths, b), repeat=2):
        if h == i and j < k:
            yield both((0, (b, h, j, k)), (0, (b, h, k, j)), float(scores[b, h, j, k]))


def child_sequence(siblings: Tensor, last: Tensor, lengths: Tensor, b: int) -> Iterator[Factor]:
    for h in range(int(lengths[b]) + 1):
        children = [m for m in words(lengths, b) if m != h]

        def score(*true: bool, h: int = h, children: list[int] = children) -> float:
            total = 0.0
            chosen = [m for m, x in zip(children, true, strict=True) if x]
            for side in ([m for m in chosen if m > h], [m for m in reversed(chosen) if m < h]):
                for s, m in zip([h, *side], side, strict=False):
                    total += float(siblings[b, h, s, m])
                total += float(last[b, h, side[-1]]) if side else 0.0
            return total

        if children:
            yield factor([(0, (b, h, m)) for m in children], score)


def no_cross(scores: Tensor, lengths: Tensor, b: int) -> Iterator[Factor]:
    n = int(lengths[b])
    for j, l in product(words(lengths, b), repeat=2):  # noqa: E741
        if j >= l:
            continue
        arcs = [(i, j) for i in range(n + 1) if i != j] + [(k, l) for k in range(n + 1) if k != l]

        def score(*true: bool, arcs=arcs, x: float = float(scores[b, j, l]), n: int = n) -> float:
            if sum(true[:n]) != 1 or sum(true[n:]) != 1:
                return NEG_INF
            (a, c), (d, e) = (sorted(arc) for arc, t in zip(arcs, true, strict=True) if t)
            return x if a < d < c < e or d < a < e < c else 0.0

        edges = [(0, (b, i, j, l)) for i, _ in arcs[:n]] + [(0, (b, k, l, j)) for k, _ in arcs[n:]]
        yield factor(edges, score)


def check(
    f: Factor, incoming: bp.Messages, outgoing: bp.Messages, maximise: bool = False, rel: float = 0.0
) -> tuple[int, float]:
    """Messages from a factor are the sums, where there is an assignment; how many there are, and log Z."""
    messages, log_z = expect(f, incoming, maximise)
    compared = 0
    for (slot, at), (true, false) in zip(f.edges, messages, strict=True):
        if max(true, false) > NEG_INF:
            assert float(outgoing[slot][at]) == pytest.approx(true - false, abs=1e-9, rel=rel), at
            compared += 1
    return compared, log_z


def expect(f: Factor, incoming: bp.Messages, maximise: bool) -> tuple[list[tuple[float, float]], float]:
    """For each edge the log weights of true and false without the edge's own message; and log Z."""
    q = torch.stack([incoming[slot][at] for slot, at in f.edges])
    forced = q == torch.inf
    false, true = torch.where(forced, NEG_INF, 0.0), torch.where(forced, 0.0, q)
    weight = torch.where(f.values, true, false.double())  # [A, E]

    def total(x: Tensor) -> float:
        return NEG_INF if not len(x) else float(x.max() if maximise else torch.logsumexp(x, 0))

    out = []
    for e in range(len(f.edges)):
        others = f.scores + torch.cat([weight[:, :e], weight[:, e + 1 :]], 1).sum(1)
        out.append((total(others[f.values[:, e]]), total(others[~f.values[:, e]])))
    return out, total(f.scores + weight.sum(1))
