"""The best labelled tree under constraints: incremental integer programming (Riedel and Clarke 2006, Algorithm 1).

Columns e_{i,j,l} are there for the best heads of each word and the best labels of each arc; rows for one head (T1), one
root word if that is wanted, and what a solution was found to violate: cycles (T2) and the constraints' rows. Each round
solves the linear program on from the last, lets labelled arcs join that its prices say would pay, and looks at what the
solution violates. Only a fractional solution that violates nothing needs branch and bound.

The answer is proven best if no labelled arc outside could be in a better tree: see ``master.py`` for the bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuparse.lp.check import as_constraints
from gpuparse.lp.constraints import Constraint, Words
from gpuparse.lp.cycles import cycles, fractional_cycles, pairs
from gpuparse.lp.master import Master, Prices
from gpuparse.lp.rows import Box, Row
from gpuparse.lp.solver import Solution, Status

Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Float3 = npt.NDArray[np.floating]  # [N, N, L]
Tree = tuple[list[int], list[int]]  # heads and labels of the nodes, those of node 0 -1

TOLERANCE = 1e-8  # of differences of scores
ROUNDING = 1e-13  # as a part of them
WHOLE = 1e-6  # how near to a whole number a value counts as one
LIKELY = 5  # heads of a word; a cycle of two words by such is ruled out at once
JOIN = 4  # labelled arcs of one word that join at a time


@dataclass(frozen=True)
class Constrained:
    """What is known of a sentence.

    Attributes:
        heads, labels: of the nodes, -1 at node 0; None if no tree was found that satisfies all hard constraints.
        score: of that tree, less the penalty; -inf without one.
        bound: no tree that satisfies all hard constraints scores more.
        certified: the tree is proven best, or it is proven that there is none.
        iterations: programs solved.
        variables, rows: of the last one.
        conflict: constraints that cannot hold together, where there is no tree: none of them can be left out, if there
            was the time to try.
        penalty: what the tree pays for soft constraints.
        branched: how often branch and bound was needed.
    """

    heads: list[int] | None
    labels: list[int] | None
    score: float
    bound: float
    certified: bool
    iterations: int
    variables: int
    rows: int
    conflict: tuple[str, ...] = ()
    penalty: float = 0.0
    branched: int = 0


def best_constrained(
    scores: Float3,
    words: Words,
    constraints: Sequence[Constraint] = (),
    *,
    parts: Sequence[Constraint] = (),
    single_root: bool = True,
    heads: int = 5,
    labels: int = 3,
    grow: bool = True,
    seconds: float = math.inf,
    start: Tree | None = None,
) -> Constrained:
    """The best tree of one sentence that satisfies all constraints.

    Args:
        scores: [N, N, L] of head, word and label; -inf forbids. Node 0's column and the diagonal are not read.
        parts: second-order parts (``SecondOrder``): what they charge belongs to the score.
        heads: how many of each word's best heads to begin with, and
        labels: how many of an arc's best labels.
        grow: let more join where that could matter. Without, the answer may be only the best of these, not certified.
        seconds: the most to take.
        start: the best tree without constraints, if it is known: what it violates is stated at once.
    """
    table = _as_scores(scores, words)
    _check_options(heads, labels, seconds)
    constraints = as_constraints(constraints)
    for constraint in constraints:
        constraint.check(words)
    if len(table) == 1:
        return Constrained([-1], [-1], 0.0, 0.0, True, 0, 0, 0)
    best = table[:, 1:].max((0, 2))
    table[:, 1:] -= np.where(np.isfinite(best), best, 0.0)[None, :, None]  # so that tolerances are of differences
    search = _Search(table, float(best.sum()), words, constraints, parts, single_root, time.monotonic() + seconds)
    if not np.isfinite(best).all():
        return search.without_tree((f"no head of {words.name(1 + int(np.argmin(best)))}",))
    return search.run(heads, labels, grow, start)


def _as_scores(scores: Float3, words: Words) -> Doubles:
    """A copy without what is never read."""
    table = np.array(scores, dtype=np.float64)
    if table.ndim != 3 or table.shape[0] != table.shape[1] or table.shape[2] < 1:
        raise ValueError(f"scores must have shape [N, N, L], got {list(table.shape)}")
    N = len(table)
    if len(words.forms) != N or len(words.tags) != N:
        raise ValueError(f"words: {len(words.forms) - 1}, but scores are of {N - 1}")
    if any(not 0 <= number < table.shape[2] for number in words.labels.values()):
        raise ValueError(f"words: a label's number is not in 0..{table.shape[2] - 1}")
    table[:, 0] = -np.inf
    table[np.arange(N), np.arange(N)] = -np.inf
    wrong = np.argwhere(np.isnan(table) | np.isposinf(table))
    if len(wrong):
        place = tuple(wrong[0].tolist())
        raise ValueError(f"scores{list(place)} is {table[place]}; scores must be finite, or -inf for a forbidden arc")
    return table


def _check_options(heads: int, labels: int, seconds: float) -> None:
    for name, value in (("heads", heads), ("labels", labels)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is {value!r}; wanted a whole number from 1 on")
    if not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ValueError(f"the time limit is {seconds!r}; wanted seconds from 0 on")


class _Search:
    def __init__(
        self,
        scores: Doubles,
        offset: float,
        words: Words,
        constraints: Sequence[Constraint],
        parts: Sequence[Constraint],
        single_root: bool,
        end: float,
    ) -> None:
        self.scores, self.offset, self.words, self.end = scores, offset, words, end
        self.constraints, self.parts = constraints, parts
        self.N = len(scores)
        root = Row((Box(frozenset({0})),), 1, 1, "one word under the root")
        self.own = [root] if single_root else []
        self.iterations = self.branched = 0
        self.tree: Tree | None = None  # the best so far that satisfies all hard constraints
        self.score = -math.inf
        self.penalty = 0.0
        self.bound = math.inf  # score and bound are less the offset
        self.cycles: set[Row] = set()
        self.master: Master | None = None

    def run(self, heads: int, labels: int, grow: bool, start: Tree | None) -> Constrained:
        first = self._first_arcs(heads, labels, start)
        likely = first if heads <= LIKELY else self._first_arcs(LIKELY, 1, start)
        rows = [*self.own, *pairs(likely.max(2))]
        self.cycles.update(rows[len(self.own) :])
        if start is not None:
            rows += [*self._own(start), *self._asked(start)]
        self.master = master = Master(self.scores, rows, first)
        self.prices = master.price()
        self.bound = self.prices.bound
        while True:
            solution = self._solved(master.solve(self.end - time.monotonic()))
            if solution.status is Status.OPTIMAL and solution.values is not None and solution.prices is not None:
                self._take(master.price(solution.prices))
                if grow and (joining := self._paying()).any():
                    master.grow(joining)
                    continue
                if self._cut(master.weights(solution.values)):
                    continue
                if self._is_proven():
                    return self._answer(certified=True)
            if solution.status in (Status.OPTIMAL, Status.FAILED):
                self.branched += 1
                solution = self._solved(master.solve_whole(self.end - time.monotonic()))
            if solution.status in (Status.STOPPED, Status.FAILED):
                if solution.values is not None:
                    self._cut(master.weights(solution.values))
                return self._answer(certified=False)
            if solution.values is not None:
                if self._cut(master.weights(solution.values)):
                    continue
                if not self.score >= solution.bound - self._slack():  # it disagrees with the solver
                    return self._answer(certified=False)
                joining = self._missing()
            else:
                joining = self._feasible()
            if not joining.any():
                return self._answer(certified=True) if solution.values is not None else self._infeasible()
            if not grow:
                return self._answer(certified=False)
            master.grow(joining)

    def _solved(self, solution: Solution) -> Solution:
        self.iterations += 1
        return solution

    def _take(self, prices: Prices) -> None:
        """Keep the prices that prove most."""
        self.now = prices
        if prices.bound < self.bound:
            self.bound, self.prices = prices.bound, prices

    def _is_proven(self) -> bool:
        return self.tree is not None and self.score >= self.bound - self._slack()

    def _slack(self) -> float:
        return TOLERANCE + ROUNDING * abs(self.bound)

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
        return ~self._master.inside & np.isfinite(self.scores)

    def _paying(self) -> Bools:
        """Labelled arcs outside with a positive reduced cost; the best of each word."""
        reduced = self.now.reduced[:, 1:]
        inside = np.where(self._master.inside[:, 1:], reduced, -np.inf).max((0, 2))
        least = inside + 1e-9 + ROUNDING * np.abs(inside)
        paying = self._outside()
        paying[:, 1:] &= reduced > least[None, :, None]
        if paying.any():
            worth = np.where(paying[:, 1:], reduced, -np.inf).transpose(1, 0, 2).reshape(self.N - 1, -1)
            if worth.shape[1] > JOIN:
                enough = np.partition(worth, -JOIN, axis=1)[:, -JOIN]
                paying[:, 1:] &= reduced >= enough[None, :, None]
        return paying

    def _missing(self) -> Bools:
        """Labelled arcs outside that a better tree than the best so far could have."""
        missing = self._outside()
        missing[:, 1:] &= self.prices.gap <= self.bound - self.score + self._slack()
        return missing

    def _feasible(self) -> Bools:
        """Labelled arcs to try where none satisfies the rows: of labels that no row tells apart only the best ones.

        As many as there are columns, nearest first; none if all are inside.
        """
        master = self._master
        lacking = np.zeros(self.scores.shape, dtype=bool)
        for labels in master.label_classes():
            of_class = self.scores[:, :, labels]
            best = labels[of_class.argmax(2)]
            has = master.inside[:, :, labels].any(2)
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
        asked = dict.fromkeys(self._asked(tree))
        violated = {**dict.fromkeys(self._own(tree)), **asked}
        new = [row for row in violated if not self._master.is_stated(row)]
        fractional = bool((np.abs(weights - np.round(weights)) > WHOLE).any())
        if fractional:
            new += [row for row in self._separated(weights) if not self._master.is_stated(row)]
            amounts = self._master.amounts(new, weights).tolist()  # the solution may keep what its rounding violates
            new = [r for r, x in zip(new, amounts, strict=True) if not r.low - WHOLE <= x <= r.high + WHOLE]
        self._keep(tree, violated, asked)
        self._master.state(new)
        return bool(new)

    def _separated(self, weights: Doubles) -> Iterator[Row]:
        """Rows that a fractional solution may violate."""
        master = self._master
        table = np.zeros(self.scores.shape)
        table[master.head, master.word, master.label] = weights
        found = list(fractional_cycles(table.sum(2), WHOLE))
        self.cycles.update(found)
        yield from found
        for constraint in self.constraints:
            yield from constraint.separated(self.words, table, hard=True)

    def _own(self, tree: Tree) -> Iterator[Row]:
        """What it violates of the rows of trees and of second-order parts."""
        found = list(cycles(tree[0]))
        self.cycles.update(found)
        yield from found
        yield from (row for row in self.own if row.is_violated(*tree))
        for part in self.parts:
            yield from part.violated(self.words, *tree)

    def _asked(self, tree: Tree) -> Iterator[Row]:
        """What it violates of the constraints."""
        for constraint in self.constraints:
            yield from constraint.violated(self.words, *tree)

    def _keep(self, tree: Tree, violated: Collection[Row], asked: Collection[Row]) -> None:
        """Keep a tree if it satisfies what it must and is the best so far."""
        if any(row.is_hard for row in violated):
            return
        score = self._sum(tree) - penalty(violated, tree)
        if score > self.score:
            self.tree, self.score = tree, score
            self.penalty = penalty(asked, tree)

    def _sum(self, tree: Tree) -> float:
        return float(self.scores[tree[0][1:], np.arange(1, self.N), tree[1][1:]].sum())

    # What is said at the end

    @property
    def _master(self) -> Master:
        if self.master is None:
            raise AssertionError("run() makes it")
        return self.master

    def _answer(self, certified: bool) -> Constrained:
        heads, labels = self.tree or (None, None)
        score = self.score + self.offset
        bound = score if certified else max(self.bound + self.offset, score)
        sizes = len(self._master.head), len(self._master.rows)
        return Constrained(
            heads, labels, score, bound, certified, self.iterations, *sizes, (), self.penalty, self.branched
        )

    def without_tree(self, conflict: tuple[str, ...]) -> Constrained:
        sizes = (len(self.master.head), len(self.master.rows)) if self.master else (0, 0)
        return Constrained(
            None, None, -math.inf, -math.inf, True, self.iterations, *sizes, conflict, branched=self.branched
        )

    def _infeasible(self) -> Constrained:
        """Rows that cannot hold together, those of trees left out: each is tried without in turn."""
        stated = list(self._master.given)[self.N - 1 :]  # T1 come first
        kept = [row for row in stated if row.is_hard and row not in self.cycles]
        for row in list(kept):
            rest = [other for other in kept if other is not row]
            if time.monotonic() < self.end and self._is_infeasible(rest):
                kept = rest
        return self.without_tree(tuple(row.why for row in kept) or ("no tree is made of the arcs that are allowed",))

    def _is_infeasible(self, rows: list[Row]) -> bool:
        """Whether no tree of all arcs that there are keeps to these rows, cycles being ruled out as they come up."""
        flat = np.where(np.isfinite(self.scores), 0.0, -np.inf)
        master = Master(flat, [*rows, *self.cycles], self._master.inside)
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
            self.cycles.update(new)
            master.state(new)


def penalty(violated: Iterable[Row], tree: Tree) -> float:
    """What soft rows cost a tree: each what it is off by, times its weight; of those that share a slack the worst."""
    costs: dict[Hashable, float] = {}
    for row in violated:
        if not row.is_hard:
            costs[row.group] = max(costs.get(row.group, 0.0), row.weight * row.excess(*tree))
    return sum(costs.values())
