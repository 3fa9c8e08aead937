"""The linear program of the grandparent model with every grandparent in it, at once."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from gpuparse.lp.batch import Solved
from gpuparse.lp.grandparents import (
    PRICED,
    Doubles,
    Duals,
    GrandparentProgram,
    Ints,
    Polytope,
    legal_arcs,
    legal_triples,
)
from gpuparse.lp.ppc import WHOLE, is_best
from gpuparse.lp.ppc_batch import parse_price_cut
from gpuparse.lp.rounding import REMARKS, rounded
from gpuparse.lp.solver import Status
from gpuparse.lp.units import Units
from gpuparse.parts import DenseParts, Parts

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


def solve_whole(
    arcs: Doubles,
    grandparents: Doubles,
    *,
    single_root: bool = True,
    polytope: Polytope = "tight",
    lazy_rows: bool = False,
    seconds: float = math.inf,
) -> Relaxed:
    """Solve it by HiGHS.

    Args:
        arcs: [N, N], grandparents: [N, N, N]; -inf forbids.
        lazy_rows: begin without the rows GPArc and ArcGP, and add those that are violated, until none is.
    """
    until = time.monotonic() + seconds
    lazy, tight = lazy_rows and polytope in PRICED, polytope == "tight"
    program = GrandparentProgram(arcs, single_root=single_root, polytope=polytope, no_gp=lazy, flow=not tight)
    program.add_arcs(*legal_arcs(arcs))
    g, p, c = legal_triples(arcs)
    scores = grandparents[g, p, c]
    there = scores > -np.inf
    program.add_triples(g[there], p[there], c[there], scores[there])
    if polytope != "onegp" and not lazy:
        program.add_gp_arc(g[there], p[there], c[there])
        program.add_arc_gp(g, p, c)
    triples, rounds = int(there.sum()), 0
    has_gp_arc, has_arc_gp = (np.zeros(len(g), dtype=bool) for _ in range(2))
    while True:
        found = program.solve(until - time.monotonic())
        rounds += 1
        if found.status is not Status.OPTIMAL or found.values is None:
            bound = -math.inf if found.status is Status.INFEASIBLE else math.inf
            return Relaxed(found.status, None, bound, rounds, triples, program.program.rows)
        z = program.weights(found.values)
        if lazy:
            y = program.triple_weights(found.values, g, p, c)
            over = (y > z[g, p] + TOLERANCE) & ~has_gp_arc
            both = (z[g, p] + z[p, c] > 1 + y + TOLERANCE) & ~has_arc_gp
            if over.any() or both.any():
                program.add_gp_arc(g[over], p[over], c[over])
                program.add_arc_gp(g[both], p[both], c[both])
                has_gp_arc |= over
                has_arc_gp |= both
                continue
        if tight:
            cuts = program.new_cuts(z, found.values, TOLERANCE)
            if len(cuts.high):
                program.add_cuts(cuts)
                continue
        bound = _proven(program, program.duals(found.prices), grandparents) if found.prices is not None else math.inf
        return Relaxed(found.status, z, bound, rounds, triples, program.program.rows)


def _proven(program: GrandparentProgram, duals: Duals, grandparents: Doubles) -> float:
    """The value of the duals, those of OneHead raised until all are feasible, whatever the solver's tolerance is."""
    g, p, c = program.g, program.p, program.c
    cost = np.full(grandparents.shape, -np.inf)
    cost[g, p, c] = grandparents[g, p, c] - duals.no_gp[g, p]
    for triples, prices in ((program.gp_arc, -duals.gp_arc), (program.gp_arc, -duals.child_arc)):
        if len(prices):
            np.add.at(cost, tuple(triples.T), prices)
    cut, of_cuts, value = program.cuts.triples
    np.add.at(cost, tuple(of_cuts.T), -duals.cuts[cut] * value)
    np.add.at(cost, tuple(program.arc_gp.T), duals.arc_gp)  # forbidden ones stay -inf
    budget = program.budgets(duals)
    # The dual of OneGP is free: what the best of an arc's grandparents needs. Without it each has its own row GPArc.
    needed = cost.max(0) if program.has_one_gp else np.maximum(cost, 0.0).sum(0)
    short = np.where(program.z >= 0, np.where(np.arange(program.N)[:, None] > 0, needed, 0.0) - budget, 0.0)
    return program.objective(duals) + float(np.maximum(short.max(0), 0.0)[1:].sum())


def solve_all(arcs: Float64[Tensor, "B N N"], parts: Parts, *, single_root: bool = True, **options: Any) -> Solved:
    """``solve_whole`` of each sentence of a batch; solutions that are no trees are rounded to trees."""
    dense = parts.dense().detach().double().cpu().numpy()
    heads = torch.full(arcs.shape[:2], -1)
    rows: list[tuple[float, bool, bool, int, int, int]] = []
    remarks = {}
    for b, n in enumerate(parts.lengths.tolist()):
        nodes = slice(n + 1)
        table, grandparents = arcs[b, nodes, nodes].detach().cpu().numpy(), dense[b, nodes, nodes, nodes]
        units, costs, of_triples = _in_units(table, grandparents, single_root)
        found = solve_whole(costs, of_triples, single_root=single_root, **options)
        bound, cost, whole = found.bound, -math.inf, False
        if found.z is not None:
            whole = bool((np.abs(found.z - found.z.round()) < WHOLE).all())
            tree = rounded(found.z, costs, single_root)
            cost = _cost(tree, costs, of_triples)
            if cost == -math.inf:  # then some tree without a forbidden part
                one = DenseParts(torch.from_numpy(grandparents)[None], kind="grandparents", validate_args=False)
                seconds = options.get("seconds", math.inf)
                some = parse_price_cut(torch.from_numpy(table)[None], one, single_root=single_root, seconds=seconds)
                tree = some.heads[0].numpy()
                bound = -math.inf if float(some.bound[0]) == -math.inf else bound
                cost = _cost(tree, costs, of_triples)
            heads[b, nodes] = torch.from_numpy(tree)
        elif found.status is not Status.INFEASIBLE:
            remarks[b] = REMARKS[found.status]
        certified = cost > -math.inf and is_best(cost, bound, units.rounding)
        rows.append((units.score(bound), certified, whole, found.rounds, found.triples, found.rows))
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
    return Solved(
        heads.to(device),
        None,
        stats["relaxed"],
        torch.tensor(certified_, dtype=torch.bool, device=device),
        torch.tensor(rounds, dtype=torch.int64, device=device),
        stats,
        remarks,
    )


def _in_units(table: Doubles, grandparents: Doubles, single_root: bool) -> tuple[Units, Doubles, Doubles]:
    """Costs of arcs and of grandparents."""
    g, p, c = legal_triples(table)
    legal = np.full(grandparents.shape, -np.inf)
    legal[g, p, c] = grandparents[g, p, c]
    over = legal.max(0)
    units = Units.of(table, over)

    def of_triples(units: Units) -> Doubles:
        found = legal.copy()
        found[g, p, c] = units.triples(p, c, legal[g, p, c])
        return found

    costs = units.arcs(table, over)
    near = _cost(rounded(np.zeros(table.shape), costs, single_root), costs, of_triples(units))
    units = units.scaled(-near)
    return units, units.arcs(table, over), of_triples(units)


def _cost(heads: Ints, arcs: Doubles, grandparents: Doubles) -> float:
    """The cost of a tree, -inf if it has a forbidden part or is none."""
    if len(heads) < 2 or heads[1] < 0:
        return -math.inf
    word = np.arange(1, len(heads))
    inner = word[heads[1:] > 0]
    return float(arcs[heads[1:], word].sum() + grandparents[heads[heads[inner]], heads[inner], inner].sum())
