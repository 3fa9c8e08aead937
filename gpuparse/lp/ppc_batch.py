"""Parse, price and cut for a batch: programs are solved by a pool of threads, all sentences are priced at once.

Sentences that are done leave. What stays without a tree as its solution is rounded to one or, if that is asked for,
finished by branch and bound.
"""

from __future__ import annotations

import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from gpuparse.lp.batch import Solved
from gpuparse.lp.branch import branch_and_bound, offer_tree
from gpuparse.lp.grandparents import Doubles, Ints, legal_triples
from gpuparse.lp.ppc import Answer, Question, Sentence
from gpuparse.lp.pricing import Pricing
from gpuparse.lp.rounding import REMARKS, rounded
from gpuparse.lp.solver import Status
from gpuparse.ops import MATRIX_TREE
from gpuparse.parts import Parts
from gpuparse.trees import tree_scores

HEADS = 3  # best heads of each word by the scores of arcs that are columns from the start


def parse_price_cut(
    arcs: Float64[Tensor, "B N N"],
    parts: Parts,
    *,
    single_root: bool = True,
    exact: bool = False,
    seconds: float = math.inf,
    threads: int | None = None,
) -> Solved:
    """The best trees under arcs and grandparents, or what the linear program says of them.

    Args:
        arcs: scores with the best labels in them; sentences have a tree if only arcs count.
        exact: finish by branch and bound what the linear program leaves open.
        seconds: for a sentence; then its best tree so far, and the bound.
        threads: that solve programs side by side; by default as many as there are processors.

    ``stats``: ``looked`` (bounds), ``scored`` and ``added`` grandparents, ``rows``, ``integral`` (whether the linear
    program has a tree for a solution), ``relaxed`` (its value, or a bound on it), ``branches``. Waits for the device.
    """
    pricing = Pricing(parts)
    with torch.no_grad():
        first, hope = _first_trees(arcs, pricing, single_root)
    scores = arcs.detach().cpu().numpy()
    lengths = parts.lengths.tolist()
    top = _most(scores, pricing)
    sentences = []
    for b, n in enumerate(lengths):
        known = partial(_known_most, scores[b, : n + 1, : n + 1], b, pricing)
        limit = hope[b] + 1e-9 * (1 + abs(hope[b]))
        sentences.append(Sentence(scores[b, : n + 1, : n + 1], single_root, top[b], known, limit))
    _begin(sentences, first, pricing)
    count = max(1, min(threads or os.cpu_count() or 1, len(sentences)))
    with ThreadPoolExecutor(count) as pool:
        begun = time.monotonic()
        until = [begun + seconds] * len(lengths)
        live = [b for b, sentence in enumerate(sentences) if not sentence.done]
        while live:
            questions = dict(zip(live, pool.map(lambda b: sentences[b].solve(until[b]), live), strict=True))
            answers = pricing.ask({b: q for b, q in questions.items() if q is not None})
            updates = pool.map(lambda item: sentences[item[0]].update(item[1]), answers.items())
            wanted = dict(zip(answers, updates, strict=True))
            _extend(sentences, {b: w for b, w in wanted.items() if len(w)}, pricing)
            live = [b for b in live if not sentences[b].done]
        solved = [(s.certified or s.integral, s.bound, s.status) for s in sentences]

        inference = torch.is_inference_mode_enabled()  # which a thread does not inherit

        def finish(b: int) -> int:
            with torch.inference_mode(inference):
                return _finish(sentences[b], b, pricing, exact, until[b])

        branches = list(pool.map(finish, range(len(lengths))))
    return _collect(arcs, sentences, pricing, solved, branches)


def _first_trees(
    arcs: Float64[Tensor, "B N N"], pricing: Pricing, single_root: bool
) -> tuple[list[Int[Tensor, "B N"]], list[float]]:
    """The best trees by arcs alone, and were every arc's grandparent the best that it can have, with these scores."""
    lengths = pricing.lengths
    most = pricing.over_g.clone()
    most[:, 0] = 0.0
    hopeful = torch.where(arcs.isneginf(), -torch.inf, arcs) + most
    trees = [MATRIX_TREE.argmax(x, lengths, single_root) for x in (arcs.detach(), hopeful)]
    return [tree.cpu() for tree in trees], tree_scores(hopeful, trees[1], lengths).tolist()


def _most(scores: Doubles, pricing: Pricing) -> list[float]:
    """What the score of a tree hardly exceeds as an absolute value, by the bounds of grandparents."""
    found = []
    over = pricing.over_g.cpu().numpy()
    for b, n in enumerate(pricing.lengths.tolist()):
        some = [np.abs(x[b, : n + 1, : n + 1]) for x in (scores, over)]
        found.append((n + 1) * sum(float(x[np.isfinite(x)].max(initial=0.0)) for x in some))
    return found


def _known_most(arcs: Doubles, b: int, pricing: Pricing) -> float:
    """What no tree's score exceeds as an absolute value; all grandparents are scored for it."""
    triples = np.stack(legal_triples(arcs), 1)
    both = arcs, pricing.score(np.full(len(triples), b), triples)
    return len(arcs) * sum(float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) for x in both)


def _begin(sentences: list[Sentence], first: list[Tensor], pricing: Pricing) -> None:
    """First columns: the arcs of the first trees and of each word's best heads, and the grandparents among these."""
    arcs, triples = [], []
    for b, sentence in enumerate(sentences):
        N = len(sentence.arcs)
        inside = np.zeros((N, N), dtype=bool)
        word = np.arange(1, N)
        for tree in first:
            heads = tree[b, 1:N].numpy()
            inside[heads[heads >= 0], word[heads >= 0]] = True
        best = np.argsort(-sentence.arcs[:, 1:], axis=0, kind="stable")[:HEADS]
        for row in best:
            inside[row, word] = True
        inside &= sentence.arcs > -np.inf
        both = inside[:, :, None] & inside[None]
        both[np.arange(N), :, np.arange(N)] = False
        arcs.append(np.argwhere(inside))
        triples.append(np.argwhere(both))
    scores = _scores(dict(enumerate(triples)), pricing)
    for b, sentence in enumerate(sentences):
        there = scores[b] > -np.inf
        sentence.begin(arcs[b], triples[b][there], scores[b][there])
        for tree in first:
            offer_tree(sentence, partial(_score_of, b, pricing), tree[b, : len(sentence.arcs)].numpy())
        sentence.done = sentence.certified


def _scores(triples: dict[int, Ints], pricing: Pricing) -> dict[int, Doubles]:
    """Scores of triples of several sentences, asked for at once."""
    if not triples:
        return {}
    where = np.concatenate([np.full(len(t), b) for b, t in triples.items()])
    found = pricing.score(where, np.concatenate(list(triples.values())))
    ends = np.cumsum([len(t) for t in triples.values()])
    return dict(zip(triples, np.split(found, ends[:-1]), strict=True))


def _score_of(b: int, pricing: Pricing, triples: Ints) -> Doubles:
    """Scores of triples of one sentence."""
    return pricing.score(np.full(len(triples), b), triples)


def _extend(sentences: list[Sentence], wanted: dict[int, Ints], pricing: Pricing) -> None:
    for b, scores in _scores(wanted, pricing).items():
        sentences[b].extend(wanted[b], scores)


def _finish(sentence: Sentence, b: int, pricing: Pricing, exact: bool, until: float) -> int:
    """A tree where the program has none for a solution; the best one if that is asked for. Returns the branches."""
    if sentence.certified or sentence.impossible or sentence.z is None:
        return 0

    score = partial(_score_of, b, pricing)

    def round_(z: Doubles) -> Ints:
        return rounded(z, sentence.arcs, sentence.single_root)

    offer_tree(sentence, score, round_(sentence.z))
    if sentence.status is not Status.OPTIMAL or (sentence.tree is not None and not exact):
        return 0
    ask = partial(_ask_one, b, pricing)
    sentence.bound, nodes = branch_and_bound(sentence, ask, score, round_, until, any_tree=not exact)
    return nodes


def _ask_one(b: int, pricing: Pricing, question: Question) -> Answer:
    return pricing.ask({b: question})[b]


def _collect(
    arcs: Tensor,
    sentences: list[Sentence],
    pricing: Pricing,
    solved: list[tuple[bool, float, Status]],
    branches: list[int],
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
    stats = {
        "looked": each(pricing.looked.tolist(), whole),
        "scored": each(pricing.scored.tolist(), whole),
        "added": each([len(s.program.g) for s in sentences], whole),
        "rows": each([s.program.program.rows for s in sentences], whole),
        "integral": each([integral for integral, _, _ in solved], torch.bool),
        "relaxed": each([bound for _, bound, _ in solved], torch.float64),
        "branches": each(branches, whole),
    }
    remarks = {
        b: REMARKS[solved[b][2]]
        for b, sentence in enumerate(sentences)
        if solved[b][2] is not Status.OPTIMAL and not sentence.certified
    }
    return Solved(
        heads.to(device),
        None,
        each([-math.inf if s.impossible else s.bound for s in sentences], torch.float64),
        each([s.certified for s in sentences], torch.bool),
        each([s.iterations for s in sentences], whole),
        stats,
        remarks,
    )
