"""Certificates against all trees: sentences of up to five words, scores of every size, masks of every kind.

A certified answer has to be the best tree, a bound has to be above it, and where the best tree can be told from the
others in doubles every exact method has to find and certify it. Sums are exact (``math.fsum``).
"""

from __future__ import annotations

import itertools
import math
import random
from functools import cache
from pathlib import Path
from typing import Any

import torch

import gpuparse as gp

NAME = "certificates"
COUNT = 100_000

ROUNDING = 2.0**-46  # of the sizes of a tree's parts: what answers may be off
TOLD_APART = 2.0**-44  # likewise: what trees have to be apart to be told apart in doubles

MOST = 1e305  # where sums of doubles end

PARTS = ((), ("grandparents",), ("siblings",), ("grandparents", "siblings"))
FIRST, GRANDPARENTS, ALL = PARTS[:1], PARTS[1:2], PARTS
WAYS: tuple[tuple[str, dict[str, Any], tuple[tuple[str, ...], ...], bool], ...] = (
    # method, options, parts, whether it must be certified
    ("mst", {}, FIRST, True),
    ("eisner", {}, ALL, True),
    ("ppc", {}, GRANDPARENTS, False),
    ("ppc", {"exact": True}, GRANDPARENTS, True),
    ("ppc", {"exact": True, "polytope": "all"}, GRANDPARENTS, True),
    ("lp", {}, GRANDPARENTS, False),
    ("lp", {"polytope": "all", "lazy_rows": True}, GRANDPARENTS, False),
    ("lp", {"polytope": "arcgp"}, GRANDPARENTS, False),
    ("dd", {}, ALL, False),
    ("dd", {"exact": True}, ALL, True),
    ("auto", {"exact": True}, PARTS[1:], True),
    ("ilp", {}, ALL, True),
    ("ilp", {"heads": 1, "labels": 1}, ALL, True),
    ("ilp", {"grow": False}, ALL, False),
    ("bp", {}, ALL, False),
)


@cache
def trees(n: int, single_root: bool, projective: bool) -> list[tuple[int, ...]]:
    """The heads of the nodes, of every tree."""
    found = []
    for heads in itertools.product(range(n + 1), repeat=n):
        heads = (-1, *heads)
        if heads.count(0) == 0 or (single_root and heads.count(0) > 1) or any(heads[m] == m for m in range(1, n + 1)):
            continue
        if all(0 in _above(heads, m) for m in range(1, n + 1)) and (not projective or _is_projective(heads)):
            found.append(heads)
    return found


def _above(heads: tuple[int, ...], m: int) -> list[int]:
    path = []
    while m > 0 and len(path) < len(heads):
        m = heads[m]
        path.append(m)
    return path


def _is_projective(heads: tuple[int, ...]) -> bool:
    arcs = [(min(h, m), max(h, m)) for m, h in enumerate(heads) if m]
    return not any(a < c < b < d for a, b in arcs for c, d in arcs)


def parts_of(heads: tuple[int, ...], scores: gp.Scores, tables: dict[str, Any]) -> list[float]:
    """The scores of a tree's parts, with the best label of each arc."""
    found = []
    for m in range(1, len(heads)):
        h = heads[m]
        found.append(tables["arcs"][h][m])
        if "labels" in tables:
            found.append(max(tables["labels"][h][m]))
        if "grandparents" in tables and h > 0:
            found.append(tables["grandparents"][heads[h]][h][m])
        if "siblings" in tables:
            step = 1 if h < m else -1
            s = next((k for k in range(m - step, h, -step) if heads[k] == h), h)
            found.append(tables["siblings"][h][s][m])
    return found


def total(parts: list[float]) -> float:
    try:
        return math.fsum(parts)
    except OverflowError:
        return -math.inf


def one(rng: random.Random, directory: Path) -> str:
    """One sentence by one method."""
    method, options, kinds, must = rng.choice(WAYS)
    kinds_ = rng.choice(kinds)
    projective = method == "eisner" or (method in ("ilp", "bp") and rng.random() < 0.3)
    single_root = rng.random() < 0.7
    n = rng.choice((1, 2, 3, 3, 4, 4, 5))
    tensors = instance(rng, n, kinds_)
    scores = gp.Scores(tensors.pop("arcs"), **tensors)
    tables = {name: x[0].double().tolist() for name, x in (("arcs", scores.arcs), *tensors.items())}
    every = [(total(parts := parts_of(t, scores, tables)), t, parts) for t in trees(n, single_root, projective)]
    best, _, parts = max(every, key=lambda x: x[0])
    if MOST < abs(best) < math.inf or any(MOST < max(map(abs, x)) < math.inf for _, _, x in every if best == -math.inf):
        return "out of range"
    where = f"{method} {options}, {kinds_}, n = {n}, projective = {projective}, single_root = {single_root}"
    try:
        found = gp.decode(scores, method, projective=projective, single_root=single_root, **options)
    except ValueError as error:
        assert best == -math.inf, f"{where}: refused: {error}"
        return "no tree"
    assert best > -math.inf, f"{where}: there is no tree, and no ValueError"
    heads = tuple(found.heads[0].tolist())
    own = parts_of(heads, scores, tables) if heads[1] >= 0 else [-math.inf]
    size = sum(map(abs, parts))
    slack = ROUNDING * max(size, sum(map(abs, own)))
    score, bound, certified = float(found.score[0]), float(found.bound[0]), bool(found.certified[0])
    assert heads[1] < 0 or heads in trees(n, single_root, projective), f"{where}: {heads} is no tree"
    assert heads[1] < 0 or score == total(own) or abs(score - total(own)) <= slack, (
        f"{where}: score {score!r}, not {total(own)!r}"
    )
    assert bound >= best - ROUNDING * size, f"{where}: bound {bound!r} is below the best, {best!r}"
    if certified:
        assert total(own) >= best - slack, f"{where}: certified {total(own)!r}, but the best is {best!r}"
        assert bound == score, f"{where}: certified, and bound {bound!r} is not score {score!r}"
        return "certified"
    others = max((x for x, t, _ in every if x < best), default=-math.inf)
    if must and best - others > TOLD_APART * size:
        raise AssertionError(
            f"{where}: not certified: score {score!r}, bound {bound!r}, best {best!r}, next {others!r}"
        )
    return "not certified"


def instance(rng: random.Random, n: int, kinds: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Scores of a sentence: drawn, scaled, masked."""
    dtype = rng.choice((torch.float32, torch.float64))
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    low, high = (-37, 27) if dtype == torch.float32 else (-300, 290)  # with room for a shift and a sum
    scale = 10.0 ** rng.choice((0, 0, 0, rng.uniform(-12, 12), rng.uniform(low, high)))
    whole = rng.random() < 0.15  # with ties
    N = n + 1
    shapes = {"arcs": (1, N, N)} | {kind: (1, N, N, N) for kind in kinds}
    if rng.random() < 0.25:
        shapes["labels"] = (1, N, N, rng.choice((1, 2, 3)))
    found = {}
    shift = rng.choice((0.0, 0.0, 0.0, 10.0 ** rng.uniform(0, 9))) * rng.choice((-1, 1))
    for name, shape in shapes.items():
        x = torch.randn(shape, generator=generator, dtype=torch.float64) * rng.choice((1.0, 1.0, 0.1, 5.0))
        x = x.round() if whole else x
        if name == "arcs":
            x = x + shift
        found[name] = (x * scale).to(dtype)
    if kinds and rng.random() < 0.1:  # pairs that no tree can have, or no good one
        kind, h, m = rng.choice(kinds), rng.randrange(N), rng.randrange(1, N)
        large = 1e4 * scale * 10 ** rng.uniform(0, 8)
        found["arcs"][0, h, m] = -math.inf if rng.random() < 0.5 else max(-large * 1e6, torch.finfo(dtype).min)
        found[kind][0, h, m] = large  # h -> m is the arc above, or that of the sibling
        found[kind][(0, slice(None), h, m) if kind == "grandparents" else (0, h, slice(None), m)] = large
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        _mask(rng, generator, found[rng.choice(sorted(found))], scale)
    return found


def _mask(rng: random.Random, generator: torch.Generator, x: torch.Tensor, scale: float) -> None:
    """Some of the scores low, by a number that is a mask to many."""
    finfo = torch.finfo(x.dtype)
    value = rng.choice(
        (
            -math.inf,
            finfo.min,
            finfo.min / 2,
            -(10.0 ** rng.uniform(4, 38)),
            -(10.0 ** rng.uniform(4, 38)) * scale,
            -(10.0 ** rng.uniform(4, 20)) * scale,
        )
    )
    value = max(value, finfo.min) if value > -math.inf else value
    if rng.random() < 0.3:
        index = tuple(rng.randrange(k) for k in x.shape[1:])
        x[(0, *index)] = value
    else:
        x.masked_fill_(torch.rand(x.shape, generator=generator) < rng.choice((0.1, 0.3, 0.6)), value)
