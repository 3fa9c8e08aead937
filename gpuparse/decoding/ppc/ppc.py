"""Parse, price and cut (Riedel, Smith and McCallum 2012, Algorithm 1) for one sentence, a round at a time.

The program begins with few arcs and pairs. A round solves it (parse), asks for pairs of positive reduced cost under its
duals (price; ``gpuparse.ops.pricing`` does it for a batch), and adds these, the arcs that they need, and rows that the
solution violates (cut). Beyond the paper:

- Siblings are pairs too, alone or with grandparents.
- Grandparents bring their row GPArc with them: this takes half the rounds that it takes if rows join where violated.
- Arcs join like pairs do. The duals of One(p, c) are free, so an arc that is no column has what its pairs are worth at
  most, and no more is asked of it. Where there are two kinds they share what the arc has (``shares.py``).
- What an arc has to spare may also pay for the pairs whose other arc it is: these need not be columns as long as they
  are worth no more together.
- In place of flow there are cuts, where they are violated and nothing else is left to do. If the paper's polytope is
  wanted it is then that flow joins.
- Every round gives a bound: with the greatest reduced cost of any column of a word added to that word's dual of OneHead
  the duals are feasible for the whole program. It is computed here, whatever the solver says. A tree that reaches it is
  best, and nothing more is to be solved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from gpuparse.decoding import certificates
from gpuparse.decoding.parts import Kind
from gpuparse.decoding.ppc.asking import Answer, Lists, Question
from gpuparse.decoding.ppc.pairs import NONE, PairDuals, PairRows
from gpuparse.decoding.ppc.program import Bools, Doubles, Duals, Ints, PairProgram, Polytope
from gpuparse.decoding.ppc.rounding import crosses, is_tree
from gpuparse.decoding.ppc.shares import Upper, share_out
from gpuparse.decoding.ppc.units import SIZE, Units
from gpuparse.decoding.ppc.witness import Taken, Witness
from gpuparse.decoding.solver import Status

VIOLATED = 1e-7  # of a row
PENALTY = 1e4  # of artificial columns, at first
POSITIVE = 1e-9  # reduced costs above this, in a program's units, are asked for first
WHOLE = 1e-6
PER_CHILD = 6  # triples of a kind that join in a round


@dataclass
class PricedSentence:
    """A sentence that is being parsed.

    Args:
        units: of its costs; all scores here are such costs. It knows the kinds of pairs.
        bound: what no tree scores more than, to begin with.
        seconds: time for it, which who drives the work takes from it.
        rounds: how often a program may be solved.

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
    rounds: float = field(default=math.inf, kw_only=True)
    polytope: Polytope = "tight"
    projective: bool = False
    tree: Ints | None = None
    score: float = -math.inf
    z: Doubles | None = None
    iterations: int = 0
    done: bool = False
    status: Status = Status.OPTIMAL
    arcs: Doubles = field(init=False)
    forbidden: Bools = field(init=False)
    witness: Witness | Taken | None = None
    upper: Upper | None = None  # what scores are known to be at most, of more than one kind

    def __post_init__(self) -> None:
        self.arcs = self.units.arcs
        self.forbidden = np.zeros(self.arcs.shape, dtype=bool)
        self.penalty = PENALTY
        self._values = np.zeros(0)
        self._duals: Duals | None = None
        self._objective = self._noise = math.inf
        self._rounding = 0.0  # what the score may be off

    @cached_property
    def program(self) -> PairProgram:
        """Made where it is asked for first: some sentences need none."""
        trees: dict[str, Any] = {"single_root": self.single_root, "projective": self.projective, "flow": False}
        return PairProgram(self.arcs, self.kinds, **trees, penalty=PENALTY)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(self.units.over)

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

    @property
    def spent(self) -> bool:
        """Whether no program may be solved any more."""
        return self.iterations >= self.rounds

    def restrict(self, forbidden: Bools) -> None:
        """Begin anew without some arcs, with the columns and rows that there are."""
        self.forbidden, self.bound, self.done, self.status = forbidden, math.inf, False, Status.OPTIMAL
        self.witness = None
        h, m = np.nonzero(self.program.z >= 0)
        self.program.program.limit(self.program.z[h, m], np.where(forbidden[h, m], 0.0, np.inf))
        if self.penalty != PENALTY:
            self._charge(PENALTY)

    def begin(self, arcs: Ints, triples: Sequence[Ints], scores: Sequence[Doubles]) -> None:
        """The first columns: arcs [A, 2] and triples [T, 3] of each kind."""
        self.program.add_arcs(arcs[:, 0], arcs[:, 1])
        self._add_triples(triples, scores)

    def solve(self) -> Question | None:
        """Parse: solve the program as it is. None if it could not be solved, or may not be."""
        if self.spent:
            self.status, self.done = Status.LEFT, True
            return None
        found = self.program.solve(self.seconds)
        self.iterations += 1
        if found.status is not Status.OPTIMAL or found.values is None or found.prices is None:
            self.status, self.done = found.status, True
            return None
        self._values = found.values
        self.z = self.program.weights(found.values)
        self._duals = duals = self.program.duals(found.prices)
        self._objective = self.program.objective(duals)
        self._noise = certificates.rounding(4 * (len(self.kinds) - 1), self.program.size(duals))
        self._budget = self.program.budgets(duals)
        self._budget[self.forbidden | (self.arcs == -np.inf)] = np.inf
        self._ceilings, self._unshared = share_out(self.kinds, self._budget, duals.pairs, self.upper)
        asked = zip(self._ceilings, duals.pairs, strict=True)
        return Question(tuple(np.stack([ceiling, own.one, own.outer]) for ceiling, own in asked), self.z)

    def update(self, answers: Sequence[Answer]) -> Lists:
        """Price and cut: the bound, then new columns and rows, given what pricing found. Returns triples [T, 3] of each
        kind that should be columns too; ``extend`` takes them with their scores."""
        program = self.program
        # a column may be priced by its row GPArc, which pricing does not know
        new = [pairs.y[tuple(x.triples.T)] < 0 for pairs, x in zip(program.pairs, answers, strict=True)]
        short = self._short(answers, new)
        self._read_tree()
        worst = (short.sum(0) - self._unshared).max(0)
        exact = self._objective + float(np.maximum(worst[1:], 0.0).sum())  # but for rounding
        bound = exact + self._noise
        if self._proves(exact) and not self._proves(bound):
            bound = exact + self._precise_noise()
        if bound < self.bound:
            assert self._duals is not None
            self.bound, self.witness = bound, Witness(self._duals, self._budget, program)
        if self.certified or self.outgrown:
            self.done = True
            return (NONE,) * len(answers)
        before = program.program.columns, program.program.rows
        violated = self._cut()
        if "siblings" not in self.kinds:  # arcs from the root have no pair that would bring them
            root = np.nonzero((self._budget[0] < -POSITIVE) & (program.z[0] < 0))[0]
            program.add_arcs(np.zeros(len(root), dtype=np.int64), root)
        needed: Lists = ()
        for least in (POSITIVE, 0.0):  # what is worth next to nothing joins where nothing else does
            chosen = [self._chosen(k, x, new[k], short, least) for k, x in enumerate(answers)]
            some = [(x.triples[rows], x.scores[rows]) for x, rows in zip(answers, chosen, strict=True)]
            needed = self._add_triples(*zip(*some, strict=True))
            told = any(map(len, (*violated, *needed)))
            if told or (program.program.columns, program.program.rows) != before:
                break
        else:
            self._finish()
        return tuple(_distinct(np.concatenate(x), program.N) for x in zip(violated, needed, strict=True))

    def _chosen(self, kind: int, answer: Answer, new: Bools, short: Doubles, least: float) -> Ints:
        """Which of the found triples join: the worst of each child, if the arc is short with what other kinds lack."""
        _, p, c = answer.triples.T
        others = short.sum(0) - short[kind] - self._unshared
        rows = np.nonzero(new & (answer.costs > 0) & (answer.costs + others[p, c] > least))[0]
        return rows[_best_of_each(c[rows], answer.costs[rows], PER_CHILD)]

    def _finish(self) -> None:
        """Nothing is left to price or cut: the linear program is solved, unless there are cycles, or artificial columns
        were too cheap."""
        if self._cut_more():
            return
        if self.polytope != "tight" and not self.program.has_flow:
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
        new_cuts = program.crossing if self.polytope != "tight" else partial(program.new_cuts, values=self._values)
        found = new_cuts(heads, least=VIOLATED)
        program.add_cuts(found)
        return len(found.high) > 0

    def _charge(self, penalty: float) -> None:
        """Let artificial columns cost so much."""
        self.penalty, artificial = penalty, self.program.artificial
        self.program.program.price(artificial, np.full(len(artificial), -penalty))

    @property
    def impossible(self) -> bool:
        """Whether it is proven that there is no tree."""
        return self.bound < -(1.01 + len(self.kinds)) * 2**SIZE * (len(self.arcs) - 1)  # arcs and pairs

    def extend(self, triples: Lists, scores: Sequence[Doubles]) -> None:
        """Columns for triples that were wanted; of grandparents that are forbidden rows ArcGP."""
        if not any(map(len, triples)):
            return
        more: list[tuple[Ints, Doubles]] = []
        for pairs, those, own in zip(self.program.pairs, triples, scores, strict=True):
            there, forbidden = pairs.y[tuple(those.T)] >= 0, own == -np.inf
            more.append((those[~there & ~forbidden], own[~there & ~forbidden]))
            if pairs is (grandparents := self.program.grandparents):
                never = those[~there & forbidden]
                stated = {tuple(row) for row in grandparents.arc_gp.tolist()}
                has = grandparents.has_arcs(self.program.z >= 0, never)
                rows = [x for x in never[has].tolist() if tuple(x) not in stated]
                if rows:
                    grandparents.add_arc_gp(np.array(rows), self.program.z)
        self._add_triples(*zip(*more, strict=True))

    def _short(self, answers: Sequence[Answer], new: Sequence[Bools]) -> Doubles:
        """By how much each arc's share is too low for each kind [K, N, N]."""
        short = np.zeros((len(answers), *self._budget.shape))
        for own, pairs, answer, fresh, ceiling, duals in self._each(short, answers, new):
            _, p, c = answer.triples[fresh].T
            np.maximum.at(own, (p, c), answer.costs[fresh])
            if pairs.kind == "grandparents":  # which arcs from the root do not have
                own[0] = np.where(np.isfinite(ceiling[0]), np.maximum(-ceiling[0], 0.0), 0.0)
            # Triples that are columns: feasible, but for rounding. What is raised for the others only helps them.
            _, p, c = pairs.triples.T
            costs = self._column_costs(pairs, duals, ceiling)
            allowed = pairs.has_arcs(np.isfinite(self._budget), pairs.triples)
            np.maximum.at(own, (p[allowed], c[allowed]), costs[allowed])
        return short

    def _each(
        self, short: Doubles, answers: Sequence[Answer], new: Sequence[Bools]
    ) -> Iterator[tuple[Doubles, PairRows, Answer, Bools, Doubles, PairDuals]]:
        """All that is known of a kind."""
        assert self._duals is not None
        return zip(short, self.program.pairs, answers, new, self._ceilings, self._duals.pairs, strict=True)

    def _column_costs(self, pairs: PairRows, duals: PairDuals, ceiling: Doubles) -> Doubles:
        """Reduced costs of the triples that are columns."""
        one = np.minimum(duals.one, ceiling)[tuple(pairs.triples[:, 1:].T)]
        costs = pairs.scores - one - pairs.outer_of(duals, pairs.triples)
        for at, of_rows in self._of_rows(pairs, duals):
            np.add.at(costs, at, of_rows)
        return costs

    def _of_rows(self, pairs: PairRows, duals: PairDuals) -> Iterator[tuple[Ints, Doubles]]:
        """What rows add to the reduced costs of triples that are columns: their places, and how much each gets."""
        assert self._duals is not None
        program, rows = self.program, list(pairs.rows_of_triples(duals))
        cut, of_cuts, _ = program.cuts.of(pairs.kind)  # values of 1
        rows.append((of_cuts, -self._duals.cuts[cut]))
        if any(len(triples) for triples, _ in rows):
            at = np.full(program.program.columns + 1, -1)  # of columns; the last is that of none
            at[pairs.y[tuple(pairs.triples.T)]] = np.arange(len(pairs.triples))
            for triples, prices in rows:
                place = at[pairs.y[tuple(triples.T)]]
                yield place[place >= 0], prices[place >= 0]

    def _precise_noise(self) -> float:
        """What rounding did to a bound, looked at term by term: a word pays for the head where that is most."""
        assert self._duals is not None
        off = self.program.budget_rounding(self._duals)
        for pairs, duals, ceiling in zip(self.program.pairs, self._duals.pairs, self._ceilings, strict=True):
            off = off + self._pair_rounding(pairs, duals, ceiling)
        here = np.where(np.isfinite(self._budget), off, 0.0)
        return float(here[:, 1:].max(0).sum()) + self.program.objective_rounding(self._duals)

    def _pair_rounding(self, pairs: PairRows, duals: PairDuals, ceiling: Doubles) -> Doubles:
        """What the reduced costs of an arc's pairs may be off [N, N]."""
        there = np.isfinite(ceiling)
        prices = np.maximum(np.abs(ceiling), np.where(np.isfinite(duals.one), np.abs(duals.one), 0.0))
        if len(self._ceilings) > 1:  # shares of the budget
            prices = prices + np.abs(self._budget)
        prices[~there] = 0.0
        # of triples that are no columns and whose reduced cost may not be below 0: their scores are not larger
        outer = duals.outer.max(0) if pairs.kind == "grandparents" else duals.outer.max(1)
        of_pairs = 2 * 4 * (prices + outer[:, None])
        _, p, c = pairs.triples.T
        size = np.abs(pairs.scores) + prices[p, c] + pairs.outer_of(duals, pairs.triples)
        steps = np.full(len(size), 4)
        for at, of_rows in self._of_rows(pairs, duals):
            np.add.at(size, at, np.abs(of_rows))
            np.add.at(steps, at, of_rows != 0)
        np.maximum.at(of_pairs, (p, c), steps * size)
        if pairs.kind == "grandparents":
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
        costs = np.zeros(self.program.program.columns)
        score = self.arcs[heads[1:], word].sum()
        for pairs in self.program.pairs:
            at = pairs.y[tuple(pairs.of_tree(heads).T)]
            if (at < 0).any():
                return
            costs[pairs.y[tuple(pairs.triples.T)]] = pairs.scores
            score += costs[at].sum()
        self.offer(heads, float(score))

    def offer(self, heads: Ints, score: float) -> None:
        """Keep a tree if it is better than the best so far."""
        if score > self.score and is_tree(heads) and not (self.projective and crosses(heads)):
            self.tree, self.score = heads, score
            self._rounding = self.units.rounding(score)

    def _cut(self) -> Lists:
        """Rows ArcGP that the solution violates (4.4); returns triples that should be columns first."""
        assert self.z is not None
        program, z, grandparents = self.program, self.z, self.program.grandparents
        wanted = dict.fromkeys(self.kinds, NONE)
        if grandparents is not None:
            h, m = np.nonzero(z > VIOLATED)
            one, other = np.nonzero(m[:, None] == h[None, :])
            g, p, c = h[one], m[one], m[other]
            triples = np.stack([g, p, c], 1)
            y = grandparents.weights(self._values, triples)
            triples = triples[(z[g, p] + z[p, c] > 1 + y + VIOLATED) & (g != c)]
            there = grandparents.y[tuple(triples.T)] >= 0
            grandparents.add_arc_gp(triples[there], program.z)
            wanted["grandparents"] = triples[~there]
        return tuple(wanted.values())

    def _add_triples(self, triples: Sequence[Ints], scores: Sequence[Doubles]) -> Lists:
        """Columns for triples of each kind, with their arcs. Returns for every new arc triples of the kinds that it has
        none of."""
        program = self.program
        needed = np.zeros(program.z.shape, dtype=bool)
        for pairs, those in zip(program.pairs, triples, strict=True):
            needed[tuple(those[:, 1:].T)] = needed[tuple(pairs.arcs_of(those).T)] = True
        arcs = np.argwhere(needed & (program.z < 0))
        program.add_arcs(arcs[:, 0], arcs[:, 1])
        for pairs, those, own in zip(program.pairs, triples, scores, strict=True):
            program.add_triples(pairs, those, own)
            if pairs is program.grandparents:
                program.grandparents.add_gp_arc(those, program.z)
        if not len(arcs) or self.z is None:
            return (NONE,) * len(triples)
        wanted = []
        for pairs in program.pairs:
            bare = arcs[(pairs.y[:, arcs[:, 0], arcs[:, 1]] < 0).all(0)]
            likely = pairs.likely(self.z, bare)
            wanted.append(likely[pairs.has_arcs(np.isfinite(self._budget), likely)])
        return tuple(wanted)


def _distinct(triples: Ints, N: int) -> Ints:
    """Triples [T, 3], each once, in order."""
    g, p, c = triples.T
    return np.stack(np.unravel_index(np.unique((g * N + p) * N + c), (N, N, N)), 1)


def _best_of_each(group: Ints, costs: Doubles, most: int) -> Ints:
    """Places of the greatest costs of each group, no more than so many of one."""
    order = np.lexsort((-costs, group))
    first = np.searchsorted(group[order], group[order])
    return order[np.arange(len(order)) - first < most]
