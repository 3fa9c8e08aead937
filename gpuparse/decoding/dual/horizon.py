"""Scores of non-projective parsing as dual decomposition has them: without what cannot matter, of moderate size.

Were every arc's pairs the best that it can have, no tree could score more than its words' best arcs. What falls short
of that by much more than a tree that is known is in no better tree, and left out: a mask of -1e30 is like one of -inf.
What all heads of a word have in common is taken off, and what is left is multiplied by a power of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from gpuparse.decoding import certificates
from gpuparse.decoding.dual.agreement import Agreement, Rounding
from gpuparse.decoding.dual.branch import Branch
from gpuparse.decoding.dual.decomposition import DualDecomposition
from gpuparse.decoding.dual.oracles import HeadAutomata
from gpuparse.decoding.dual.parsing import as_pairs
from gpuparse.decoding.dual.priced import PricedParts, Triples
from gpuparse.decoding.ilp.second_order import upper_bound
from gpuparse.decoding.parts import Kind, count_triples, legal_quadruples, most_of_each_arc
from gpuparse.decoding.proofs import NEVER, ProofLeaf, path_of
from gpuparse.decoding.scores import Scores
from gpuparse.ops import MATRIX_TREE
from gpuparse.structures.masks import arc_mask

Each = Float64[Tensor, " B"]
REACH = 2.0**13  # the horizon is so many times as far away as the best tree that is known
NEARER, FURTHER = 2.0**-20, 2.0**40  # how much it moves at least, inwards and outwards
SIZE = 7  # a tree that is known is about 2 to this away
RANGE = 900  # the horizon is at most 2 to this times as far away as the nearest arc
MOST = torch.finfo(torch.float64).max


@dataclass(frozen=True)
class Whole:
    """All scores of some sentences in float64, and what they say of each arc.

    Attributes:
        scores: labels folded in; pairs dense, or priced if they are lazily scored.
        over: the most that the pairs of each kind can add to an arc [B, N, N].
        total: of each arc with that, less the word's best; -inf where there is none [B, N, N].
        best: of each word [B, N].
        top: the best of each word's arcs, without pairs [B, N].
    """

    scores: Scores
    over: dict[str, Tensor]
    total: Float64[Tensor, "B N N"]
    best: Float64[Tensor, "B N"]
    top: Float64[Tensor, "B N"]

    @classmethod
    def of(cls, scores: Scores) -> Whole:
        arcs = scores.fold_labels().arcs.detach().double()
        lengths, pairs = scores.lengths, dict(zip(scores.second_order, scores.parts, strict=True))
        read = arc_mask(lengths, arcs.shape[1])
        third = scores.grandsiblings
        if third is not None:
            third = torch.where(legal_quadruples(lengths, arcs.shape[1]), third.detach().double(), 0.0)
        given: dict[str, Any] = {
            kind: as_pairs(parts, arcs, lengths, priced=third is None) for kind, parts in pairs.items()
        }
        made = Scores(arcs, lengths, **given, grandsiblings=third, validate_args=False)
        over: dict[str, Tensor] = {parts.kind: upper_bound(parts) for parts in made.parts}
        if third is not None:
            over["grandsiblings"] = most_of_each_arc(third, lengths)
        total = torch.where(read, sum(over.values(), arcs), -torch.inf)
        best, top = (_finite(x.amax(1)) for x in (total, torch.where(read, arcs, -torch.inf)))
        return cls(made, over, total - best[:, None], best, top)

    def take(self, rows: Int64[Tensor, " K"]) -> Whole:
        """Those of some of the sentences."""
        scores = self.scores
        pairs: dict[str, Any] = {
            parts.kind: parts.take(rows) if isinstance(parts, PricedParts) else parts.dense()[rows]
            for parts in scores.parts
        }
        if scores.grandsiblings is not None:
            pairs["grandsiblings"] = scores.grandsiblings[rows]
        some = Scores(scores.arcs[rows], scores.lengths[rows], **pairs, validate_args=False)
        over = {kind: x[rows] for kind, x in self.over.items()}
        return Whole(some, over, self.total[rows], self.best[rows], self.top[rows])

    @property
    def scored(self) -> Int64[Tensor, " B"]:
        """How many pairs of each sentence were scored."""
        each = [
            x.counted if isinstance(x, PricedParts) else count_triples(x.kind, x.lengths) for x in self.scores.parts
        ]
        return sum(each, torch.zeros_like(self.scores.lengths))

    def first_trees(self, single_root: bool) -> tuple[Int64[Tensor, "B N"], Each]:
        """The better of the best trees by arcs alone, and were every arc's pairs the best; and its score."""
        hoped, plain = (
            MATRIX_TREE.argmax((x,), self.scores.lengths, single_root) for x in (self.total, self.scores.arcs)
        )
        one, other = self.scores.total(hoped), self.scores.total(plain)
        return torch.where((one >= other)[:, None], hoped, plain), torch.maximum(one, other)

    def first_horizon(self, score: Each) -> Each:
        """Where no tree is known what most arcs are away, for all words."""
        away = torch.where(self.total.isfinite() & (self.total < 0), -self.total, torch.nan)
        most = away.flatten(1).nanmedian(1).values.nan_to_num(1.0) * self.best.shape[1]
        known = score > -torch.inf
        return torch.minimum(self.reach(torch.where(known, self.best.sum(1) - score, most)), self.range)

    @property
    def range(self) -> Each:
        """The furthest horizon under which no distance of an arc is lost below the range of doubles."""
        away = torch.where(self.total < 0, -self.total, torch.inf)
        return (2.0**RANGE * away.flatten(1).amin(1)).clamp(max=MOST)

    def reach(self, distance: Each) -> Each:
        """The horizon for a tree that is so far away; the tree is within it, whatever rounding did."""
        off = certificates.rounding(self.best.shape[1], self.best.abs()).sum(1)
        return (REACH * (distance.clamp(min=0) + off)).clamp(max=MOST)

    def within(self, horizon: Each, scaled: bool) -> Near:
        """What is not beyond a horizon."""
        scores, at = self.scores, horizon.view(-1, 1, 1)
        power = (
            SIZE + 13 - torch.frexp(horizon).exponent if scaled else torch.zeros_like(scores.lengths, dtype=torch.int)
        )
        power = torch.where(horizon.isfinite() & (horizon > 0), power, 0)
        keep = self.total >= -at
        arcs = torch.where(keep, scores.arcs - self.top[:, None], -torch.inf)
        beyond = _nearest(-self.total, ~keep)
        pairs: dict[str, Any] = {}
        for parts in scores.parts:
            cube = parts.hoped if isinstance(parts, PricedParts) else parts.dense()
            side = 1 if parts.kind == "grandparents" else 2
            away = self.over[parts.kind].unsqueeze(side) - cube
            far = away > at[..., None]
            beyond = torch.minimum(beyond, _nearest(away, far))
            pairs[parts.kind] = found = _ldexp(cube.masked_fill(far, -torch.inf), power)
            if isinstance(parts, PricedParts):
                exact = torch.where(cube == parts.known, found, -torch.inf)
                pairs[parts.kind] = PricedParts(parts, found, exact)
        if (third := scores.grandsiblings) is not None:
            away = self.over["grandsiblings"][:, None, :, None] - third
            far = away > at[..., None, None]
            beyond = torch.minimum(beyond, _nearest(away, far))
            pairs["grandsiblings"] = _ldexp(third.masked_fill(far, -torch.inf), power)
        near = Near(
            self, Scores(_ldexp(arcs, power), scores.lengths, **pairs, validate_args=False), horizon, power, beyond
        )
        for parts in near.scores.parts:
            if isinstance(parts, PricedParts):
                parts.convert = partial(near.of_triples, parts.kind)
        return near


@dataclass(frozen=True)
class Near:
    """The scores that are within a horizon, less the words' ``top``, times 2 to ``power``; and how far away the nearest
    part is that is not; inf without any. Where pairs are lazily scored more of them may turn out to be beyond it."""

    whole: Whole
    scores: Scores
    horizon: Each
    power: Int64[Tensor, " B"]
    nearest: Each

    def of_triples(self, kind: Kind, triples: Triples, scores: Float64[Tensor, " T"]) -> Float64[Tensor, " T"]:
        """Scores of pairs in these units, -inf of those that are beyond the horizon."""
        sentence, i, j, k = triples
        away = self.whole.over[kind][sentence, j if kind == "grandparents" else i, k] - scores
        far = away > self.horizon[sentence]
        self.nearest.scatter_reduce_(0, sentence, torch.where(far & away.isfinite(), away, torch.inf), "amin")
        return _ldexp(scores.masked_fill(far, -torch.inf), self.power[sentence])

    def score(self, value: Each) -> Each:
        """What a value of these scores is as a score of all."""
        return _ldexp(value, -self.power) + self.whole.top.sum(1)

    def bound(self, value: Each) -> Each:
        """The same of a bound: trees beyond the horizon are no better than that."""
        beyond = torch.where(self.nearest < torch.inf, self.whole.best.sum(1) - self.horizon, -torch.inf)
        return torch.maximum(self.score(value), beyond)

    def distance(self, value: Each) -> Each:
        """How far away a tree of this value is, in scores."""
        return (self.whole.best.sum(1) - self.score(value)).clamp(min=0)

    def next_horizon(self, value: Each) -> Each:
        """Where the horizon should be after no proof was found; NaN: where it is."""
        distance = self.distance(value)
        reach = self.whole.reach(distance)
        inwards = reach < NEARER * self.horizon
        left_out = self.nearest < torch.inf
        outwards = (distance > self.horizon) & left_out & (self.horizon < MOST) & (self.horizon > 0)
        further = torch.maximum(FURTHER * self.horizon, self.whole.reach(self.nearest))  # nothing else is in between
        moved = torch.where(outwards, torch.minimum(further, reach), reach)
        moved = torch.where(inwards | outwards, moved.clamp(max=MOST), torch.nan)
        return torch.where(self._loses(value), self.whole.range, moved)

    def _loses(self, value: Each) -> Bool[Tensor, " B"]:
        """Whether a tree is so near that distances like its own are lost."""
        near = _ldexp((self.whole.best - self.whole.top).sum(1), self.power) - value < 2.0**-RANGE
        return near & (self.horizon > self.whole.range)

    def leaves(
        self, numbers: list[int], owner: DualDecomposition, found: Agreement, branches: dict[int, list[Branch]]
    ) -> dict[int, tuple[ProofLeaf, ...]]:
        """What the bounds of sentences follow from, by their numbers: arcs take over what the automata have not."""
        automata = owner.oracles[1]
        assert isinstance(automata, HeadAutomata)
        over = torch.stack(list(self.whole.over.values())).sum(0)
        # What is left out is wanted neither by a star nor by a word: it falls short by half of its distance in both.
        over = torch.where(
            over.isneginf(), NEVER, over - torch.where(self.whole.total.isfinite(), self.whole.total, 0.0) / 2
        )
        result = {}
        for b, number in enumerate(numbers):
            at = slice(int(self.scores.lengths[b]) + 1)
            whole = Branch((), tuple({name: u[b] for name, u in of_oracle.items()} for of_oracle in found.least))
            made = []
            for branch in branches.get(b, [whole]):
                y = -_ldexp((automata.arcs[b] + branch.least[1]["arcs"])[None], -self.power[b : b + 1])[0]
                own = torch.where(y.isfinite(), y, over[b])[at, at].cpu().numpy()
                steps = ((where[0], where[1], -1, int(has)) for _, where, has in branch.path)
                made.append(ProofLeaf(path_of(steps), own))
            result[number] = tuple(made)
        return result

    def outgrown(self) -> Each:
        """The value of a tree with which the horizon is to move inwards."""
        return _ldexp((self.whole.best - self.whole.top).sum(1) - NEARER * self.horizon / REACH, self.power)

    def rounding(self) -> Rounding:
        """What the value of a tree may be off, and a bound beside it."""
        whole, N = self.whole, self.whole.best.shape[1]
        shared = _ldexp(whole.best.abs().sum(1), self.power)
        most = _ldexp((whole.best - whole.top).sum(1), self.power)
        moved = torch.stack([x.abs() for x in whole.over.values()]).sum(0)
        of_each = [torch.full_like(most, certificates.rounding(terms, 1.0)) for terms in (0, 1, N)]
        numbers = torch.stack([*of_each, most, shared, (self.horizon > whole.range).double()], 1)
        return Rounding(numbers, _ldexp(whole.total, self.power), _ldexp(moved, self.power))


def _nearest(away: Tensor, which: Tensor) -> Each:
    """The least of some finite distances [B, ..] of each sentence; inf without any."""
    return torch.where(which & away.isfinite(), away, torch.inf).flatten(1).amin(1)


def _finite(x: Tensor) -> Tensor:
    return torch.where(x.isfinite(), x, 0.0)


def _ldexp(x: Tensor, power: Tensor) -> Tensor:
    """x [B, ..] times 2 to the power of each sentence, in two steps: a power of its own may be out of range."""
    power = power.view(-1, *[1] * (x.dim() - 1))
    half = power // 2
    return x * torch.exp2(half.double()) * torch.exp2((power - half).double())
