"""The linear program of trees and pairs of arcs with every pair in it, at once."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gpuparse.decoding import certificates
from gpuparse.decoding.parse import Parse
from gpuparse.decoding.parts import Kind
from gpuparse.decoding.ppc.batch import parse_price_cut
from gpuparse.decoding.ppc.pairs import PairDuals, PairRows
from gpuparse.decoding.ppc.ppc import WHOLE
from gpuparse.decoding.ppc.program import (
    KINDS,
    PRICED,
    Doubles,
    Duals,
    Ints,
    PairProgram,
    Polytope,
    allowed,
    legal_arcs,
)
from gpuparse.decoding.ppc.rounding import REMARKS, best_tree, rounded
from gpuparse.decoding.ppc.units import Units, scaled_number, total
from gpuparse.decoding.ppc.witness import Witness
from gpuparse.decoding.proofs import ProofLeaf, path_of
from gpuparse.decoding.scores import Scores
from gpuparse.decoding.solver import Status

TOLERANCE = 1e-7


@dataclass(frozen=True)
class Relaxed:
    """What a linear program said.

    Attributes:
        z: weights of the arcs [N, N]; None if there is no solution, or none in time.
        bound: no tree scores more: its value, as its duals prove it; +inf where it is not known.
        rounds: how many times it was solved.
    """

    status: Status
    z: Doubles | None
    bound: float
    rounds: int
    triples: int
    rows: int
    witness: Witness | None = None


def solve_whole(
    arcs: Doubles,
    pairs: Mapping[Kind, Doubles],
    *,
    projective: bool = False,
    single_root: bool = True,
    polytope: Polytope = "tight",
    lazy_rows: bool = False,
    seconds: float = math.inf,
) -> Relaxed:
    """Solve it by HiGHS.

    Args:
        arcs: [N, N], pairs: of each kind [N, N, N], at (x, p, c) as ``PairRows`` has them; -inf forbids.
        lazy_rows: begin without the rows GPArc and ArcGP, and add those that are violated, until none is.
    """
    until = time.monotonic() + seconds
    lazy, tight = lazy_rows and polytope in PRICED, polytope == "tight"
    trees: dict[str, Any] = {"single_root": single_root, "projective": projective}
    program = PairProgram(arcs, list(pairs), **trees, polytope=polytope, no_gp=lazy, flow=not tight)
    program.add_arcs(*legal_arcs(arcs))
    count, rounds = 0, 0
    triples = np.zeros((0, 3), dtype=np.int64)  # of grandparents, forbidden ones among them
    for own, table in zip(program.pairs, pairs.values(), strict=True):
        every = own.legal(allowed(arcs))
        scores = table[tuple(every.T)]
        there = scores > -np.inf
        program.add_triples(own, every[there], scores[there])
        count += int(there.sum())
        if own is program.grandparents:
            triples = every
            if polytope != "onegp" and not lazy:
                program.grandparents.add_gp_arc(triples[there], program.z)
                program.grandparents.add_arc_gp(triples, program.z)
    has_gp_arc, has_arc_gp = (np.zeros(len(triples), dtype=bool) for _ in range(2))
    while True:
        found = program.solve(until - time.monotonic())
        rounds += 1
        if found.status is not Status.OPTIMAL or found.values is None:
            bound = -math.inf if found.status is Status.INFEASIBLE else math.inf
            return Relaxed(found.status, None, bound, rounds, count, program.program.rows)
        z = program.weights(found.values)
        if lazy and program.grandparents is not None:
            g, p, c = triples.T
            y = program.grandparents.weights(found.values, triples)
            over = (y > z[g, p] + TOLERANCE) & ~has_gp_arc
            both = (z[g, p] + z[p, c] > 1 + y + TOLERANCE) & ~has_arc_gp
            if over.any() or both.any():
                program.grandparents.add_gp_arc(triples[over], program.z)
                program.grandparents.add_arc_gp(triples[both], program.z)
                has_gp_arc |= over
                has_arc_gp |= both
                continue
        cuts = program.new_cuts(z, found.values, TOLERANCE) if tight else program.crossing(z, TOLERANCE)
        if len(cuts.high):
            program.add_cuts(cuts)
            continue
        bound, witness = math.inf, None
        if found.prices is not None:
            duals = program.duals(found.prices)
            bound = _proven(program, duals)
            witness = Witness(duals, program.budgets(duals), program)
        return Relaxed(found.status, z, bound, rounds, count, program.program.rows, witness)


def _proven(program: PairProgram, duals: Duals) -> float:
    """The value of the duals, those of OneHead raised until all are feasible, whatever the solver's tolerance is."""
    budget = program.budgets(duals)
    # The dual of One is free: what the best of an arc's pairs needs.
    needed = np.zeros(budget.shape)
    for pairs, own in zip(program.pairs, duals.pairs, strict=True):
        needed += _needed(program, duals, pairs, own)
    short = np.where(program.z >= 0, needed - budget, 0.0)
    noise = certificates.rounding(4 * (len(program.pairs) - 1), program.size(duals))
    return program.objective(duals) + float(np.maximum(short.max(0), 0.0)[1:].sum()) + noise


def _needed(program: PairProgram, duals: Duals, pairs: PairRows, own: PairDuals) -> Doubles:
    """What an arc's pairs of a kind are worth [N, N]."""
    cost = np.full(pairs.y.shape, -np.inf)
    cost[tuple(pairs.triples.T)] = pairs.scores - pairs.outer_of(own, pairs.triples)
    cut, of_cuts, value = program.cuts.of(pairs.kind)
    rows = [*pairs.rows_of_triples(own), (of_cuts, -duals.cuts[cut] * value)]
    for triples, prices in rows:
        np.add.at(cost, tuple(triples.T), prices)  # forbidden ones stay -inf
    if pairs is program.grandparents:
        # without OneGP each grandparent has its own row GPArc
        needed = cost.max(0) if program.grandparents.has_one_gp else np.maximum(cost, 0.0).sum(0)
        needed[0] = 0.0
        return needed
    return cost.max(0)


def solve_all(
    scores: Scores,
    *,
    projective: bool = False,
    single_root: bool = True,
    polytope: Polytope = "tight",
    lazy_rows: bool = False,
    time_limit: float = math.inf,
    proof: bool = False,
) -> Parse:
    """``solve_whole`` of each sentence of a batch; solutions that are not trees are rounded to trees."""
    if lazy_rows and polytope not in PRICED:
        raise ValueError(f"lazy_rows goes with polytope {' or '.join(PRICED)}, got {polytope!r}")
    options: dict[str, Any] = {"polytope": polytope, "lazy_rows": lazy_rows, "seconds": time_limit}
    arcs = scores.fold_labels().arcs.detach().double()
    kinds: tuple[Kind, ...] = scores.second_order
    every = {kind: parts.dense().detach().double().cpu() for kind, parts in zip(kinds, scores.parts, strict=True)}
    dense = {kind: (x if kind == "grandparents" else x.transpose(1, 2)).numpy() for kind, x in every.items()}
    heads = torch.full(arcs.shape[:2], -1)
    rows: list[tuple[float, bool, bool, int, int, int]] = []
    remarks: dict[int, str] = {}
    leaves: dict[int, tuple[ProofLeaf, ...]] = {}
    for b, n in enumerate(scores.lengths.tolist()):
        nodes = slice(n + 1)
        pairs = {kind: table[b, nodes, nodes, nodes] for kind, table in dense.items()}
        one = _One(arcs[b, nodes, nodes].cpu().numpy(), pairs, single_root, projective)
        one.solve(options)
        heads[b, nodes] = torch.from_numpy(one.tree)
        found = one.found
        if proof and found.witness is not None:
            leaves[b] = (found.witness.leaf(one.units, path_of(())),)
        if found.z is None and found.status is not Status.INFEASIBLE and not one.impossible:
            remarks[b] = REMARKS[found.status]
        rows.append((one.units.score(one.bound), one.certified, one.whole, one.rounds, found.triples, found.rows))
    columns = zip(*rows, strict=True) if rows else [()] * 6
    bounds, certified_, integral, rounds, triples, stated = (list(x) for x in columns)
    device = arcs.device
    stats = {
        "scored": torch.tensor(triples, dtype=torch.int64, device=device),
        "added": torch.tensor(triples, dtype=torch.int64, device=device),
        "rows": torch.tensor(stated, dtype=torch.int64, device=device),
        "integral": torch.tensor(integral, dtype=torch.bool, device=device),
        "relaxed": torch.tensor(bounds, dtype=torch.float64, device=device),
    }
    return Parse.of(
        scores,
        heads.to(device),
        bound=stats["relaxed"],
        certified=torch.tensor(certified_, dtype=torch.bool, device=device),
        iterations=torch.tensor(rounds, dtype=torch.int64, device=device),
        stats=stats,
        remarks=remarks,
        leaves=leaves,
    )


class _One:
    """A sentence, and what is known of it.

    Attributes:
        tree, distance: the best so far, and how far away it is, in scores.
        bound: in costs; certified: whether the tree is proven best; whole: whether the program's solution is one.
    """

    def __init__(self, table: Doubles, pairs: Mapping[Kind, Doubles], single_root: bool, projective: bool) -> None:
        self.table = table
        self.trees: dict[str, Any] = {"single_root": single_root, "projective": projective}
        self.legal: dict[Kind, Doubles] = {}
        for kind, own in pairs.items():
            every = tuple(KINDS[kind].legal(allowed(table)).T)
            self.legal[kind] = np.full(own.shape, -np.inf)
            self.legal[kind][every] = own[every]
        self.units = Units.of(table, {kind: own.max(0) for kind, own in self.legal.items()})
        self.tree, self.distance = np.full(len(table), -1), math.inf  # in scores
        self._offer(best_tree(self.units.total, **self.trees))
        self.bound, self.rounds = math.inf, 0
        self.certified = self.whole = self.impossible = False
        self.found: Relaxed

    def _offer(self, heads: Ints) -> None:
        """Keep a tree if it is better than the best so far; none with a forbidden part is."""
        if heads[1] < 0:
            return
        word, units, away = np.arange(1, len(heads)), replace(self.units, power=0, horizon=math.inf), []
        for kind, own in self.legal.items():
            x, p, c = KINDS[kind].of_tree(heads).T
            away.append(units.triples(kind, p, c, own[x, p, c]))
        distance = -total(self.units.total[heads[1:], word], *away)
        if distance < self.distance:
            self.tree, self.distance = heads, distance

    def solve(self, options: dict[str, Any]) -> None:
        """Solve the program, and again where the horizon has to move."""
        horizon: float | None = self.units.first_horizon(self.distance)
        node = np.arange(len(self.table))
        p, c = node[:, None], node
        while horizon is not None:
            self.units = self.units.within(horizon)
            costs = self.units.arcs
            triples = {kind: self.units.triples(kind, p, c, own) for kind, own in self.legal.items()}
            self.found = found = solve_whole(costs, triples, **self.trees, **options)
            self.bound, self.rounds = found.bound, self.rounds + found.rounds
            if found.z is not None:
                self.whole = bool((np.abs(found.z - found.z.round()) < WHOLE).all())
                self._offer(rounded(found.z, costs, **self.trees))
            elif found.status is Status.STOPPED:
                return
            if self.distance == math.inf:  # then some tree without a forbidden part
                self._any_tree(options.get("seconds", math.inf))
                if self.impossible:
                    return
            left_out = self.units.leaves_out or any(
                bool((np.isneginf(triples[kind]) & (own > -np.inf)).any()) for kind, own in self.legal.items()
            )
            self.bound = max(self.bound, self.units.beyond) if left_out else self.bound
            cost = scaled_number(-self.distance, self.units.power)
            rounding = self.units.rounding(cost)
            self.certified = cost > -math.inf and bool(certificates.is_proven(cost, self.bound, rounding))
            horizon = None if self.certified else self.units.next_horizon(cost, left_out)

    def _any_tree(self, seconds: float) -> None:
        tables = {kind: torch.from_numpy(own)[None] for kind, own in self.legal.items()}
        if "siblings" in tables:
            tables["siblings"] = tables["siblings"].transpose(1, 2)
        one = Scores(torch.from_numpy(self.table)[None], **tables, validate_args=False)
        some = parse_price_cut(one, **self.trees, time_limit=seconds)
        self._offer(some.heads[0].numpy())
        self.impossible = float(some.bound[0]) == -math.inf
        if self.impossible:
            self.bound = -math.inf
