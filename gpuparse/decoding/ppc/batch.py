"""Parse, price and cut for a batch: programs are solved by a pool of threads, all sentences are priced at once.

Sentences that are done leave. What stays without a tree as its solution is rounded to one or, if that is asked for,
finished by branch and bound.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from gpuparse.decoding.parse import Parse
from gpuparse.decoding.ppc.branch import Path, branch_and_bound, offer_tree
from gpuparse.decoding.ppc.grandparents import Doubles, Ints, Polytope, allowed
from gpuparse.decoding.ppc.ppc import NONE, Answer, PricedSentence, Question
from gpuparse.decoding.ppc.pricing import Pricing
from gpuparse.decoding.ppc.rounding import REMARKS, rounded
from gpuparse.decoding.ppc.units import MOST, Units, scaled_number, total
from gpuparse.decoding.ppc.witness import Witness
from gpuparse.decoding.proofs import NEVER, ProofLeaf, path_of
from gpuparse.decoding.scores import Scores
from gpuparse.decoding.solver import Status
from gpuparse.ops import MATRIX_TREE

HEADS = 3  # best heads of each word by the scores of arcs that are columns from the start


class Warm(NamedTuple):
    """What is known before: arcs that are columns from the start, trees (-1 where there is none), and what no tree
    scores more than."""

    arcs: Bool[Tensor, "B N N"]
    heads: Int64[Tensor, "B N"]
    bound: Float64[Tensor, " B"]


def parse_price_cut(
    scores: Scores,
    *,
    single_root: bool = True,
    exact: bool = False,
    polytope: Polytope = "tight",
    time_limit: float = math.inf,
    threads: int | None = None,
    warm: Warm | None = None,
    proof: bool = False,
) -> Parse:
    """The best trees under arcs and grandparents, or what the linear program says of them.

    Args:
        scores: with grandparents; sentences have a tree if only arcs count.
        polytope: "all" or "tight".
        exact: finish by branch and bound what the linear program leaves open.
        time_limit: seconds for a sentence, in its solver and branches; then its best tree so far, and the bound.
        warm: what is known, in place of the best heads by the scores of arcs.
        threads: that solve programs side by side; by default as many as there are processors.
        proof: say what the bounds follow from.

    ``stats``: ``looked`` (bounds), ``scored`` and ``added`` grandparents, ``rows``, ``integral`` (whether the linear
    program has a tree for a solution), ``relaxed`` (its value, or a bound on it), ``branches``. A bound of -inf: there
    is not a tree. Waits for the device.
    """
    assert scores.grandparents is not None
    arcs = scores.fold_labels().arcs.detach().double()
    pricing = Pricing(scores.grandparents)
    first = _First.of(arcs, pricing, single_root, warm)
    sentences = {b: first.sentence(b, pricing, polytope, time_limit) for b in range(len(arcs))}
    count = max(1, min(threads or os.cpu_count() or 1, len(sentences)))
    ends: dict[int, End] = {}
    relaxed: dict[int, tuple[bool, float]] = {}
    inference = torch.is_inference_mode_enabled()  # which a thread does not inherit

    def finish(b: int) -> End:
        with torch.inference_mode(inference):
            return _finish(sentences[b], b, pricing, exact)

    with _threads(count) as map_:
        now = list(sentences)
        while now:
            _solve({b: sentences[b] for b in now}, pricing, map_)
            for b in now:
                s = sentences[b]
                relaxed[b] = s.certified or s.integral, pricing.units[b].score(s.score if s.certified else s.bound)
            ends.update(zip(now, map_(finish, now), strict=True))
            horizons = {b: _horizon(sentences[b], bool(pricing.left_out[b])) for b in now}
            now = [b for b in now if horizons[b] is not None]
            for b in now:
                sentences[b] = first.sentence(b, pricing, polytope, time_limit, horizons[b], sentences[b])
    return _collect(scores, proof, sentences, pricing, relaxed, ends)


@contextmanager
def _threads(count: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """A ``map`` that works with so many threads."""
    if count == 1:
        yield map
    else:
        with ThreadPoolExecutor(count) as pool:
            yield pool.map


def _solve(sentences: dict[int, PricedSentence], pricing: Pricing, map_: Callable[..., Iterator[Any]]) -> None:
    """Rounds until each program is solved, or its tree is proven best."""
    live = [b for b, sentence in sentences.items() if not sentence.done]
    while live:
        questions = dict(zip(live, map_(lambda b: sentences[b].solve(), live), strict=True))
        answers = pricing.ask({b: q for b, q in questions.items() if q is not None})
        updates = map_(lambda item: sentences[item[0]].update(item[1]), answers.items())
        wanted = dict(zip(answers, updates, strict=True))
        _extend(sentences, {b: w for b, w in wanted.items() if len(w)}, pricing)
        live = [b for b in live if not sentences[b].done]


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


@dataclass(frozen=True)
class _First:
    """What sentences begin with: first trees (the best ones by arcs alone, and were every arc's grandparent the best
    that it can have), their arcs and those of each word's best heads, and the grandparents among these."""

    scores: Doubles
    over: Doubles
    trees: list[Ints]
    columns: list[tuple[Ints, Ints]]
    known: dict[int, Doubles]
    bounds: Doubles | None
    own: list[slice]
    single_root: bool

    @classmethod
    def of(cls, arcs: Float64[Tensor, "B N N"], pricing: Pricing, single_root: bool, warm: Warm | None) -> _First:
        with torch.no_grad():
            most = pricing.over_g.clone()
            most[:, 0] = 0.0
            ways = arcs.detach() + most, arcs.detach()
            trees = [MATRIX_TREE.argmax(x, pricing.lengths, single_root).cpu().numpy() for x in ways]
        scores, over = arcs.detach().cpu().numpy(), pricing.over_g.cpu().numpy()
        arcs_ = bounds = None
        if warm is not None:
            trees.append(warm.heads.cpu().numpy())
            arcs_, bounds = warm.arcs.cpu().numpy(), warm.bound.cpu().numpy()
        own = [slice(n + 1) for n in pricing.lengths.tolist()]
        columns = [
            _columns(scores[b, at, at], trees, b, None if arcs_ is None else arcs_[b, at, at])
            for b, at in enumerate(own)
        ]
        known = _scores({b: triples for b, (_, triples) in enumerate(columns)}, pricing)
        return cls(scores, over, trees, columns, known, bounds, own, single_root)

    def sentence(
        self,
        b: int,
        pricing: Pricing,
        polytope: Polytope,
        seconds: float,
        horizon: float | None = None,
        before: PricedSentence | None = None,
    ) -> PricedSentence:
        """Its program with the first columns; with another horizon than that of the first trees if that is given, and
        the best tree of ``before``."""
        at, (inside, triples), of_triples = self.own[b], self.columns[b], self.known[b]
        g, p, c = triples.T
        candidates = [_Candidate.of(tree[b, at].astype(np.int64), triples) for tree in self.trees if tree[b, 1] >= 0]
        units = Units.of(self.scores[b, at, at], self.over[b, at, at])
        if horizon is None:
            plain = units.triples(p, c, of_triples)
            near = max((tree.cost(units.total, plain) for tree in candidates), default=-math.inf)
            horizon = units.first_horizon(-near)
        pricing.units[b] = units = units.within(horizon)
        pricing.left_out[b] = False
        costs = pricing.costs(b, triples, of_triples)
        possible = self.trees[0][b, 1] >= 0
        sentence = PricedSentence(units, self.single_root, math.inf if possible else -math.inf, seconds, polytope)
        if possible:
            upper_bound = scaled_number(
                _Candidate.of(candidates[0].heads, NONE).cost(units.total, costs[:0]), units.power
            )
            sentence.bound = upper_bound + max(0.0, units.rounding(upper_bound))
        if self.bounds is not None:
            sentence.bound = min(sentence.bound, units.cost(float(self.bounds[b])))
        for tree in candidates:
            sentence.offer(tree.heads, tree.cost(sentence.arcs, costs))
        if before is not None:
            sentence.iterations, sentence.seconds = before.iterations, before.seconds
            if before.tree is not None:
                offer_tree(sentence, partial(pricing.cost, b), before.tree)
        sentence.done = sentence.certified or not possible
        if not sentence.done:
            here = sentence.arcs > -np.inf
            there = (costs > -np.inf) & here[g, p] & here[p, c]
            sentence.begin(inside[here[tuple(inside.T)]], triples[there], costs[there])
        return sentence


class _Candidate(NamedTuple):
    """Heads [N], and which of a sentence's first triples are the tree's."""

    heads: Ints
    own: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, heads: Ints, triples: Ints) -> _Candidate:
        g, p, c = triples.T
        return cls(heads, (heads[c] == p) & (heads[p] == g))

    def cost(self, arcs: Doubles, triples: Doubles) -> float:
        """-inf if it has a forbidden part."""
        return total(arcs[self.heads[1:], np.arange(1, len(arcs))], triples[self.own])


def _columns(
    arcs: Doubles, trees: list[npt.NDArray[np.int64]], b: int, known: npt.NDArray[np.bool_] | None
) -> tuple[Ints, Ints]:
    """First arcs [A, 2] and grandparents [T, 3] of a sentence: those of trees, and those known or of best heads."""
    N = len(arcs)
    here = allowed(arcs)
    inside, word = np.zeros((N, N), dtype=bool), np.arange(1, N)
    for tree in trees:
        heads = tree[b, 1:N]
        inside[heads[heads >= 0], word[heads >= 0]] = True
    if known is not None:
        inside |= known
    else:
        for row in np.argsort(np.where(here, -arcs, np.inf)[:, 1:], axis=0, kind="stable")[:HEADS]:
            inside[row, word] = True
    inside &= here
    both = inside[:, :, None] & inside[None]
    both[np.arange(N), :, np.arange(N)] = False
    return np.argwhere(inside), np.argwhere(both)


def _scores(triples: dict[int, Ints], pricing: Pricing) -> dict[int, Doubles]:
    """Scores of triples of several sentences, asked for at once."""
    if not triples:
        return {}
    where = np.concatenate([np.full(len(t), b) for b, t in triples.items()])
    found = pricing.score(where, np.concatenate(list(triples.values())))
    ends = np.cumsum([len(t) for t in triples.values()])
    return dict(zip(triples, np.split(found, ends[:-1]), strict=True))


def _extend(sentences: dict[int, PricedSentence], wanted: dict[int, Ints], pricing: Pricing) -> None:
    for b, scores in _scores(wanted, pricing).items():
        sentences[b].extend(wanted[b], pricing.costs(b, wanted[b], scores))


class End(NamedTuple):
    """How a sentence ended: how many branches were solved, why some are left, and the branches that there are."""

    branches: int
    status: Status
    leaves: list[tuple[Path, Witness | None]]


def _finish(sentence: PricedSentence, b: int, pricing: Pricing, exact: bool) -> End:
    """A tree where the program has none for a solution; the best one if that is asked for."""
    whole: list[tuple[Path, Witness | None]] = [((), sentence.witness)]
    if sentence.certified or sentence.impossible or sentence.z is None:
        return End(0, sentence.status, whole)
    score, ask = partial(pricing.cost, b), partial(_ask_one, b, pricing)

    def round_(z: Doubles) -> Ints:
        return rounded(z, sentence.arcs, sentence.single_root)

    offer_tree(sentence, score, round_(sentence.z))
    enough = sentence.certified or sentence.outgrown or (sentence.tree is not None and not exact)
    if enough or sentence.status is not Status.OPTIMAL:
        return End(0, sentence.status, whole)
    sentence.bound, nodes, status, leaves = branch_and_bound(sentence, ask, score, round_, any_tree=not exact)
    return End(nodes, status, leaves)


def _ask_one(b: int, pricing: Pricing, question: Question) -> Answer:
    return pricing.ask({b: question})[b]


def _collect(
    scores: Scores,
    proof: bool,
    sentences: dict[int, PricedSentence],
    pricing: Pricing,
    relaxed: dict[int, tuple[bool, float]],
    ends: dict[int, End],
) -> Parse:
    heads = torch.full(scores.arcs.shape[:2], -1)
    for b, sentence in sentences.items():
        if sentence.tree is not None:
            heads[b, : len(sentence.tree)] = torch.from_numpy(sentence.tree)
    device = scores.arcs.device

    def each(values: list[float] | list[int] | list[bool], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    whole, each_ = torch.int64, list(sentences.values())
    stats = {
        "looked": each(pricing.looked.tolist(), whole),
        "scored": each(pricing.scored.tolist(), whole),
        "added": each([len(s.program.g) for s in each_], whole),
        "rows": each([s.program.program.rows for s in each_], whole),
        "integral": each([relaxed[b][0] for b in sentences], torch.bool),
        "relaxed": each([relaxed[b][1] for b in sentences], torch.float64),
        "branches": each([ends[b].branches for b in sentences], whole),
    }
    left_out = {b: bool(pricing.left_out[b]) or s.units.leaves_out for b, s in sentences.items()}
    impossible = [s.impossible and not left_out[b] for b, s in sentences.items()]
    costs = [max(s.bound, s.units.beyond) if left_out[b] else s.bound for b, s in sentences.items()]
    bounds = [-math.inf if impossible[b] else s.units.score(costs[b]) for b, s in sentences.items()]
    open_ = {b: end.status for b, end in ends.items() if not sentences[b].certified and not impossible[b]}
    leaves = {b: _leaves(sentences[b], end) for b, end in ends.items()} if proof else {}
    return Parse.of(
        scores,
        heads.to(device),
        bound=each(bounds, torch.float64),
        certified=each([s.certified for s in each_], torch.bool),
        iterations=each([s.iterations for s in each_], whole),
        stats=stats,
        remarks={b: REMARKS[end] for b, end in open_.items() if end in REMARKS},
        leaves=leaves,
    )


def _leaves(sentence: PricedSentence, end: End) -> tuple[ProofLeaf, ...]:
    """The branches as a proof has them; where nothing is known, arcs take over the best of their grandparents."""
    units = sentence.units
    over = np.where(units.possible, units.over, NEVER)
    return tuple(
        ProofLeaf(path_of(path), over) if witness is None else witness.leaf(units, path_of(path))
        for path, witness in end.leaves
    )
