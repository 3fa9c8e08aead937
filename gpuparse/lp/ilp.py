"""The best labelled tree under constraints: incremental integer programming (Riedel and Clarke 2006, Algorithm 1).

Variables e_{i,j,l} are there for the best heads of each word and the best labels of each arc; rows for one head (T1),
one root word if that is wanted, and what a solution was found to violate: cycles (T2) and the constraints' rows.

No labelled tree scores more than every word with its best head and label, B. So one with the labelled arc a scores at
most B - gap(a), gap(a) being what a falls short of its word's best. Once a tree of score s is best among those made of
the variables, it is best of all if no arc outside has a gap below B - s; those that have join, and it is solved again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuparse.lp.constraints import Constraint, Words
from gpuparse.lp.rows import Box, Row
from gpuparse.lp.solver import Program, Solution, Status

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TOLERANCE = 1e-7  # of the solver, as a part of a score


@dataclass(frozen=True)
class Constrained:
    """What is known of a sentence.

    Attributes:
        heads, labels: of the nodes, -1 at node 0; None if no tree was found that satisfies everything.
        score: of that tree; -inf without one.
        bound: no tree that satisfies everything scores more.
        certified: the tree is proven best, or it is proven that there is none.
        iterations: integer programs solved.
        variables, rows: of the last one.
        conflict: constraints that cannot hold together, where there is no tree: none of them can be left out.
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


def best_constrained(
    scores: Float3,
    words: Words,
    constraints: Sequence[Constraint] = (),
    *,
    single_root: bool = True,
    heads: int = 5,
    labels: int = 3,
    seconds: float = math.inf,
) -> Constrained:
    """The best tree of one sentence that satisfies all constraints.

    Args:
        scores: [N, N, L] of head, word and label; -inf forbids. Node 0's column and the diagonal are not read.
        heads: how many of each word's best heads to begin with, and
        labels: how many of an arc's best labels; more join where that could matter.
        seconds: the most to take.
    """
    return _Search(scores, words, constraints, single_root, seconds).run(heads, labels)


class _Search:
    def __init__(
        self, scores: Float3, words: Words, constraints: Sequence[Constraint], single_root: bool, seconds: float
    ) -> None:
        N = scores.shape[0]
        self.words, self.constraints, self.N = words, constraints, N
        self.scores = np.array(scores, dtype=np.float64)
        self.scores[:, 0] = -np.inf
        self.scores[np.arange(N), np.arange(N)] = -np.inf
        self.best = self.scores[:, 1:].max((0, 2)) if N > 1 else np.zeros(0)  # of each word
        self.ceiling = float(self.best.sum())  # B
        self.end = time.monotonic() + seconds
        self.program = Program()
        self.stated: list[Row] = [self._one_head(m) for m in range(1, N)]
        if single_root:
            self.stated.append(Row((Box(frozenset({0})),), 1, 1, "one word under the root"))
        self.seen = set(self.stated)
        self.head = self.word = self.label = np.zeros(0, dtype=np.int64)  # of the variables
        self.inside = np.zeros(scores.shape, dtype=bool)  # which labelled arcs are variables
        self.iterations = 0

    @staticmethod
    def _one_head(word: int) -> Row:
        return Row((Box(None, frozenset({word})),), 1, 1, f"one head of word {word}")

    def run(self, heads: int, labels: int) -> Constrained:
        if not np.isfinite(self.ceiling):
            return self._without_tree(("a word has no possible head",))
        self._grow(self._first_arcs(heads, labels))
        for row in self.stated:
            self._state(row)
        while True:
            solution, tree = self._solve()
            if solution.status in (Status.STOPPED, Status.FAILED):
                bound = min(self.ceiling, solution.bound) if self._complete() else self.ceiling
                return self._answer(tree, bound, certified=False)
            missing = self._missing(-np.inf if tree is None else self._score(*tree))
            if not missing.any():
                if tree is None:
                    return self._without_tree(self._conflict())
                return self._answer(tree, self._score(*tree), certified=True)
            self._grow(missing)

    def _first_arcs(self, heads: int, labels: int) -> npt.NDArray[np.bool_]:
        """The best labels of the best heads of each word."""
        L = self.scores.shape[2]
        chosen = np.zeros_like(self.inside)
        order = np.argsort(-self.scores, axis=2, kind="stable")[:, :, : min(labels, L)]
        np.put_along_axis(chosen, order, True, axis=2)
        rank = np.argsort(np.argsort(-self.scores.max(2), axis=0, kind="stable"), axis=0)
        return chosen & (rank < heads)[:, :, None] & np.isfinite(self.scores)

    def _missing(self, score: float) -> npt.NDArray[np.bool_]:
        """Labelled arcs outside that a better tree could have; twice as many at a time where no tree is known."""
        gap = self.best[None, :, None] - self.scores[:, 1:]
        outside = ~self.inside[:, 1:] & np.isfinite(self.scores[:, 1:])
        room = self.ceiling - score + TOLERANCE * max(1.0, abs(score) if math.isfinite(score) else 1.0)
        wanted = outside & (gap <= room)
        if math.isinf(score) and wanted.any():
            enough = np.partition(gap[wanted], k := min(len(self.head), int(wanted.sum()) - 1))[k]
            wanted &= gap <= enough
        return np.concatenate([np.zeros_like(self.inside[:, :1]), wanted], 1)

    def _complete(self) -> bool:
        return bool((self.inside[:, 1:] | ~np.isfinite(self.scores[:, 1:])).all())

    def _grow(self, arcs: npt.NDArray[np.bool_]) -> None:
        """Make variables of labelled arcs, in the rows that there are."""
        head, word, label = (x.astype(np.int64) for x in np.nonzero(arcs))
        rows = []
        for row in self.stated[: self.program.rows]:
            values = row.coefficients(head, word, label)
            (places,) = np.nonzero(values)
            rows.append((places.astype(np.int32), values[places]))
        self.program.add_variables(self.scores[head, word, label], rows)
        self.head, self.word = np.concatenate([self.head, head]), np.concatenate([self.word, word])
        self.label = np.concatenate([self.label, label])
        self.inside |= arcs

    def _state(self, row: Row) -> None:
        values = row.coefficients(self.head, self.word, self.label)
        (places,) = np.nonzero(values)
        self.program.add_row(places.astype(np.int32), values[places], row.low, row.high)

    def _solve(self) -> tuple[Solution, tuple[list[int], list[int]] | None]:
        """Algorithm 1: solve, add the rows that the solution violates, until it violates none."""
        while True:
            self.iterations += 1
            solution = self.program.solve(self.end - time.monotonic())
            if solution.values is None:
                return solution, None
            tree = self._tree(solution.values)
            new = [row for row in self._violated(*tree) if row not in self.seen]
            if not new:
                return solution, tree
            if solution.status is not Status.OPTIMAL:
                return solution, None
            for row in new:
                self.seen.add(row)
                self.stated.append(row)
                self._state(row)

    def _tree(self, values: Doubles) -> tuple[list[int], list[int]]:
        heads, labels = [-1] * self.N, [-1] * self.N
        for k in np.nonzero(values > 0.5)[0].tolist():
            heads[self.word[k]], labels[self.word[k]] = int(self.head[k]), int(self.label[k])
        return heads, labels

    def _violated(self, heads: list[int], labels: list[int]) -> Iterator[Row]:
        yield from cycles(heads)
        for constraint in self.constraints:
            yield from constraint.violated(self.words, heads, labels)

    def _score(self, heads: list[int], labels: list[int]) -> float:
        words = np.arange(1, self.N)
        return float(self.scores[np.array(heads[1:], dtype=int), words, np.array(labels[1:], dtype=int)].sum())

    def _answer(self, tree: tuple[list[int], list[int]] | None, bound: float, certified: bool) -> Constrained:
        heads, labels = tree or (None, None)
        score = self._score(*tree) if tree else -math.inf
        return Constrained(
            heads, labels, score, max(bound, score), certified, self.iterations, len(self.head), self.program.rows
        )

    def _without_tree(self, conflict: tuple[str, ...]) -> Constrained:
        return Constrained(
            None, None, -math.inf, -math.inf, True, self.iterations, len(self.head), self.program.rows, conflict
        )

    def _conflict(self) -> tuple[str, ...]:
        """Rows that cannot hold together; the tree's own are left out of the list. Each is tried without in turn."""
        own = [row for row in self.stated if not row.why.startswith(("one head of", "a cycle"))]
        kept = list(own)
        for row in own:
            rest = [other for other in kept if other is not row]
            if self._is_infeasible(rest):
                kept = rest
        return tuple(row.why for row in kept)

    def _is_infeasible(self, rows: list[Row]) -> bool:
        program = Program()
        program.add_variables(np.zeros(len(self.head)))
        for row in [*(r for r in self.stated if r.why.startswith(("one head of", "a cycle"))), *rows]:
            values = row.coefficients(self.head, self.word, self.label)
            (places,) = np.nonzero(values)
            program.add_row(places.astype(np.int32), values[places], row.low, row.high)
        return program.solve(min(10.0, max(0.1, self.end - time.monotonic()))).status is Status.INFEASIBLE


Float3 = npt.NDArray[np.floating]  # [N, N, L]


def cycles(heads: Sequence[int]) -> Iterator[Row]:
    """T2: for each cycle among the heads, that fewer of its nodes have their head among them."""
    state = [0] * len(heads)  # 1: on the way, 2: done
    for start in range(1, len(heads)):
        path = []
        node = start
        while node > 0 and state[node] == 0:
            state[node] = 1
            path.append(node)
            node = heads[node]
        if node > 0 and state[node] == 1:
            nodes = frozenset(path[path.index(node) :])
            names = ", ".join(map(str, sorted(nodes)))
            yield Row((Box(nodes, nodes),), 0, len(nodes) - 1, f"a cycle of words {names}")
        for done in path:
            state[done] = 2
