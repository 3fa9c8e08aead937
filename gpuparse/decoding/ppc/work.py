"""All that parse, price and cut does for a sentence, as work that asks: what it begins with, and how it ends."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from gpuparse.decoding.parts import Kind
from gpuparse.decoding.ppc.asking import Lists, T, Work
from gpuparse.decoding.ppc.branch import Path, Score, branch_and_bound, offer_tree, run
from gpuparse.decoding.ppc.descent import FEW, FURTHEST, Descent, Reached
from gpuparse.decoding.ppc.pairs import PairRows
from gpuparse.decoding.ppc.ppc import PricedSentence
from gpuparse.decoding.ppc.pricing import Pricing
from gpuparse.decoding.ppc.program import KINDS, Doubles, Ints, Polytope, allowed
from gpuparse.decoding.ppc.rounding import rounded
from gpuparse.decoding.ppc.units import MOST, Units, scaled_number, total
from gpuparse.decoding.ppc.witness import Taken, Witness
from gpuparse.decoding.solver import Status
from gpuparse.ops import EISNER, MATRIX_TREE
from gpuparse.system.transfer import to_host

HEADS = 3  # best heads of each word that are columns from the start


class Warm(NamedTuple):
    """What is known before: arcs that are columns from the start, trees (-1 where there is none), and what no tree
    scores more than."""

    arcs: Bool[Tensor, "B N N"]
    heads: Int64[Tensor, "B N"]
    bound: Float64[Tensor, " B"]


class End(NamedTuple):
    """How a sentence ended: whether its linear program has a tree for a solution, its value or a bound on that, how
    many branches were solved, why some are left, and the branches that there are."""

    sentence: PricedSentence
    integral: bool
    relaxed: float
    branches: int
    status: Status
    leaves: list[tuple[Path, Witness | Taken | None]]


@dataclass(frozen=True)
class First:
    """What sentences begin with: first trees (the best ones by arcs alone, and were every arc's pairs the best that it
    can have), their arcs and those of each word's best heads, and the pairs of these."""

    scores: Doubles
    over: dict[Kind, Doubles]
    trees: list[Ints]
    known: npt.NDArray[np.bool_] | None
    bounds: Doubles | None
    own: list[slice]
    single_root: bool
    projective: bool
    reached: dict[int, tuple[Units, Reached]] = field(default_factory=dict)  # without a program

    @classmethod
    def of(
        cls,
        arcs: Float64[Tensor, "B N N"],
        pricing: Pricing,
        single_root: bool,
        projective: bool,
        warm: Warm | None,
    ) -> First:
        """Of a batch. Waits for the device, once."""
        families = pricing.families
        with torch.no_grad():
            most = arcs
            for family in families:
                over = family.over_x.clone()
                if family.kind == "grandparents":
                    over[:, 0] = 0.0
                most = most + over
            best = (EISNER if projective else MATRIX_TREE).argmax
            ways = [best((x,), pricing.lengths, single_root) for x in (most, arcs)]
        known = () if warm is None else (warm.heads, warm.arcs, warm.bound)
        bounds_ = [family.over_x for family in families]
        lengths, scores, *rest = to_host(pricing.lengths, arcs, *bounds_, *ways, *known)
        over_, rest = dict(zip([f.kind for f in families], rest, strict=False)), rest[len(families) :]
        trees, (arcs_, bounds) = rest[:3], (None, None) if warm is None else rest[3:]
        own = [slice(n + 1) for n in lengths.tolist()]
        return cls(scores, over_, trees, arcs_, bounds, own, single_root, projective)

    def reach(self, pricing: Pricing, polytope: Polytope, seconds: float) -> None:
        """What can be known without a program, where it pays: of grandparents alone that are at hand."""
        if pricing.far or self.known is not None or polytope != "tight" or list(self.over) != ["grandparents"]:
            return
        until, units = time.monotonic() + seconds, {}
        near = dict.fromkeys([b for b, heads in enumerate(self.trees[0]) if heads[1] >= 0], -math.inf)
        plain = {b: self._units(b) for b in near}
        for tree in self.trees:
            heads = {b: tree[b, self.own[b]].astype(np.int64) for b in near if tree[b, 1] >= 0}
            triples = {b: tuple(KINDS[kind].of_tree(x) for kind in self.over) for b, x in heads.items()}
            known = pricing.look(triples)
            for b in triples:
                scores: Sequence[Any] = known[b]
                of_kinds = zip(self.over, triples[b], scores, strict=True)
                costs = [plain[b].triples(kind, x[:, 1], x[:, 2], own) for kind, x, own in of_kinds]
                near[b] = max(near[b], total(_of_arcs(plain[b].total, heads[b]), *costs))
        for b, cost in near.items():
            own = plain[b].within(plain[b].first_horizon(-cost))
            if abs(own.power) <= FURTHEST:
                units[b] = own
        if len(units) >= FEW:
            trees: dict[str, Any] = {"single_root": self.single_root, "projective": self.projective}
            descent = Descent(pricing.families[0], units, **trees, until=until)
            found = descent.run([torch.from_numpy(tree[list(units)].astype(np.int64)) for tree in self.trees])
            self.reached.update((b, (units[b], reached)) for b, reached in found.items())

    def _units(self, b: int) -> Units:
        at = self.own[b]
        return Units.of(self.scores[b, at, at], {kind: over[b, at, at] for kind, over in self.over.items()})

    def work(
        self, b: int, pricing: Pricing, polytope: Polytope, seconds: float, exact: bool, rounds: float
    ) -> Work[End]:
        """All that is done for a sentence; anew where its horizon has to move."""
        score = partial(pricing.cost, b)
        units, reached = self.reached.get(b, (None, None))
        if units is not None and reached is not None:
            sentence = PricedSentence(units, self.single_root, math.inf, seconds, polytope, self.projective)
            _take(sentence, reached)
            if sentence.certified:
                return End(sentence, True, units.score(sentence.score), 0, sentence.status, [((), sentence.witness)])
        columns = self._columns(b, reached)
        known = yield columns[1]
        sentence = self._begin(b, pricing, columns, known, polytope, seconds, reached=reached)
        while True:
            sentence.rounds = rounds
            yield from _charged(sentence, run(sentence, score))
            end = yield from _charged(sentence, _finish(sentence, score, exact))
            horizon = _horizon(sentence, bool(pricing.left_out[b]))
            if horizon is None:
                return end
            before, sentence = sentence, self._begin(b, pricing, columns, known, polytope, sentence.seconds, horizon)
            sentence.iterations = before.iterations
            if before.tree is not None:
                yield from offer_tree(sentence, score, before.tree)
                sentence.done |= sentence.certified

    def _columns(self, b: int, reached: Reached | None) -> tuple[Ints, Lists]:
        """First arcs [A, 2] and pairs [T, 3] of a sentence: those of trees, and those known or of best heads."""
        at = self.own[b]
        arcs = self.scores[b, at, at]
        N, here = len(arcs), allowed(arcs)
        inside, word = np.zeros((N, N), dtype=bool), np.arange(1, N)
        if self.known is not None:
            inside |= self.known[b, at, at]
        else:
            by = arcs if reached is None else reached.total
            for row in np.argsort(np.where(here, -by, np.inf)[:, 1:], axis=0, kind="stable")[:HEADS]:
                inside[row, word] = True
            if reached is not None:
                inside &= by >= by.max(0) - 2 * (reached.bound - reached.score)
        for heads in [tree[b, at] for tree in self.trees] + ([] if reached is None else [reached.heads]):
            if heads is not None and heads[1] >= 0:
                inside[heads[1:], word] = True
        inside &= here
        return np.argwhere(inside), tuple(KINDS[kind].legal(inside) for kind in self.over)

    def _begin(
        self,
        b: int,
        pricing: Pricing,
        columns: tuple[Ints, Lists],
        of_triples: Sequence[Doubles],
        polytope: Polytope,
        seconds: float,
        horizon: float | None = None,
        reached: Reached | None = None,
    ) -> PricedSentence:
        """A sentence's program with the first columns, whose triples have these scores; with another horizon than that
        of the first trees if that is given."""
        at, (inside, triples) = self.own[b], columns
        kinds = [KINDS[kind] for kind in self.over]
        trees = [tree[b, at].astype(np.int64) for tree in self.trees if tree[b, 1] >= 0]
        candidates = [_Candidate.of(tree, kinds, triples) for tree in trees]
        units = self._units(b) if reached is None else self.reached[b][0]
        if horizon is None and reached is None:
            given = zip(self.over, triples, of_triples, strict=True)
            plain = [units.triples(kind, those[:, 1], those[:, 2], own) for kind, those, own in given]
            near = max((tree.cost(units.total, plain) for tree in candidates), default=-math.inf)
            horizon = units.first_horizon(-near)
        pricing.units[b] = units = units if horizon is None else units.within(horizon)
        pricing.left_out[b] = reached is not None and reached.left_out
        costs = pricing.costs(b, triples, of_triples)
        possible = self.trees[0][b, 1] >= 0
        bound = math.inf if possible else -math.inf
        sentence = PricedSentence(units, self.single_root, bound, seconds, polytope, self.projective)
        sentence.upper = partial(pricing.upper, b)
        if possible:
            upper_bound = scaled_number(total(_of_arcs(units.total, candidates[0].heads)), units.power)
            sentence.bound = upper_bound + max(0.0, units.rounding(upper_bound))
        if self.bounds is not None:
            sentence.bound = min(sentence.bound, units.cost(float(self.bounds[b])))
        for tree in candidates:
            sentence.offer(tree.heads, tree.cost(sentence.arcs, costs))
        if reached is not None:
            _take(sentence, reached)
        sentence.done = sentence.certified or not possible
        if not sentence.done:
            here = sentence.arcs > -np.inf
            each = zip(kinds, triples, costs, strict=True)
            there = [(cost > -np.inf) & kind.has_arcs(here, those) for kind, those, cost in each]
            first = [x[some] for x, some in zip(triples, there, strict=True)]
            own = [x[some] for x, some in zip(costs, there, strict=True)]
            sentence.begin(inside[here[tuple(inside.T)]], first, own)
        return sentence


class _Candidate(NamedTuple):
    """Heads [N], and which of a sentence's first triples of each kind are the tree's."""

    heads: Ints
    own: list[npt.NDArray[np.bool_]]

    @classmethod
    def of(cls, heads: Ints, kinds: Sequence[type[PairRows]], triples: Lists) -> _Candidate:
        N, own = len(heads), []
        for kind, those in zip(kinds, triples, strict=True):
            inside = np.zeros((N, N, N), dtype=bool)
            inside[tuple(kind.of_tree(heads).T)] = True
            own.append(inside[tuple(those.T)])
        return cls(heads, own)

    def cost(self, arcs: Doubles, triples: Sequence[Doubles]) -> float:
        """-inf if it has a forbidden part."""
        pairs = [x[own] for x, own in zip(triples, self.own, strict=True)]
        return total(_of_arcs(arcs, self.heads), *pairs)


def _of_arcs(arcs: Doubles, heads: Ints) -> Doubles:
    """Those of the arcs that a tree has."""
    return arcs[heads[1:], np.arange(1, len(arcs))]


def _take(sentence: PricedSentence, reached: Reached) -> None:
    """Take over what was reached in the same units."""
    if reached.heads is not None:
        sentence.offer(reached.heads, reached.score)
    if reached.bound < sentence.bound:
        sentence.bound, sentence.witness = reached.bound, Taken(reached.taken)


def _horizon(sentence: PricedSentence, left_out: bool) -> float | None:
    """The horizon to begin anew with; None: what is known stays."""
    if (
        sentence.certified
        or sentence.status is not Status.OPTIMAL
        or (sentence.tree is None and not sentence.impossible)
    ):
        return None
    found = sentence.units.next_horizon(sentence.score, left_out or sentence.units.leaves_out)
    if found is None and sentence.impossible and sentence.units.horizon < MOST:
        return MOST  # there may be more beyond the horizon than was looked at
    return found


def _finish(sentence: PricedSentence, score: Score, exact: bool) -> Work[End]:
    """A tree where the program has none for a solution; the best one if that is asked for."""
    reached = sentence.score if sentence.certified else sentence.bound
    end = partial(End, sentence, sentence.certified or sentence.integral, sentence.units.score(reached))
    whole: list[tuple[Path, Witness | Taken | None]] = [((), sentence.witness)]
    if sentence.certified or sentence.impossible or sentence.z is None:
        return end(0, sentence.status, whole)

    def round_(z: Doubles) -> Ints:
        return rounded(z, sentence.arcs, sentence.single_root, sentence.projective)

    yield from offer_tree(sentence, score, round_(sentence.z))
    enough = sentence.certified or sentence.outgrown or (sentence.tree is not None and not exact)
    if enough or sentence.status is not Status.OPTIMAL:
        return end(0, sentence.status, whole)
    sentence.bound, branches, status, leaves = yield from branch_and_bound(sentence, score, round_, any_tree=not exact)
    return end(branches, status, leaves)


def _charged(sentence: PricedSentence, work: Work[T]) -> Work[T]:
    """Work whose time is taken from the sentence's; that of waiting is not."""
    reply = None
    while True:
        begun = time.monotonic()
        try:
            request = work.send(reply)
        except StopIteration as end:
            found: T = end.value
            return found
        finally:
            sentence.seconds -= time.monotonic() - begun
        reply = yield request
