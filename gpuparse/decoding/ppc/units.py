"""Scores of a sentence as its linear program has them: distances from the best that there could be, of moderate size.

Every word has one arc, every arc from a word one grandparent, and every arc one sibling, or none, which is scored
like one. So what the best pair of each kind could add to an arc may be moved to the arc, and what a word's best arc
then has may be taken from all of its arcs: trees keep their distances. What is left is not above 0, and a score that
is huge for all trees is gone. Once a tree is known, its distance gives a horizon: what is much further away is in no
better tree, and left out, a mask of -1e30 like one of -inf. Times a power of two, the tree is about 100 away, so that
the solver's tolerances mean the same for scores of any size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gpuparse.decoding import certificates
from gpuparse.decoding.parts import Kind
from gpuparse.decoding.ppc.program import Bools, Doubles, Ints, allowed

SIZE = 20  # the horizon is at most 2 to this, in a program
REACH = 2.0**13  # and so many times as far away as the best tree that is known
MOST = float(np.finfo(np.float64).max)
RANGE = 900  # the horizon is at most 2 to this times as far away as the nearest arc
NEARER, FURTHER = 2.0**-3, 2.0**40  # how much a horizon moves at least, inwards and outwards


@dataclass(frozen=True)
class Units:
    """How to come from scores to costs and back.

    Attributes:
        over: what is moved from the pairs of each kind to each arc [N, N].
        best: what is taken from the arcs of each word [N].
        total: of each arc, what is moved included, less the word's best: not above 0 [N, N]; -inf where there is none.
        power: costs are such distances, times 2 to this.
        horizon: the most that a part of a tree may be away.
    """

    over: Mapping[Kind, Doubles]
    best: Doubles
    total: Doubles
    power: int = 0
    horizon: float = math.inf

    @classmethod
    def of(cls, arcs: Doubles, over: Mapping[Kind, Doubles]) -> Units:
        """Without a horizon yet. ``over``: the most that a pair of each kind can add to each arc; all are [N, N]."""
        moved, here, total = {}, allowed(arcs), arcs
        with np.errstate(over="ignore", invalid="ignore"):  # two masks may come to -inf, which forbids
            for kind, most in over.items():
                moved[kind] = own = np.where(np.isfinite(most), most, 0.0)
                there = most > -np.inf  # else it has no pair
                if kind == "grandparents":
                    own[0], there[0] = 0.0, True
                here &= there
                total = total + own
            total = np.where(here, total, -np.inf)
            best = total.max(0)
            best[~np.isfinite(best)] = 0.0
            return cls(moved, best, total - best)

    @property
    def all_over(self) -> Doubles:
        """What is moved to each arc, of all kinds [N, N]."""
        with np.errstate(over="ignore"):
            return np.asarray(sum(self.over.values(), np.zeros(self.total.shape)))

    def within(self, horizon: float) -> Units:
        """With parts that are further away left out."""
        power = SIZE - math.frexp(horizon)[1] if 0 < horizon < math.inf else 0
        return replace(self, power=power, horizon=horizon)

    def first_horizon(self, distance: float) -> float:
        """At a tree that is so far away, or not known (inf)."""
        return first_horizon(distance, self.total, self.best)

    def _loses(self, cost: float) -> bool:
        """Whether a cost is so small that distances like it are lost."""
        return cost > -(2.0**-RANGE) and self.horizon > _range(self.total)

    def next_horizon(self, cost: float, left_out: bool) -> float | None:
        """Where the horizon should be after a program without a certificate, given the best tree's cost; None: where it
        is."""
        if self._loses(cost):
            return _range(self.total)
        return next_horizon(self.distance(cost), self.horizon, left_out)

    @property
    def possible(self) -> Bools:
        """Which arcs can be in a tree, as far as pairs go [N, N]."""
        return self.total > -np.inf

    @property
    def arcs(self) -> Doubles:
        """Costs of arcs, -inf where there is none that matters."""
        return scaled(np.where(self.total >= -self.horizon, self.total, -np.inf), self.power)

    @property
    def leaves_out(self) -> bool:
        """Whether some arc is there that is too far away."""
        return bool((np.isfinite(self.total) & (self.total < -self.horizon)).any())

    def triples(self, kind: Kind, p: Ints, c: Ints, scores: Doubles) -> Doubles:
        """Costs of pairs of the arcs p -> c, -inf where they are forbidden or too far away."""
        with np.errstate(over="ignore"):
            away = scores - self.over[kind][p, c]
        return scaled(np.where(away >= -self.horizon, away, -np.inf), self.power)

    @property
    def beyond(self) -> float:
        """What no tree costs more than that has a part beyond the horizon."""
        return scaled_number(-self.horizon, self.power)

    def score(self, cost: float) -> float:
        """The score of a tree of its cost."""
        return self._shared() - self.distance(cost)

    def cost(self, score: float) -> float:
        """The cost of a bound, with what rounding did to it."""
        distance = self._shared() - score
        cost = scaled_number(-distance, self.power)
        return cost + max(0.0, self.rounding(cost)) if math.isfinite(cost) else cost

    def _shared(self) -> float:
        """What is taken from all trees; -inf where doubles end."""
        with np.errstate(over="ignore"):
            return float(self.best[1:].sum())

    def distance(self, cost: float) -> float:
        """How far away a tree of this cost is, in scores."""
        return -scaled_number(cost, -self.power)

    def rounding(self, cost: float) -> float:
        """What the cost of a tree may be off, and the bound beside it, if parts as far away can matter; -inf, which
        proves nothing, if that is lost below the range of doubles."""
        if self._loses(cost):
            return -math.inf
        distance = abs(self.distance(cost))
        with np.errstate(over="ignore"):  # of two masks
            sizes = sum((np.abs(own) for own in self.over.values()), np.zeros(self.total.shape))
        moved = np.where(self.total >= -distance, sizes, 0.0)[:, 1:].max(0)
        terms = len(self.over)
        off = float((certificates.rounding(terms, np.abs(self.best[1:])) + certificates.rounding(terms, moved)).sum())
        return scaled_number(off + certificates.rounding(len(self.best), distance), self.power)


def scaled(x: Doubles, power: int) -> Doubles:
    """Times 2 to this; infinite where doubles end."""
    if not power:
        return x
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(x, power))


def scaled_number(x: float, power: int) -> float:
    """Likewise, of one number."""
    try:
        return math.ldexp(x, power)
    except OverflowError:
        return math.copysign(math.inf, x)


def total(arcs: Doubles, *pairs: Doubles) -> float:
    """The sum of a tree's parts; -inf where doubles end."""
    with np.errstate(over="ignore"):
        return float(arcs.sum() + sum(x.sum() for x in pairs))


def first_horizon(distance: float, total: Doubles, best: Doubles) -> float:
    """The horizon for a tree that is so far away, but not where the least distance of an arc would be lost below the
    range of doubles. If no tree is known (inf), what most arcs are away, for all words."""
    if distance == math.inf:
        away = np.sort(_away(total))
        distance = len(best) * float(away[len(away) // 2]) if len(away) else float(np.abs(best).max())
    return min(REACH * max(distance, 0.0), _range(total), MOST) or 1.0


def next_horizon(distance: float, horizon: float, left_out: bool) -> float | None:
    """Where the horizon should be after a program without a certificate; None: where it is.

    At the best tree that is known, if that came much nearer than the horizon is; further out, if there is none within
    it and parts were left out.
    """
    if distance > horizon:
        return min(horizon * FURTHER, REACH * distance, MOST) if left_out and horizon < MOST else None
    return REACH * distance if REACH * distance < horizon * NEARER else None


def _away(total: Doubles) -> Doubles:
    """How far arcs are away that are."""
    return -total[np.isfinite(total) & (total < 0)]


def _range(total: Doubles) -> float:
    """The furthest horizon under which no distance of an arc is lost below the range of doubles."""
    return scaled_number(float(_away(total).min(initial=math.inf)), RANGE)
