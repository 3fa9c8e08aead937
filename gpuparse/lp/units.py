"""Scores of a sentence as its linear program has them: distances from the best that there could be, of moderate size.

Every word has one arc, and every arc from a word one grandparent. So what the best grandparent of an arc could add may
be moved to the arc, and what a word's best arc then has may be taken from all of its arcs: trees keep their distances.
What is left is not above 0, and a score that is huge for all trees is gone. Times a power of two, the best tree that is
known is about 100 away, so that tolerances mean the same for scores of any size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpuparse.lp.grandparents import Doubles, Ints, allowed

FAR = 1e6  # costs are no further from 0: no best tree has one that is
SIZE = 128.0  # how far the best known tree may be


@dataclass(frozen=True)
class Units:
    """How to come from scores to costs and back.

    Attributes:
        over: what is moved from grandparents to each arc [N, N].
        best: what is taken from the arcs of each word [N].
        scale: a power of two.
        rounding: what costs may be off because of the size of the scores.
    """

    over: Doubles
    best: Doubles
    scale: float
    rounding: float

    @classmethod
    def of(cls, arcs: Doubles, over: Doubles) -> Units:
        """Not scaled yet. Args: scores of arcs, and the most that a grandparent of each can add (both [N, N])."""
        moved = np.where(np.isfinite(over), over, 0.0)
        moved[0] = 0.0
        here = allowed(arcs)
        here[1:] &= over[1:] > -np.inf  # else it has no grandparent
        total = np.where(here, np.where(here, arcs, 0.0) + moved, -np.inf)
        best = total.max(0)
        best[~np.isfinite(best)] = 0.0
        size = max(float(np.abs(x[here]).max(initial=0.0)) for x in (arcs, moved))
        return cls(np.where(here, moved, 0.0), best, 1.0, 16 * len(arcs) * np.finfo(np.float64).eps * size)

    def scaled(self, distance: float) -> Units:
        """With a tree so far away at SIZE, about."""
        power = math.floor(math.log2(SIZE / distance)) if 0 < distance < math.inf else 0
        factor = math.ldexp(1.0, max(-1000, min(1000, power)))
        return Units(self.over, self.best, self.scale * factor, self.rounding * factor)

    def arcs(self, arcs: Doubles, over: Doubles) -> Doubles:
        """Costs of arcs, -inf where there is none."""
        here = allowed(arcs)
        here[1:] &= over[1:] > -np.inf
        costs = (np.where(here, arcs, 0.0) + self.over - self.best) * self.scale
        return np.where(here, np.maximum(costs, -FAR), -np.inf)

    def triples(self, p: Ints, c: Ints, scores: Doubles) -> Doubles:
        """Costs of grandparents of the arcs p -> c, -inf where they are forbidden."""
        costs = (scores - self.over[p, c]) * self.scale
        return np.where(scores == -np.inf, -np.inf, np.maximum(costs, -FAR))

    def score(self, cost: float) -> float:
        """The score of a tree, or a bound, of its cost."""
        return float(self.best[1:].sum()) + cost / self.scale

    def cost(self, score: float) -> float:
        """The cost of a bound; none (+inf) where it is so low that costs are not what they should be."""
        cost = (score - float(self.best[1:].sum())) * self.scale
        return cost if cost > -FAR / 2 else math.inf
