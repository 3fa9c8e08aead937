"""Non-projective trees by dual decomposition, then by what can prove more: parse, price and cut, branch and bound."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from gpuparse.dual.branch import TREES, tighten
from gpuparse.dual.decomposition import Agreement, DualDecomposition
from gpuparse.dual.oracles import HeadAutomata
from gpuparse.dual.parsing import second_order
from gpuparse.dual.steps import Step
from gpuparse.lp.batch import Solved
from gpuparse.lp.ppc_batch import Warm, parse_price_cut
from gpuparse.parts import TakenParts, legal_pairs, legal_triples
from gpuparse.scores import Scores

FEW, MANY = 100, 500  # iterations, with something to fall back on and without
NOT_PROVEN = "not proven: the limit of time or nodes"


def decompose(
    scores: Scores,
    possible: Bool[Tensor, " B"],
    *,
    single_root: bool = True,
    step: Step | None = None,
    iterations: int | None = None,
    exact: bool = False,
    fallback: bool = False,
    nodes: int = 1000,
    seconds: float = math.inf,
    threads: int | None = None,
) -> Solved:
    """Dual decomposition of the batch; what it leaves open goes on.

    Args:
        possible: which sentences have a tree by their arcs.
        fallback: hand it to parse, price and cut on the CPU, if there are no siblings.
        exact: go on by branch and bound until the best tree is proven, or for so many nodes or seconds.
    """
    until = time.monotonic() + seconds
    fallback = fallback and scores.siblings is None
    if iterations is None:
        iterations = FEW if fallback else MANY
    folded = scores.fold_labels()
    arcs = folded.arcs.detach().double()
    read = legal_pairs("siblings", 0, scores.lengths, arcs.shape[1])
    top = torch.where(read, arcs, -torch.inf).amax(1)  # every word has one head: what all of them have may go
    top = torch.where(top.isfinite(), top, 0.0)
    pairs = {kind: getattr(scores, kind) for kind in scores.second_order}
    shifted = Scores(arcs - top[:, None], scores.lengths, **pairs, validate_args=False)
    decomposition = second_order(shifted, single_root=single_root, step=step, iterations=iterations)
    found = decomposition.run()
    shift = top.sum(1)
    left = ~found.certified & possible
    stats = {"dual_iterations": found.iterations, "fallback": torch.zeros_like(left)}
    if fallback and bool(left.any()):
        options = {
            "single_root": single_root,
            "exact": exact,
            "seconds": max(0.0, until - time.monotonic()),
            "threads": threads,
        }
        promising = _promising(decomposition, found, left.nonzero()[:, 0])
        found = replace(found, bound=found.bound + shift)
        return _price_and_cut(scores, found, left, promising, stats, **options)
    stats["branches"] = torch.zeros_like(found.iterations)
    remarks = {}
    if exact and bool(left.any()):
        found, stats["branches"] = tighten(
            decomposition, found, TREES, nodes=nodes, out_of_time=lambda: time.monotonic() > until
        )
        open_ = left & ~found.certified & (found.bound > -torch.inf)
        remarks = dict.fromkeys(open_.nonzero()[:, 0].tolist(), NOT_PROVEN)
    heads = found.structures["heads"]
    return Solved(heads, None, found.bound + shift, found.certified, found.iterations, stats, remarks)


def _promising(decomposition: DualDecomposition, found: Agreement, rows: Int64[Tensor, " K"]) -> Bool[Tensor, "K N N"]:
    """Arcs (g, p) that can be in a better tree: under the last penalties the star of p loses no more by g than what is
    between L(u) and the best tree so far. And arcs that an oracle has ever chosen."""
    automata, u = decomposition.oracles[1].take(rows), found.penalties[1]
    assert isinstance(automata, HeadAutomata) and automata.grandparents is not None
    N = automata.arcs.shape[1]
    triples = legal_triples("grandparents", automata.lengths, N)
    gains = (automata.arcs + u["arcs"][rows])[:, None] + automata.grandparents
    stars = torch.where(triples, gains, 0.0).clamp(min=0).sum(-1) + u["heads"][rows]
    stars = torch.where(legal_pairs("siblings", 0, automata.lengths, N), stars, -torch.inf)
    last = found.duals[found.iterations[rows] - 1, rows]
    gap = (last - found.score[rows]).nan_to_num(0.0, 0.0, 0.0)  # none where no tree is known
    seen = torch.stack([x for of_oracle in found.indicators for x in of_oracle.values()]).amax(0)[rows] > 0
    return seen | (stars.isfinite() & (stars >= stars.amax(1, keepdim=True) - gap[:, None, None]))


def _price_and_cut(
    scores: Scores,
    found: Agreement,
    left: Bool[Tensor, " B"],
    promising: Bool[Tensor, "K N N"],
    stats: dict[str, Tensor],
    **options: object,
) -> Solved:
    """The sentences that are left, begun with what dual decomposition knows: promising arcs, best trees, and bounds."""
    rows = left.nonzero()[:, 0]
    heads, bound, certified = (x.clone() for x in (found.structures["heads"], found.bound, found.certified))
    assert scores.grandparents is not None
    arcs = scores.fold_labels().arcs.detach().double()[rows]
    warm = Warm(promising, heads[rows], bound[rows])
    some = parse_price_cut(arcs, TakenParts(scores.grandparents, rows), warm=warm, **options)  # type: ignore[arg-type]
    heads[rows], bound[rows], certified[rows] = some.heads, some.bound, some.certified
    for name, x in some.stats.items():
        stats[name] = x.new_zeros(len(left))
        stats[name][rows] = x
    stats["fallback"] = left
    numbers = rows.tolist()
    remarks = {numbers[b]: text for b, text in some.remarks.items()}
    return Solved(heads, None, bound, certified, found.iterations, stats, remarks)
