"""A sentence whose best tree under constraints is looked for: its scores, what a tree violates, and the best so far."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuparse.decoding import certificates
from gpuparse.decoding.ilp.constraints.base import Constraint, Words
from gpuparse.decoding.ilp.cycles import cycles
from gpuparse.decoding.ilp.rows import Box, Row
from gpuparse.decoding.ilp.second_order import PairScores
from gpuparse.decoding.proofs import ProofLeaf

Doubles = npt.NDArray[np.float64]
Float3 = npt.NDArray[np.floating]  # [N, N, L]
Tree = tuple[list[int], list[int]]  # heads and labels of the nodes, those of node 0 -1


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
        leaves: what the bound follows from, if that was asked for (``gpuparse.decoding.proofs``).

    Example:
        >>> import numpy as np
        >>> from gpuparse import lp
        >>> found = lp.best_constrained(np.zeros((3, 3, 1)), lp.Words.of(["a", "b"]), [lp.Arcs([(0, 1), (0, 2)])])
        >>> found.heads, found.certified, found.remark
        (None, True, 'infeasible: one word under the root; the arc 0 -> 1; the arc 0 -> 2')
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
    leaves: tuple[ProofLeaf, ...] = ()

    @property
    def remark(self) -> str | None:
        """What there is to say of it; nothing where the tree is proven best."""
        if self.heads is not None:
            return None if self.certified else f"not proven: score {self.score:.4f}, bound {self.bound:.4f}"
        if not self.certified:
            return "not proven: no tree found in time that satisfies them"
        return f"infeasible: {'; '.join(self.conflict)}"


class ConstrainedSentence:
    """A sentence: its scores as distances from each word's best, and what is known of it.

    Attributes:
        distances: [N, N, L], not above 0; best: of the words, which was taken off [N - 1].
        tree, score: the best so far that satisfies all hard constraints; its score is less what was taken off.
        penalty: what it pays for soft constraints.
    """

    def __init__(
        self,
        scores: Doubles,
        sizes: Float3 | None,
        words: Words,
        constraints: Sequence[Constraint],
        parts: Sequence[PairScores],
        single_root: bool,
        end: float,
        proof: bool,
    ) -> None:
        self.words, self.constraints, self.parts, self.end = words, constraints, parts, end
        self.proof = proof
        self.of_parts: dict[Row, PairScores] = {}  # rows of second-order parts
        self.sizes = np.abs(scores if sizes is None else sizes)
        self.best = scores[:, 1:].max((0, 2))
        self.distances = scores
        with np.errstate(over="ignore"):
            self.distances[:, 1:] -= np.where(np.isfinite(self.best), self.best, 0.0)[None, :, None]
        root = Row((Box(frozenset({0})),), 1, 1, "one word under the root")
        self.own = [root] if single_root else []
        self.cycles: set[Row] = set()
        self.tree: Tree | None = None
        self.score, self.penalty = -math.inf, 0.0
        self.iterations = self.branched = 0

    def look(self, tree: Tree) -> tuple[list[Row], list[Row]]:
        """Rows of trees and parts, and rows of constraints, that a tree violates. It is kept if it satisfies what it
        must and is the best so far."""
        own, asked = list(dict.fromkeys(self._own(tree))), list(dict.fromkeys(self._asked(tree)))
        if not any(row.is_hard for row in (*own, *asked)):
            arcs = self.distances[tree[0][1:], np.arange(1, len(self.distances)), tree[1][1:]]
            score = float(arcs.sum()) - penalty([*own, *asked], tree)
            if score > self.score:
                self.tree, self.score, self.penalty = tree, score, penalty(asked, tree)
        return own, asked

    def _own(self, tree: Tree) -> Iterator[Row]:
        """What it violates of the rows of trees and of second-order parts."""
        found = list(cycles(tree[0]))
        self.cycles.update(found)
        yield from found
        yield from (row for row in self.own if row.is_violated(*tree))
        for part in self.parts:
            for row in part.violated(self.words, *tree):
                self.of_parts[row] = part
                yield row

    def _asked(self, tree: Tree) -> Iterator[Row]:
        """What it violates of the constraints."""
        for constraint in self.constraints:
            yield from constraint.violated(self.words, *tree)

    def rounding(self) -> float:
        """What the score may be off, and a bound beside it, if arcs as far away as the tree can matter."""
        near = self.distances[:, 1:] >= self.score
        size = np.where(near, self.sizes[:, 1:], 0.0).max((0, 2), initial=0.0)
        off = certificates.rounding(1, size).sum() + certificates.rounding(1, np.abs(self.best)).sum()
        return float(off + certificates.rounding(len(self.distances), -self.score))


def penalty(violated: Iterable[Row], tree: Tree) -> float:
    """What soft rows cost a tree: each what it is off by, times its weight; of those that share a slack the worst."""
    costs: dict[Hashable, float] = {}
    for row in violated:
        if not row.is_hard:
            costs[row.group] = max(costs.get(row.group, 0.0), row.weight * row.excess(*tree))
    return sum(costs.values())


def as_table(scores: Float3, words: Words) -> Doubles:
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


def check_options(heads: int, labels: int, seconds: float) -> None:
    for name, value in (("heads", heads), ("labels", labels)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is {value!r}; wanted a whole number from 1 on")
    if not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ValueError(f"the time limit is {seconds!r}; wanted seconds from 0 on")
