"""Pricing for a batch (4.3): which pairs may improve the solutions of the sentences' linear programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from gpuparse.decoding.parts import Parts
from gpuparse.decoding.ppc.asking import Answer, Lists, Question, Reply, Request, Work
from gpuparse.decoding.ppc.link import Arrived, DeviceLink
from gpuparse.decoding.ppc.pairs import PairDuals
from gpuparse.decoding.ppc.program import KINDS, Doubles, Ints
from gpuparse.decoding.ppc.siblings import place_of
from gpuparse.decoding.ppc.units import SIZE, Units, scaled
from gpuparse.ops.pricing import Priced, price, price_listed

ROOM = 16  # triples by word that are listed at first
FAR = 4  # times as many where to ask again takes long

Replies = dict[int, Reply]
Listed = dict[int, tuple[Ints, Doubles, Doubles]]  # triples [T, 3], scores and reduced costs of sentences


class Pricing:
    """The kinds of pairs of a batch, priced together.

    Attributes:
        families: each kind's bounds and known scores.
        units: of the sentences, once they are known.
        left_out: sentences with triples beyond the horizon.
        far: whether there is something to wait for.
    """

    def __init__(self, parts: Sequence[Parts]) -> None:
        self.lengths: Int[Tensor, " B"] = parts[0].lengths
        self.units: dict[int, Units] = {}
        self.left_out = np.zeros(len(self.lengths), dtype=bool)
        self.families = [PricedPairs(own, self.units) for own in parts]
        self.far = self.families[0].far

    @property
    def looked(self) -> Ints:
        """How many bounds were looked at, of each sentence [B]."""
        return np.asarray(sum(own.looked for own in self.families))

    @property
    def scored(self) -> Ints:
        """How many triples were scored, of each sentence [B]."""
        return np.asarray(sum(own.scored for own in self.families))

    def cost(self, b: int, triples: Lists) -> Work[list[Doubles]]:
        """Costs of triples of each kind in the program of a sentence."""
        if not any(map(len, triples)):
            return [np.zeros(0) for _ in triples]
        return self.costs(b, triples, (yield triples))

    def costs(self, b: int, triples: Lists, scores: Sequence[Doubles]) -> list[Doubles]:
        """Scores of triples of each kind as costs in the program of a sentence, -inf beyond its horizon."""
        found = []
        for family, those, own in zip(self.families, triples, scores, strict=True):
            costs = self.units[b].triples(family.kind, those[:, 1], those[:, 2], own)
            self.left_out[b] |= bool(((costs == -np.inf) & (own > -np.inf)).any())
            found.append(costs)
        return found

    def upper(self, b: int, arcs: Ints, duals: Sequence[PairDuals]) -> list[Doubles]:
        """What the pairs of arcs [K, 2] of a sentence need at most, of each kind [K], in its program's costs."""
        return [family.upper(b, arcs, own) for family, own in zip(self.families, duals, strict=True)]

    def look(self, wanted: Mapping[int, Lists]) -> Replies:
        """Scores of triples of sentences, of all that are at hand; each is scored once."""
        found = [own.look({b: lists[k] for b, lists in wanted.items()}) for k, own in enumerate(self.families)]
        return {b: tuple(own[b] for own in found) for b in wanted if all(b in own for own in found)}

    def send(self, requests: Mapping[int, Request]) -> Callable[[], Replies]:
        """Begin to price some of the sentences, all at once, and to score triples of others. What is returned waits for
        what comes of it; costs and duals are in the units of the programs."""
        questions = {b: request for b, request in requests.items() if isinstance(request, Question)}
        wanted = {b: request for b, request in requests.items() if not isinstance(request, Question)}
        sent = [
            own.send(questions, k, {b: lists[k] for b, lists in wanted.items()}) for k, own in enumerate(self.families)
        ]

        def arrive() -> Replies:
            found = [arrive_() for arrive_ in sent]
            replies: Replies = self.look(wanted)
            for b in questions:
                replies[b] = tuple(self._answer(b, k, *own[b]) for k, own in enumerate(found))
            return replies

        return arrive

    def _answer(self, b: int, k: int, triples: Ints, scores: Doubles, reduced: Doubles) -> Answer:
        family = self.families[k]
        family.check(b, scores)
        costs = self.units[b].triples(family.kind, triples[:, 1], triples[:, 2], scores)
        near = costs > -np.inf
        self.left_out[b] |= bool((~near & (scores > -np.inf)).any())
        return Answer(triples[near], costs[near], scaled(reduced[near], self.units[b].power))


class PricedPairs:
    """The bounds and the known scores of one kind of pairs in a batch; triples (x, p, c) as ``PairRows`` has them.

    Where a CPU prices, everything is at hand. Another device is told and asked in blocks (``DeviceLink``), and works
    while the host does something else.

    Attributes:
        looked, scored: of each sentence, how many bounds were looked at, and how many triples scored [B].
        known: scores at [b, p, c, x] that the host knows, NaN where it does not.
    """

    def __init__(self, parts: Parts, units: Mapping[int, Units]) -> None:
        self.parts, self.kind, self.units = parts, parts.kind, units
        B, N = parts.lengths.shape[0], parts.nodes
        siblings = parts.kind == "siblings"
        self.lengths: Int[Tensor, " B"] = parts.lengths
        self.over_x: Float64[Tensor, "B N N"] = parts.bound(1 if siblings else 0).double()
        self.over_c: Float64[Tensor, "B N N"] = parts.bound(2).double()
        self.looked, self.scored = np.zeros(B, dtype=np.int64), np.zeros(B, dtype=np.int64)
        scorer = parts.scorer()
        if siblings and scorer is not None and scorer.kind == "templates":  # which the kernel has for grandparents
            scorer = None
        self._scorer = scorer
        self._duals = np.zeros((3, B, N, N))
        self.known = np.full((B, N, N, N), np.nan)
        ask: Callable[..., Priced] = partial(price_listed, self.score) if scorer is None else partial(price, scorer)
        self._price = partial(ask, over_g=self.over_x, over_c=self.over_c, tolerance=0.0, siblings=siblings)
        self.far = parts.device.type != "cpu"
        self._room = ROOM * N * (FAR if self.far else 1)
        if self.far:
            self._link = DeviceLink(
                parts, self.score, self._price, torch.float64 if scorer is None else scorer.values.dtype
            )

    def score(self, sentence: Tensor, x: Tensor, p: Tensor, c: Tensor) -> Tensor:
        """Scores of a list of triples."""
        if self._scorer is not None and self._scorer.kind == "templates":  # in fewer steps than the family's own
            self.parts.scored += x.numel()
            return self._scorer.score(sentence, x, p, c)
        i, j = (p, x) if self.kind == "siblings" else (x, p)
        return self.parts.score(sentence, i, j, c)

    @cached_property
    def host(self) -> tuple[Doubles, Doubles]:
        """Bounds on the host."""
        return self.over_x.cpu().numpy(), self.over_c.cpu().numpy()

    def upper(self, b: int, arcs: Ints, duals: PairDuals) -> Doubles:
        """What the pairs of arcs [K, 2] of a sentence need at most [K], in its program's costs: by what is known, else
        by bounds."""
        N, units = len(duals.one), self.units[b]
        (p, c), node = arcs.T, np.arange(N)
        own, over_c = units.over[self.kind][p, c], self.host[1][b, :N, :N]
        known = self.known[b][p, c, :N]
        if self.kind == "siblings":
            outer, most = duals.outer[p], over_c[p]
            left = (node == p[:, None]) & (c < p)[:, None]
            outer = np.where(left, duals.outer[p, 0][:, None], outer)
            first, last = np.minimum(p, c + 1), np.maximum(p, c - 1)
            legal = (first[:, None] <= node) & (node <= last[:, None])
        else:
            outer, most = duals.outer[:, p].T, over_c[:, p].T
            legal = (node != p[:, None]) & (node != c[:, None])
        with np.errstate(over="ignore", invalid="ignore"):
            value = np.where(np.isnan(known), np.minimum(most, own[:, None]), known) - own[:, None]
            need = np.where(legal & (value > -np.inf), scaled(value, units.power) - outer, -np.inf)
        found = need.max(1, initial=-np.inf)
        # what is not above the horizon is left out in any case; with room for sums
        found = np.maximum(found, -(2.0 ** (SIZE + 2)))
        return np.where(p == 0, 0.0, found) if self.kind == "grandparents" else found

    def look(self, wanted: Mapping[int, Ints]) -> dict[int, Doubles]:
        """Scores of triples [T, 3] of sentences, of all that are at hand; each is scored once."""
        if not wanted:
            return {}
        where = np.concatenate([np.full(len(t), b) for b, t in wanted.items()])
        x, p, c = np.concatenate(list(wanted.values())).T
        found = self.known[where, p, c, x]
        new = np.isnan(found)
        missing = set(where[new].tolist())
        if missing and not self.far:
            found[new] = self.exact(where[new], x[new], p[new], c[new])
            missing = set()
        ends = np.cumsum([len(t) for t in wanted.values()])
        each = zip(wanted, np.split(found, ends[:-1]), strict=True)
        return {b: scores for b, scores in each if b not in missing}

    def exact(self, where: Ints, x: Ints, p: Ints, c: Ints) -> Doubles:
        """Scores of triples of sentences that are not known, each there once, of a CPU."""
        with torch.no_grad():
            scores = self.score(*map(torch.from_numpy, (where, x, p, c))).double().numpy()
        self.check(where, scores)
        self.known[where, p, c, x] = scores
        self.scored += np.bincount(where, minlength=len(self.scored))
        return scores

    def send(self, questions: Mapping[int, Question], k: int, wanted: Mapping[int, Ints]) -> Callable[[], Listed]:
        """Begin to price this kind, the k-th of each question, and to score triples. What is returned waits for what
        comes of it."""
        before = self._duals[:, list(questions)] if self.far else None
        with np.errstate(over="ignore"):  # of arcs that may not be
            for b, question in questions.items():
                duals, units = question.duals[k], self.units[b]
                own = self._duals[:, b, : duals.shape[1], : duals.shape[1]]
                np.ldexp(duals, -units.power, out=own)
                own[:2] += units.over[self.kind]
        if before is None:
            return partial(self._price_here, list(questions))
        rows, N = np.array(list(questions), dtype=np.int64), self.parts.nodes
        heads = np.zeros((len(rows), N), dtype=np.int16)
        now, asked = self._duals[:, rows], dict(wanted)
        for own_heads, (b, question) in zip(heads, questions.items(), strict=True):
            own_heads[: len(question.z)] = best = question.z.argmax(0)
            asked[b] = self._ahead(b, best)
        arrive = self._link.send(rows, now, now != before, heads, asked, self._room)
        return lambda: self._receive(arrive(), rows, heads)

    def _ahead(self, b: int, heads: Ints) -> Ints:
        """Triples of the heads [N] by a solution that are not known: a tree made of them may be offered next."""
        triples = KINDS[self.kind].of_tree(heads)
        x, p, c = triples.T
        return triples[(x != c) & np.isnan(self.known[b, p, c, x])]

    def _price_here(self, rows: list[int]) -> Listed:
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
        return {b: (triples[b, own].astype(np.int64), scores[b, own], reduced[b, own]) for b, own in listed.items()}

    def _find(self, lengths: Int[Tensor, " B"]) -> Priced:
        ceiling, floor, kappa = torch.from_numpy(self._duals)
        duals, so_far = {"ceiling": ceiling, "floor": floor, "kappa": kappa}, self.parts.scored
        found = self._price(lengths, **duals, known=torch.from_numpy(self.known), room=self._room)
        self.parts.scored = so_far  # some parts count themselves
        return found

    def _receive(self, arrived: Arrived, rows: Ints, heads: npt.NDArray[np.int16]) -> Listed:
        self._count(rows, arrived.looked, 0)
        self._count(slice(None), 0, arrived.scored)
        for b, triples, scores in arrived.scores:
            there = ~np.isnan(scores)
            x, p, c = triples[there].T
            self.known[b, p, c, x] = scores[there]
        short = np.array([arrived.count[k] > len(arrived.found[b][0]) for k, b in enumerate(rows.tolist())], dtype=bool)
        if short.any():  # once more, with room for all; they are known now
            self._room = max(self._room, int(arrived.count.max()))
            nothing = np.zeros((3, int(short.sum()), *self._duals.shape[2:]))
            again = self._link.send(rows[short], nothing, nothing > 0, heads[short], {}, self._room)()
            arrived.found.update(again.found)
        replies: Listed = {}
        for b, (triples, scores) in arrived.found.items():
            x, p, c = triples.T
            outer = self._duals[2, b]
            of_arcs = outer[x, p] if self.kind == "grandparents" else outer[place_of(triples)]
            replies[b] = triples, scores, scores - self._duals[0, b, p, c] - of_arcs
        return replies

    def _count(self, rows: Ints | slice, looked: Ints | int, scored: Ints | int) -> None:
        self.looked[rows] += looked
        self.scored[rows] += scored
        self.parts.scored += int(np.sum(scored))

    def check(self, where: int | Ints, scores: Doubles) -> None:
        """Raise ValueError where a score is +inf or no number."""
        if not (scores < np.inf).all():
            first = int(np.argmin(scores < np.inf))
            b = where if isinstance(where, int) else where[first]
            raise ValueError(f"{self.kind} of sentence {b} score {scores[first]}")
