"""Every propagator against the sum over all assignments to each of its factors, with random incoming messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor

from gpuparse import bp
from gpuparse.decoding.bp.graph import Graph
from gpuparse.ops.library import plain_torch
from tests.decoding.bp import brute
from tests.decoding.bp.some import random

N, LENGTHS = 5, [4, 1, 3, 2]
NEG_INF = float("-inf")


def some_pairs(g: torch.Generator, lengths: Tensor, P: int = 6) -> Tensor:
    pairs = torch.full((len(lengths), P, 4), -1)
    for b in range(len(lengths)):
        arcs = brute.links(lengths, b)
        for p in range(P - 1):
            if len(arcs) > 1:
                i, j = torch.randperm(len(arcs), generator=g)[:2].tolist()
                pairs[b, p] = torch.tensor([*arcs[i], *arcs[j]])
    return pairs


def families(g: torch.Generator, lengths: Tensor, minus: float) -> dict[str, tuple[bp.Factors, object]]:
    """Every family of links, and its factors one by one."""
    B = len(lengths)
    square, cube = (partial(random, g, B, *[N] * k, minus=minus) for k in (2, 3))
    found: dict[str, tuple[bp.Factors, object]] = {}
    for single in (True, False):
        found[f"tree {single}"] = bp.Tree(single_root=single), partial(brute.tree, False, single)
        found[f"projective {single}"] = bp.ProjectiveTree(single_root=single), partial(brute.tree, True, single)
    found["exactly one"] = bp.ExactlyOne(), brute.exactly_one
    found["at most one"] = bp.AtMostOne(), brute.at_most_one
    found["not two"] = bp.NotTwo(), brute.not_two
    found["no two cycle"] = bp.NoTwoCycle(), brute.no_two_cycle
    arcs, scores = square(), cube()
    found["link"] = bp.Link(arcs), partial(brute.link, arcs)
    pairs = some_pairs(g, lengths)
    of_pairs = random(g, *pairs.shape[:2], minus=minus)
    found["pair"] = bp.Pair(pairs, of_pairs), partial(brute.pair, pairs, of_pairs)
    found["nand"] = bp.Nand(pairs), partial(brute.pair, pairs, torch.full_like(of_pairs, NEG_INF))
    found["grand"] = bp.Grand(scores), partial(brute.grand, scores)
    found["sib"] = bp.Sib(scores), partial(brute.sib, scores)
    last = square()
    found["child sequence"] = bp.ChildSequence(scores, last), partial(brute.child_sequence, scores, last)
    crossing = square()
    found["no cross"] = bp.NoCross(crossing), partial(brute.no_cross, crossing)
    return found


PATHS = pytest.mark.parametrize("path", [nullcontext, plain_torch])
NAMES = list(families(torch.Generator().manual_seed(0), torch.tensor(LENGTHS), 0.0))


@PATHS
@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("infinite", [0.0, 0.15])
@pytest.mark.parametrize("name", NAMES)
def test_propagator(
    name: str, infinite: float, maximise: bool, path: Callable[[], AbstractContextManager[None]]
) -> None:
    lengths = torch.tensor(LENGTHS)
    graph = Graph(lengths, N, 0, maximise)
    compared = 0
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        family, factors = families(g, lengths, infinite)[name]
        family = family.prepare(graph)
        shapes = [m.shape for m in family.spread(graph.zeros())]
        outside = family.spread(bp.Values(torch.where(graph.links, 0.0, NEG_INF).double()))
        incoming = tuple(
            random(g, *shape, minus=infinite, plus=infinite / 4) + o for shape, o in zip(shapes, outside, strict=True)
        )
        incoming = tuple(torch.where(o == NEG_INF, NEG_INF, q) for q, o in zip(incoming, outside, strict=True))
        with path():
            outgoing, log_z = family.propagate(incoming, graph), family.log_z(incoming, graph)
        assert not any(m.isnan().any() for m in outgoing)
        with_factor = [torch.zeros(shape, dtype=torch.bool) for shape in shapes]
        expected = torch.zeros(len(lengths), dtype=torch.float64)
        for b in range(len(lengths)):
            for f in factors(lengths, b):
                count, z = brute.check(f, incoming, outgoing, maximise)
                expected[b], compared = expected[b] + z, compared + count
                for slot, at in f.edges:
                    with_factor[slot][at] = True
        # an edge without a factor says nothing, and weighs what its variable does
        for there, q, r in zip(with_factor, incoming, outgoing, strict=True):
            link = torch.ones_like(there) & (q > NEG_INF)
            assert (r[~there & link].abs() <= 1e-15).all()  # the sum of two probabilities, rounded
            alone = graph.plus_one(torch.where(q == torch.inf, NEG_INF, q))
            expected = expected + torch.where(there, 0.0, alone).flatten(1).sum(1)
        torch.testing.assert_close(log_z, expected, atol=1e-9, rtol=1e-12)
    assert compared > 30 or "pair" in name or "nand" in name


@pytest.mark.parametrize("maximise", [False, True])
def test_scan(maximise: bool) -> None:
    """Sums before each place, however far apart, and their derivatives."""
    graph = Graph(torch.tensor([1]), 2, 0, maximise)
    x = torch.tensor([[NEG_INF, NEG_INF, 0.0, 1.0, -2000.0], [-3000.0, -2000.0, -2001.0, 0.0, 5.0]]).double()
    x = torch.cat([x, random(torch.Generator().manual_seed(0), 3, 5, minus=0.2, size=800.0)])
    x = torch.cat([x, x / 20]).requires_grad_()  # (near and far)
    for size, rows in product(range(1, 6), (slice(None), slice(5, None))):
        y = x[rows, :size]
        found = graph.scan(y, 1)
        assert (found[:, 0] == NEG_INF).all()
        for j in range(1, size):
            expected = graph.sum(y[:, :j], 1)
            torch.testing.assert_close(found[:, j], expected, atol=1e-12, rtol=1e-12)
            some = expected > NEG_INF
            one, other = (torch.autograd.grad(z[some].sum(), x, retain_graph=True)[0] for z in (found[:, j], expected))
            torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


@pytest.mark.parametrize("score", [NEG_INF, -2.0])
def test_no_cross_with_messages_far_apart(score: float) -> None:
    lengths = torch.tensor([4])
    graph = Graph(lengths, N)
    scores = torch.full((1, N, N), score).double()
    family = bp.NoCross(scores).prepare(graph)
    for seed in range(3):
        q = random(torch.Generator().manual_seed(seed), 1, N, N, N, size=1500.0)
        q = torch.where(graph.links[..., None], q, NEG_INF).requires_grad_()
        (out,) = family.propagate((q,), graph)
        for f in brute.no_cross(scores, lengths, 0):
            assert brute.check(f, (q.detach(),), (out.detach(),))[0] == len(f.edges)
        (by,) = torch.autograd.grad(out[out.isfinite()].sum(), q)
        assert not by.isnan().any()


def tag_sums(weights: Tensor, dims: list[int], keep: int, maximise: bool) -> Tensor:
    rest = [d for d in dims if d != keep]
    if not rest:
        return weights
    return weights.amax(rest) if maximise else torch.logsumexp(weights, rest)


def same_message(found: Tensor, expected: Tensor) -> None:
    """Up to a constant."""
    if expected.max() > NEG_INF:
        torch.testing.assert_close(found - found.max(), expected - expected.max(), atol=1e-9, rtol=1e-12)


@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("infinite", [0.0, 0.15])
def test_tag_link(infinite: float, maximise: bool) -> None:
    lengths, T = torch.tensor([3, 1]), 3
    graph = Graph(lengths, 4, T, maximise)
    for seed in range(4):
        g = torch.Generator().manual_seed(seed)
        scores = random(g, 2, 4, 4, T, T, minus=infinite)
        family = bp.TagLink(scores).prepare(graph)
        outside = torch.where(graph.links, 0.0, NEG_INF).double()
        q = random(g, 2, 4, 4, minus=infinite, plus=infinite)
        q = torch.where(graph.links, q, outside)
        head, modifier = random(g, 2, 4, 4, T, minus=infinite), random(g, 2, 4, 4, T, minus=infinite)
        out = family.propagate((q, head, modifier), graph)
        assert not any(m.isnan().any() for m in out)
        for b in range(2):
            for h, m in brute.links(lengths, b):
                link = torch.tensor([NEG_INF, 0.0]) if q[b, h, m] == torch.inf else torch.tensor([0.0, q[b, h, m]])
                of_head = head[b, h, m] if h else torch.tensor([0.0] + [NEG_INF] * (T - 1)).double()
                table = torch.stack([torch.zeros(T, T).double(), scores[b, h, m]])
                no_head, no_tag = table + modifier[b, h, m], table + of_head[:, None]
                joint = no_head + of_head[:, None]
                expected = tag_sums(joint, [0, 1, 2], 0, maximise)
                if expected.max() > NEG_INF:
                    assert float(out[0][b, h, m]) == pytest.approx(float(expected[1] - expected[0]), abs=1e-9)
                if h:
                    same_message(out[1][b, h, m], tag_sums(no_head + link[:, None, None], [0, 1, 2], 1, maximise))
                same_message(out[2][b, h, m], tag_sums(no_tag + link[:, None, None], [0, 1, 2], 2, maximise))


@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("infinite", [0.0, 0.15])
@pytest.mark.parametrize("everywhere", [True, False])
def test_trigram(everywhere: bool, infinite: float, maximise: bool) -> None:
    n, T = 4, 3
    lengths = torch.tensor([4, 1, 3, 2])
    graph = Graph(lengths, n + 1, T, maximise)
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        scores = random(g, T, T, T, minus=infinite) if everywhere else random(g, 4, n - 2, T, T, T, minus=infinite)
        q = random(g, 4, n, T, minus=infinite)
        q = torch.where(graph.words[:, 1:, None], q, 0.0)
        family = bp.Trigram(scores).prepare(graph)
        (out,), log_z = family.propagate((q,), graph), family.log_z((q,), graph)
        for b, length in enumerate(lengths.tolist()):
            joint = torch.zeros([T] * length).double()
            for i in range(2, length):
                s = scores if everywhere else scores[b, i - 2]
                joint = joint + s.view([1] * (i - 2) + [T] * 3 + [1] * (length - 1 - i))
            dims = list(range(length))
            for i in dims:
                others = joint
                for j in dims:
                    if j != i:
                        others = others + q[b, j].view([-1 if d == j else 1 for d in dims])
                same_message(out[b, i], tag_sums(others, dims, i, maximise))
            total = others + q[b, dims[-1]]
            z = total.max() if maximise else torch.logsumexp(total.flatten(), 0)
            past = 0.0 if maximise else float(torch.tensor(float(T)).double().log()) * (n - length)
            assert float(log_z[b]) == pytest.approx(float(z) + past, abs=1e-9)
            assert (out[b, length:] == 0).all()


@pytest.mark.parametrize("maximise", [False, True])
def test_crossings_of_heads_that_are_one_variable(maximise: bool) -> None:
    """Two words with a head each, by the probabilities of their links: messages are relative to the mean over heads."""
    lengths = torch.tensor([4, 3])
    graph = Graph(lengths, N, 0, maximise)
    g = torch.Generator().manual_seed(0)
    scores = random(g, 2, N, N)
    family = bp.NoCross(scores, exactly_one=False).prepare(graph)
    q = torch.where(graph.links[..., None], random(g, 2, N, N, N), NEG_INF)
    (out,) = family.propagate((q,), graph)
    join = max if maximise else (lambda terms: float(torch.tensor(terms, dtype=torch.float64).logsumexp(0)))
    for b, n in enumerate(lengths.tolist()):
        for j, other in product(range(1, n + 1), repeat=2):
            if j == other:
                continue

            def heads(word: int, of: int, b: int = b, n: int = n) -> dict[int, float]:
                odds = {i: float(q[b, i, word, of]) for i in range(n + 1) if i != word}
                log = {i: min(x, 0.0) if maximise else -math.log1p(math.exp(-x)) for i, x in odds.items()}
                total = join(list(log.values()))
                return {i: x - total for i, x in log.items()}

            score = float(scores[b, min(j, other), max(j, other)])
            own, others = heads(j, other), heads(other, j)
            given = {i: join([w + score * crosses(i, j, k, other) for k, w in others.items()]) for i in own}
            mean = join([own[i] + given[i] for i in own])
            for i in own:
                assert float(out[b, i, j, other]) == pytest.approx(given[i] - mean, abs=1e-9)
    still = bp.NoCross(torch.zeros_like(scores), exactly_one=False).prepare(graph)
    assert float(still.propagate((q,), graph)[0].abs().max()) < 1e-12  # where nothing is said of crossings


def crosses(i: int, j: int, k: int, l: int) -> bool:  # noqa: E741
    (a, b), (c, d) = sorted((i, j)), sorted((k, l))
    return a < c < b < d or c < a < d < b
