"""Cuts in dual decomposition: rows that trees meet, and averages of what the oracles say may not.

Of the cuts of ``gpuparse.decoding.ppc.cuts`` those of grandparents: contradicting pairs and triangles. Each has a price
of its own, not below 0, which the trees pay for its arcs and the stars for its triples, and which adds what the row
allows to the dual: no tree pays more than that, so the dual stays a bound, whatever the prices are. They are oracles of
nothing: their best is a constant. Steps go down on the dual by prices as by penalties.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from gpuparse.decoding.ppc.cuts import Cuts, Key, no_cycle_gp, triangle
from gpuparse.ops.automata import Stars

FIRST = 60  # iterations before it is looked for cuts
EVERY = 20  # and between two looks
VIOLATED = 0.1  # of a row, by averages since the last look

Each = Float64[Tensor, " K"]


@dataclass
class Terms:
    """What rows have of arcs, or of triples: the row, its sentence and the place there [T], and the coefficient."""

    row: Int64[Tensor, " T"]
    sentence: Int64[Tensor, " T"]
    place: Int64[Tensor, " T"]
    coefficient: Float64[Tensor, " T"]

    @classmethod
    def none(cls) -> Terms:
        whole = torch.zeros(0, dtype=torch.int64)
        return cls(whole, whole, whole, whole.double())

    def take(self, new: Int64[Tensor, " R"], sentences: Int64[Tensor, " R"]) -> Terms:
        """Those of rows that stay: their new numbers, -1 for the others, and sentences."""
        kept = new[self.row] >= 0
        row = new[self.row[kept]]
        return Terms(row, sentences[self.row[kept]], self.place[kept], self.coefficient[kept])

    def add(self, row: Tensor, sentence: int, place: Tensor, coefficient: Tensor) -> None:
        """More of them, of one sentence."""
        self.row, self.place = torch.cat([self.row, row]), torch.cat([self.place, place])
        self.sentence = torch.cat([self.sentence, torch.full_like(row, sentence)])
        self.coefficient = torch.cat([self.coefficient, coefficient])

    def priced(self, prices: Each, size: int, sentences: int) -> Float64[Tensor, "B S"]:
        """What is to be paid in every place."""
        paid = torch.zeros(sentences * size, dtype=torch.float64)
        return paid.index_add_(0, self.sentence * size + self.place, prices[self.row] * self.coefficient).view(-1, size)


@dataclass
class PricedCuts:
    """The cuts of a batch and their prices.

    Attributes:
        sentence, high, price: of every row [R].
        arcs, triples: what it has of them.
        known: of each sentence what tells its cuts from others.
        seen: trees and stars since it was last looked for cuts.
    """

    count: int
    nodes: int
    sentence: Int64[Tensor, " R"] = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    high: Float64[Tensor, " R"] = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    price: Float64[Tensor, " R"] = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    arcs: Terms = field(default_factory=Terms.none)
    triples: Terms = field(default_factory=Terms.none)
    known: list[set[Key]] = field(default_factory=list)
    seen: list[tuple[Int64[Tensor, "B N"], Stars]] = field(default_factory=list)
    iterations: int = 0
    same: bool = False  # as when stars were last looked for

    def __post_init__(self) -> None:
        self.known = self.known or [set() for _ in range(self.count)]

    def __len__(self) -> int:
        return len(self.high)

    def of_arcs(self) -> Float64[Tensor, "B N N"]:
        """What arcs pay."""
        N = self.nodes
        return self.arcs.priced(self.price, N * N, self.count).view(-1, N, N)

    def of_triples(self) -> tuple[Int64[Tensor, " T"], Float64[Tensor, " T"]]:
        """The places [B, N, N, N] of triples that pay, each once, and what they pay."""
        code = self.triples.sentence * self.nodes**3 + self.triples.place
        code, own = code.unique(return_inverse=True)
        paid = torch.zeros(len(code), dtype=torch.float64)
        return code, paid.index_add_(0, own, self.price[self.triples.row] * self.triples.coefficient)

    def values(self, heads: Int64[Tensor, "B N"], stars: Stars) -> Float64[Tensor, "B 3"]:
        """What rows allow at their prices; and, twice, with both signs, what is paid: for the size of what was added
        up."""
        self.used = self._used(heads, stars)
        found = torch.zeros(2, self.count, dtype=torch.float64)
        found[0].index_add_(0, self.sentence, self.price * self.high)
        found[1].index_add_(0, self.sentence, self.price * self._used(heads, stars, sizes=True))
        return torch.stack([found[0], found[1], -found[1]], 1)

    def _used(self, heads: Int64[Tensor, "B N"], stars: Stars, sizes: bool = False) -> Each:
        """The left-hand side of every row, or the sizes of its terms."""
        N, found = self.nodes, torch.zeros(len(self.high), dtype=torch.float64)
        h, m = self.arcs.place // N, self.arcs.place % N
        g, p, c = self.triples.place // N**2, self.triples.place // N % N, self.triples.place % N
        own, of = self.arcs.coefficient, self.triples.sentence
        there = heads[self.arcs.sentence, m] == h
        found.index_add_(0, self.arcs.row, (own.abs() if sizes else own) * there)
        there = stars.children[of, p, c] & (stars.heads[of, p] == g)
        return found.index_add_(0, self.triples.row, self.triples.coefficient * there)

    def step(self, says: Float64[Tensor, "B T"], line: Float64[Tensor, "3 B"]) -> None:
        """Go along with penalties that go so far: the length is that of the subgradient by both. Where all agree already
        prices alone are left."""
        if not len(self):
            return
        dual, best, length = line
        one, other = says.view(self.count, -1, 2, self.nodes**2).unbind(2)
        slack = self.high - self.used
        norm = (one - other).square().flatten(1).sum(1) / 2
        own = torch.zeros(self.count, dtype=torch.float64).index_add_(0, self.sentence, slack.square())
        gap = torch.where(best.isfinite() & dual.isfinite(), dual - best, 0.0).clamp(min=0)
        length = torch.where(norm > 0, length * norm, gap) / (norm + own).clamp(min=1e-300)
        length = torch.where(length.isfinite(), length, 0.0)  # what is done has none
        self.price = (self.price - length[self.sentence] * slack).clamp(min=0)
        self.same = False

    def look(self, heads: Int64[Tensor, "B N"], stars: Stars) -> None:
        """Remember what was found, and every so often look for cuts."""
        self.iterations += 1
        if self.iterations > FIRST - EVERY:
            self.seen.append((heads, stars))
        if self.iterations < FIRST or (self.iterations - FIRST) % EVERY:
            return
        z, y = self._averages()
        self.seen.clear()
        for b in range(self.count):
            self._add(b, _violated(z[b], y[b]).without(self.known[b]))

    def _averages(self) -> tuple[Float64[np.ndarray, "B N N"], Float64[np.ndarray, "B N N N"]]:
        N, B = self.nodes, self.count
        node = torch.arange(N)
        z, y = torch.zeros(B, N, N, dtype=torch.float64), torch.zeros(B * N**3, dtype=torch.float64)
        for heads, stars in self.seen:
            z += (heads[:, None] == node[:, None]).double() + stars.children
            b, p, c = stars.children.nonzero(as_tuple=True)
            g = stars.heads[b, p]
            some = g >= 0
            y.index_put_(((((b * N + g) * N + p) * N + c)[some],), torch.ones(()).double(), accumulate=True)
        return (z / (2 * len(self.seen))).numpy(), (y / len(self.seen)).view(B, N, N, N).numpy()

    def _add(self, b: int, cuts: Cuts) -> None:
        if not len(cuts.high):
            return
        self.known[b].update(cuts.keys())
        N, first = self.nodes, len(self)
        for terms, (row, at, value) in ((self.arcs, cuts.arcs), (self.triples, cuts.triples)):
            place = at @ N ** np.arange(at.shape[1])[::-1]
            terms.add(torch.from_numpy(row) + first, b, torch.from_numpy(place), torch.from_numpy(value))
        high = torch.from_numpy(cuts.high)
        self.high, self.price = torch.cat([self.high, high]), torch.cat([self.price, torch.zeros_like(high)])
        self.sentence = torch.cat([self.sentence, torch.full((len(high),), b)])

    def take(self, rows: Int64[Tensor, " K"]) -> PricedCuts:
        """Those of some of the sentences, in their order."""
        where = torch.full((self.count,), -1)
        where[rows] = torch.arange(len(rows))
        now = where[self.sentence]
        kept = now >= 0
        new = torch.where(kept, kept.cumsum(0) - 1, -1)
        seen = [(heads[rows], Stars(*(x[rows] for x in stars))) for heads, stars in self.seen]
        return PricedCuts(
            len(rows),
            self.nodes,
            now[kept],
            self.high[kept],
            self.price[kept],
            self.arcs.take(new, now),
            self.triples.take(new, now),
            [self.known[b] for b in rows.tolist()],
            seen,
            self.iterations,
        )


def _violated(z: np.ndarray, y: np.ndarray) -> Cuts:
    """Rows that averages violate."""
    triples = np.argwhere(y > 0)
    found = no_cycle_gp(z, y, triples, VIOLATED)
    return found + triangle(z, y, triples, VIOLATED)
