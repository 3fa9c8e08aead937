"""The scores of one sentence, all of them, as they were given: what a checker of proofs looks at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gpuparse.decoding import certificates
from gpuparse.decoding.parts import Kind, legal_triples
from gpuparse.decoding.scores import Scores
from gpuparse.ops import plain

Doubles = npt.NDArray[np.float64]
MOST = float(np.finfo(np.float64).max)
LEAST = 64 * 2.0**-1074  # what steps to the next number add up to where that is 0


@dataclass(frozen=True)
class Single:
    """The scores of a sentence: labelled arcs [N, N, L], and pairs [N, N, N], -inf where they are not read."""

    arcs: Doubles
    labels: Doubles
    grandparents: Doubles | None
    siblings: Doubles | None
    single_root: bool

    @classmethod
    def of(cls, scores: Scores, b: int, single_root: bool) -> Single:
        at, N = slice(int(scores.lengths[b]) + 1), int(scores.lengths[b]) + 1
        arcs = _double(scores.arcs[b, at, at]).copy()
        arcs[:, 0], arcs[np.arange(N), np.arange(N)] = -np.inf, -np.inf
        labels = np.zeros((N, N, 1)) if scores.labels is None else _double(scores.labels[b, at, at])
        pairs: dict[str, Doubles | None] = {"grandparents": None, "siblings": None}
        for kind, parts in zip(scores.second_order, scores.parts, strict=True):
            pairs[kind] = np.where(_read(kind, N), _double(parts.dense()[b, at, at, at]), -np.inf)
        return cls(arcs, labels, pairs["grandparents"], pairs["siblings"], single_root)

    def parts(self, heads: Sequence[int], labels: Sequence[int] | None) -> list[float]:
        """The scores of a tree's parts; a ValueError where a label is none."""
        if labels is not None and not all(0 <= x < self.labels.shape[2] for x in labels[1 : len(heads)]):
            raise ValueError("its labels are out of range")
        found = []
        for m, h in enumerate(heads[1:], 1):
            found += [self.arcs[h, m], self.labels[h, m].max() if labels is None else self.labels[h, m, labels[m]]]
            if self.grandparents is not None and h > 0:
                found.append(self.grandparents[heads[h], h, m])
            if self.siblings is not None:
                step = 1 if h < m else -1
                found.append(self.siblings[h, next((k for k in range(m - step, h, -step) if heads[k] == h), h), m])
        return [float(x) for x in found]

    def over(self) -> Doubles:
        """The most that its pairs can add to each arc, one kind after the other [K, N, N]."""
        found = []
        if self.grandparents is not None:
            most = self.grandparents.max(0)
            most[0] = 0.0
            found.append(most)
        if self.siblings is not None:
            found.append(self.siblings.max(1))
        return np.array(found).reshape(-1, *self.arcs.shape)

    def rounding(self, score: float) -> float:
        """What sums of the parts that can matter may be off (``certificates``), here and in the method."""
        over, best_label = self.over(), self.labels.max(2)
        with np.errstate(invalid="ignore", over="ignore"):
            most = np.where(self.arcs == -np.inf, -np.inf, self.arcs + best_label + over.sum(0))
            best = most[:, 1:].max(0)
            distance = total(best.tolist()) - score
            near = most[:, 1:] - best >= -abs(distance)
            sizes = np.abs(self.arcs) + np.abs(best_label) + np.abs(over).sum(0)
        most_near = np.where(near, sizes[:, 1:], 0.0).max(0)
        off = float((certificates.rounding(1, np.abs(best)) + certificates.rounding(1, most_near)).sum())
        off += certificates.rounding(len(self.arcs), abs(distance))
        return 4 * off + LEAST * len(self.arcs) ** 2


@lru_cache(maxsize=64)
def _read(kind: Kind, N: int) -> npt.NDArray[np.bool_]:
    """Which pairs a sentence of N nodes has."""
    return legal_triples(kind, torch.tensor([N - 1]), N)[0].numpy()


def _double(x: Tensor) -> Doubles:
    return x.detach().double().cpu().numpy()


def best_projective(sentence: Single) -> float:
    """The score of the best projective tree, computed anew in plain torch."""
    tables = [plus(sentence.arcs, sentence.labels.max(2)), sentence.siblings, sentence.grandparents]
    arcs, siblings, grandparents = (None if x is None else torch.from_numpy(x)[None] for x in tables)
    lengths = torch.tensor([len(sentence.arcs) - 1])
    assert arcs is not None
    heads = plain.second_order.argmax((arcs, siblings, grandparents), lengths, sentence.single_root)[0].tolist()
    return total(sentence.parts(heads, None)) if heads[1] >= 0 else -math.inf


def is_tree(heads: list[int], single_root: bool) -> bool:
    up = [max(h, 0) for h in heads]
    for _ in heads:
        up = [up[x] if 0 <= x < len(up) else -1 for x in up]
    return min(heads[1:]) >= 0 and not any(up) and (heads.count(0) == 1 or not single_root)


def crosses(heads: list[int]) -> bool:
    spans = [(min(h, m), max(h, m)) for m, h in enumerate(heads[1:], 1)]
    return any(a < c < b < d for a, b in spans for c, d in spans)


def total(terms: Iterable[float]) -> float:
    """The sum, rounded once; -inf where doubles end."""
    try:
        return math.fsum(terms)
    except OverflowError:
        return -math.inf


def total_up(terms: Sequence[float]) -> float:
    """A number that is not below the sum; NaN where a term is."""
    if math.inf in terms:
        return math.inf
    try:
        return float(np.nextafter(math.fsum(terms), math.inf))
    except OverflowError:  # to one side or the other
        return float(np.nextafter(math.fsum(x * 2.0**-64 for x in terms) * 2.0**64, math.inf))


def plus(first: Any, *terms: Any) -> Any:
    """A sum, every step of it rounded up; -inf where a term is, and only there, not where doubles end."""
    for term in terms:
        never = (first == -np.inf) | (term == -np.inf)
        first = np.where(never, -np.inf, np.maximum(up(first + term), -MOST))
    return first


def up(x: Any) -> Any:
    """A number that is not below what was rounded to this one."""
    return np.where(x == -np.inf, x, np.nextafter(x, math.inf))
