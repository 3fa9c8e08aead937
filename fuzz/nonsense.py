"""Arguments that no function should take, in calls of the library's functions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from mutate import refusal
from torch.distributions import kl_divergence

import gpuparse as gp
from gpuparse import bp
from gpuparse.decoding.parts import DenseParts
from gpuparse.decoding.viterbi import Transitions

GRAMMAR = gp.Grammar(
    ("N", "S"), 1, *map(torch.tensor, ([1, 1], [0, 1], [0, 0], [0, 0])), torch.zeros(2), torch.zeros(2)
)
Maker = Callable[[random.Random], Any]
KINDS = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.float8_e4m3fn),
)


def call_with_nonsense(rng: random.Random) -> str:
    """Calls a function with arguments, one or two of which are odd; what came of it."""
    call, arguments = rng.choice(CALLS)
    given = [argument(rng) for argument in arguments]
    for _ in range(rng.choice((1, 1, 2))):
        given[rng.randrange(len(given))] = odd(rng)
    try:
        call(*given)
    except ValueError as error:
        return refusal(error)
    return "taken"


def odd(rng: random.Random) -> Any:
    """Something that may be no argument for anything."""
    return rng.choice(ODD)(rng)


def _tensor(rng: random.Random) -> Any:
    shape = [rng.choice((0, 1, 2, 3, 4)) for _ in range(rng.randint(0, 5))]
    kind = rng.choice(KINDS)
    values = torch.randint(-2, 5, shape) if rng.random() < 0.8 else torch.full(shape, rng.choice((1e9, -1e9)))
    return values.to(kind)


def _arcs_like(rng: random.Random) -> Any:
    return torch.zeros(2, 4, 4, dtype=rng.choice(KINDS))


def _values(rng: random.Random) -> Any:
    """Numbers that are none, in a tensor of a shape that fits something."""
    x = torch.zeros(rng.choice(((2, 4, 4), (2, 3, 2), (2, 3, 1), (2,), (2, 4), (2, 3))))
    x.view(-1)[rng.randrange(x.numel())] = rng.choice((float("nan"), float("inf"), -float("inf"), 3e38, -3e38))
    return x


ODD: tuple[Maker, ...] = (
    _tensor,
    _tensor,
    _arcs_like,
    _values,
    lambda rng: None,
    lambda rng: rng.choice(("", "mst", "auto", "arcs", "a\nb")),
    lambda rng: rng.choice((0, 1, -1, 3, 2**40, 2**63, 2**70, -(2**70))),
    lambda rng: rng.choice((0.5, float("nan"), float("inf"), True, False, 1j)),
    lambda rng: rng.choice(([], [1], [1, 2], [3, 3], [[1, 2], [3, 4]], ["a"], [None, 1], [1.5, 2.0], (-1,), (2, -1))),
    lambda rng: rng.choice(((), (1,), (0,), (2, 0), (True,), ("x",), [2**63, 2], {}, {"a": 1}, {1, 2}, b"x", object())),
    lambda rng: torch.zeros(2, 4, 4, device="meta"),
    lambda rng: torch.zeros(2, dtype=torch.int64, device="meta"),
    lambda rng: torch.zeros(2, 4, 4).to_sparse(),
    lambda rng: torch.eye(4).to_sparse_csr(),
    lambda rng: torch.ones(2, dtype=torch.int64).to_sparse(),
    lambda rng: torch.nested.nested_tensor([torch.zeros(3, 3), torch.zeros(2, 3)], layout=torch.jagged),
    lambda rng: torch.nested.nested_tensor([torch.zeros(3, 3), torch.zeros(2, 2)]),
    lambda rng: torch.quantize_per_tensor(torch.zeros(2, 4, 4), 0.1, 0, torch.qint8),
    lambda rng: np.zeros((2, 4, 4), dtype=rng.choice(("float32", "float64", "int64", "uint64"))),
    lambda rng: np.array([1, 2], dtype=rng.choice(("int64", "uint64", "float64", "bool"))),
    lambda rng: np.bool_(True),
    lambda rng: GRAMMAR,
    lambda rng: gp.Scores(torch.zeros(1, 2, 2)),
    lambda rng: gp.ProjectiveTrees,
    lambda rng: gp.ProjectiveTrees(torch.zeros(2, 4, 4)),
)


def zeros(*shape: int) -> Maker:
    return lambda rng: torch.zeros(*shape)


def some(*values: Any) -> Maker:
    return lambda rng: rng.choice(values)


arcs, unary, tags = zeros(2, 4, 4), zeros(2, 3, 2), zeros(2, 3, 1)
lengths = some(None, [3, 2], torch.tensor([1, 3]), torch.tensor([1, 3], dtype=torch.int32))
flag = some(False, True)
pairs = some(torch.zeros(2, 2), torch.zeros(2, 2, 2, 2))
triples = some(None, torch.zeros(2, 4, 4, 4))
labels = some(None, torch.zeros(2, 4, 4, 3))
method = some("mst", "eisner", "auto", ["mst"])
rules, spans = some(None, torch.zeros(2), torch.zeros(2, 2)), some(None, torch.zeros(2, 3, 3, 2))

DISTRIBUTIONS = (
    gp.NonProjectiveTrees(torch.zeros(2, 4, 4)),
    gp.ProjectiveTrees(torch.zeros(2, 4, 4)),
    gp.SecondOrderTrees(torch.zeros(2, 4, 4), siblings=torch.zeros(2, 4, 4, 4)),
    gp.TagChains(torch.zeros(2, 3, 2), torch.zeros(2, 2)),
    gp.TrigramChains(torch.zeros(2, 3, 2), torch.zeros(2, 2, 2)),
    gp.ConstituencyTrees(GRAMMAR, torch.zeros(2, 3, 1)),
    gp.LexicalizedTrees(GRAMMAR, torch.zeros(2, 3, 1), torch.zeros(2, 4, 4)),
)
METHODS = ("sample", "log_prob", "expand", "topk")  # that take an argument


def _same(p: Any, q: Any) -> Any:
    if not isinstance(p, torch.distributions.Distribution) or not isinstance(q, torch.distributions.Distribution):
        return None
    try:
        return kl_divergence(p, q)
    except NotImplementedError:  # what torch says of kinds that do not go together
        return None


CALLS: list[tuple[Callable[..., Any], list[Maker]]] = [
    (lambda a, n, r: gp.NonProjectiveTrees(a, n, single_root=r), [arcs, lengths, flag]),
    (lambda a, n, r: gp.ProjectiveTrees(a, n, single_root=r), [arcs, lengths, flag]),
    (
        lambda a, n, s, g, r: gp.SecondOrderTrees(a, n, siblings=s, grandparents=g, single_root=r),
        [arcs, lengths, triples, triples, flag],
    ),
    (gp.TagChains, [unary, pairs, lengths]),
    (gp.TrigramChains, [unary, zeros(2, 2, 2), lengths]),
    (
        lambda g, t, n, r, s: gp.ConstituencyTrees(g, t, n, rules=r, spans=s),
        [some(GRAMMAR), tags, lengths, rules, spans],
    ),
    (lambda g, t, a, n, r: gp.LexicalizedTrees(g, t, a, n, rules=r), [some(GRAMMAR), tags, arcs, lengths, rules]),
    (lambda a, n, r: gp.mst(a, n, single_root=r), [arcs, lengths, flag]),
    (
        lambda a, n, x, s, g: gp.Scores(a, n, labels=x, siblings=s, grandparents=g),
        [arcs, lengths, labels, triples, triples],
    ),
    (
        lambda a, n, x, m, p, r: gp.decode(gp.Scores(a, n, labels=x), m, projective=p, single_root=r),
        [arcs, lengths, labels, method, flag, flag],
    ),
    (lambda s, m: gp.decode(s, m), [some(gp.Scores(torch.zeros(2, 4, 4))), method]),
    (
        lambda h, x: gp.Scores(torch.zeros(2, 4, 4), [3, 3], labels=torch.zeros(2, 4, 4, 3)).tree_score(h, x),
        [some(torch.tensor([[-1, 0, 1, 2], [-1, 2, 0, 2]])), some(torch.ones(2, 4, dtype=torch.int64))],
    ),
    (lambda u, t, n, m: gp.viterbi(u, t, n, method=m), [unary, pairs, lengths, some("auto")]),
    (Transitions, [zeros(2, 2)]),
    (lambda v, n, k: DenseParts(v, n, kind=k), [triples, lengths, some("siblings", "grandparents")]),
    (
        gp.Grammar,
        [
            some(("N", "S")),
            some(1),
            *(some(torch.tensor(x)) for x in ([1, 1], [0, 1], [1, 1], [0, 0])),
            *[zeros(2)] * 2,
        ],
    ),
    (_same, [some(*DISTRIBUTIONS)] * 2),
    (bp.Link, [arcs]),
    (bp.Grand, [zeros(2, 4, 4, 4)]),
    (bp.ChildSequence, [zeros(2, 4, 4, 4), some(None)]),
    (lambda n: bp.BeliefPropagation([bp.Tree(), bp.Link(torch.zeros(2, 4, 4))]).run(n).links, [lengths]),
    *((getattr(p, name), [odd]) for p in DISTRIBUTIONS for name in METHODS if hasattr(p, name)),
]
