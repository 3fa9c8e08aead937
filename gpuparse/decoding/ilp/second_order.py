"""Grandparents and siblings in an integer program over arcs: what falls short of the best becomes a soft row.

An arc is scored as if its second-order part were the best that it can have, ``Parts.bound``; so the program is too
hopeful, never too low. Where a solution uses an arc whose part is worth less, a row joins that charges the difference
w to a slack t of that arc. Of the grandparents of (p, c), with w_g for grandparent g, and any threshold v:

    t >= v e_{p,c} - sum over g with w_g < v of (v - w_g) e_{g,p}

At v = w_g these are exact for a solution with grandparent g, and no tree is ever charged too much. Only parts of arcs
that some solution used are ever scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from jaxtyping import Float64
from torch import Tensor

from gpuparse.decoding.ilp.constraints.base import Constraint, Words
from gpuparse.decoding.ilp.rows import Box, Row
from gpuparse.decoding.parts import Kind, Parts

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
ScoreTriples = Callable[[Ints, Ints, Ints], Doubles]
AXIS: dict[Kind, int] = {"grandparents": 0, "siblings": 1}  # of the node that an arc does not say


def upper_bound(parts: Parts) -> Float64[Tensor, "B N N"]:
    """The most that the part of each arc can add; 0 for a grandparent of an arc from the root: it has none."""
    most = parts.bound(AXIS[parts.kind]).double()
    if parts.kind == "grandparents":
        most[:, 0] = 0.0
    return most


class PairScores(Constraint):
    """What the parts of a sentence's arcs fall short of ``most`` [N, N], as soft rows; of forbidden ones hard rows."""

    def __init__(self, kind: Kind, score: ScoreTriples, most: Doubles) -> None:
        self.kind, self.score, self.most = kind, score, most
        self.known: dict[tuple[int, int], Doubles] = {}
        self.horizon = math.inf  # parts that fall short of the most by more than this are as if forbidden
        self.left_out = False  # whether there were any

    def within(self, horizon: float) -> None:
        """Leave out parts beyond a horizon."""
        self.horizon, self.left_out = horizon, False

    def rows(self, words: Words) -> Iterator[Row]:
        """Of all parts: many. ``violated`` gives those that matter."""
        make = self._grandparent if self.kind == "grandparents" else self._sibling
        for head in words.nodes:
            for word in words.words:
                for other in words.nodes:
                    if head != word and self._is_part(head, word, other):
                        yield from make(head, word, other)

    def violated(self, words: Words, heads: Sequence[int], labels: Sequence[int]) -> Iterator[Row]:
        for word in words.words:
            head = heads[word]
            if self.kind == "siblings":
                step = 1 if head < word else -1
                between = (k for k in range(word - step, head, -step) if heads[k] == head)
                yield from self._sibling(head, word, next(between, head))
            elif head > 0 and heads[head] != word:  # no cycle of two, which has no grandparent
                yield from self._grandparent(head, word, heads[head])

    def _is_part(self, head: int, word: int, other: int) -> bool:
        if self.kind == "grandparents":
            return head > 0 and other not in (head, word)
        return other == head or min(head, word) < other < max(head, word)

    def short(self, head: int, word: int) -> Doubles:
        """What the part of an arc with each third node falls short of the most [N]; inf where there is none, or none
        that is near enough."""
        if (head, word) not in self.known:
            nodes = np.array([x for x in range(len(self.most)) if self._is_part(head, word, x)], dtype=np.int64)
            triple = [np.full(len(nodes), x) for x in (head, word)]
            triple.insert(AXIS[self.kind], nodes)
            scores = self.score(*triple)
            short = np.full(len(self.most), np.inf)
            with np.errstate(over="ignore"):
                short[nodes] = np.maximum(self.most[head, word] - scores, 0.0)
            self.known[head, word] = short
        short = self.known[head, word]
        far = (short > self.horizon) & np.isfinite(short)
        self.left_out |= bool(far.any())
        return np.where(far, np.inf, short)

    def _grandparent(self, p: int, c: int, g: int) -> Iterator[Row]:
        short = self.short(p, c)
        charge, why = float(short[g]), f"the grandparent of {g} -> {p} -> {c}"
        if math.isinf(charge):
            yield Row((Box(_one(g), _one(p)), Box(_one(p), _one(c))), -math.inf, 1, why)
        elif charge > 0:
            less = [
                Box(_one(x), _one(p), None, float(short[x]) / charge - 1)
                for x in np.nonzero(short < charge)[0].tolist()
            ]
            yield Row((Box(_one(p), _one(c)), *less), -math.inf, 0, why, charge, ("grandparent", p, c))

    def _sibling(self, h: int, m: int, s: int) -> Iterator[Row]:
        """t >= w (e_{h,m} + e_{h,s} - 1 - sum over k between s and m of e_{h,k}); without e_{h,s} - 1 for s = h."""
        charge, why = float(self.short(h, m)[s]), f"the sibling of {h} -> {s}, {m}"
        if charge == 0:
            return
        between = frozenset(range(min(s, m) + 1, max(s, m)))
        boxes = [Box(_one(h), frozenset({m} if s == h else {m, s}))]
        if between:
            boxes.append(Box(_one(h), between, None, -1.0))
        share = None if math.isinf(charge) else ("sibling", h, m)
        yield Row(tuple(boxes), -math.inf, 0.0 if s == h else 1.0, why, charge, share)


def _one(node: int) -> frozenset[int]:
    return frozenset({node})
