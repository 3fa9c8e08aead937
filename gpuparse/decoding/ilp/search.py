"""The best labelled tree under constraints: incremental integer programming (Riedel and Clarke 2006, Algorithm 1).

Columns e_{i,j,l} are there for the best heads of each word and the best labels of each arc; rows for one head (T1), one
root word if that is wanted, and what a solution was found to violate: cycles (T2) and the constraints' rows. Each round
solves the linear program on from the last, lets labelled arcs join that its prices say would pay, and looks at what the
solution violates. Only a fractional solution that violates nothing needs branch and bound, over labelled arcs.

The answer is proven best by the prices of the rows: see ``master.py`` for the bound. As in ``units.py``, what is beyond
a horizon is left out, and programs are in units in which a tree that is known is about 100 away.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import numpy.typing as npt

from gpuparse.decoding import certificates
from gpuparse.decoding.ilp.check import as_constraints
from gpuparse.decoding.ilp.constrained import Constrained, ConstrainedSentence, Float3, Tree, as_table, check_options
from gpuparse.decoding.ilp.constraints.base import Constraint, Words
from gpuparse.decoding.ilp.cycles import cycles, fractional_cycles, pairs
from gpuparse.decoding.ilp.master import Master
from gpuparse.decoding.ilp.proof import Path, leaf_of
from gpuparse.decoding.ilp.rows import Row
from gpuparse.decoding.ilp.second_order import PairScores
from gpuparse.decoding.ppc.units import SIZE, first_horizon, next_horizon
from gpuparse.decoding.proofs import ProofLeaf
from gpuparse.decoding.solver import Status

Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

WHOLE = 1e-6  # how near to a whole number a value counts as one
LIKELY = 5  # heads of a word; a cycle of two words by such is ruled out at once
JOIN = 4  # labelled arcs of one word that join at a time


def best_constrained(
    scores: Float3,
    words: Words,
    constraints: Sequence[Constraint] = (),
    *,
    parts: Sequence[PairScores] = (),
    single_root: bool = True,
    heads: int = 5,
    labels: int = 3,
    grow: bool = True,
    seconds: float = math.inf,
    start: Tree | None = None,
    sizes: Float3 | None = None,
    proof: bool = False,
) -> Constrained:
    """The best tree of one sentence that satisfies all constraints.

    Args:
        scores: [N, N, L] of head, word and label; -inf forbids. Node 0's column and the diagonal are not read.
        parts: second-order parts (``PairScores``): what they charge belongs to the score.
        heads: how many of each word's best heads to begin with, and
        labels: how many of an arc's best labels.
        grow: let more join where that could matter. Without, the answer may be only the best of these, not certified.
        seconds: the most to take.
        start: the best tree without constraints, if it is known: what it violates is stated at once.
        sizes: how large the numbers are of which each score is the sum; None: as the scores.
        proof: say what the bound follows from.

    Raises ValueError at scores that do not fit the words, or a constraint that names a word that is not there.

    Example:
        >>> import numpy as np
        >>> from gpuparse import lp
        >>> scores = np.zeros((3, 3, 2))
        >>> scores[2, 1, 1] = 3.0
        >>> words = lp.Words.of(["We", "saw"], labels=["root", "nsubj"])
        >>> found = lp.best_constrained(scores, words, [lp.Arcs(required=[(0, 1)])])
        >>> found.heads, found.score, found.certified
        ([-1, 0, 1], 0.0, True)
    """
    table = as_table(scores, words)
    check_options(heads, labels, seconds)
    constraints = as_constraints(constraints)
    for constraint in constraints:
        constraint.check(words)
    if len(table) == 1:
        return Constrained([-1], [-1], 0.0, 0.0, True, 0, 0, 0)
    sentence = ConstrainedSentence(
        table, sizes, words, constraints, parts, single_root, time.monotonic() + seconds, proof
    )
    if not np.isfinite(sentence.best).all():
        lacking = words.name(1 + int(np.argmin(np.isfinite(sentence.best))))
        return _ConstrainedSearch(sentence, math.inf).without_tree((f"no head of {lacking}",))
    return _solve(sentence, heads, labels, grow, start)


@np.errstate(over="ignore", invalid="ignore")  # at the end of the range of doubles nothing is proven
def _solve(sentence: ConstrainedSentence, heads: int, labels: int, grow: bool, start: Tree | None) -> Constrained:
    """Solve it, and again where the horizon has to move."""
    if start is not None:
        sentence.look(start)
    horizon: float | None = first_horizon(-sentence.score, sentence.distances, sentence.best)
    while True:
        assert horizon is not None
        search = _ConstrainedSearch(sentence, horizon)
        answer = search.run(heads, labels, grow, start)
        horizon = None if answer.certified and answer.heads is not None else search.next_horizon()
        if horizon is None or time.monotonic() > sentence.end:
            return answer


class _ConstrainedSearch:
    """A sentence with what is within a horizon; scores and bounds are less what was taken off."""

    def __init__(self, sentence: ConstrainedSentence, horizon: float) -> None:
        self.sentence, self.horizon = sentence, horizon
        self.scores = np.where(sentence.distances >= -horizon, sentence.distances, -np.inf)
        self.words, self.constraints = sentence.words, sentence.constraints
        for part in sentence.parts:
            part.within(horizon)
        self.N, self.end = len(self.scores), sentence.end
        self.bound = math.inf
        self.forbidden = np.zeros(self.scores.shape, dtype=bool)  # in the branch that is looked at
        self.stopped = False
        self.leaves: tuple[ProofLeaf, ...] = ()
        self.master: Master | None = None

    def next_horizon(self) -> float | None:
        """Where the horizon should be, after nothing was proven; None: where it is."""
        far = bool((np.isfinite(self.sentence.distances) & (self.sentence.distances < -self.horizon)).any())
        left_out = far or any(part.left_out for part in self.sentence.parts)
        return next_horizon(-self.sentence.score, self.horizon, left_out)

    def run(self, heads: int, labels: int, grow: bool, start: Tree | None) -> Constrained:
        first = self._first_arcs(heads, labels, start)
        likely = first if heads <= LIKELY else self._first_arcs(LIKELY, 1, start)
        found = list(pairs(likely.max(2)))
        self.sentence.cycles.update(found)
        rows = [*self.sentence.own, *found]
        if start is not None:
            rows += [row for those in self.sentence.look(start) for row in those]
        self.master = master = Master(self.scores, rows, first, SIZE - math.frexp(self.horizon)[1])
        self.prices = self.now = master.price()
        self.bound = self.prices.bound
        order = count()
        open_: list[tuple[float, int, Bools, Path, Doubles]] = [
            (-self.bound, next(order), self.forbidden, (), self.prices.paid)
        ]
        closed: list[tuple[Path, Doubles]] = []
        left = -math.inf  # of nodes that nothing came of
        while open_ and not self._is_proven(-open_[0][0]) and not self.stopped:
            above, _, self.forbidden, path, self.paid = heapq.heappop(open_)
            master.forbid(self.forbidden)
            own, weights = self._relax(-above, grow)
            splits: list[tuple[tuple[int, int, int, int], Bools]] = []
            if not self._is_proven(own):
                if self.stopped or (not grow and self._outside().any()):
                    left = max(left, own)
                else:
                    splits = list(self._split(weights))
                    self.sentence.branched += not len(open_)
            for step, forbidden in splits:
                heapq.heappush(open_, (-own, next(order), forbidden, (*path, step), self.paid))
            if not splits:
                closed.append((path, self.paid))
        if self.sentence.proof:
            closed += [(path, paid) for *_, path, paid in open_]
            self.leaves = tuple(leaf_of(self.sentence, self._master, path, paid) for path, paid in closed)
        self.bound = max(left, -open_[0][0] if open_ else -math.inf)
        if self.sentence.tree is None and self.bound == -math.inf:
            return self._infeasible()
        return self._answer()

    def _relax(self, bound: float, grow: bool) -> tuple[float, Doubles | None]:
        """Solve the linear program of a node. Returns its bound, and weights of labelled arcs where it is solved."""
        master = self._master
        while True:
            self.sentence.iterations += 1
            solution = master.solve(self.end - time.monotonic())
            if solution.status is Status.INFEASIBLE:
                joining = self._feasible()
                if not joining.any():
                    return -math.inf if self._has_no_tree() else bound, None
                if not grow:
                    return bound, None
            elif solution.values is None or solution.prices is None:
                self.stopped = self.stopped or solution.status is Status.STOPPED
                return bound, None
            else:
                self.now = master.price(solution.prices, self.forbidden)
                if self.now.bound < bound:
                    bound, self.prices, self.paid = self.now.bound, self.now, self.now.paid
                joining = self._paying() if grow else np.zeros(self.scores.shape, dtype=bool)
                if not joining.any():
                    if self._cut(master.weights(solution.values)) and not self._is_proven(bound):
                        continue
                    return bound, master.weights(solution.values)
            master.grow(joining)
            master.forbid(self.forbidden)

    def _has_no_tree(self) -> bool:
        """Whether the solver's prices prove that a node has no tree, as it says; they are kept for the proof."""
        ray = self._master.ray()
        short = 0.0 if ray is None else self._master.refutes(ray, self.forbidden)
        if ray is None or not short > 0:
            return False
        if short < math.inf:  # else a word has no head
            self.paid = self._master.price(ray * (16 * self.N * self.horizon / short), self.forbidden).paid
        return True

    def _split(self, weights: Doubles | None) -> Iterator[tuple[tuple[int, int, int, int], Bools]]:
        """Two branches: the step to each, and what is forbidden in it; none where only one labelled tree is left. One
        has an arc, or a labelled arc if arcs are whole, that the other has not. ``weights``: None if the solver failed.
        """
        table = np.zeros(self.scores.shape) if weights is None else self._table(weights)
        allowed = np.isfinite(self.scores) & ~self.forbidden
        for of_arcs in (True, False):
            weight = table.sum(2, keepdims=True) if of_arcs else table
            choice = allowed.any(2, keepdims=True) if of_arcs else allowed
            choice = choice & (choice.sum((0, 2), keepdims=True) > 1)
            if choice.any():
                half = np.where(choice, np.abs(weight - 0.5), 1.0)
                h, m, label = np.unravel_index(int(half.argmin()), half.shape)
                one = np.zeros(self.scores.shape, dtype=bool)
                one[h, m, slice(None) if of_arcs else label] = True
                others = ~one
                others[:, [x for x in range(self.N) if x != m]] = False
                step = int(h), int(m), -1 if of_arcs else int(label)
                yield (*step, 1), self.forbidden | others
                yield (*step, 0), self.forbidden | one
                return
        if weights is None:  # the one labelled tree that is left was not seen
            best = np.where(allowed, 0.0, -np.inf).transpose(1, 0, 2).reshape(self.N, -1).argmax(1)
            heads, labels = np.unravel_index(best, allowed.shape[::2])
            self.sentence.look(([-1, *heads[1:].tolist()], [-1, *labels[1:].tolist()]))

    def _is_proven(self, bound: float) -> bool:
        score = self.sentence.score
        if self.sentence.tree is None:
            return bound == -math.inf
        return bool(certificates.is_proven(score, bound, self.sentence.rounding()))

    # Which labelled arcs are columns

    def _first_arcs(self, heads: int, labels: int, start: Tree | None) -> Bools:
        """The best labels of the best heads of each word, and those of the start."""
        chosen = np.zeros(self.scores.shape, dtype=bool)
        order = np.argsort(-self.scores, axis=2, kind="stable")[:, :, : max(1, labels)]
        np.put_along_axis(chosen, order, True, axis=2)
        rank = np.argsort(np.argsort(-self.scores.max(2), axis=0, kind="stable"), axis=0)
        chosen &= (rank < max(1, heads))[:, :, None]
        if start is not None:
            chosen[start[0][1:], np.arange(1, self.N), start[1][1:]] = True
        return chosen & np.isfinite(self.scores)

    def _outside(self) -> Bools:
        return ~self._master.inside & np.isfinite(self.scores) & ~self.forbidden

    def _paying(self) -> Bools:
        """Labelled arcs outside with a positive reduced cost; the best of each word."""
        reduced = self.now.reduced[:, 1:]
        inside = np.where(self._master.inside[:, 1:], reduced, -np.inf).max((0, 2))
        least = np.where(np.isfinite(inside), inside + certificates.rounding(0, np.abs(inside)), inside)
        paying = self._outside()
        paying[:, 1:] &= reduced > least[None, :, None]
        if paying.any():
            worth = np.where(paying[:, 1:], reduced, -np.inf).transpose(1, 0, 2).reshape(self.N - 1, -1)
            if worth.shape[1] > JOIN:
                enough = np.partition(worth, -JOIN, axis=1)[:, -JOIN]
                paying[:, 1:] &= reduced >= enough[None, :, None]
        return paying

    def _feasible(self) -> Bools:
        """Labelled arcs to try where none satisfies the rows: of labels that no row tells apart only the best ones.

        As many as there are columns, nearest first; none if all are inside.
        """
        master = self._master
        lacking = np.zeros(self.scores.shape, dtype=bool)
        for labels in master.label_classes():
            of_class = np.where(self.forbidden, -np.inf, self.scores)[:, :, labels]
            best = labels[of_class.argmax(2)]
            has = (master.inside & ~self.forbidden)[:, :, labels].any(2)
            heads, words = np.nonzero(~has & np.isfinite(of_class.max(2)))
            lacking[heads, words, best[heads, words]] = True
        if lacking.any():
            gap = np.where(lacking[:, 1:], self.prices.gap, np.inf)
            count = min(len(master.head), int(lacking.sum())) - 1
            lacking[:, 1:] &= gap <= np.partition(gap, count, axis=None)[count]
        return lacking

    # What a solution violates

    def _cut(self, weights: Doubles) -> bool:
        """State rows that a solution violates, and keep the tree that it is or rounds to; whether there were any."""
        tree = self._master.rounded(weights)
        new = [row for those in self.sentence.look(tree) for row in those if not self._master.is_stated(row)]
        fractional = bool((np.abs(weights - np.round(weights)) > WHOLE).any())
        if fractional:
            new += [row for row in self._separated(weights) if not self._master.is_stated(row)]
            amounts = self._master.amounts(new, weights).tolist()  # the solution may keep what its rounding violates
            new = [r for r, x in zip(new, amounts, strict=True) if not r.low - WHOLE <= x <= r.high + WHOLE]
        self._master.state(new)
        return bool(new)

    def _table(self, weights: Doubles) -> Doubles:
        """Weights of all labelled arcs [N, N, L]."""
        master = self._master
        table = np.zeros(self.scores.shape)
        table[master.head, master.word, master.label] = weights
        return table

    def _separated(self, weights: Doubles) -> Iterator[Row]:
        """Rows that a fractional solution may violate."""
        table = self._table(weights)
        found = list(fractional_cycles(table.sum(2), WHOLE))
        self.sentence.cycles.update(found)
        yield from found
        for constraint in self.constraints:
            yield from constraint.separated(self.words, table, hard=True)

    # What is said at the end

    @property
    def _master(self) -> Master:
        if self.master is None:
            raise AssertionError("run() makes it")
        return self.master

    def _answer(self) -> Constrained:
        sentence = self.sentence
        certified = sentence.tree is not None and self._is_proven(max(self.bound, sentence.score))
        with np.errstate(over="ignore"):
            offset = float(sentence.best.sum())
        left_out = self.next_horizon() is not None
        score = sentence.score + offset
        bound = score if certified else max(self.bound + offset, score, offset - self.horizon if left_out else score)
        heads, labels = sentence.tree or (None, None)
        sizes = len(self._master.head), len(self._master.rows)
        counts = sentence.iterations, *sizes
        found = Constrained(heads, labels, score, bound, certified, *counts, branched=sentence.branched)
        return replace(found, penalty=sentence.penalty, leaves=self.leaves)

    def without_tree(self, conflict: tuple[str, ...]) -> Constrained:
        sizes = (len(self.master.head), len(self.master.rows)) if self.master else (0, 0)
        counts = self.sentence.iterations, *sizes
        return Constrained(None, None, -math.inf, -math.inf, True, *counts, conflict, branched=self.sentence.branched)

    def _infeasible(self) -> Constrained:
        """Rows that cannot hold together, those of trees left out: each is tried without in turn."""
        stated = list(self._master.given)[self.N - 1 :]  # T1 come first
        kept = [row for row in stated if row.is_hard and row not in self.sentence.cycles]
        for row in list(kept):
            rest = [other for other in kept if other is not row]
            if time.monotonic() < self.end and self._is_infeasible(rest):
                kept = rest
        return self.without_tree(tuple(row.why for row in kept) or ("no tree is made of the arcs that are allowed",))

    def _is_infeasible(self, rows: list[Row]) -> bool:
        """Whether no tree of all arcs that there are keeps to these rows, cycles being ruled out as they come up."""
        flat = np.where(np.isfinite(self.scores), 0.0, -np.inf)
        master = Master(flat, [*rows, *self.sentence.cycles], self._master.inside)
        while True:
            solution = master.solve(self.end - time.monotonic())
            if solution.status is Status.OPTIMAL:
                solution = master.solve_whole(self.end - time.monotonic())
            if solution.status is not Status.OPTIMAL or solution.values is None:
                return solution.status is Status.INFEASIBLE
            heads, _ = master.rounded(master.weights(solution.values))
            new = list(cycles(heads))
            if not new:
                return False
            self.sentence.cycles.update(new)
            master.state(new)
