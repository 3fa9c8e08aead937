"""Parse, price and cut for a batch: programs are solved by a pool of threads, many sentences are priced at once.

Each sentence is work of its own (``work.py``) that goes on until it asks for something; those who ask are answered
together, whether they are at their first program or in branch and bound. Sentences that are done leave.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch

from gpuparse.decoding.parse import Parse
from gpuparse.decoding.ppc.asking import Question, Reply, Request, Work
from gpuparse.decoding.ppc.pricing import Pricing
from gpuparse.decoding.ppc.program import Polytope
from gpuparse.decoding.ppc.rounding import REMARKS
from gpuparse.decoding.ppc.work import End, First, Warm
from gpuparse.decoding.proofs import NEVER, ProofLeaf, path_of
from gpuparse.decoding.scores import Scores
from gpuparse.system.transfer import to_device

Map = Callable[..., Iterator[Any]]


def parse_price_cut(
    scores: Scores,
    *,
    projective: bool = False,
    single_root: bool = True,
    exact: bool = False,
    rounds: float = math.inf,
    polytope: Polytope = "tight",
    time_limit: float | Sequence[float] = math.inf,
    threads: int | None = None,
    warm: Warm | None = None,
    proof: bool = False,
) -> Parse:
    """The best trees under arcs and pairs of arcs, or what the linear program says of them.

    Args:
        scores: with grandparents, siblings or both; sentences have a tree if only arcs count.
        projective: only trees without crossing arcs, by cuts.
        polytope: "all" or "tight".
        exact: finish by branch and bound what the linear program leaves open.
        rounds: of a sentence, at most; then its best tree so far, and the bound.
        time_limit: seconds of work on a sentence, or on each of them, branches included; then its best tree so far, and
            the bound.
        warm: what is known, in place of the best heads by the scores of arcs.
        threads: that solve programs side by side; by default as many as there are processors.
        proof: say what the bounds follow from.

    ``stats``: ``looked`` (bounds), ``scored`` and ``added`` pairs, ``rows``, ``integral`` (whether the linear
    program has a tree for a solution), ``relaxed`` (its value, or a bound on it), ``branches``. A bound of -inf: there
    is not a tree. Waits for the device.
    """
    pricing = Pricing([parts for parts in (scores.grandparents, scores.siblings) if parts is not None])
    first = First.of(scores.fold_labels().arcs.detach().double(), pricing, single_root, projective, warm)
    count = len(first.own)
    seconds = [time_limit] * count if isinstance(time_limit, (int, float)) else list(time_limit)
    first.reach(pricing, polytope, max(seconds, default=0.0))
    works = {b: first.work(b, pricing, polytope, seconds[b], exact, rounds) for b in range(count)}
    with _threads(max(1, min(threads or os.cpu_count() or 1, len(works)))) as map_:
        ends = _drive(works, pricing, map_)
    return _collect(scores, proof, pricing, [ends[b] for b in works])


@contextmanager
def _threads(count: int) -> Iterator[Map]:
    """A ``map`` that works with so many threads."""
    if count == 1:
        yield map
    else:
        with ThreadPoolExecutor(count) as pool:
            yield pool.map


def _drive(works: Mapping[int, Work[End]], pricing: Pricing, map_: Map) -> dict[int, End]:
    """Do the work of all sentences. Where pricing is far away, one half of them is priced while the programs of the
    other are solved."""
    ends: dict[int, End] = {}
    inference = torch.inference_mode if torch.is_inference_mode_enabled() else nullcontext  # no thread inherits it

    def step(b: int, reply: Reply | None) -> Request | None:
        try:
            with inference():
                return works[b].send(reply)
        except StopIteration as end:
            ends[b] = end.value
            return None

    def go_on(replies: Mapping[int, Reply | None]) -> dict[int, Request]:
        """Until each sentence is done, or asks for what is not at hand."""
        asked: dict[int, Request] = {}
        while replies:
            found = zip(replies, map_(step, replies.keys(), replies.values()), strict=True)
            requests = {b: request for b, request in found if request is not None}
            replies = pricing.look({b: r for b, r in requests.items() if not isinstance(r, Question)})
            asked.update((b, request) for b, request in requests.items() if b not in replies)
        return asked

    flying: deque[Callable[[], Mapping[int, Reply]]] = deque()
    held = go_on(dict.fromkeys(works))  # what was asked and not sent yet
    while held or flying:
        if not flying:
            flying.append(pricing.send(held))
            held = {}
        told = list(flying.popleft()().items())
        halves = (told[::2], told[1::2]) if pricing.far and not flying else (told,)
        for half in halves:
            held.update(go_on(dict(half)))
            if any(isinstance(request, Question) for request in held.values()):  # else it goes with the other half
                flying.append(pricing.send(held))
                held = {}
    return ends


def _collect(scores: Scores, proof: bool, pricing: Pricing, ends: Sequence[End]) -> Parse:
    heads = np.full(scores.arcs.shape[:2], -1)
    left_out, impossible, bounds = [], [], []
    for b, (sentence, *_) in enumerate(ends):
        units = sentence.units
        if sentence.tree is not None:
            heads[b, : len(sentence.tree)] = sentence.tree
        left_out.append(bool(pricing.left_out[b]) or units.leaves_out)
        impossible.append(sentence.impossible and not left_out[b])
        cost = max(sentence.bound, units.beyond) if left_out[b] else sentence.bound
        bounds.append(-math.inf if impossible[b] else units.score(cost))
    each = [end.sentence for end in ends]
    programs = [[s.program] if "program" in vars(s) else [] for s in each]
    whole: dict[str, Sequence[int]] = {
        "iterations": [s.iterations for s in each],
        "looked": pricing.looked.tolist(),
        "scored": pricing.scored.tolist(),
        "added": [sum(len(pairs.triples) for program in made for pairs in program.pairs) for made in programs],
        "rows": [sum(program.program.rows for program in made) for made in programs],
        "branches": [end.branches for end in ends],
    }
    numbers = np.array(list(whole.values()), dtype=np.int64)
    reals = np.array([[end.relaxed for end in ends], bounds])
    true = np.array([[end.integral for end in ends], [s.certified for s in each]], dtype=bool)
    heads_, numbers_, reals_, true_ = to_device([heads, numbers, reals, true], scores.arcs.device)
    stats = dict(zip(whole, numbers_, strict=True)) | {"integral": true_[0], "relaxed": reals_[0]}
    open_ = {b: end.status for b, end in enumerate(ends) if not each[b].certified and not impossible[b]}
    return Parse.of(
        scores,
        heads_,
        bound=reals_[1],
        certified=true_[1],
        iterations=stats.pop("iterations"),
        stats=stats,
        remarks={b: REMARKS[status] for b, status in open_.items() if status in REMARKS},
        leaves={b: _leaves(end) for b, end in enumerate(ends)} if proof else {},
    )


def _leaves(end: End) -> tuple[ProofLeaf, ...]:
    """The branches as a proof has them; where nothing is known, arcs take over the best of their pairs."""
    units = end.sentence.units
    over = np.where(units.possible, units.all_over, NEVER)
    return tuple(
        ProofLeaf(path_of(path), over) if witness is None else witness.leaf(units, path_of(path))
        for path, witness in end.leaves
    )
