"""Parse, price and cut for a batch: programs are solved by a pool of threads, all sentences are priced at once.

Sentences that are done leave. What stays without a tree as its solution is rounded to one or, if that is asked for,
finished by branch and bound.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from gpuparse.lp.batch import Solved
from gpuparse.lp.branch import branch_and_bound, offer_tree
from gpuparse.lp.grandparents import Doubles, Ints, Polytope, allowed
from gpuparse.lp.ppc import CLOSE, Answer, Question, Sentence
from gpuparse.lp.pricing import Pricing
from gpuparse.lp.rounding import REMARKS, rounded
from gpuparse.lp.solver import Status
from gpuparse.lp.units import Units
from gpuparse.ops import MATRIX_TREE
from gpuparse.parts import Parts

HEADS = 3  # best heads of each word by the scores of arcs that are columns from the start


class Warm(NamedTuple):
    """What is known before: arcs that are columns from the start, trees (-1 where there is none), and what no tree
    scores more than."""

    arcs: Bool[Tensor, "B N N"]
    heads: Int64[Tensor, "B N"]
    bound: Float64[Tensor, " B"]


def parse_price_cut(
    arcs: Float64[Tensor, "B N N"],
    parts: Parts,
    *,
    single_root: bool = True,
    exact: bool = False,
    polytope: Polytope = "tight",
    seconds: float = math.inf,
    threads: int | None = None,
    warm: Warm | None = None,
) -> Solved:
    """The best trees under arcs and grandparents, or what the linear program says of them.

    Args:
        arcs: scores with the best labels in them; sentences have a tree if only arcs count.
        polytope: "all" or "tight".
        exact: finish by branch and bound what the linear program leaves open.
        seconds: for a sentence, in its solver and branches; then its best tree so far, and the bound.
        warm: what is known, in place of the best heads by the scores of arcs.
        threads: that solve programs side by side; by default as many as there are processors.

    ``stats``: ``looked`` (bounds), ``scored`` and ``added`` grandparents, ``rows``, ``integral`` (whether the linear
    program has a tree for a solution), ``relaxed`` (its value, or a bound on it), ``branches``. Waits for the device.
    """
    pricing = Pricing(parts)
    sentences = _begin(arcs, pricing, single_root, polytope, seconds, warm)
    count = max(1, min(threads or os.cpu_count() or 1, len(sentences)))
    with ThreadPoolExecutor(count) as pool:
        live = [b for b, sentence in enumerate(sentences) if not sentence.done]
        while live:
            questions = dict(zip(live, pool.map(lambda b: sentences[b].solve(), live), strict=True))
            answers = pricing.ask({b: q for b, q in questions.items() if q is not None})
            updates = pool.map(lambda item: sentences[item[0]].update(item[1]), answers.items())
            wanted = dict(zip(answers, updates, strict=True))
            _extend(sentences, {b: w for b, w in wanted.items() if len(w)}, pricing)
            live = [b for b in live if not sentences[b].done]
        solved = [(s.certified or s.integral, s.score if s.certified else s.bound) for s in sentences]
        inference = torch.is_inference_mode_enabled()  # which a thread does not inherit

        def finish(b: int) -> tuple[int, Status]:
            with torch.inference_mode(inference):
                return _finish(sentences[b], b, pricing, exact)

        ends = list(pool.map(finish, range(len(sentences))))
    return _collect(arcs, sentences, pricing, solved, ends)


def _begin(
    arcs: Float64[Tensor, "B N N"],
    pricing: Pricing,
    single_root: bool,
    polytope: Polytope,
    seconds: float,
    warm: Warm | None,
) -> list[Sentence]:
    """The sentences with their first trees and columns: the best trees by arcs alone, and were every arc's grandparent
    the best that it can have; their arcs and those of each word's best heads, and the grandparents among these."""
    with torch.no_grad():
        most = pricing.over_g.clone()
        most[:, 0] = 0.0
        hopeful = arcs.detach() + most
        trees = [MATRIX_TREE.argmax(x, pricing.lengths, single_root).cpu().numpy() for x in (hopeful, arcs.detach())]
    scores, over = arcs.detach().cpu().numpy(), pricing.over_g.cpu().numpy()
    known_arcs = bounds = None
    if warm is not None:
        trees.append(warm.heads.cpu().numpy())
        known_arcs, bounds = warm.arcs.cpu().numpy(), warm.bound.cpu().numpy()
    own = [slice(n + 1) for n in pricing.lengths.tolist()]
    first = [
        _columns(scores[b, at, at], trees, b, None if known_arcs is None else known_arcs[b, at, at])
        for b, at in enumerate(own)
    ]
    known = _scores({b: triples for b, (_, triples) in enumerate(first)}, pricing)
    sentences = []
    for b, at in enumerate(own):
        table, best = scores[b, at, at], over[b, at, at]
        (inside, triples), of_triples = first[b], known[b]
        g, p, c = triples.T
        candidates = [_Tree.of(tree[b, at].astype(np.int64), triples) for tree in trees if tree[b, 1] >= 0]
        units = Units.of(table, best)
        costs = units.triples(p, c, of_triples)
        near = max((tree.cost(units.arcs(table, best), costs) for tree in candidates), default=-math.inf)
        units = units.scaled(-near)
        pricing.units.append(units)
        arcs_, costs = units.arcs(table, best), units.triples(p, c, of_triples)
        possible = trees[0][b, 1] >= 0
        bound = arcs_[candidates[0].heads[1:], np.arange(1, len(table))].sum() if possible else -math.inf
        bound = float(bound) + CLOSE
        if bounds is not None:
            bound = min(bound, units.cost(float(bounds[b])) + CLOSE)
        sentence = Sentence(arcs_, single_root, units.rounding, bound, seconds, polytope)
        sentences.append(sentence)
        for tree in candidates:
            sentence.offer(tree.heads, tree.cost(arcs_, costs))
        sentence.done = sentence.certified or not possible
        if not sentence.done:
            here = arcs_ > -np.inf
            there = (costs > -np.inf) & here[g, p] & here[p, c]
            sentence.begin(inside[here[tuple(inside.T)]], triples[there], costs[there])
    return sentences


class _Tree(NamedTuple):
    """Heads [N], and which of a sentence's first triples are the tree's."""

    heads: Ints
    own: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, heads: Ints, triples: Ints) -> _Tree:
        g, p, c = triples.T
        return cls(heads, (heads[c] == p) & (heads[p] == g))

    def cost(self, arcs: Doubles, triples: Doubles) -> float:
        """-inf if it has a forbidden part."""
        return float(arcs[self.heads[1:], np.arange(1, len(arcs))].sum() + triples[self.own].sum())


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


def _extend(sentences: list[Sentence], wanted: dict[int, Ints], pricing: Pricing) -> None:
    for b, scores in _scores(wanted, pricing).items():
        triples = wanted[b]
        sentences[b].extend(triples, pricing.units[b].triples(triples[:, 1], triples[:, 2], scores))


def _finish(sentence: Sentence, b: int, pricing: Pricing, exact: bool) -> tuple[int, Status]:
    """A tree where the program has none for a solution; the best one if that is asked for. Returns the number of
    branches, and how it ended."""
    if sentence.certified or sentence.impossible or sentence.z is None:
        return 0, sentence.status
    score, ask = partial(pricing.cost, b), partial(_ask_one, b, pricing)

    def round_(z: Doubles) -> Ints:
        return rounded(z, sentence.arcs, sentence.single_root)

    offer_tree(sentence, score, round_(sentence.z))
    if sentence.status is not Status.OPTIMAL or sentence.integral or (sentence.tree is not None and not exact):
        return 0, sentence.status
    sentence.bound, nodes, status = branch_and_bound(sentence, ask, score, round_, any_tree=not exact)
    return nodes, status


def _ask_one(b: int, pricing: Pricing, question: Question) -> Answer:
    return pricing.ask({b: question})[b]


def _collect(
    arcs: Tensor,
    sentences: list[Sentence],
    pricing: Pricing,
    solved: list[tuple[bool, float]],
    ends: list[tuple[int, Status]],
) -> Solved:
    B, N = arcs.shape[:2]
    heads = torch.full((B, N), -1)
    for b, sentence in enumerate(sentences):
        if sentence.tree is not None:
            heads[b, : len(sentence.tree)] = torch.from_numpy(sentence.tree)
    device = arcs.device

    def each(values: list[float] | list[int] | list[bool], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    whole = torch.int64
    units = pricing.units
    stats = {
        "looked": each(pricing.looked.tolist(), whole),
        "scored": each(pricing.scored.tolist(), whole),
        "added": each([len(s.program.g) for s in sentences], whole),
        "rows": each([s.program.program.rows for s in sentences], whole),
        "integral": each([integral for integral, _ in solved], torch.bool),
        "relaxed": each([units[b].score(bound) for b, (_, bound) in enumerate(solved)], torch.float64),
        "branches": each([nodes for nodes, _ in ends], whole),
    }
    bounds = [-math.inf if s.impossible else units[b].score(s.bound) for b, s in enumerate(sentences)]
    open_ = {b: end for b, (_, end) in enumerate(ends) if not sentences[b].certified and not sentences[b].impossible}
    return Solved(
        heads.to(device),
        None,
        each(bounds, torch.float64),
        each([s.certified for s in sentences], torch.bool),
        each([s.iterations for s in sentences], whole),
        stats,
        {b: REMARKS[end] for b, end in open_.items() if end in REMARKS},
    )
