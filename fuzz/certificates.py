"""Certificates against all trees: sentences of up to five words, scores of every size, masks of every kind.

A case is a batch of sentences, each with scores of its own size. A certified answer has to be the best tree, a bound
has to be above it, and where the best tree can be told from the others in doubles every exact method has to find and
certify it. Sums are exact (``math.fsum``).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cache, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import exact
import torch

import gpuparse as gp

NAME = "certificates"
SENTENCES = 8  # of a case, so that there are 100,000
COUNT = 12_500

ROUNDING = 2.0**-46  # of the sizes of a tree's parts: what answers may be off
TOLD_APART = 2.0**-44  # likewise: what trees have to be apart to be told apart in doubles

MOST = 1e305  # where sums of doubles end

PARTS = ((), ("grandparents",), ("siblings",), ("grandparents", "siblings"))
FIRST, ALL = PARTS[:1], PARTS
WAYS: tuple[tuple[str, dict[str, Any], tuple[tuple[str, ...], ...], bool], ...] = (
    # method, options, parts, whether it must be certified
    ("mst", {}, FIRST, True),
    ("eisner", {}, ALL, True),
    ("ppc", {}, ALL, False),
    ("ppc", {"exact": True}, ALL, True),
    ("ppc", {"exact": True, "polytope": "all"}, ALL, True),
    ("lp", {}, ALL, False),
    ("lp", {"polytope": "all", "lazy_rows": True}, ALL, False),
    ("lp", {"polytope": "arcgp"}, ALL, False),
    ("ppc", {"exact": True, "projective": True}, PARTS[1:], True),
    ("lp", {"projective": True}, PARTS[1:], False),
    ("dd", {}, ALL, False),
    ("dd", {"exact": True}, ALL, True),
    ("auto", {"exact": True}, PARTS[1:], True),
    ("ilp", {}, ALL, True),
    ("ilp", {"heads": 1, "labels": 1}, ALL, True),
    ("ilp", {"grow": False}, ALL, False),
    ("bp", {}, ALL, False),
)

SLOW = ("dd", "auto")  # these are drawn half as often


@cache
def trees(n: int, single_root: bool, projective: bool) -> list[tuple[int, ...]]:
    """The heads of the nodes, of every tree."""
    return [(-1, *heads) for heads in exact.trees(n, single_root, projective)]


def parts_of(heads: tuple[int, ...], tables: dict[str, Any]) -> list[float]:
    """The scores of a tree's parts, with the best label of each arc."""
    found = [max(tables["labels"][h][m]) for m, h in enumerate(heads) if m and "labels" in tables]
    for name, *place in exact.pairs_of(heads[1:], "siblings" in tables, "grandparents" in tables):
        found.append(reduce(getitem, place, tables[name]))
    return found


def total(parts: list[float]) -> float:
    try:
        return math.fsum(parts)
    except OverflowError:
        return -math.inf


@dataclass(frozen=True)
class Sentence:
    """Scores of a sentence, and all of its trees: their scores, heads and parts."""

    n: int
    tensors: dict[str, torch.Tensor]
    tables: dict[str, Any]
    every: list[tuple[float, tuple[int, ...], list[float]]]
    best: float
    parts: list[float]

    @classmethod
    def draw(
        cls, rng: random.Random, kinds: tuple[str, ...], form: Form, *, projective: bool, single_root: bool
    ) -> Sentence:
        n = rng.choice((1, 2, 3, 3, 4, 4, 5))
        tensors = instance(rng, n, kinds, form)
        tables = {name: x[0].double().tolist() for name, x in tensors.items()}
        every = [(total(parts := parts_of(t, tables)), t, parts) for t in trees(n, single_root, projective)]
        best, _, parts = max(every, key=lambda x: x[0])
        return cls(n, tensors, tables, every, best, parts)

    @property
    def in_range(self) -> bool:
        """Whether its trees have sums in doubles."""
        if self.best == -math.inf:
            return not any(MOST < max(map(abs, parts)) < math.inf for _, _, parts in self.every)
        return abs(self.best) <= MOST

    def check(self, parse: gp.Parse, b: int, must: bool) -> bool:
        """What a parse says of it, as sentence ``b``; whether that is certified."""
        heads = tuple(parse.heads[b].tolist())
        heads, rest = heads[: self.n + 1], heads[self.n + 1 :]
        score, bound, certified = float(parse.score[b]), float(parse.bound[b]), bool(parse.certified[b])
        own = parts_of(heads, self.tables) if heads[1] >= 0 else [-math.inf]
        size = sum(map(abs, self.parts))
        slack = ROUNDING * max(size, sum(map(abs, own)))
        assert all(x == -1 for x in rest), f"heads past the end: {rest}"
        assert heads[1] < 0 or heads in [t for _, t, _ in self.every], f"{heads} is not a tree"
        assert heads[1] < 0 or score == total(own) or abs(score - total(own)) <= slack, (
            f"score {score!r}, not {total(own)!r}"
        )
        assert bound >= self.best - ROUNDING * size, f"bound {bound!r} is below the best, {self.best!r}"
        if certified:
            assert total(own) >= self.best - slack, f"certified {total(own)!r}, but the best is {self.best!r}"
            assert bound == score, f"certified, and bound {bound!r} is not score {score!r}"
            return True
        others = max((x for x, _, _ in self.every if x < self.best), default=-math.inf)
        assert not must or self.best - others <= TOLD_APART * size, (
            f"not certified: score {score!r}, bound {bound!r}, best {self.best!r}, next {others!r}"
        )
        return False


def batch(rng: random.Random, sentences: list[Sentence]) -> gp.Scores:
    """The scores of several, with anything where they are not read."""
    N = 1 + max(sentence.n for sentence in sentences)
    filler = rng.choice((0.0, math.nan, 1e30, -math.inf))
    found = {}
    for name, first in sentences[0].tensors.items():
        nodes = 2 if name in ("arcs", "labels") else 3
        x = torch.full((len(sentences), *[N] * nodes, *first.shape[1 + nodes :]), filler, dtype=first.dtype)
        for row, sentence in zip(x, sentences, strict=True):
            row[(slice(sentence.n + 1),) * nodes] = sentence.tensors[name][0]
        found[name] = x
    return gp.Scores(found.pop("arcs"), torch.tensor([sentence.n for sentence in sentences]), **found)


def family_of(rng: random.Random, method: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bool]]:
    """The options of a way but for those that say which trees, and which trees."""
    others = {name: x for name, x in options.items() if name != "projective"}
    projective = method == "eisner" or (method in ("ilp", "bp") and rng.random() < 0.3)
    return others, {"projective": projective or others != options, "single_root": rng.random() < 0.7}


def one(rng: random.Random, directory: Path) -> str:
    """Some sentences by one method. Those without a tree are asked for one by one: they have to be refused."""
    weights = [1 if method in SLOW else 2 for method, *_ in WAYS]
    method, options, kinds, must = rng.choices(WAYS, weights)[0]
    kinds_ = rng.choice(kinds)
    options, family = family_of(rng, method, options)
    form = Form.draw(rng)
    where = f"{method} {options}, {kinds_}, {family}"
    drawn = [Sentence.draw(rng, kinds_, form, **family) for _ in range(SENTENCES)]
    some = [sentence for sentence in drawn if sentence.in_range]
    with_tree = [sentence for sentence in some if sentence.best > -math.inf]
    for sentence in (sentence for sentence in some if sentence.best == -math.inf):
        try:
            gp.decode(batch(rng, [sentence]), method, **family, **options)
        except ValueError:
            continue
        raise AssertionError(f"{where}: there is no tree, and no ValueError")
    if not with_tree:
        return f"{method}: no tree"
    found = gp.decode(batch(rng, with_tree), method, **family, **options)
    certified = []
    for b, sentence in enumerate(with_tree):
        try:
            certified.append(sentence.check(found, b, must))
        except AssertionError as error:
            raise AssertionError(f"{where}, sentence {b} of {len(with_tree)}, n = {sentence.n}: {error}") from error
    share = "all" if all(certified) else "some" if any(certified) else "none"
    return f"{method}: {share} certified"


@dataclass(frozen=True)
class Form:
    """What the scores of a batch have in common."""

    dtype: torch.dtype
    labels: int  # 0: none

    @classmethod
    def draw(cls, rng: random.Random) -> Form:
        dtype = rng.choice((torch.float32, torch.float64))
        return cls(dtype, rng.choice((1, 2, 3)) if rng.random() < 0.25 else 0)


def instance(rng: random.Random, n: int, kinds: tuple[str, ...], form: Form) -> dict[str, torch.Tensor]:
    """Scores of a sentence: drawn, scaled, masked."""
    dtype = form.dtype
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    low, high = (-37, 27) if dtype == torch.float32 else (-300, 290)  # with room for a shift and a sum
    scale = 10.0 ** rng.choice((0, 0, 0, rng.uniform(-12, 12), rng.uniform(low, high)))
    whole = rng.random() < 0.15  # with ties
    N = n + 1
    shapes = {"arcs": (1, N, N)} | {kind: (1, N, N, N) for kind in kinds}
    if form.labels:
        shapes["labels"] = (1, N, N, form.labels)
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
    low, powers = torch.finfo(x.dtype).min, [10.0 ** rng.uniform(4, most) for most in (38, 38, 20)]
    value = rng.choice((-math.inf, low, low / 2, -powers[0], -powers[1] * scale, -powers[2] * scale))
    value = max(value, low) if value > -math.inf else value
    if rng.random() < 0.3:
        index = tuple(rng.randrange(k) for k in x.shape[1:])
        x[(0, *index)] = value
    else:
        x.masked_fill_(torch.rand(x.shape, generator=generator) < rng.choice((0.1, 0.3, 0.6)), value)
