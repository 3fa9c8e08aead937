"""Random scores that several suites share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import gpuparse as gp


def random_heads(n: int, projective: bool, rng: np.random.Generator) -> list[int]:
    """Heads of a random tree with one word under the root; those of the words 1 .. n count."""
    heads = [0] * (n + 1)
    if not projective:
        order = 1 + rng.permutation(n)
        for i in range(1, n):
            heads[order[i]] = int(order[rng.integers(i)])
        return heads
    spans = [(1, n + 1, 0)]  # words first .. last - 1 hang together on a head outside
    while spans:
        first, last, head = spans.pop()
        word = int(rng.integers(first, last))
        heads[word] = head
        for a, b in ((first, word), (word + 1, last)):
            while a < b:
                end = int(rng.integers(a, b)) + 1
                spans.append((a, end, word))
                a = end
    return heads


def make_scores(kind: str, n: int, batch: int, projective: bool) -> Tensor:
    """[B, N, N] in float32: standard normal, or peaked as trained ones are: a random tree, 12 above
    noise of 1.5.
    """
    rng = np.random.default_rng([n, batch, int(projective), kind == "peaked"])
    arcs = rng.standard_normal((batch, n + 1, n + 1))
    if kind == "peaked":
        arcs *= 1.5
        for b in range(batch):
            arcs[b, random_heads(n, projective, rng), range(n + 1)] += 12.0
    return torch.from_numpy(arcs).float()


def second_order(n: int, batch: int, *kinds: str, arcs: Tensor | None = None) -> gp.Scores:
    """Standard normal scores of arcs, unless some are given, and of these kinds of pairs."""
    g = torch.Generator().manual_seed(n)
    arcs = torch.randn(batch, n + 1, n + 1, generator=g) if arcs is None else arcs
    parts: dict[str, Any] = {kind: torch.randn(batch, *[n + 1] * 3, generator=g) for kind in kinds}
    return gp.Scores(arcs, **parts)
