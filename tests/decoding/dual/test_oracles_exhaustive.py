"""The oracles of dual decomposition against all structures of random short sentences, one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

from gpuparse.decoding.dual.grammars import Constituents, Lexicalized
from gpuparse.decoding.dual.oracles import HeadAutomata, SecondOrderOracle, TaggerOracle, TreeOracle
from gpuparse.decoding.parts import legal_triples
from gpuparse.dual import Found, Oracle
from tests.decoding.dual.structures import BATCH, CLOSE, Counted, Maker, cut, derivations, near, tag_parts, trees
from tests.oracle import all_chains

pytestmark = pytest.mark.exhaustive

BATCHES = 19  # of each oracle


@cache
def stars(n: int, node: int, single_root: bool, headed: bool) -> Counted:
    """A node with any head and any children."""
    N = n + 1
    rows: dict[str, list[Tensor]] = {name: [] for name in ("arcs", "heads", "grandparents", "siblings")}
    for head in [g for g in range(N) if g != node] if headed and node else [-1]:
        words = [c for c in range(1, N) if c not in (node, head)]
        for size in [1] if node == 0 and single_root else range(len(words) + 1):
            for children in itertools.combinations(words, size):
                some = {name: torch.zeros([N] * (3 if name in ("grandparents", "siblings") else 2)) for name in rows}
                if head >= 0:
                    some["heads"][head, node] = 1
                for c in children:
                    some["arcs"][node, c] = 1
                    if head >= 0:
                        some["grandparents"][head, node, c] = 1
                    nearer = [s for s in children if min(node, c) < s < max(node, c)]
                    last = min(nearer, key=lambda s: abs(s - c)) if nearer else node
                    some["siblings"][node, last, c] = 1
                for name, x in some.items():
                    rows[name].append(x.double().flatten())
    parts = {name: torch.stack(x) for name, x in rows.items()}
    return Counted(parts, {name: parts[name] for name in ("arcs", "heads")})


@cache
def chains(n: int, T: int) -> Counted:
    parts = tag_parts(all_chains(n, T), T)
    return Counted(parts, {"tags": parts["tags"].view(-1, n, T)})


def compared(every: Counted, scored: dict[str, Tensor], found: Found, rows: Tensor) -> Tensor:
    """Whether an oracle's values and structures differ from the best of all, by sentence. Several may have the same
    indicators, of which the best counts."""
    value = found.value[rows]
    if not len(next(iter(every.parts.values()))):
        return value > -math.inf
    totals = every.totals(scored)
    sizes = {name: tuple(map(slice, x.shape[1:])) for name, x in every.indicators.items()}
    same = every.same({name: found.indicators[name][(rows, *size)] for name, size in sizes.items()})
    best, of_same = totals.amax(1), totals.masked_fill(~same, -math.inf).amax(1)
    right = torch.where(best == -math.inf, ~same.any(1), near(of_same, best, CLOSE))
    return ~(right & near(value, best, CLOSE))


def dependency(kinds: tuple[str, ...], projective: bool, make: Maker) -> Tensor:
    """Trees of first and second order, and penalties on arcs."""
    arcs, u = make.over_nodes(2, size=2.0), make.over_nodes(2, rate=0.0)
    parts = {kind: _legal(make, kind) for kind in kinds}
    oracle: Oracle
    if kinds:
        oracle = SecondOrderOracle(
            arcs, make.lengths, parts.get("siblings"), parts.get("grandparents"), make.single_root
        )
    else:
        oracle = TreeOracle(arcs, make.lengths, projective, make.single_root)
    found = oracle.best({"arcs": u})
    wrong = torch.zeros(BATCH, dtype=torch.bool)
    for n, rows in make.groups():
        scored = {kind: cut(x, rows, n + 1) for kind, x in {"arcs": arcs + u, **parts}.items()}
        wrong[rows] = compared(trees(n, make.single_root, projective or bool(kinds)), scored, found, rows)
    return wrong


def _legal(make: Maker, kind: str) -> Tensor:
    """Scores of pairs as oracles take them, 0 where there is none."""
    return torch.where(legal_triples(kind, make.lengths, make.N), make.over_nodes(3, size=2.0), 0.0)  # type: ignore[arg-type]


def automata(kinds: tuple[str, ...], make: Maker) -> Tensor:
    """Each node with its children, and with its head where there are grandparents."""
    headed = "grandparents" in kinds
    arcs, u = make.over_nodes(2, size=2.0), make.over_nodes(2, rate=0.0)
    parts = {kind: _legal(make, kind) for kind in kinds}
    up = make.over_nodes(2) if headed else None
    oracle = HeadAutomata(arcs, make.lengths, parts.get("siblings"), parts.get("grandparents"), make.single_root)
    found = oracle.best({"arcs": u, **({} if up is None else {"heads": up})})
    wrong = torch.zeros(BATCH, dtype=torch.bool)
    for n, rows in make.groups():
        scored = {kind: cut(x, rows, n + 1) for kind, x in {"arcs": arcs + u, **parts}.items()}
        if up is not None:
            scored["heads"] = cut(up, rows, n + 1)
        total, own = torch.zeros(len(rows)).double(), torch.zeros(len(rows)).double()
        for node in range(n + 1):
            every = stars(n, node, make.single_root, headed)
            totals = every.totals(scored)
            total += totals.amax(1)
            here = {"arcs": torch.zeros(len(rows), n + 1, n + 1).double()}
            here["arcs"][:, node] = found.indicators["arcs"][rows, node, : n + 1]
            if headed:
                here["heads"] = torch.zeros_like(here["arcs"])
                here["heads"][:, :, node] = found.indicators["heads"][rows, : n + 1, node]
            own += totals.masked_fill(~every.same(here), -math.inf).amax(1)
        there = total > -math.inf
        wrong[rows] = ~near(found.value[rows], total, CLOSE) | (there & ~near(own, total, CLOSE))
    return wrong


def tags(make: Maker) -> Tensor:
    unary, u, trigrams = make.over_words(3), make.over_words(3, rate=0.0), make.normal(3, 3, 3)
    found = TaggerOracle(unary, trigrams, make.lengths).best({"tags": u})
    wrong = torch.zeros(BATCH, dtype=torch.bool)
    for n, rows in make.groups():
        scored = {"tags": (unary + u)[rows, :n], "trigrams": trigrams.expand(len(rows), -1, -1, -1)}
        wrong[rows] = compared(chains(n, 3), scored, found, rows)
    return wrong


def constituents(make: Maker) -> Tensor:
    """The best of several trees with the same tags counts."""
    grammar = make.grammar(symbols=5, tags=3, rules=16, headed=False)
    scores, u = make.over_words(3), make.over_words(3, rate=0.0)
    found = Constituents(grammar, scores, make.lengths).best({"tags": u})
    wrong = torch.zeros(BATCH, dtype=torch.bool)
    for n, rows in make.groups():
        every = derivations(grammar, n)
        only = Counted(every.parts, {"tags": every.indicators["tags"]})
        scored = {"tags": (scores + u)[rows, :n]}
        wrong[rows] = compared(only, scored, found, rows)
    return wrong


def lexicalised(make: Maker) -> Tensor:
    grammar = make.grammar(symbols=4, tags=2, rules=16, headed=True)
    scores, u = make.over_words(2), make.over_words(2, rate=0.0)
    arcs, v = make.over_nodes(2), make.over_nodes(2, rate=0.0)
    found = Lexicalized(grammar, scores, arcs, make.lengths).best({"tags": u, "arcs": v})
    wrong = torch.zeros(BATCH, dtype=torch.bool)
    for n, rows in make.groups():
        scored = {"tags": (scores + u)[rows, :n], "arcs": cut(arcs + v, rows, n + 1)}
        wrong[rows] = compared(derivations(grammar, n), scored, found, rows)
    return wrong


ORACLES: dict[str, Callable[[Maker], Tensor]] = {
    "arborescences": lambda make: dependency((), False, make),
    "Eisner's trees": lambda make: dependency((), True, make),
    "projective trees, siblings": lambda make: dependency(("siblings",), True, make),
    "projective trees, grandparents": lambda make: dependency(("grandparents",), True, make),
    "projective trees, both": lambda make: dependency(("siblings", "grandparents"), True, make),
    "head automata, siblings": lambda make: automata(("siblings",), make),
    "head automata, grandparents": lambda make: automata(("grandparents",), make),
    "head automata, both": lambda make: automata(("siblings", "grandparents"), make),
    "trigram chains": tags,
    "trees of a grammar": constituents,
    "lexicalised trees": lexicalised,
}


@pytest.mark.parametrize("number", range(len(ORACLES)), ids=list(ORACLES))
def test_against_all_structures(number: int) -> None:
    """Values and structures, under random penalties."""
    for batch in range(BATCHES):
        wrong = list(ORACLES.values())[number](Maker(100_000 + 1000 * number + batch))
        assert not bool(wrong.any()), f"batch {batch}, sentences {wrong.nonzero()[:, 0].tolist()}"
