"""Parse, price and cut (Riedel, Smith and McCallum 2012, Algorithm 1) for one sentence, a round at a time.

The program begins with few arcs and grandparents. A round solves it (parse), asks for grandparents of positive reduced
cost under its duals (price; ``gpuparse.ops.pricing`` does it for a batch), and adds these, the arcs that they need, and
rows that the solution violates (cut). Beyond the paper:

- Grandparents bring their row GPArc with them: this takes half the rounds that it takes if rows join where violated.
- Arcs join like grandparents do. The dual of OneGP(p, c) is free, so an arc that is no column has what its grandparents
  are worth at most, and no more is asked of it.
- What an arc has to spare may also pay for the grandparents that go through it as (g, p), by the duals of their rows
  GPArc: these need not be columns as long as they are worth no more together.
- In place of flow there are cuts, where they are violated and nothing else is left to do. If the paper's polytope is
  wanted it is then that flow joins.
- Every round gives a bound: with the greatest reduced cost of any column of a word added to that word's dual of OneHead
  the duals are feasible for the whole program. It is computed here, whatever the solver says. A tree that reaches it is
  best, and nothing more is to be solved.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from gpuparse.decoding import certificates
from gpuparse.decoding.ppc.grandparents import Bools, Doubles, Duals, GrandparentProgram, Ints, Polytope
from gpuparse.decoding.ppc.units import SIZE, Units
from gpuparse.decoding.ppc.witness import Witness
from gpuparse.decoding.solver import Status

VIOLATED = 1e-7  # of a row
PENALTY = 1e4  # of artificial columns, at first
PRICED = 1e-9  # reduced costs above this, in a program's units, are asked for first
WHOLE = 1e-6
PER_CHILD = 6  # triples that join in a round
NONE = np.zeros((0, 3), dtype=np.int64)


@dataclass(frozen=True)
class Question:
    """What pricing needs to know of a sentence, each [N, N]: see ``gpuparse.ops.pricing.price``.

    ``z``: weights of arcs. One that joins may want its head's best head by them for a grandparent.
    """

    ceiling: Doubles
    floor: Doubles
    kappa: Doubles
    z: Doubles


@dataclass(frozen=True)
class Answer:
    """What pricing found: triples (g, p, c) [T, 3], with their scores and reduced costs."""

    triples: Ints
    scores: Doubles
    costs: Doubles


T = TypeVar("T")
Request = Question | Ints
Reply = Answer | Doubles
Work = Generator[Request, Any, T]
"""Work on a sentence that comes to a T. It asks what triples have positive reduced cost (a ``Question``, which gets an
``Answer``) or what triples [T, 3] score (which gets their scores), and may be put aside until it is told."""


@dataclass
class PricedSentence:
    """A sentence that is being parsed.

    Args:
        units: of its costs; all scores here are such costs.
        bound: what no tree scores more than, to begin with.
        seconds: time for it, which who drives the work takes from it.

    Attributes:
        arcs: costs [N, N], -inf where there is no arc.
        bound: no tree scores more, whatever rounding did.
        tree, score: the best tree so far, [N] with -1 at node 0, and its score.
        z: weights of the arcs in the last solution [N, N].
        forbidden: arcs that may not be now (of a branch).
        done: whether the linear program is solved, or the tree is proven best, or nothing helps.
    """

    units: Units
    single_root: bool
    bound: float
    seconds: float = math.inf
    polytope: Polytope = "tight"
    tree: Ints | None = None
    score: float = -math.inf
    z: Doubles | None = None
    iterations: int = 0
    done: bool = False
    status: Status = Status.OPTIMAL
    arcs: Doubles = field(init=False)
    forbidden: Bools = field(init=False)
    program: GrandparentProgram = field(init=False)
    witness: Witness | None = None

    def __post_init__(self) -> None:
        self.arcs = self.units.arcs
        self.forbidden = np.zeros(self.arcs.shape, dtype=bool)
        self.penalty = PENALTY
        self.program = GrandparentProgram(self.arcs, single_root=self.single_root, penalty=self.penalty, flow=False)
        self._values = self._scores = np.zeros(0)
        self._duals: Duals | None = None
        self._objective = self._noise = math.inf
        self._rounding = 0.0  # what the score may be off

    @property
    def certified(self) -> bool:
        """Whether the tree is proven best."""
        return self._proves(self.bound)

    def _proves(self, bound: float) -> bool:
        """Whether the tree is best, if no tree scores more than the bound."""
        return self.tree is not None and bool(certificates.is_proven(self.score, bound, self._rounding))

    @property
    def outgrown(self) -> bool:
        """Whether the tree came so near that the program should have other units."""
        return self.tree is not None and self.units.next_horizon(self.score, False) is not None

    @property
    def integral(self) -> bool:
        """Whether the last solution is a tree."""
        return self.z is not None and not self._lacking and bool((np.minimum(self.z, 1 - self.z) < WHOLE).all())

    @property
    def _lacking(self) -> bool:
        """Whether the last solution has artificial columns."""
        return bool((self._values[self.program.artificial] > WHOLE).any())

    def restrict(self, forbidden: Bools) -> None:
        """Begin anew without some arcs, with the columns and rows that there are."""
        self.forbidden, self.bound, self.done, self.status = forbidden, math.inf, False, Status.OPTIMAL
        self.witness = None
        h, m = np.nonzero(self.program.z >= 0)
        self.program.program.limit(self.program.z[h, m], np.where(forbidden[h, m], 0.0, np.inf))
        if self.penalty != PENALTY:
            self._charge(PENALTY)

    def begin(self, arcs: Ints, triples: Ints, scores: Doubles) -> None:
        """The first columns: arcs [A, 2] and triples [T, 3]."""
        self.program.add_arcs(arcs[:, 0], arcs[:, 1])
        self._add_triples(triples, scores)

    def solve(self) -> Question | None:
        """Parse: solve the program as it is. None if it could not be solved."""
        found = self.program.solve(self.seconds)
        self.iterations += 1
        if found.status is not Status.OPTIMAL or found.values is None or found.prices is None:
            self.status, self.done = found.status, True
            return None
        self._values = found.values
        self.z = self.program.weights(found.values)
        self._duals = duals = self.program.duals(found.prices)
        self._objective = self.program.objective(duals)
        self._noise = certificates.rounding(0, self.program.size(duals))
        ceiling = self.program.budgets(duals)
        ceiling[self.forbidden | (self.arcs == -np.inf)] = np.inf
        self._ceiling = ceiling
        return Question(ceiling, duals.one_gp, duals.no_gp, self.z)

    def update(self, answer: Answer) -> Ints:
        """Price and cut: the bound, then new columns and rows, given what pricing found. Returns triples [T, 3] that
        should be columns too; ``extend`` takes them with their scores."""
        program = self.program
        g, p, c = answer.triples.T
        new = program.z_gp[g, p, c] < 0  # a column may be priced by its row GPArc, which pricing does not know
        worst = self._worst(answer, new)
        self._read_tree()
        exact = self._objective + float(np.maximum(worst[1:], 0.0).sum())  # but for rounding
        bound = exact + self._noise
        if self._proves(exact) and not self._proves(bound):
            bound = exact + self._precise_noise()
        if bound < self.bound:
            assert self._duals is not None
            self.bound, self.witness = bound, Witness(self._duals, self._ceiling, program)
        if self.certified or self.outgrown:
            self.done = True
            return NONE
        before = program.program.columns, program.program.rows
        violated = self._cut()
        root = np.nonzero((self._ceiling[0] < -PRICED) & (program.z[0] < 0))[0]
        program.add_arcs(np.zeros(len(root), dtype=np.int64), root)
        needed = NONE
        for least in (PRICED, 0.0):  # what is worth next to nothing joins where nothing else does
            chosen = np.nonzero(new & (answer.costs > least))[0]
            chosen = chosen[_best_of_each(c[chosen], answer.costs[chosen], PER_CHILD)]
            needed = self._add_triples(answer.triples[chosen], answer.scores[chosen])
            if len(violated) or len(needed) or (program.program.columns, program.program.rows) != before:
                break
        else:
            self._finish()
        return _distinct(np.concatenate([violated, needed]), program.N)

    def _finish(self) -> None:
        """Nothing is left to price or cut: the linear program is solved, unless there are cycles, or artificial columns
        were too cheap."""
        if self.polytope == "tight":
            if self._cut_more():
                return
        elif not self.program.has_flow:
            self.program.add_flow()
            return
        self.done = not self._lacking or self.impossible or self.penalty >= 1e12
        if not self.done:
            self._charge(100 * self.penalty)

    def _cut_more(self) -> bool:
        """Cuts that the solution violates; whether there are any."""
        assert self.z is not None
        program = self.program
        heads = self.z.copy()
        heads[0, 1:] += self._values[program.artificial][: program.n]
        found = program.new_cuts(heads, self._values, VIOLATED)
        program.add_cuts(found)
        return len(found.high) > 0

    def _charge(self, penalty: float) -> None:
        """Let artificial columns cost so much."""
        self.penalty, artificial = penalty, self.program.artificial
        self.program.program.price(artificial, np.full(len(artificial), -penalty))

    @property
    def impossible(self) -> bool:
        """Whether it is proven that there is no tree."""
        return self.bound < -2.01 * 2**SIZE * self.program.n  # arcs and grandparents

    def extend(self, triples: Ints, scores: Doubles) -> None:
        """Columns for triples that were wanted; of those that are forbidden rows ArcGP."""
        if not len(triples):
            return
        there = self.program.z_gp[tuple(triples.T)] >= 0
        triples, scores = triples[~there], scores[~there]
        forbidden = scores == -np.inf
        self._add_triples(triples[~forbidden], scores[~forbidden])
        g, p, c = triples[forbidden].T
        both = (self.program.z[g, p] >= 0) & (self.program.z[p, c] >= 0)
        stated = {tuple(row) for row in self.program.arc_gp.tolist()}
        rows = [x for x in triples[forbidden][both].tolist() if tuple(x) not in stated]
        if rows:
            self.program.add_arc_gp(*np.array(rows).T)

    def _worst(self, answer: Answer, new: Bools) -> Doubles:
        """By how much each word's dual of OneHead is too low [N]."""
        program = self.program
        worst = np.zeros(program.N)
        np.maximum.at(worst, answer.triples[new, 2], answer.costs[new])
        root = np.where(np.isfinite(self._ceiling[0]), -self._ceiling[0], 0.0)
        np.maximum(worst, root, out=worst)
        # Triples that are columns: feasible, but for rounding. What is raised for the others only helps them.
        g, p, c = program.g, program.p, program.c
        costs = self._column_costs()
        allowed = np.isfinite(self._ceiling[p, c]) & np.isfinite(self._ceiling[g, p])
        np.maximum.at(worst, c[allowed], costs[allowed])
        return worst

    def _column_costs(self) -> Doubles:
        """Reduced costs of the triples that are columns."""
        assert self._duals is not None
        program, duals = self.program, self._duals
        g, p, c = program.g, program.p, program.c
        costs = self._scores - np.minimum(duals.one_gp, self._ceiling)[p, c] - duals.no_gp[g, p]
        for at, of_rows in self._of_rows():
            np.add.at(costs, at, of_rows)
        return costs

    def _of_rows(self) -> Iterator[tuple[Ints, Doubles]]:
        """What rows add to the reduced costs of triples that are columns: their places, and how much each gets."""
        assert self._duals is not None
        program, duals = self.program, self._duals
        cut, of_cuts, value = program.cuts.triples
        rows = (program.gp_arc, -duals.gp_arc), (program.arc_gp, duals.arc_gp), (of_cuts, -duals.cuts[cut] * value)
        if any(len(triples) for triples, _ in rows):
            at = np.full(program.program.columns + 1, -1)  # of columns; the last is that of none
            at[program.z_gp[program.g, program.p, program.c]] = np.arange(len(program.g))
            for triples, prices in rows:
                place = at[program.z_gp[tuple(triples.T)]]
                yield place[place >= 0], prices[place >= 0]

    def _precise_noise(self) -> float:
        """What rounding did to a bound, looked at term by term: a word pays for the head where that is most."""
        assert self._duals is not None
        off = self.program.budget_rounding(self._duals) + self._pair_rounding()
        here = np.where(np.isfinite(self._ceiling), off, 0.0)
        return float(here[:, 1:].max(0).sum()) + self.program.objective_rounding(self._duals)

    def _pair_rounding(self) -> Doubles:
        """What the reduced costs of an arc's grandparents may be off [N, N]."""
        assert self._duals is not None
        program, duals = self.program, self._duals
        there = np.isfinite(self._ceiling)
        prices = np.maximum(np.abs(self._ceiling), np.where(np.isfinite(duals.one_gp), np.abs(duals.one_gp), 0.0))
        prices[~there] = 0.0
        # of triples that are no columns and whose reduced cost may not be below 0: their scores are not larger
        of_pairs = 2 * 4 * (prices + duals.no_gp.max(0)[:, None])
        size = np.abs(self._scores) + prices[program.p, program.c] + duals.no_gp[program.g, program.p]
        steps = np.full(len(size), 4)
        for at, of_rows in self._of_rows():
            np.add.at(size, at, np.abs(of_rows))
            np.add.at(steps, at, of_rows != 0)
        np.maximum.at(of_pairs, (program.p, program.c), steps * size)
        of_pairs[0] = 0.0
        return certificates.UNIT * of_pairs

    def _read_tree(self) -> None:
        """Keep the solution if it is a tree, and better than the best so far."""
        assert self.z is not None
        if not self.integral:
            return
        heads = self.z.argmax(0).astype(np.int64)
        heads[0] = -1
        word = np.arange(1, len(heads))
        inner = word[heads[1:] > 0]
        triples = np.stack([heads[heads[inner]], heads[inner], inner], 1)
        at = self.program.z_gp[tuple(triples.T)]
        if (at < 0).any():
            return
        costs = np.zeros(self.program.program.columns)
        costs[self.program.z_gp[self.program.g, self.program.p, self.program.c]] = self._scores
        self.offer(heads, float(self.arcs[heads[1:], word].sum() + costs[at].sum()))

    def offer(self, heads: Ints, score: float) -> None:
        """Keep a tree if it is better than the best so far."""
        if score > self.score and _is_tree(heads):
            self.tree, self.score = heads, score
            self._rounding = self.units.rounding(score)

    def _cut(self) -> Ints:
        """Rows ArcGP that the solution violates (4.4); returns triples that should be columns first."""
        assert self.z is not None
        program, z = self.program, self.z
        h, m = np.nonzero(z > VIOLATED)
        one, other = np.nonzero(m[:, None] == h[None, :])
        g, p, c = h[one], m[one], m[other]
        y = program.triple_weights(self._values, g, p, c)
        both = (z[g, p] + z[p, c] > 1 + y + VIOLATED) & (g != c)
        g, p, c = g[both], p[both], c[both]
        there = program.z_gp[g, p, c] >= 0
        program.add_arc_gp(g[there], p[there], c[there])
        return np.stack([g, p, c], 1)[~there]

    def _add_triples(self, triples: Ints, scores: Doubles) -> Ints:
        """Columns for triples, with their arcs. Returns a triple for every new arc that has none."""
        if not len(triples):
            return NONE
        program = self.program
        g, p, c = triples.T
        needed = np.zeros(program.z.shape, dtype=bool)
        needed[g, p] = needed[p, c] = True
        arcs = np.argwhere(needed & (program.z < 0))
        program.add_arcs(arcs[:, 0], arcs[:, 1])
        program.add_triples(g, p, c, scores)
        program.add_gp_arc(g, p, c)
        self._scores = np.concatenate([self._scores, scores])
        arcs = arcs[arcs[:, 0] > 0]
        if not len(arcs) or self.z is None:
            return NONE
        bare = arcs[(program.z_gp[:, arcs[:, 0], arcs[:, 1]] < 0).all(0)]
        # the heads that the solution gives these arcs' heads
        head = self.z[:, bare[:, 0]].argmax(0)
        wanted = np.stack([head, bare[:, 0], bare[:, 1]], 1)
        return wanted[(head != bare[:, 1]) & np.isfinite(self._ceiling[head, bare[:, 0]])]


def _distinct(triples: Ints, N: int) -> Ints:
    """Triples [T, 3], each once, in order."""
    g, p, c = triples.T
    return np.stack(np.unravel_index(np.unique((g * N + p) * N + c), (N, N, N)), 1)


def _best_of_each(group: Ints, costs: Doubles, most: int) -> Ints:
    """Places of the greatest costs of each group, no more than so many of one."""
    order = np.lexsort((-costs, group))
    first = np.searchsorted(group[order], group[order])
    return order[np.arange(len(order)) - first < most]


def _is_tree(heads: Ints) -> bool:
    """Whether all words come to the root."""
    up = np.maximum(heads, 0)
    for _ in range(len(heads).bit_length()):
        up = up[up]
    return not up.any()
