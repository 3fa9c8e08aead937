"""Dual decomposition that prices: bounds first, exact scores where they are used. Against all trees, and against the
same with every score at hand."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, cast

import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.dual import fallback
from gpuparse.decoding.dual.branch import TREES, tighten
from gpuparse.decoding.dual.fallback import _promising
from gpuparse.decoding.dual.multipliers import LOOK
from gpuparse.decoding.dual.parsing import second_order
from gpuparse.decoding.dual.priced import PricedParts
from gpuparse.decoding.parts import KINDS, Kind, TakenParts, count_triples, legal_triples
from gpuparse.nn.trilinear import TrilinearParts
from gpuparse.ops.automata import Stars, automata
from tests.budget import budget
from tests.decoding.instances import LENGTHS, best, check_best, check_sound, instance, normal
from tests.decoding.loose import LooseParts, loose

BOTH = ("grandparents", "siblings")
SETS = (("grandparents",), ("siblings",), BOTH)
sets = pytest.mark.parametrize("kinds", SETS, ids="+".join)
kinds_ = pytest.mark.parametrize("kind", KINDS)
roots = pytest.mark.parametrize("single_root", [True, False])


def trilinear(
    seed: int, B: int, n: int, *kinds: str, size: float = 0.6, dtype: torch.dtype = torch.float32
) -> gp.Scores:
    """Arcs of which some are good, and pairs of low rank."""
    arcs, *factors = normal(seed, (B, n + 1, n + 1), *[(B, n + 1, 4)] * 6, dtype=dtype)
    lengths = torch.arange(n, n - B, -1).clamp(min=1)
    parts = {kind: TrilinearParts(*(size * x for x in factors[:3]), lengths, kind=kind) for kind in kinds[:1]}
    parts |= {kind: TrilinearParts(*(size * x for x in factors[3:]), lengths, kind=kind) for kind in kinds[1:]}
    return gp.Scores(3 * arcs, lengths, **parts)


def dense(scores: gp.Scores) -> gp.Scores:
    return gp.Scores(scores.arcs, scores.lengths, **{x.kind: x.dense() for x in scores.parts}, validate_args=False)


def asked(scores: gp.Scores) -> Counter[tuple[Any, ...]]:
    """How often each triple was scored, of loose parts."""
    return Counter((x.kind, *triple) for x in scores.parts for triple in cast(LooseParts, x).asked)


def masked(seed: int, kinds: tuple[str, ...], mask: float, dtype: torch.dtype) -> gp.Scores:
    """Scores some of which are a mask."""
    scores = instance(seed, kinds, 0.08)
    arcs = torch.where(scores.arcs.isneginf(), mask, scores.arcs).to(dtype)
    pairs = {x.kind: torch.where(x.dense().isneginf(), mask, x.dense()).to(dtype) for x in scores.parts}
    return gp.Scores(arcs, scores.lengths, **pairs)


@sets
@roots
@pytest.mark.parametrize("mask", [-math.inf, -1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_certified_is_best(kinds: tuple[str, ...], single_root: bool, mask: float, dtype: torch.dtype) -> None:
    certified = 0
    for seed in range(6):
        every = masked(seed, kinds, mask, dtype)
        expected = best(every, single_root)
        some = expected > -1e20  # there is a tree without a mask
        rows = some.nonzero()[:, 0]
        if not len(rows):
            continue
        scores = loose(every, seed=seed)
        try:
            found = gp.decode(scores, "dd", single_root=single_root, iterations=150)
        except ValueError:  # a sentence without a tree
            assert bool((expected == -math.inf).any())
            continue
        check_sound(found.take(rows), expected[rows])
        certified += int(found.certified.sum())
    assert certified >= 6


@sets
@roots
def test_exact_with_proofs(kinds: tuple[str, ...], single_root: bool) -> None:
    """Branch and bound, or parse, price and cut; every certificate is checked."""
    branched = handed = 0
    for seed in range(4):
        every = instance(seed, kinds, strength=3.0)
        for method in ("dd", "auto"):
            scores = loose(every, seed=seed)
            options: dict[str, Any] = {"iterations": 30, "exact": True, "single_root": single_root}
            found = gp.decode(scores, method, **options)
            check_best(found, best(every, single_root))
            branched += int((found.stats["branches"] > 0).sum())
            handed += int(found.stats["fallback"].sum())
            proven = gp.decode(every.with_parts(*_dense_asking(every)), method, **options, proof=True)
            bounds = gp.verify(every, proven, single_root=single_root)
            torch.testing.assert_close(bounds, best(every, single_root), rtol=0, atol=1e-8)
    assert branched > 0 and handed > 0


class Asking(LooseParts):
    """Those of which all may be asked for at once: proofs are made of all scores."""

    def _dense(self) -> torch.Tensor:
        return self.parts._dense()


def _dense_asking(scores: gp.Scores) -> tuple[Asking | None, Asking | None]:
    made = {x.kind: Asking(cast(Any, x), 1.0) for x in scores.parts}
    return made.get("siblings"), made.get("grandparents")


@sets
def test_the_same_as_with_every_score(kinds: tuple[str, ...]) -> None:
    """As many certificates, with few of the pairs scored, none of them twice but for the scores of the answers."""
    certified = 0
    for seed in range(4):
        scores = trilinear(seed, 5, 14, *kinds)
        whole = gp.decode(dense(scores), "dd", iterations=200)
        for x in scores.parts:
            x.scored = 0
        found = gp.decode(scores, "dd", iterations=200)
        both = whole.certified & found.certified
        torch.testing.assert_close(found.score[both], whole.score[both], rtol=0, atol=1e-4)  # products of float32
        assert bool((found.bound >= whole.score - 1e-4).all()) and bool((whole.bound >= found.score - 1e-4).all())
        certified += int(found.certified.sum()) - int(whole.certified.sum())
        every = sum(int(count_triples(x.kind, x.lengths).sum()) for x in scores.parts)
        counted = int(found.stats["scored"].sum())
        assert 0 < counted < 0.25 * every
        own = sum(x.scored for x in scores.parts) - counted  # for the scores of the answers
        assert 0 <= own <= len(kinds) * 15 * 5
        assert int(whole.stats["scored"].sum()) == every
    assert certified >= -1


@sets
def test_no_triple_is_scored_twice(kinds: tuple[str, ...]) -> None:
    for seed in range(3):
        every = instance(seed, kinds, strength=2.0)
        scores = loose(every)
        found = gp.decode(scores, "dd", iterations=40, exact=True)
        counts = asked(scores)
        tree = Counter((x.kind, b, *triple) for x in scores.parts for b, triple in _of_tree(x.kind, found.heads))
        tree.update((x.kind, b, 0, 0, 0) for x in scores.parts for b in range(4))  # where a tree has none
        assert all(count <= 1 or triple in tree for triple, count in counts.items())
        assert sum(1 for triple in counts if triple[2:] != (0, 0, 0)) == int(found.stats["scored"].sum())


def _of_tree(kind: Kind, heads: torch.Tensor) -> list[tuple[int, tuple[int, int, int]]]:
    found = []
    for b, row in enumerate(heads.tolist()):
        for m in range(1, int(LENGTHS[b]) + 1):
            h = row[m]
            step = 1 if h < m else -1
            if kind == "siblings":
                found.append((b, (h, next((s for s in range(m - step, h, -step) if row[s] == h), h), m)))
            elif h:
                found.append((b, (row[h], h, m)))
    return found


@sets
def test_the_dual_is_a_bound_and_falls_to_that_of_all_scores(kinds: tuple[str, ...]) -> None:
    """Also where nobody looks for a while; and with the least penalties it is the same once all is exact."""
    for seed in range(3):
        every = instance(seed, kinds)
        scores, expected = loose(every, 2.0, seed), best(every)
        made = second_order(scores, iterations=60, keep=True)
        found = made.run()
        assert bool(((found.duals >= expected - 1e-9) | found.duals.isnan()).all())
        check_sound(found, expected)
        exact = second_order(every, iterations=1).run(found.least)
        assert bool((exact.duals[0] <= found.bound + 1e-9).all())
        with budget():
            there = second_order(loose(every, 2.0, seed), iterations=300).run()
        check_sound(there, expected)
        assert bool(there.certified.any())


@sets
def test_branching_alone(kinds: tuple[str, ...]) -> None:
    """With so few iterations nearly nothing is proven before all is fixed."""
    every = instance(1, kinds, strength=3.0)
    made = second_order(loose(every), iterations=2)
    found, solved, _ = tighten(made, made.run(), TREES, nodes=100_000)
    check_best(found, best(every))
    assert int(solved.sum()) > 0


def test_promising_arcs_are_no_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of bounds have those of the best tree."""
    monkeypatch.setattr(fallback, "HEADS", 6)
    left = 0
    for seed in range(8):
        every = instance(seed, strength=2.0)
        made = second_order(loose(every), iterations=20)
        found = made.run()
        exact = gp.decode(every, "ppc", exact=True)
        for b in (~found.certified & (found.score > -math.inf)).nonzero()[:, 0].tolist():
            n, arcs = int(LENGTHS[b]), _promising(made, found)[b]
            assert bool(arcs[exact.heads[b, 1 : n + 1], torch.arange(1, n + 1)].all())
            left += 1
    assert left > 0


def priced(kind: Kind, seed: int = 0, slack: float = 1.0) -> tuple[LooseParts, PricedParts]:
    scores = instance(seed, (kind,), 0.2)
    (parts,) = loose(scores, slack, seed).parts
    return cast(LooseParts, parts), PricedParts.of(parts, scores.arcs.isneginf())


@kinds_
def test_what_is_known_and_hoped(kind: Kind) -> None:
    source, parts = priced(kind)
    read = legal_triples(kind, LENGTHS, 6)
    exact = torch.where(read, source.parts.values, 0.0)
    never = torch.where(read, parts.hoped, 0.0).isneginf()
    assert bool((parts.hoped >= exact)[~never].all()) and source.asked == []
    assert bool((parts.known[read & ~never] == -math.inf).all()) and not bool(parts.hoped[~read].any())
    for axis in range(3):
        assert bool((parts.bound(axis) <= source.bound(axis)).all())
    sentence, i, j, k = (read & ~never).nonzero(as_tuple=True)
    some = torch.arange(0, len(i), 3)
    given = sentence[some], i[some], j[some], k[some]
    assert torch.equal(parts.score(*given), source.parts.values[given])
    assert torch.equal(parts.hoped[given], parts.known[given]) and len(source.asked) == len(some)
    assert torch.equal(parts.counted, torch.bincount(sentence[some], minlength=4))
    rows = torch.tensor([3, 0, 0])
    taken = parts.take(rows).take(torch.tensor([2, 0]))
    assert isinstance(taken.source, TakenParts) and taken.source.whole is parts
    every = taken.dense()
    wanted = torch.where(read & ~never, source.parts.values, torch.where(read, -math.inf, 0.0))[torch.tensor([0, 3])]
    assert torch.equal(every, wanted)
    own = (sentence == 0) | (sentence == 3)
    whole = torch.zeros(len(i), dtype=torch.bool)
    whole[some] = True
    assert len(source.asked) == int((whole | own).sum())  # what the whole knows was not asked for again
    assert torch.equal(parts.known[rows[1]], every[0])


@kinds_
def test_what_nothing_is_known_of_is_scored_at_once(kind: Kind) -> None:
    source, parts = priced(kind, slack=math.inf)
    read = legal_triples(kind, LENGTHS, 6)
    assert bool((parts.hoped == parts.known).all()) and bool((parts.hoped < math.inf).all())
    assert len(source.asked) <= int(read.sum()) and len(set(source.asked)) == len(source.asked) > 0


@kinds_
@roots
def test_what_stars_and_trees_use(kind: Kind, single_root: bool) -> None:
    """Two iterations' stars and trees, one after the other."""
    scores = instance(0, BOTH)
    arcs, pairs = scores.arcs, [getattr(scores, x).dense() for x in ("siblings", "grandparents")]
    lengths = scores.lengths
    every = [automata(s * arcs, s * arcs, *pairs, lengths, single_root=single_root) for s in (1, -1)]
    trees = [gp.mst(s * arcs.nan_to_num(0.0), lengths, single_root=single_root) for s in (1, -1)]
    trees[1][2] = -1  # there is none
    _, parts = priced(kind)
    stars = Stars(*(torch.cat(x) for x in zip(*every, strict=True)))
    codes = torch.cat([parts.of_stars(stars), parts.of_trees(torch.cat(trees))])
    found = {(b, i, j, k) for b, i, j, k in zip(*(x.tolist() for x in parts.triples(codes)), strict=True) if k}
    wanted = set()
    for one, tree in zip(every, trees, strict=True):
        wanted |= {(b, *triple) for b, triple in _of_tree(kind, tree) if -1 not in triple}
        for b, p in [(b, p) for b, n in enumerate(lengths.tolist()) for p in range(n + 1)]:
            children = one.children[b, p].nonzero()[:, 0].tolist()
            for c in children:
                beside = [s for s in children if min(p, c) < s < max(p, c)]
                if kind == "siblings":
                    wanted.add((b, p, min(beside, key=lambda s: abs(s - c)) if beside else p, c))
                elif p:
                    wanted.add((b, int(one.heads[b, p]), p, c))
    assert found == wanted


def test_an_iteration_between_looks_is_nine_operations() -> None:
    """And no wait, as with every score at hand."""
    scores = trilinear(0, 8, 12, *BOTH)
    counts = []
    for iterations in (3, 3 + LOOK - 4):
        with budget() as found:
            second_order(scores, iterations=iterations).run()
        counts.append(found)
    few, more = counts
    assert more.waits == few.waits, more.waits - few.waits
    added = more.operations - few.operations
    assert added.total() <= 9 * (LOOK - 4), added


@pytest.mark.parametrize("size", [1e-8, 1e8])
def test_scores_of_any_size(size: float) -> None:
    every = instance(2, BOTH)
    pairs = {x.kind: size * x.dense() for x in every.parts}
    scores = loose(gp.Scores(size * every.arcs, LENGTHS, **pairs), slack=size)
    found = gp.decode(scores, "dd", exact=True, iterations=100)
    assert bool(found.certified.all())
    torch.testing.assert_close(found.score, size * best(every), rtol=1e-8, atol=0)


def test_a_horizon_that_moves() -> None:
    """Pairs that are far from their bounds turn out to be beyond the horizon only where they are scored."""
    for seed in range(6):
        every = instance(seed, BOTH, strength=2.0)
        g = torch.Generator().manual_seed(seed)
        pairs = {}
        for x in every.parts:
            far = torch.rand(x.dense().shape, generator=g) < 0.5
            pairs[x.kind] = torch.where(far, x.dense() - 1e9, x.dense())
        low = gp.Scores(every.arcs, LENGTHS, **pairs)
        found = gp.decode(loose(low, seed=seed), "dd", exact=True, iterations=60)
        expected = best(low)
        assert bool(found.certified.all())
        torch.testing.assert_close(found.score, expected, rtol=1e-9, atol=1e-9)
