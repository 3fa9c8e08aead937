"""Before there is a program: what arcs take over from their grandparents, until the best tree is proven best by it.

Let every arc p -> c take over y(p, c) from its grandparents (g, p, c). Then no tree scores more than the best spanning
tree in which g -> p has what it scores, y(g, p), and what p's children gain by g: each the grandparent less y, or
nothing. This is the Lagrangian of the linear program (``program.py``) with all cuts of arcs, so a tree that reaches it
solves the program. Subgradients make it smaller, a whole batch at once, none going further than to where it is no
matter whether a child gains. Most sentences need no program then; of others it is known which arcs are best.

Grandparents are scored that the trees have, or that likely arcs gain by; of others bounds are looked at.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from gpuparse.decoding import certificates
from gpuparse.decoding.ppc.pricing import PricedPairs
from gpuparse.decoding.ppc.program import Bools, Doubles, Ints
from gpuparse.decoding.ppc.rounding import crosses
from gpuparse.decoding.ppc.units import Units
from gpuparse.ops import MATRIX_TREE
from gpuparse.structures.trees import tree_scores

ITERATIONS = 30
FEW = 4  # sentences, for fewer of which an iteration takes longer than their programs
PACE = 2.0  # times Polyak's step, at first
PATIENCE = 3  # iterations without a better bound, after which steps are halved
SMALLEST = 0.2  # times Polyak's step: what is no step any more
FURTHEST = 1000  # the most powers of two that costs are scaled by
CLOSE = 1e-9  # a bound that is so near may prove the tree

Square = Float64[Tensor, "K N N"]
Heads = Int64[Tensor, "K N"]
Scored = Float64[Tensor, " K"]
Places = tuple[Ints, Ints, Ints]  # sentences, heads and children


@dataclass(frozen=True)
class Reached:
    """What is known of a sentence, in the costs of its units.

    Attributes:
        heads, score: its best tree and what that costs.
        bound: no tree costs more.
        taken, total: what arcs take over, and what they have with all that they gain [N, N].
        left_out: whether some grandparents are too far away to count.
    """

    heads: Ints | None
    score: float
    bound: float
    taken: Doubles
    total: Doubles
    left_out: bool


class Descent:
    """Of some sentences of a batch at once.

    Args:
        family: their grandparents, at hand.
        units: of the sentences, by their numbers.
        until: when it has to end, by ``time.monotonic``.
    """

    def __init__(
        self,
        family: PricedPairs,
        units: Mapping[int, Units],
        *,
        single_root: bool,
        projective: bool,
        until: float,
    ) -> None:
        self.family, self.single_root, self.projective, self.until = family, single_root, projective, until
        N, K = family.parts.nodes, len(units)
        arcs, self.over = np.full((K, N, N), -np.inf), np.zeros((K, N, N))
        for own, over, each in zip(arcs, self.over, units.values(), strict=True):
            at = slice(len(each.total))
            own[at, at], over[at, at] = each.arcs, each.over[family.kind]
        self.rows = np.array(list(units))
        self.scale = np.ldexp(1.0, [each.power for each in units.values()])
        self.horizon = np.array([each.horizon for each in units.values()])
        self.left_out = np.zeros(K, dtype=bool)
        self.arcs = torch.from_numpy(arcs)
        self.lengths = family.lengths[torch.from_numpy(self.rows)]
        self.heads = torch.full((K, N), -1)
        self.score = torch.full((K,), -torch.inf, dtype=torch.float64)
        self.bound = -self.score
        self.y: Square = torch.zeros_like(self.arcs)  # no cost is above 0, so this need not be
        self.taken, self.total = self.y, self.arcs
        self.pace, self.stale = torch.full_like(self.score, PACE), torch.zeros(K)
        self.found: dict[int, Reached] = {}

    @torch.no_grad()
    def run(self, trees: Sequence[Heads]) -> dict[int, Reached]:
        """What is reached from some trees (-1 where there is none), the best of which takes over all that it has."""
        for heads in trees:
            self._offer(heads)
        place, costs = self._pairs(self.heads)
        self.y[place] = costs
        for _ in range(ITERATIONS):
            if len(self.rows) < FEW or time.monotonic() >= self.until:
                break
            self._iterate()
        self._leave(torch.ones(len(self.rows), dtype=torch.bool))
        return self.found

    def _costs(self, scores: Doubles, b: Ints, p: Ints, c: Ints) -> Doubles:
        """Costs of grandparents of arcs p -> c, one [K] or all [K, N]; -inf of those that are too far away to count."""
        over, horizon, scale = (
            x.reshape(-1, *[1] * (scores.ndim - 1)) for x in (self.over[b, p, c], self.horizon[b], self.scale[b])
        )
        with np.errstate(over="ignore"):
            away = scores - over
        far = away < -horizon
        self.left_out[b[(far & (away > -np.inf)).any(tuple(range(1, scores.ndim)))]] = True
        return np.where(far, -np.inf, away) * scale

    def _pairs(self, heads: Heads) -> tuple[Places, Float64[Tensor, " T"]]:
        """The arcs of trees that have a grandparent, and their costs, scored where they were not."""
        own = np.maximum(heads.numpy(), 0)
        b, c = np.nonzero(own)
        p = own[b, c]
        g, at, known = own[b, p], self.rows[b], self.family.known
        new = np.isnan(known[at, p, c, g])
        if new.any():
            self.family.exact(at[new], g[new], p[new], c[new])
        return (b, p, c), torch.from_numpy(self._costs(known[at, p, c, g], b, p, c))

    def _offer(self, heads: Heads) -> tuple[Places, Float64[Tensor, " T"]]:
        """Keep trees that are better than the best so far; what ``_pairs`` says of them."""
        place, costs = self._pairs(heads)
        score = torch.where(heads[:, 1] >= 0, tree_scores(self.arcs, heads, self.lengths), -torch.inf)
        score = score.index_add(0, torch.from_numpy(place[0]), costs)
        better = score > self.score
        if self.projective:
            for k in better.nonzero()[:, 0].tolist():
                better[k] = not crosses(heads[k, : int(self.lengths[k]) + 1].numpy())
        self.heads = torch.where(better[:, None], heads, self.heads)
        self.score = torch.where(better, score, self.score)
        return place, costs

    def _iterate(self) -> None:
        N, UNIT = self.arcs.shape[1], certificates.UNIT
        live, costs, new = self._live()
        gains = np.maximum(costs - self.y.numpy()[live][:, None], 0.0)
        b, p, _ = live
        by_head = torch.zeros((len(self.rows) * N, N), dtype=torch.float64)
        by_head.index_add_(0, torch.from_numpy(b * N + p), torch.from_numpy(gains))
        gain = by_head.view(self.arcs.shape).mT  # at [g, p]
        size = torch.where(self.arcs > -torch.inf, self.arcs, 0.0).abs() - self.y
        total = self.arcs + self.y + gain + UNIT * (4 * size + (N + 4) * gain)  # rounding included
        heads = MATRIX_TREE.argmax((total,), self.lengths, self.single_root)
        bound = tree_scores(total, heads, self.lengths)
        # a tree that has as much has no more below 0 than what it has above 0, less that
        size = 2 * total.clamp(min=0).amax(1).sum(1) + bound.abs()
        bound = torch.where(heads[:, 1] >= 0, bound + UNIT * N * size, torch.inf)
        tree = self._offer(heads)
        better = bound < self.bound
        self.bound = torch.where(better, bound, self.bound)
        self.taken, self.total = (
            torch.where(better[:, None, None], now, before)
            for now, before in ((self.y, self.taken), (total, self.total))
        )
        self.stale = torch.where(better, 0, self.stale + 1)
        slow = self.stale >= PATIENCE
        self.pace, self.stale = torch.where(slow, self.pace / 2, self.pace), torch.where(slow, 0, self.stale)
        gap = (self.bound - self.score).nan_to_num(0.0, 0.0, 0.0)
        likely = (total >= total.amax(1, keepdim=True) - gap[:, None, None]).numpy()
        self._price(live, (gains > 0) & new & likely[b, :, p])
        self._step(heads, bound, tree, live, torch.from_numpy(costs))
        self._leave((self.bound - self.score <= CLOSE * self.score.abs()) | (self.pace < SMALLEST))

    def _live(self) -> tuple[Places, Doubles, Bools]:
        """The arcs whose children may gain, costs of all their grandparents [L, N], or bounds on them; and which."""
        b, p, c = np.nonzero(self.y.numpy() < 0)
        at, (over_g, over_c) = self.rows[b], self.family.host
        known = self.family.known[at, p, c]
        new = np.isnan(known)
        scores = np.where(new, np.minimum(over_g[at, p, c][:, None], over_c[at, :, p]), known)
        scores[np.arange(len(c)), c] = -np.inf
        return (b, p, c), self._costs(scores, b, p, c), new

    def _price(self, live: Places, wanted: Bools) -> None:
        """Score grandparents of arcs [L, N] that are not known."""
        k, g = np.nonzero(wanted)
        if len(k):
            b, p, c = (x[k] for x in live)
            self.family.exact(self.rows[b], g, p, c)

    def _step(
        self,
        heads: Heads,
        bound: Scored,
        tree: tuple[Places, Float64[Tensor, " T"]],
        live: Places,
        costs: Float64[Tensor, "L N"],
    ) -> None:
        """Against children that do not gain by their own grandparents, and others that gain by these."""
        (own, worth), (b, p, c) = tree, live
        by_head = costs[torch.arange(len(b)), heads[b, p].clamp(min=0)]
        other = (by_head > self.y[live]) & (heads[b, c] != torch.from_numpy(p))
        lower, higher = torch.zeros_like(self.arcs), torch.zeros_like(self.arcs)
        lower[own] = (self.y[own] - worth).clamp(min=0)
        higher[live] = torch.where(other, by_head - self.y[live], 0.0)
        count = ((lower > 0) | (higher > 0)).sum((1, 2)).clamp(min=1)
        far = (self.pace * (bound - self.score) / count).nan_to_num(0.0, 0.0, 0.0).clamp(min=0)[:, None, None]
        self.y = self.y - torch.minimum(lower, far) + torch.minimum(higher, far)

    def _leave(self, done: Bool[Tensor, " K"]) -> None:
        """Sentences that are done."""
        if not done.any():
            return
        for k in done.nonzero()[:, 0].tolist():
            at = slice(int(self.lengths[k]) + 1)
            heads = self.heads[k, at].numpy().copy() if self.score[k] > -torch.inf else None
            taken, total = (x[k, at, at].numpy().copy() for x in (self.taken, self.total))
            score, bound, left_out = float(self.score[k]), float(self.bound[k]), bool(self.left_out[k])
            self.found[int(self.rows[k])] = Reached(heads, score, bound, taken, total, left_out)
        rows = (~done).nonzero()[:, 0]
        for name in ("arcs", "lengths", "heads", "score", "bound", "y", "taken", "total", "pace", "stale"):
            setattr(self, name, getattr(self, name)[rows])
        for name in ("rows", "over", "scale", "horizon", "left_out"):
            setattr(self, name, getattr(self, name)[rows.numpy()])
