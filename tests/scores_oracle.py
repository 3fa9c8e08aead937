"""Scores of all kinds of parts, and what a tree scores, word by word."""

from __future__ import annotations

import math

import torch

from gpuparse.decoding.parts import DenseParts, legal_triples
from gpuparse.decoding.scores import Scores
from tests.oracle import never_read, random_instance

NAN, NEG_INF = math.nan, -math.inf


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_scores(
    seed: int, *, words: int = 5, batch: int = 4, labels: int = 3, dtype: torch.dtype = torch.float64
) -> Scores:
    """A ragged batch with all kinds of parts, -inf among them, and NaN in everything that is never read."""
    g = generator(seed)
    arcs, lengths = random_instance(seed, batch=batch, words=words, dtype=dtype)
    N = words + 1
    by_label = torch.randn(batch, N, N, labels, generator=g, dtype=dtype)
    by_label = by_label.masked_fill(torch.rand(by_label.shape, generator=g) < 0.2, NEG_INF)
    parts = {}
    for kind in ("siblings", "grandparents"):
        values = torch.randn(batch, N, N, N, generator=g, dtype=dtype)
        values = values.masked_fill(torch.rand(values.shape, generator=g) < 0.1, NEG_INF)
        parts[kind] = values.masked_fill(~legal_triples(kind, lengths, N), NAN)
    never = never_read(lengths, N)
    return Scores(arcs, lengths, labels=by_label.masked_fill(never[..., None], NAN), **parts)


def score_by_hand(scores: Scores, b: int, heads: list[int], labels: list[int] | None) -> float:
    """The score of one tree, word by word."""
    n = int(scores.lengths[b])
    total = 0.0
    for m in range(1, n + 1):
        h = heads[m]
        total += float(scores.arcs[b, h, m])
        if scores.labels is not None:
            row = scores.labels[b, h, m]
            total += float(row.max() if labels is None else row[labels[m]])
        if isinstance(scores.siblings, DenseParts):
            step = 1 if m > h else -1
            between = [s for s in range(h + step, m, step) if heads[s] == h and s >= 1]
            total += float(scores.siblings.values[b, h, between[-1] if between else h, m])
        if isinstance(scores.grandparents, DenseParts) and h >= 1:
            total += float(scores.grandparents.values[b, heads[h], h, m])
    return total
