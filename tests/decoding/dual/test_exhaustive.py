"""Dual decompositions of random short sentences against all structures, one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.decoding.dual.branch import TAGS, TREES, Groups, tighten
from gpuparse.decoding.dual.joint import constituents_and_dependencies, parse_and_tag
from gpuparse.decoding.dual.parsing import second_order
from gpuparse.dual import Agreement, Decreasing, DualDecomposition, Halving, Polyak
from tests.decoding.dual.structures import BATCH, CLOSE, Counted, Maker, cut, derivations, near, trees

pytestmark = pytest.mark.exhaustive

BATCHES, ITERATIONS, MOST_NODES = 40, 60, 10_000
EXACT_EVERY = 6  # batches
STEPS = (Polyak(), Halving(), Decreasing())
KINDS = (("grandparents",), ("siblings",), ("grandparents", "siblings"))
WEIGHT = 0.7


@dataclass(frozen=True)
class Problem:
    """A decomposition and what is best of all structures."""

    decomposition: DualDecomposition
    best: Tensor
    groups: Groups


def parsing(kinds: tuple[str, ...], make: Maker, step: Any) -> Problem:
    arcs = make.over_nodes(2, size=2.0, rate=make.rate / 2)
    parts = {kind: make.over_nodes(3, size=2.0 * float(torch.rand((), generator=make.g))) for kind in kinds}
    scores = gp.Scores(arcs, make.lengths, **parts, validate_args=False)
    best = torch.empty(BATCH, dtype=torch.float64)
    for n, rows in make.groups():
        every = trees(n, make.single_root, False)
        best[rows] = every.totals({k: cut(x, rows, n + 1) for k, x in {"arcs": arcs, **parts}.items()}).amax(1)
    made = second_order(scores, single_root=make.single_root, step=step, iterations=ITERATIONS)
    return Problem(made, best, TREES)


def tagging(make: Maker, step: Any) -> Problem:
    grammar = make.grammar(symbols=5, tags=3, rules=16, headed=False)
    tags, unary, trigrams = make.over_words(3), make.over_words(3), make.normal(3, 3, 3)
    best = torch.full((BATCH,), -math.inf, dtype=torch.float64)
    for n, rows in make.groups():
        scored = {"tags": tags[rows, :n] + unary[rows, :n], "trigrams": trigrams.expand(len(rows), -1, -1, -1)}
        best[rows] = _best(derivations(grammar, n), scored, len(rows))
    made = parse_and_tag(grammar, tags, unary, trigrams, make.lengths, step=step, iterations=ITERATIONS)
    return Problem(made, best, TAGS)


def heading(make: Maker, step: Any) -> Problem:
    grammar = make.grammar(symbols=4, tags=2, rules=16, headed=True)
    tags, arcs, own = make.over_words(2), make.over_nodes(2), make.over_nodes(2, rate=0.0)
    kinds = ((), *KINDS)[int(torch.randint(4, (), generator=make.g))]
    parts = {kind: make.over_nodes(3) for kind in kinds}
    scores = gp.Scores(own, make.lengths, **parts, validate_args=False)
    best = torch.full((BATCH,), -math.inf, dtype=torch.float64)
    for n, rows in make.groups():
        scored = {kind: WEIGHT * cut(x, rows, n + 1) for kind, x in parts.items()}
        scored |= {"tags": tags[rows, :n], "arcs": cut(arcs + WEIGHT * own, rows, n + 1)}
        best[rows] = _best(derivations(grammar, n), scored, len(rows))
    options = {"weight": WEIGHT, "single_root": make.single_root, "step": step, "iterations": ITERATIONS}
    return Problem(constituents_and_dependencies(grammar, tags, arcs, scores, **options), best, TREES)


def _best(every: Counted, scored: dict[str, Tensor], B: int) -> Tensor:
    if not len(every.parts["base"]):
        return torch.full((B,), -math.inf, dtype=torch.float64)
    return every.totals(scored).amax(1)


PROBLEMS: dict[str, Callable[[Maker, Any], Problem]] = {
    **{"+".join(kinds): (lambda make, step, kinds=kinds: parsing(kinds, make, step)) for kinds in KINDS},
    "parser and tagger": tagging,
    "constituents and dependencies": heading,
}


def check(problem: Problem, found: Agreement, step: Any) -> dict[str, Tensor]:
    """What is wrong, by sentence."""
    best, there = problem.best, problem.best > -math.inf
    slack = CLOSE * (1 + best.abs())
    wrong = {
        "a certificate": found.certified & ~near(found.score, best),
        "a score above the best": found.score > torch.where(there, best + slack, -math.inf),
        "a bound below the best": there & (found.bound < best - slack),
        "a dual below the best": there & (found.duals < best - slack).any(0),
        "the least dual above its start": found.bound > found.duals[0] + CLOSE * (1 + found.duals[0].abs()),
    }
    if not isinstance(step, Polyak):
        rose, fell = found.duals[1:] > found.duals[:-1], found.sizes[1:] < found.sizes[:-1]
        wrong["a rise without a cut"] = (rose != fell).any(0)
    return wrong


@pytest.mark.parametrize("number", range(len(PROBLEMS)), ids=list(PROBLEMS))
def test_against_all_structures(number: int) -> None:
    """By all steps; of some batches also what branch and bound comes to."""
    problem = list(PROBLEMS.values())[number]
    for batch in range(BATCHES):
        step = STEPS[batch % len(STEPS)]
        here = problem(Maker(1000 * number + batch), step)
        found = here.decomposition.run()
        wrong = check(here, found, step)
        if batch % EXACT_EVERY == 0:
            there = here.best > -math.inf
            exact, *_ = tighten(here.decomposition, found, here.groups, nodes=MOST_NODES)
            wrong["branch and bound"] = (exact.certified != there) | (there & ~near(exact.score, here.best))
        for what, those in wrong.items():
            told = f"batch {batch}, {type(step).__name__}, sentences {those.nonzero()[:, 0].tolist()}: {what}"
            assert not bool(those.any()), told
