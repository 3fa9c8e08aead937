"""The linear program of trees and pairs of arcs, by brute force and by parse, price and cut, against all trees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.ilp.batch import easy_trees
from gpuparse.decoding.parts import Kind, legal_triples
from gpuparse.decoding.ppc import descent, ppc, pricing, work
from gpuparse.decoding.ppc.batch import parse_price_cut
from gpuparse.decoding.ppc.brute import solve_whole
from gpuparse.decoding.ppc.grandparents import Grandparents
from gpuparse.decoding.ppc.program import POLYTOPES, PRICED, PairProgram, allowed, legal_arcs
from gpuparse.decoding.ppc.siblings import Siblings
from gpuparse.decoding.ppc.units import Units
from gpuparse.decoding.solver import Status
from gpuparse.nn.trilinear import TrilinearParts
from tests.decoding.instances import LENGTHS, best, check_best, check_sound, instance, normal
from tests.decoding.refusals import refuses
from tests.oracle import all_trees

roots = pytest.mark.parametrize("single_root", [True, False])
KINDS = (("grandparents",), ("siblings",), ("grandparents", "siblings"))
kinds = pytest.mark.parametrize("parts", KINDS, ids="+".join)


@kinds
@roots
@pytest.mark.parametrize("projective", [False, True], ids=["crossing", "projective"])
@pytest.mark.parametrize("forbidden", [0.0, 0.2])
def test_certified_trees_are_best(forbidden: float, projective: bool, single_root: bool, parts: Sequence[str]) -> None:
    branched, trees = 0, {"single_root": single_root, "projective": projective}
    for seed in range(10 if projective else 20):
        scores = instance(seed, parts, forbidden=forbidden)
        expected = best(scores, **trees)
        if not bool((expected > -math.inf).all()):
            continue
        exact = gp.decode(scores, "ppc", **trees, exact=True)
        check_best(exact, expected)
        branched += int((exact.stats["branches"] > 0).sum())
        check_sound(gp.decode(scores, "ppc", **trees), expected)
        if seed < 4:
            check_sound(gp.decode(scores, "lp", **trees), expected)
    assert branched > 0


@kinds
def test_projective_trees_are_eisners(parts: Sequence[str]) -> None:
    """Of longer sentences, in the paper's polytope too, where crossing arcs are cut off before flow joins."""
    for seed, polytope in enumerate(PRICED):
        arcs, *pairs = normal(seed, (3, 12, 12), *[(3, 12, 12, 12)] * len(parts))
        scores = gp.Scores(2 * arcs, torch.tensor([11, 8, 10]), **dict(zip(parts, pairs, strict=True)))
        found = gp.decode(scores, "ppc", projective=True, exact=True, polytope=polytope, proof=True)
        check_best(found, gp.decode(scores, "eisner").score)
        gp.verify(scores, found, projective=True)


@kinds
def test_masks_that_are_large_numbers(parts: Sequence[str]) -> None:
    """Of a tenth of all pairs, and of some arcs: as -inf, as long as a tree without them is left."""
    for seed in range(12):
        plain = instance(seed, parts)
        tables = {"arcs": plain.arcs, **dict(zip(plain.second_order, (x.dense() for x in plain.parts), strict=True))}
        for k, x in enumerate(tables.values()):
            g = torch.Generator().manual_seed(100 * seed + k)
            x[torch.rand(x.shape, generator=g) < 0.1] = (-1e30, -1e300, -1e9)[seed % 3]
        scores = gp.Scores(tables.pop("arcs"), LENGTHS, **tables)
        found = gp.decode(scores, "ppc", exact=True, proof=True)
        expected = best(scores)
        close = (found.score - expected).abs() <= 1e-9 * expected.abs().clamp(min=1.0)
        assert bool(close.all()) and bool(found.certified.all())
        gp.verify(scores, found)


@kinds
@roots
@pytest.mark.parametrize("polytope", PRICED)
def test_the_same_value_as_the_whole_program(single_root: bool, polytope: str, parts: Sequence[str]) -> None:
    fractional = 0
    for seed in range(12):
        scores = instance(seed, parts, forbidden=0.1 * (seed % 2))
        options = {"single_root": single_root, "polytope": polytope}
        try:
            whole = gp.decode(scores, "lp", **options)
        except ValueError:  # no tree at all
            continue
        lazy = gp.decode(scores, "lp", **options, lazy_rows=True)
        found = gp.decode(scores, "ppc", **options)
        torch.testing.assert_close(lazy.stats["relaxed"], whole.stats["relaxed"], rtol=0, atol=1e-6)
        # or less, if the best spanning tree is, its arcs' pairs the best that they can have: flow holds more than trees
        easy = easy_trees(scores, projective=False, single_root=single_root)
        value = torch.minimum(whole.stats["relaxed"], easy.bound)
        torch.testing.assert_close(found.stats["relaxed"], value, rtol=0, atol=1e-6)
        assert bool((found.stats["added"] <= whole.stats["added"]).all())
        fractional += int((~found.stats["integral"]).sum())
    assert fractional > 0


@pytest.mark.parametrize("parts", KINDS[::2], ids="+".join)
@pytest.mark.parametrize("polytope", POLYTOPES)
def test_polytopes(polytope: str, parts: Sequence[str]) -> None:
    """All hold every tree; none is tighter than "all", but for "tight", than which none is tighter."""
    for seed in range(6):
        scores = instance(seed, parts)
        expected = best(scores)
        found = gp.decode(scores, "lp", polytope=polytope)
        assert bool((found.stats["relaxed"] >= expected - 1e-9).all())
        of_all = gp.decode(scores, "lp", polytope="all").stats["relaxed"]
        tighter, looser = (found.stats["relaxed"], of_all)[:: 1 if polytope == "tight" else -1]
        assert bool((looser >= tighter - 1e-7).all())
        check_sound(found, expected)


def test_rows_hold_for_trees() -> None:
    """A tree, its flow and its pairs satisfy every row of the program."""
    arcs = instance(3, ()).arcs[0].numpy()
    program = PairProgram(arcs, KINDS[2], single_root=True)
    program.add_arcs(*legal_arcs(arcs))
    for pairs in program.pairs:
        triples = pairs.legal(allowed(arcs))
        program.add_triples(pairs, triples, np.zeros(len(triples)))
    grandparents = program.grandparents
    assert grandparents is not None
    grandparents.add_gp_arc(grandparents.triples, program.z)
    grandparents.add_arc_gp(grandparents.triples, program.z)
    model = program.program._highs.getLp()
    matrix = np.zeros((program.program.rows, program.program.columns))
    for column in range(program.program.columns):
        for entry in range(model.a_matrix_.start_[column], model.a_matrix_.start_[column + 1]):
            matrix[model.a_matrix_.index_[entry], column] = model.a_matrix_.value_[entry]
    for heads in all_trees(5, single_root=True, projective=False)[::7].tolist():
        x = np.zeros(program.program.columns)
        for m in range(1, 6):
            below = sum(m in ancestors(heads, k) for k in range(1, 6))
            x[program.z[heads[m], m]], x[program.phi[heads[m], m]] = 1, below
        for pairs in program.pairs:
            x[pairs.y[tuple(pairs.of_tree(np.array(heads)).T)]] = 1
        amount = matrix @ x
        assert (amount >= np.array(model.row_lower_) - 1e-9).all() and (
            amount <= np.array(model.row_upper_) + 1e-9
        ).all()


def test_pairs_of_a_tree() -> None:
    heads = np.array([-1, 2, 0, 2, 2, 4, 2])
    assert Grandparents.of_tree(heads).tolist() == [[0, 2, 1], [0, 2, 3], [0, 2, 4], [2, 4, 5], [0, 2, 6]]
    siblings = [[2, 2, 1], [0, 0, 2], [2, 2, 3], [3, 2, 4], [4, 4, 5], [4, 2, 6]]
    assert Siblings.of_tree(heads).tolist() == siblings
    for kind in KINDS[2]:
        own = {"grandparents": Grandparents, "siblings": Siblings}[kind]
        every = legal_triples(kind, torch.tensor([6]), 7)[0]
        every = every if kind == "grandparents" else every.transpose(0, 1)
        assert torch.equal(torch.from_numpy(own.legal(allowed(np.zeros((7, 7))))), every.nonzero())
        assert {tuple(x) for x in own.of_tree(heads).tolist()} <= {tuple(x) for x in every.nonzero().tolist()}


def ancestors(heads: list[int], word: int) -> set[int]:
    """A word and what is above it."""
    found = set()
    while word > 0:
        found.add(word)
        word = heads[word]
    return found


@kinds
def test_few_are_scored_and_counted(parts: Sequence[Kind]) -> None:
    g = torch.Generator().manual_seed(0)
    factors = [[0.4 * torch.randn(3, 26, 4, generator=g) for _ in range(3)] for _ in parts]
    lengths = torch.tensor([25, 20, 15])
    arcs = 3 * torch.randn(3, 26, 26, generator=g)
    lazy = {kind: TrilinearParts(*own, lengths, kind=kind) for kind, own in zip(parts, factors, strict=True)}
    found = gp.decode(gp.Scores(arcs, lengths, **lazy), "ppc", exact=True)
    scored, words = int(found.stats["scored"].sum()), int(lengths.sum())
    own = sum(x.scored for x in lazy.values()) - scored  # for the scores of the trees
    assert 0 <= own <= 2 * words * len(parts)
    every = sum(int(legal_triples(kind, lengths, 26).sum()) for kind in parts)
    assert scored < 0.5 * every
    assert bool((found.stats["added"] <= found.stats["scored"]).all())
    dense = gp.decode(gp.Scores(arcs, lengths, **{kind: x.dense() for kind, x in lazy.items()}), "ppc", exact=True)
    torch.testing.assert_close(found.score, dense.score)
    other = gp.decode(gp.Scores(arcs, lengths, **lazy), "dd", exact=True)
    assert bool(other.certified.all())
    torch.testing.assert_close(found.score, other.score)


def test_no_tree() -> None:
    scores = instance(1)
    parts = scores.grandparents.dense().clone()
    parts[1] = -math.inf
    given = gp.Scores(scores.arcs, LENGTHS, grandparents=parts)
    for method in ("ppc", "lp"):
        found = gp.decode(given, method, single_root=False)  # all words under the root
        assert bool(found.certified[1]) and found.heads[1].tolist() == [-1, 0, 0, 0, -1, -1]
        refuses("grandparents of sentence 1: every tree has a forbidden part", gp.decode, given, method)
        unseen = gp.decode(gp.Scores(scores.arcs, LENGTHS, grandparents=parts, validate_args=False), method)
        assert unseen.heads[1].tolist() == [-1] * 6 and not bool(unseen.certified[1])
        assert unseen.score[1] == -math.inf and unseen.bound[1] == math.inf
        assert unseen.score[0] > -math.inf


def test_scores_of_any_size() -> None:
    for size in (1e-11, 1e-6, 1e4, 1e9):
        scores = instance(2)
        large = gp.Scores(size * scores.arcs, LENGTHS, grandparents=size * scores.grandparents.dense())
        found = gp.decode(large, "ppc", exact=True)
        torch.testing.assert_close(found.score, size * best(scores), rtol=1e-9, atol=1e-20)
        assert bool(found.certified.all())
        whole = gp.decode(large, "lp")
        torch.testing.assert_close(whole.stats["relaxed"], found.stats["relaxed"], rtol=1e-7, atol=1e-20)


def test_one_huge_score() -> None:
    """As large as to force an arc or a grandparent: it takes no part in what counts as near."""
    for seed in range(6):
        for kind in ("arcs", "grandparents"):
            scores = instance(seed, strength=0.3)
            arcs, parts = 0.3 * scores.arcs, scores.grandparents.dense().clone()
            if kind == "arcs":
                arcs[:, 0, 3] += 1e9
            else:
                parts[:, 0, 1, 2] += 1e9
            given = gp.Scores(arcs, LENGTHS, grandparents=parts)
            found = gp.decode(given, "ppc", exact=True)
            torch.testing.assert_close(found.score, best(given), rtol=0, atol=1e-6)
            assert bool(found.certified.all())


def test_more_is_found_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    arcs, parts = normal(0, (1, 13, 13), (1, 13, 13, 13))
    scores = gp.Scores(arcs, grandparents=3 * parts)
    monkeypatch.setattr(pricing, "ROOM", 0)
    found, whole = gp.decode(scores, "ppc"), gp.decode(scores, "lp")
    torch.testing.assert_close(found.stats["relaxed"], whole.stats["relaxed"], rtol=0, atol=1e-6)


def test_time_limit_and_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = instance(5)
    expected = best(scores)
    found = gp.decode(scores, "ppc", exact=True, time_limit=0.0)
    check_sound(found, expected)
    assert not bool(found.certified[0]) and found.remarks[0] == "not proven: the time limit"
    assert bool((found.heads[:, 1] >= 0).all())
    assert set(found.remarks) == set((~found.certified).nonzero()[:, 0].tolist())
    whole = gp.decode(scores, "lp", time_limit=0.0)
    assert not bool(whole.certified[0]) and whole.bound[0] == math.inf

    solve = ppc.PairProgram.solve

    def fail(program: Any, seconds: float) -> Any:
        result = solve(program, seconds)
        return type(result)(Status.FAILED, None, None, math.inf)

    monkeypatch.setattr(ppc.PairProgram, "solve", fail)
    failed = gp.decode(scores, "ppc", exact=True)
    assert failed.remarks[0] == "not proven: the solver failed" and not bool(failed.certified[0])
    assert bool((failed.bound >= expected - 1e-9).all())

    branching: list[bool] = []
    restrict = ppc.PricedSentence.restrict

    def note(sentence: Any, forbidden: Any) -> None:
        branching.append(True)
        restrict(sentence, forbidden)

    monkeypatch.setattr(ppc.PricedSentence, "restrict", note)
    monkeypatch.setattr(ppc.PairProgram, "solve", lambda *args: (fail if branching else solve)(*args))
    for seed in range(20):
        branching.clear()
        found = gp.decode(instance(seed), "ppc", exact=True, threads=1)
        assert set(found.remarks) == set((~found.certified).nonzero()[:, 0].tolist())
        if found.remarks:
            break
    assert set(found.remarks.values()) == {"not proven: the solver failed"}


def test_labels_and_first_order() -> None:
    scores, (labels,) = instance(3), normal(3, (4, 6, 6, 3))
    given = gp.Scores(scores.arcs, LENGTHS, labels=labels, grandparents=scores.grandparents)
    found, expected = gp.decode(given, "ppc", exact=True), gp.decode(given, "ilp")
    assert torch.equal(found.heads, expected.heads)
    assert found.labels is not None and expected.labels is not None and torch.equal(found.labels, expected.labels)
    torch.testing.assert_close(found.score, expected.score)
    for method in ("ppc", "lp"):
        assert torch.equal(gp.decode(gp.Scores(scores.arcs, LENGTHS), method).heads, gp.mst(scores.arcs, LENGTHS))


def test_threads_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (descent, work):
        monkeypatch.setattr(module, "FEW", 1)  # else what is done without a program, and counted, does depend on them
    scores = instance(7)
    alone = gp.Scores(scores.arcs[:1], grandparents=scores.grandparents.dense()[:1])
    both = gp.decode(scores, "ppc", exact=True), gp.decode(alone, "ppc", exact=True)
    assert torch.equal(both[0].heads[:1], both[1].heads)
    for name in both[0].stats:
        torch.testing.assert_close(both[0].stats[name][:1], both[1].stats[name])
    one = parse_price_cut(scores, exact=True, threads=1)
    many = parse_price_cut(scores, exact=True, threads=4)
    assert torch.equal(one.heads, many.heads)
    for name in one.stats:
        torch.testing.assert_close(one.stats[name], many.stats[name])


def test_inference_mode() -> None:
    branched = 0
    for seed in range(6):
        expected = gp.decode(instance(seed), "ppc", exact=True)
        with torch.inference_mode():
            found = gp.decode(instance(seed), "ppc", exact=True)
        assert torch.equal(found.heads, expected.heads)
        branched += int(found.stats["branches"].sum())
    assert branched > 0


def test_errors() -> None:
    scores = instance(0)
    for method in ("ppc", "lp"):
        refuses("time_limit must be a number of seconds", gp.decode, scores, method, time_limit=-1.0)
    refuses("threads must be a whole number from 1 on, got 0", gp.decode, scores, "ppc", threads=0)
    refuses("lazy_rows goes with polytope all or tight", gp.decode, scores, "lp", polytope="arcgp", lazy_rows=True)
    refuses("polytope must be one of arcgp, onegp, all, tight", gp.decode, scores, "lp", polytope="some")


def test_whole_program_is_stopped() -> None:
    scores = instance(0)
    pairs = {"grandparents": scores.grandparents.dense()[0].numpy()}
    found = solve_whole(scores.arcs[0].numpy().copy(), pairs, seconds=0.0)
    assert found.status is Status.STOPPED and found.z is None and found.bound == math.inf


def test_what_is_left_out_is_in_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arcs alone too: a tree might have one that is too far away."""
    scores = instance(5)
    arcs = scores.arcs.clone()
    arcs[0, 2, 1] = -1e12
    near, far = (gp.Scores(x, LENGTHS, grandparents=scores.grandparents.dense()) for x in (scores.arcs, arcs))
    monkeypatch.setattr(Units, "beyond", 1e6)
    without, found = (parse_price_cut(x, exact=True, time_limit=0.0) for x in (near, far))
    assert not bool(without.certified[0] | found.certified[0])
    assert without.bound[0] < 1e3 < found.bound[0]


def test_no_program_is_outgrown_before_there_is_a_tree() -> None:
    scores = instance(3)
    n = int(LENGTHS[0])
    arcs, over = scores.arcs[0, : n + 1, : n + 1].numpy(), np.zeros((n + 1, n + 1))
    sentence = ppc.PricedSentence(
        Units.of(arcs, {"grandparents": over}).within(1e300), True, math.inf, math.inf, "tight"
    )
    sentence.score = 0.0
    assert not sentence.outgrown
    sentence.tree = np.arange(-1, n)
    assert sentence.outgrown


def test_what_is_asked_is_answered_when_all_kinds_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device may know one kind of pairs of a sentence before the other."""
    pairs = torch.zeros(2, 3, 3, 3)
    scores = gp.Scores(torch.zeros(2, 3, 3), siblings=pairs, grandparents=pairs)
    assert scores.grandparents is not None and scores.siblings is not None
    batch = pricing.Pricing([scores.grandparents, scores.siblings])
    known = [{0: np.zeros(1), 1: np.ones(1)}, {1: np.full(1, 2.0)}]
    for family, found in zip(batch.families, known, strict=True):
        monkeypatch.setattr(family, "look", lambda wanted, found=found: found)
    triples = np.zeros((1, 3), dtype=np.int64)
    assert batch.look({0: (triples, triples), 1: (triples, triples)}) == {1: (known[0][1], known[1][1])}
