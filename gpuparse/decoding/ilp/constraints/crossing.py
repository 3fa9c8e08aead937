"""Constraints on crossing arcs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool
from torch import Tensor

from gpuparse.decoding.ilp.constraints.base import Constraint, Words, take_names
from gpuparse.decoding.ilp.rows import Box, Row

if TYPE_CHECKING:
    from gpuparse.decoding.ilp.check import CheckedTrees

Doubles = npt.NDArray[np.float64]
Crossing = tuple[int, int, int]
"""Nodes a < c with an arc between them, and a word k whose arc crosses it."""

CUTS = 50  # rows at a time for a fractional solution


@dataclass(frozen=True)
class Projective(Constraint):
    """P1: no arc with one of these labels crosses another; with None no two arcs cross.

    Arcs of words with one of ``except_tags`` do not count as having such a label (the paper's exception: verbs).

    Example:
        >>> from gpuparse import lp
        >>> words = lp.Words.of(["a", "b", "c"])
        >>> len(list(lp.Projective().violated(words, [-1, 3, 0, 2], [-1, 0, 0, 0])))
        1
    """

    labels: frozenset[str] | None = None
    except_tags: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        take_names(self)

    def rows(self, words: Words) -> Iterator[Row]:
        last = len(words.forms)
        return self._rows(
            words, ((a, c, k) for a in range(last) for c in range(a + 2, last) for k in range(a + 1, last))
        )

    def all_rows(self, words: Words) -> Iterator[Row]:
        last = len(words.forms)
        places = [(a, c, k) for a in range(last) for c in range(a + 2, last) for k in range(1, last) if k not in (a, c)]
        yield from self.rows(words)
        yield from self._rows(words, places, both_sides=True)

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        arcs = sorted((min(heads[m], m), max(heads[m], m), m) for m in words.words)
        found = []
        for place, (a, c, _) in enumerate(arcs):
            for b, d, k in arcs[place + 1 :]:
                if b >= c:
                    break
                if a < b and d > c:
                    found.append((a, c, k))
        return (row for row in self._rows(words, dict.fromkeys(found)) if row.is_violated(heads, labels))

    def separated(self, words: Words, weights: Doubles, hard: bool) -> Iterator[Row]:
        these, free = words.numbers(self.labels), words.tagged(self.except_tags)
        every = weights.sum(2)
        ours = every.copy() if these is None else weights[:, :, sorted(these)].sum(2)
        ours[:, sorted(free)] = 0.0
        a, c, k = np.ogrid[: len(every), : len(every), : len(every)]
        most = np.maximum(_joined(ours, every), _joined(every, ours))
        most[(a >= c) | (k == 0) | (k == a) | (k == c)] = 0.0
        if not hard:
            most[k + 0 * (a + c) < a] = 0.0  # a crossing is in one place
        worst = [
            (int(x), int(y), int(z))
            for x, y, z in zip(*np.unravel_index(np.argsort(-most, axis=None)[:CUTS], most.shape), strict=True)
        ]
        return self._rows(words, [place for place in worst if most[place] > 1], both_sides=hard)

    def breaks(self, trees: CheckedTrees) -> Bool[Tensor, " B"]:
        words = torch.arange(trees.heads.shape[1], device=trees.heads.device)
        left, right = torch.minimum(trees.heads, words), torch.maximum(trees.heads, words)
        left = left.masked_fill(~trees.is_word, 0)  # from 0 to 0 crosses nothing
        right = right.masked_fill(~trees.is_word, 0)
        kept = trees.is_word & trees.labelled(self.labels) & ~trees.tagged(self.except_tags)
        a, b, c, d = left[:, :, None], right[:, :, None], left[:, None], right[:, None]
        cross = (a < c) & (c < b) & (b < d)
        return (cross & (kept[:, :, None] | kept[:, None])).flatten(1).any(1)

    def _rows(self, words: Words, found: Iterable[Crossing], both_sides: bool = False) -> Iterator[Row]:
        """That no arc of word k crosses one between a and c: of those that end right of c, or of all.

        Of two arcs that cross, one begins and ends further to the left: so each crossing is in one place (a, c, k).
        """
        these, free = words.numbers(self.labels), words.tagged(self.except_tags)
        if these is not None and not these:
            return
        nodes = frozenset(words.nodes)
        for a, c, k in found:
            inside = frozenset(range(a + 1, c))
            heads = inside
            if k in inside:
                heads = nodes - inside - {a, c} if both_sides else frozenset(range(c + 1, len(nodes)))
            if k == c or not heads:
                continue
            why = f"no arc of {words.name(k)} crosses {a} - {c}"
            share = ("cross", self.labels, self.except_tags, a, c, k)  # one crossing costs once, whoever has the label
            arcs = [(frozenset({h}), frozenset({m})) for h, m in ((a, c), (c, a)) if m]
            kept = [(h, m) for h, m in arcs if not m & free]
            if k not in free:
                boxes = [Box(h, m) for h, m in arcs]
                yield Row((*boxes, Box(heads, frozenset({k}), these)), 0, 1, why, share=share)
            if kept and (these is not None or k in free):
                boxes = [Box(h, m, these) for h, m in kept]
                yield Row((*boxes, Box(heads, frozenset({k}))), 0, 1, why, share=share)


def _joined(spans: Doubles, others: Doubles) -> Doubles:
    """Weight of the arcs between a and c, and of those of word k that cross them [a, c, k]."""
    N = len(spans)
    before = np.concatenate([np.zeros((1, N)), np.cumsum(others, 0)])  # of the heads before a node
    within = before[None, :N] - before[1:, None]  # a < head < c
    outside = before[-1] - (before[None, 1:] - before[:-1, None])  # head < a or c < head
    a, c, k = np.ogrid[:N, :N, :N]
    return (spans + spans.T)[:, :, None] + np.where((a < k) & (k < c), outside, within)
