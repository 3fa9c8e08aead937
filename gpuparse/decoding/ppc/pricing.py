"""Pricing for a batch (4.3): which grandparents may improve the solutions of the sentences' linear programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from gpuparse.decoding.parts import Parts
from gpuparse.decoding.ppc.grandparents import Doubles, Ints
from gpuparse.decoding.ppc.link import Arrived, Link
from gpuparse.decoding.ppc.ppc import Answer, Question, Reply, Request, Work
from gpuparse.decoding.ppc.units import Units, scaled
from gpuparse.ops.pricing import Priced, price, price_listed

ROOM = 16  # triples by word that are listed at first
FAR = 4  # times as many where to ask again takes long

Replies = dict[int, Reply]


class Pricing:
    """The bounds and the known scores of a batch of grandparents.

    Where a CPU prices, everything is at hand. Another device is told and asked in blocks (``Link``), and works while
    the host does something else.

    Attributes:
        looked, scored: of each sentence, how many bounds were looked at, and how many triples scored [B].
        far: whether there is something to wait for.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        B, N = parts.lengths.shape[0], parts.nodes
        self.lengths: Int[Tensor, " B"] = parts.lengths
        self.over_g: Float64[Tensor, "B N N"] = parts.bound(0).double()
        self.over_c: Float64[Tensor, "B N N"] = parts.bound(2).double()
        self.looked, self.scored = np.zeros(B, dtype=np.int64), np.zeros(B, dtype=np.int64)
        self.units: dict[int, Units] = {}  # of the sentences, once they are known
        self.left_out = np.zeros(B, dtype=bool)  # sentences with triples beyond the horizon
        scorer = parts.scorer()
        self._duals = np.zeros((3, B, N, N))
        self._known = np.full((B, N, N, N), np.nan)  # scores at [p, c, g] that the host knows
        ask: Callable[..., Priced] = partial(price_listed, parts.score) if scorer is None else partial(price, scorer)
        self._price = partial(ask, over_g=self.over_g, over_c=self.over_c, tolerance=0.0)
        self.far = parts.device.type != "cpu"
        self._room = ROOM * N * (FAR if self.far else 1)
        if self.far:
            self._link = Link(parts, self._price, torch.float64 if scorer is None else scorer.values.dtype)

    def cost(self, b: int, triples: Ints) -> Work[Doubles]:
        """Costs of triples [T, 3] of a sentence in its program."""
        return self.costs(b, triples, (yield triples)) if len(triples) else np.zeros(0)

    def costs(self, b: int, triples: Ints, scores: Doubles) -> Doubles:
        """Scores of triples [T, 3] of a sentence as costs in its program, -inf beyond its horizon."""
        found = self.units[b].triples(triples[:, 1], triples[:, 2], scores)
        self.left_out[b] |= bool(((found == -np.inf) & (scores > -np.inf)).any())
        return found

    def look(self, wanted: Mapping[int, Ints]) -> Replies:
        """Scores of triples [T, 3] of sentences, of all that are at hand; each is scored once."""
        if not wanted:
            return {}
        where = np.concatenate([np.full(len(t), b) for b, t in wanted.items()])
        g, p, c = np.concatenate(list(wanted.values())).T
        found = self._known[where, p, c, g]
        new = np.isnan(found)
        missing = set(where[new].tolist())
        if missing and not self.far:
            at = where[new], g[new], p[new], c[new]
            with torch.no_grad():
                scores = self.parts.score(*map(torch.from_numpy, at)).double().numpy()
            _check(at[0], scores)
            found[new] = self._known[at[0], at[2], at[3], at[1]] = scores
            np.add.at(self.scored, at[0], 1)
            missing = set()
        ends = np.cumsum([len(t) for t in wanted.values()])
        each = zip(wanted, np.split(found, ends[:-1]), strict=True)
        return {b: scores for b, scores in each if b not in missing}

    def send(self, requests: Mapping[int, Request]) -> Callable[[], Replies]:
        """Begin to price some of the sentences, all at once, and to score triples of others. What is returned waits for
        what comes of it; costs and duals are in the units of the programs."""
        questions = {b: request for b, request in requests.items() if isinstance(request, Question)}
        wanted = {b: request for b, request in requests.items() if not isinstance(request, Question)}
        before = self._duals[:, list(questions)] if self.far else None
        with np.errstate(over="ignore"):  # of arcs that may not be
            for b, question in questions.items():
                N, units = len(question.ceiling), self.units[b]
                own = self._duals[:, b, :N, :N]
                for duals, out in zip((question.ceiling, question.floor, question.kappa), own, strict=True):
                    np.ldexp(duals, -units.power, out=out)
                own[:2] += units.over
        if before is None:
            return partial(self._price_here, list(questions))
        rows, N = np.array(list(questions), dtype=np.int64), self.parts.nodes
        heads = np.zeros((len(rows), N), dtype=np.int16)
        for own_heads, question in zip(heads, questions.values(), strict=True):
            own_heads[: len(question.z)] = question.z.argmax(0)
        now = self._duals[:, rows]
        asked = wanted | self._ahead(rows, heads)
        arrive = self._link.send(rows, now, now != before, heads, asked, self._room)
        return lambda: self._receive(arrive(), rows, heads, wanted)

    def _ahead(self, rows: Ints, heads: npt.NDArray[np.int16]) -> dict[int, Ints]:
        """Triples of the heads [K, N] by the solutions that are not known: a tree made of them may be offered next."""
        k, c = np.nonzero(heads)
        p = heads[k, c].astype(np.int64)
        g = heads[k, p].astype(np.int64)
        new = (g != c) & np.isnan(self._known[rows[k], p, c, g])
        triples, of = np.stack([g, p, c], 1)[new], rows[k[new]]
        return {b: triples[of == b] for b in np.unique(of).tolist()}

    def _price_here(self, rows: list[int]) -> Replies:
        lengths = torch.zeros_like(self.lengths)
        lengths[rows] = self.lengths[rows]
        with torch.no_grad():
            found = self._find(lengths)
            if (most := int(found.count.max())) > self._room:  # once more, with room for all; they are known now
                self._room, first = most + most // 4, found
                found = self._find(lengths)
                found = Priced(**vars(found) | {"looked": first.looked, "scored": first.scored})
        self._count(slice(None), found.looked.numpy(), found.scored.numpy())
        triples, scores, reduced, counts = (x.numpy() for x in (found.triples, found.score, found.r, found.count))
        listed = {b: slice(counts[b]) for b in rows}
        return {
            b: self._answer(b, triples[b, own].astype(np.int64), scores[b, own], reduced[b, own])
            for b, own in listed.items()
        }

    def _find(self, lengths: Int[Tensor, " B"]) -> Priced:
        ceiling, floor, kappa = torch.from_numpy(self._duals)
        duals, so_far = {"ceiling": ceiling, "floor": floor, "kappa": kappa}, self.parts.scored
        found = self._price(lengths, **duals, known=torch.from_numpy(self._known), room=self._room)
        self.parts.scored = so_far  # some parts count themselves
        return found

    def _receive(
        self, arrived: Arrived, rows: Ints, heads: npt.NDArray[np.int16], wanted: Mapping[int, Ints]
    ) -> Replies:
        self._count(rows, arrived.looked, 0)
        self._count(slice(None), 0, arrived.scored)
        for b, triples, scores in arrived.scores:
            there = ~np.isnan(scores)
            g, p, c = triples[there].T
            self._known[b, p, c, g] = scores[there]
        replies = self.look(wanted)
        short = np.array([arrived.count[k] > len(arrived.found[b][0]) for k, b in enumerate(rows.tolist())], dtype=bool)
        if short.any():  # once more, with room for all; they are known now
            self._room = max(self._room, int(arrived.count.max()))
            nothing = np.zeros((3, int(short.sum()), *self._duals.shape[2:]))
            again = self._link.send(rows[short], nothing, nothing > 0, heads[short], {}, self._room)()
            arrived.found.update(again.found)
        for b, (triples, scores) in arrived.found.items():
            g, p, c = triples.T
            reduced = scores - self._duals[0, b, p, c] - self._duals[2, b, g, p]
            replies[b] = self._answer(b, triples, scores, reduced)
        return replies

    def _answer(self, b: int, triples: Ints, scores: Doubles, reduced: Doubles) -> Answer:
        _check(b, scores)
        costs = self.costs(b, triples, scores)
        near = costs > -np.inf
        return Answer(triples[near], costs[near], scaled(reduced[near], self.units[b].power))

    def _count(self, rows: Ints | slice, looked: Ints | int, scored: Ints | int) -> None:
        self.looked[rows] += looked
        self.scored[rows] += scored
        self.parts.scored += int(np.sum(scored))


def _check(where: int | Ints, scores: Doubles) -> None:
    if not (scores < np.inf).all():
        first = int(np.argmin(scores < np.inf))
        b = where if isinstance(where, int) else where[first]
        raise ValueError(f"grandparents of sentence {b} score {scores[first]}")
