"""Non-projective trees by dual decomposition, then by what can prove more: parse, price and cut, branch and bound."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from gpuparse.decoding.dual.agreement import Agreement, Penalties
from gpuparse.decoding.dual.branch import TREES, Branch, tighten
from gpuparse.decoding.dual.decomposition import DualDecomposition
from gpuparse.decoding.dual.horizon import Near, Whole
from gpuparse.decoding.dual.oracles import HeadAutomata, TreeOracle
from gpuparse.decoding.dual.parsing import second_order
from gpuparse.decoding.dual.priced import hoped
from gpuparse.decoding.dual.steps import Step
from gpuparse.decoding.parse import Parse
from gpuparse.decoding.parts import legal_triples
from gpuparse.decoding.ppc.batch import parse_price_cut
from gpuparse.decoding.ppc.rounding import REMARKS
from gpuparse.decoding.ppc.work import Warm
from gpuparse.decoding.proofs import Proof, ProofLeaf
from gpuparse.decoding.scores import Scores
from gpuparse.decoding.solver import Status
from gpuparse.ops.automata import automata
from gpuparse.structures.masks import arc_mask, word_mask
from gpuparse.structures.trees import can_validate

HEADS = 4  # of each word that are handed over
SPLITS, NODES = 20, 1000  # nodes of branch and bound, if nobody asks for more, and with ``exact``
FIRST, BATCH, SHORT = 40, 32, 15  # iterations before programs on a CPU, of so many sentences of so many words
ROUNDS, SEARCH = 40, 60  # of programs, after which iterations are tried, and nodes of these, before programs go on
FEW, MANY = 100, 500  # iterations, with something to fall back on and without
Scored = Float64[Tensor, " B"]
OUT_OF_TIME, SOLVER, NOT_PROVEN = REMARKS[Status.STOPPED], REMARKS[Status.FAILED], "not proven: the limit of nodes"


def decompose(
    scores: Scores,
    possible: Bool[Tensor, " B"],
    *,
    single_root: bool = True,
    step: Step | None = None,
    iterations: int | None = None,
    exact: bool = False,
    fallback: bool = False,
    nodes: int | None = None,
    time_limit: float = math.inf,
    threads: int | None = None,
    proof: bool = False,
) -> Parse:
    """Dual decomposition of the batch; what it leaves open goes on.

    Args:
        possible: which sentences have a tree by their arcs.
        iterations: by default ``MANY``; with a fallback ``FEW``, on a CPU none, or ``FIRST`` of many short ones.
        fallback: hand it to parse, price and cut on the CPU, which knows no grandsiblings.
        exact: go on by branch and bound until the best tree is proven.
        nodes: of branch and bound, at most; by default ``NODES`` with ``exact``, else ``SPLITS`` on a CPU.
        time_limit: seconds for each sentence; those of a batch that are solved together share the time.
        proof: say what the bounds follow from.

    A bound of -inf: there is no tree.
    """
    wanted: dict[str, Any] = {"single_root": single_root, "exact": exact, "proof": proof}
    here = can_validate(scores.arcs, None)  # nothing waits
    fallback = fallback and scores.grandsiblings is None
    if fallback and iterations is None and here and _many_and_short(scores.lengths):
        iterations = FIRST
    if fallback and iterations is None and here:
        how: dict[str, Any] = {"threads": threads, **wanted}
        return _by_programs_first(scores, possible, how, time_limit, nodes, {"step": step, **wanted})
    if iterations is None:
        iterations = FEW if fallback else MANY
    if nodes is None:
        nodes = NODES if exact else SPLITS if here else 0
    whole = Whole.of(scores)
    known = _Known.of(whole, single_root)
    horizon = whole.first_horizon(known.score)
    seconds = torch.full_like(known.score, time_limit) if time_limit < math.inf else None
    rows = possible.nonzero()[:, 0]
    while len(rows):
        near = whole.take(rows).within(horizon[rows], scaled=step is None)
        options: dict[str, Any] = {"step": step, "iterations": iterations, "rounding": near.rounding(), "keep": proof}
        decomposition = second_order(near.scores, single_root=single_root, **options)
        limits = None if seconds is None else seconds[rows]
        found = decomposition.run(stop_at=near.outgrown(), seconds=limits)
        value = torch.maximum(found.score, near.scores.total(known.heads[rows]))
        moved = near.next_horizon(value)
        branches: dict[int, list[Branch]] = {}
        open_, lost = ~found.certified & moved.isnan(), value == -torch.inf
        # Where no tree was found it has to be known whether there is one.
        apart = ((open_ & ~lost, nodes), (open_ & lost, NODES))
        for go_on, most in ((open_, nodes),) if nodes >= NODES else apart:
            if not fallback and most and bool(go_on.any()):
                stays = replace(found, certified=found.certified | ~go_on)
                after, solved, some = tighten(decomposition, stays, TREES, nodes=most, seconds=found.seconds)
                found = replace(after, certified=torch.where(go_on, after.certified, found.certified))
                branches |= some
                known.branches[rows] += solved
                moved = near.next_horizon(torch.maximum(found.score, value))
        if seconds is not None and found.seconds is not None:
            seconds[rows] = found.seconds
            moved = torch.where(found.seconds > 0, moved, torch.nan)
        if fallback:
            known.promising[rows] = _promising(decomposition, replace(found, score=value))
        known.take(rows, found, near, decomposition)
        if proof:
            known.leaves |= near.leaves(rows.tolist(), decomposition, found, branches)
        again = ~known.certified[rows] & ~moved.isnan()
        horizon[rows] = moved
        rows = rows[again]
    left = ~known.certified & possible
    stats = {"dual_iterations": known.iterations.clone(), "fallback": torch.zeros_like(left), "scored": whole.scored}
    if fallback and bool(left.any()):
        rest = left.nonzero()[:, 0]
        warm = Warm(known.promising[rest], known.heads[rest], known.bound[rest])
        time_left = time_limit if seconds is None else seconds[rest].clamp(min=0.0).tolist()
        other = parse_price_cut(scores.take(rest), warm=warm, time_limit=time_left, threads=threads, **wanted)
        other = _handed(replace(other, iterations=known.iterations[rest]), left[rest], known.iterations[rest])
        other.stats["scored"] = other.stats["scored"] + whole.scored[rest]
        return known.parse(scores, stats).put(rest, other)
    stats["branches"] = known.branches
    open_ = left & (known.bound > -torch.inf)
    remarks = dict.fromkeys((open_ & exact).nonzero()[:, 0].tolist(), NOT_PROVEN)
    if seconds is not None:
        remarks |= dict.fromkeys((open_ & (seconds <= 0)).nonzero()[:, 0].tolist(), OUT_OF_TIME)
    return known.parse(scores, stats, remarks)


def _by_programs_first(
    scores: Scores,
    possible: Bool[Tensor, " B"],
    programs: dict[str, Any],
    time_limit: float,
    nodes: int | None,
    iterations: dict[str, Any],
) -> Parse:
    """Parse, price and cut; where it takes many rounds, or the solver failed, dual decomposition; what is then still
    open by the first, to its end, and where the solver fails once more by the second to its end."""
    until, exact = time.monotonic() + time_limit, programs["exact"]
    found = parse_price_cut(scores, time_limit=time_limit, rounds=ROUNDS if exact else math.inf, **programs)
    found = _handed(found, possible)
    failed = (SOLVER, REMARKS[Status.LEFT])
    open_ = [b for b, why in found.remarks.items() if exact and why in failed and bool(possible[b])]
    for most in (SEARCH if nodes is None else nodes, None, NODES if nodes is None else nodes):
        if not open_:
            break
        rows, limit = torch.tensor(open_), max(0.0, until - time.monotonic())
        if most is None:
            other = _handed(parse_price_cut(scores.take(rows), time_limit=limit, **programs), possible[rows])
        else:
            other = decompose(scores.take(rows), possible[rows], time_limit=limit, nodes=most, **iterations)
        taken = (other.certified | (other.score > found.score[rows])).nonzero()[:, 0]
        leaves = {} if other.proof is None else other.proof.leaves
        kept = {k: leaves[b] for k, b in enumerate(taken.tolist()) if b in leaves}
        found = found.put(rows[taken], replace(other.take(taken), proof=Proof(kept)))
        why = {b: other.remarks[k] for k, b in enumerate(open_) if k in other.remarks}
        found = replace(found, remarks={**found.remarks, **{b: x for b, x in why.items() if not found.certified[b]}})
        left = [b for b in open_ if not found.certified[b] and found.remarks.get(b) != OUT_OF_TIME]
        open_ = [b for b in left if most is not None or found.remarks.get(b) == SOLVER]
    return found


def _many_and_short(lengths: Int64[Tensor, " B"]) -> bool:
    """Whether iterations that all sentences share cost less than the programs that they save."""
    return len(lengths) >= BATCH and int(lengths.max()) <= SHORT


def _handed(found: Parse, which: Bool[Tensor, " B"], iterations: Int64[Tensor, " B"] | None = None) -> Parse:
    """What parse, price and cut found, with the counts of dual decomposition."""
    found.stats.update(dual_iterations=torch.zeros_like(found.iterations) if iterations is None else iterations)
    found.stats.update(fallback=which)
    return found


@dataclass
class _Known:
    """What is known of all sentences: the best trees, their scores and bounds, and arcs that are promising."""

    heads: Int64[Tensor, "B N"]
    score: Scored
    bound: Scored
    iterations: Int64[Tensor, " B"]
    branches: Int64[Tensor, " B"]
    certified: Bool[Tensor, " B"]
    promising: Bool[Tensor, "B N N"]
    leaves: dict[int, tuple[ProofLeaf, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, whole: Whole, single_root: bool) -> _Known:
        """The first trees."""
        heads, score = whole.first_trees(single_root)
        none = torch.zeros_like(whole.scores.lengths)
        heads = torch.where((score > -torch.inf)[:, None], heads, -1)
        promising = torch.zeros_like(whole.total, dtype=torch.bool)
        return cls(heads, score, torch.full_like(score, torch.inf), none, none.clone(), none.bool(), promising)

    def take(self, rows: Int64[Tensor, " K"], found: Agreement, near: Near, owner: DualDecomposition) -> None:
        """Of some sentences what dual decomposition found."""
        heads, value = self.heads[rows], near.scores.total(self.heads[rows])
        better = found.score > value
        value = torch.where(better, found.score, value)
        self.heads[rows] = torch.where(better[:, None], found.structures["heads"], heads)
        self.score[rows] = torch.where(better, near.score(value), self.score[rows])
        every = torch.arange(len(rows), device=rows.device)
        proven = found.certified | owner.is_best(value, found.bound, found.bound.abs(), every)
        self.bound[rows], self.certified[rows] = near.bound(found.bound), proven & (value > -torch.inf)
        self.iterations[rows] += found.iterations

    def parse(self, scores: Scores, stats: dict[str, Tensor], remarks: dict[int, str] | None = None) -> Parse:
        """All of it."""
        knows: dict[str, Any] = {"certified": self.certified, "iterations": self.iterations, "leaves": self.leaves}
        return Parse.of(scores, self.heads, bound=self.bound, **knows, stats=stats, remarks=remarks)


def _promising(decomposition: DualDecomposition, found: Agreement) -> Bool[Tensor, "B N N"]:
    """Arcs that can be in a better tree: by the last penalties trees that have one, and the star of its word, lose no
    more by it than what is between L(u) and the best tree so far. Of each word the best ``HEADS``."""
    trees, stars = decomposition.oracles
    assert isinstance(trees, TreeOracle) and isinstance(stars, HeadAutomata)
    lost = _lost_by_trees(trees, found.penalties[0])
    if stars.grandparents is not None:
        lost = lost + _lost_by_stars(stars, found.penalties[1])
    rows = torch.arange(len(found.score), device=found.score.device)
    last = found.duals[found.iterations - 1, rows]
    gap = (last - found.score).nan_to_num(0.0, 0.0, 0.0)  # none where no tree is known
    lost = lost.masked_fill(~(arc_mask(stars.lengths, lost.shape[1]) & stars.arcs.isfinite()), torch.inf)
    most = lost.kthvalue(min(HEADS, lost.shape[1]), 1, keepdim=True).values
    return lost.isfinite() & (lost <= torch.minimum(gap[:, None, None], most))


def _lost_by_trees(trees: TreeOracle, u: Penalties) -> Float64[Tensor, "B N N"]:
    """By how much a tree that has an arc is worse than the best one, at least: a word has no better head than its best,
    and the best tree is that much below all words' best heads."""
    N = trees.arcs.shape[1]
    arcs = sum(u.values(), trees.arcs)
    arcs = torch.where(arc_mask(trees.lengths, N), arcs, -torch.inf)
    best = torch.where(word_mask(trees.lengths, N), arcs.amax(1), 0.0)
    slack = best.sum(1) - trees.best(u).value
    return (best[:, None] - arcs - slack.nan_to_num(0.0, 0.0, 0.0)[:, None, None]).clamp(min=0.0)


def _lost_by_stars(stars: HeadAutomata, u: Penalties) -> Float64[Tensor, "B N N"]:
    """By how much the star of a word that has a head is worse than the best one, at least: no child adds more than with
    the best sibling before it, or is left out."""
    N = stars.arcs.shape[1]
    down, up = stars.arcs + u["arcs"], u["heads"]
    siblings, grandparents = hoped(stars.siblings), hoped(stars.grandparents)
    assert grandparents is not None
    best = automata(down, up, siblings, grandparents, stars.lengths, single_root=stars.single_root).values
    if siblings is not None:
        legal = legal_triples("siblings", stars.lengths, N)
        down = down + torch.where(legal, siblings, -torch.inf).amax(2).nan_to_num(0.0, neginf=0.0)
    gains = torch.where(legal_triples("grandparents", stars.lengths, N), down[:, None] + grandparents, 0.0)
    most = gains.clamp(min=0).sum(-1) + up
    return torch.where(arc_mask(stars.lengths, N), best[:, None] - most, torch.inf).clamp(min=0.0)
