"""Pricing: the kernel against plain torch, that against a loop over triples, and scores against those of the parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from gpuparse.decoding.parts import DenseParts, Kind, Parts, TakenParts, legal_triples
from gpuparse.ops import plain
from gpuparse.ops.pricing import Priced, Scorer, price, price_listed
from tests.pricing_oracle import (
    ALL,
    DTYPES,
    INF,
    KINDS,
    by_loop,
    copied,
    equal,
    legal,
    score_of,
    scorer_of,
    some_duals,
    some_parts,
)


def by_plain(
    score: Any, lengths: Tensor, duals: dict[str, Tensor], tolerance: float, room: int, siblings: bool = False
) -> Priced:
    return Priced(*plain.pricing.price(score, lengths, *duals.values(), tolerance, room, siblings))


SIZES = [[n, max(1, n - 2), 1, n // 2 + 1] for n in (*range(1, 12), 34, 70)]


@pytest.mark.parametrize("lengths", SIZES, ids=lambda lengths: str(max(lengths)))
@pytest.mark.parametrize("dtype", DTYPES, ids=("float32", "float64"))
@pytest.mark.parametrize(("kind", "pairs"), ALL)
def test_kernel_is_plain_torch(kind: str, pairs: Kind, dtype: torch.dtype, lengths: list[int]) -> None:
    seen = torch.zeros(3, dtype=torch.int64)
    for seed in range(1 if max(lengths) > 40 else 2 if max(lengths) > 20 else 4):
        parts = some_parts(kind, lengths, dtype, seed, pairs)
        siblings, score = pairs == "siblings", score_of(parts)
        counts = parts.lengths.clone()
        if seed == 1:
            counts[0] = 0  # this one is done
        scorer = scorer_of(parts)
        for known, tolerance, room in ((0.0, 0.0, 12**3), (0.4, 1e-6, 7), (1.0, 0.3, 0)):
            duals = some_duals(parts, seed, known)
            one, other, third, fourth = (copied(duals) for _ in range(4))
            expected = by_plain(scorer.score, counts, one, tolerance, room, siblings)
            how = {"tolerance": tolerance, "room": room, "siblings": siblings}
            equal(price(scorer, counts, **other, **how), expected)
            assert torch.equal(other["known"].nan_to_num(nan=7.0), one["known"].nan_to_num(nan=7.0))
            if kind != "trilinear" or dtype == torch.float32:  # else the sums of parts are in another order
                equal(price_listed(score, counts, **third, **how), expected)
                assert torch.equal(third["known"].nan_to_num(nan=7.0), one["known"].nan_to_num(nan=7.0))
            equal(price_listed(scorer.score, counts, **fourth, **how), expected)
            if seed == 1:
                assert expected.count[0] == expected.looked[0] == 0
            seen += torch.stack((expected.count, expected.looked, expected.scored)).sum(1)
    if max(lengths) > 4:
        assert (seen > 0).all() and seen[0] < seen[1]


@pytest.mark.parametrize(("kind", "pairs"), ALL)
def test_plain_torch_is_the_loop(kind: str, pairs: Kind) -> None:
    for seed, lengths in enumerate(([6, 3, 1], [5, 5], [4, 2], [2, 7])):
        parts = some_parts(kind, lengths, torch.float32, seed, pairs)
        duals = some_duals(parts, seed)
        expected = by_loop(parts, parts.lengths, duals, 1e-6)
        assert sum(map(len, expected)) > 0
        found = by_plain(score_of(parts), parts.lengths, duals, 1e-6, 500, pairs == "siblings")
        for b, triples in enumerate(expected):
            assert found.triples[b, : found.count[b]].tolist() == [list(triple) for triple in triples]


@pytest.mark.parametrize("dtype", DTYPES, ids=("float32", "float64"))
@pytest.mark.parametrize(("kind", "pairs"), ALL)
def test_scores_are_those_of_the_parts(kind: str, pairs: Kind, dtype: torch.dtype) -> None:
    for seed in range(6):
        parts = some_parts(kind, [9, 4, 14], dtype, seed, pairs)
        duals = some_duals(parts, seed, 0.0)
        siblings = pairs == "siblings"
        # so low, with nothing to spare, that all are scored
        duals["ceiling"] = duals["floor"] = torch.full_like(duals["ceiling"], -1e6)
        duals["kappa"] = duals["kappa"].clamp(max=1.0)
        priced = price(scorer_of(parts), parts.lengths, **duals, tolerance=0.0, room=0, siblings=siblings)
        over_c = duals["over_c"].mT if siblings else duals["over_c"]
        may = legal(parts) & (over_c > -INF)[..., None] & (duals["over_g"] > -INF)[:, None]
        assert priced.scored.tolist() == may.sum((1, 2, 3)).tolist()
        where = may.nonzero()
        with torch.no_grad():
            expected = score_of(parts)(*where.T).double()
        found = duals["known"].permute(0, 3, 1, 2)[tuple(where.T)]
        if kind == "trilinear" and dtype == torch.float64:
            # two sums of at most 20 products in different orders: each within 20 epsilon of the absolute values' sum
            torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-12)
        else:
            assert torch.equal(found, expected)
        assert (found <= duals["over_g"][where[:, 0], where[:, 2], where[:, 3]]).all()
        assert (found <= over_c[where[:, 0], where[:, 1], where[:, 2]]).all()


def nothing_open(values: Tensor, kind: Kind) -> tuple[Parts, dict[str, Any]]:
    """Pairs, and duals under which no arc is worth its price."""
    parts = DenseParts(values, kind=kind)
    duals = some_duals(parts, 0, 0.0)
    ceiling = torch.full_like(duals["ceiling"], 5.0)
    return parts, duals | {"ceiling": ceiling, "floor": ceiling - INF, "kappa": torch.zeros_like(ceiling)}


def found(parts: Parts, duals: dict[str, Any]) -> list[list[int]]:
    siblings = parts.kind == "siblings"
    priced = price(scorer_of(parts), parts.lengths, **copied(duals), tolerance=1e-9, room=9, siblings=siblings)
    count = priced.count[0]
    assert float(priced.worst.max()) == max([0.0, *priced.r[0, :count].tolist()])
    children = set(priced.triples[0, :count, 2].tolist())
    assert set(priced.worst[0].nonzero()[:, 0].tolist()) == children
    return priced.triples[0, :count].tolist()  # type: ignore[no-any-return]


def test_spare_slack_pays_for_all_or_nothing() -> None:
    """One arc (3, 1) is open; of the arcs above it, (2, 3) has 1.0 to spare and (0, 3) half of that."""
    values = torch.full((1, 4, 4, 4), -5.0, dtype=torch.float64)
    values[0, 2, 3, 1], values[0, 0, 3, 1] = 1.0, 0.75
    parts, duals = nothing_open(values, "grandparents")
    ceiling, floor = duals["ceiling"][0], duals["floor"][0]
    ceiling[3, 1], ceiling[2, 3], ceiling[0, 3] = 0.0, 1.0, 0.5
    duals["over_g"][0, 2, 3] = 0.0
    assert found(parts, duals) == [[0, 3, 1]]
    floor[2, 3] = 0.25
    assert found(parts, duals) == [[0, 3, 1], [2, 3, 1]]
    ceiling[0, 3] = 0.75
    assert found(parts, duals) == [[2, 3, 1]]
    ceiling[2, 3] = INF
    assert found(parts, duals) == []


def test_an_arc_to_a_sibling_pays_for_the_dearest() -> None:
    """Arcs (1, 3) and (1, 4) are open; beside (1, 2), which has 1.0 to spare, both want less, and together more."""
    values = torch.full((1, 5, 5, 5), -5.0, dtype=torch.float64)
    values[0, 1, 2, 3], values[0, 1, 2, 4], values[0, 1, 1, 3] = 1.0, 0.75, 0.5
    parts, duals = nothing_open(values, "siblings")
    ceiling, kappa = duals["ceiling"][0], duals["kappa"][0]
    ceiling[1, 3], ceiling[1, 4], ceiling[1, 2] = 0.0, 0.0, 1.0
    duals["over_g"][0, 1, 2] = 0.0
    assert found(parts, duals) == [[1, 1, 3]]
    kappa[1, 1] = 0.5  # the first child on the right
    assert found(parts, duals) == []
    duals["floor"][0, 1, 2] = 0.125
    assert found(parts, duals) == [[2, 1, 3], [2, 1, 4]]
    kappa[1, 2] = 0.25
    assert found(parts, duals) == []


def test_user_families_have_no_scorer() -> None:
    class Own(DenseParts):
        scorer = Parts.scorer

    assert Own(torch.zeros(1, 3, 3, 3), kind="siblings").scorer() is None


@pytest.mark.parametrize("kind", KINDS)
def test_fake_tensors(kind: str) -> None:
    """The operator knows its outputs without running."""
    parts = some_parts(kind, [4, 3], torch.float32, 1)
    duals, scorer = some_duals(parts, 1), scorer_of(parts)
    with FakeTensorMode() as mode:

        def fake(x: Any) -> Any:
            return mode.from_tensor(x) if isinstance(x, Tensor) else x

        like = Scorer(**{name: fake(x) for name, x in vars(scorer).items()})
        fakes = {name: fake(x) for name, x in duals.items()}
        priced = price(like, fake(parts.lengths), **fakes, tolerance=0.0, room=6)
    expected = price(scorer, parts.lengths, **duals, tolerance=0.0, room=6)
    for name, x in vars(expected).items():
        assert (getattr(priced, name).shape, getattr(priced, name).dtype) == (x.shape, x.dtype), name


def test_operator_is_the_call() -> None:
    """Where torch traces, the call is the operator."""
    parts = some_parts("dense", [6, 3], torch.float32, 1)
    duals, scorer = some_duals(parts, 1), scorer_of(parts)
    one, (*squares, known) = copied(duals), copied(duals).values()
    expected = price(scorer, parts.lengths, **one, tolerance=0.0, room=50)
    args = 0, 0, scorer.values, None, None, None, None, parts.lengths, squares, known, 0.0, 50, False
    equal(Priced(*torch.ops.gpuparse.pricing(*args)), expected)
    assert expected.count.sum() > 0 and torch.equal(known.nan_to_num(nan=7.0), one["known"].nan_to_num(nan=7.0))


def test_nothing_to_do() -> None:
    scorer = Scorer.dense(torch.zeros(0, 3, 3, 3))
    square, known = torch.zeros(0, 3, 3, dtype=torch.float64), torch.zeros(0, 3, 3, 3, dtype=torch.float64)
    names = ("ceiling", "floor", "kappa", "over_g", "over_c")
    duals = {**dict.fromkeys(names, square), "known": known}
    for priced in (
        price(scorer, torch.zeros(0, dtype=torch.int64), **duals, tolerance=0.0, room=3),
        price_listed(scorer.score, torch.zeros(0, dtype=torch.int64), **duals, tolerance=0.0, room=3),
    ):
        assert priced.triples.shape == (0, 3, 3) and priced.count.shape == (0,)


def test_errors_name_the_argument() -> None:
    parts = some_parts("dense", [3, 2], torch.float32, 0)
    duals = some_duals(parts, 0)
    scorer = scorer_of(parts)

    def run(scorer: Scorer = scorer, lengths: Tensor = parts.lengths, **changed: Any) -> None:
        price(scorer, lengths, **{**duals, "tolerance": 0.0, "room": 5, **changed})

    of_templates = replace(scorer_of(some_parts("templates", [3, 2], torch.float32, 0)), siblings=True)
    for message, changed in (
        ("scorer must be dense or trilinear for siblings", {"scorer": of_templates, "siblings": True}),
        ("scorer must be of siblings, as is asked for", {"siblings": True}),
        (r"kappa must be float64 \[2, 4, 4\] on cpu, got float32 \[2, 4, 4\]", {"kappa": duals["kappa"].float()}),
        (r"over_c must be float64 \[2, 4, 4\] on cpu, got float64 \[2, 4\]", {"over_c": duals["over_c"][0, :2]}),
        (r"lengths must be int64 \[2\]", {"lengths": parts.lengths[:1]}),
        (r"known must have shape \[B, N, N, N\]", {"known": duals["known"][0]}),
        ("known must be contiguous", {"known": duals["known"].transpose(1, 2)}),
        ("tolerance must be 0 or more, got nan", {"tolerance": float("nan")}),
        ("room must be 0 or more, got -1", {"room": -1}),
        ("scorer must be of 2 sentences and 4 nodes", {"scorer": Scorer.dense(torch.zeros(1, 4, 4, 4))}),
        ("scorer must be of float32 or float64", {"scorer": Scorer.dense(torch.zeros(2, 4, 4, 4).half())}),
    ):
        with pytest.raises(ValueError, match=message):
            run(**changed)


@pytest.mark.parametrize("kind", KINDS)
def test_some_of_the_sentences(kind: str) -> None:
    """Parts of sentences taken in any order, one of them twice: bounds, scores, the scorer, and what is priced."""
    parts, rows = some_parts(kind, [5, 3, 1, 4], torch.float64, 3), torch.tensor([3, 0, 3])
    taken = TakenParts(parts, rows)
    N = parts.nodes
    legal = legal_triples("grandparents", taken.lengths, N)
    assert torch.equal(taken.lengths, parts.lengths[rows])
    for axis in range(3):
        assert torch.equal(taken.bound(axis), parts.bound(axis)[rows])
    dense = parts.dense()[rows]
    assert torch.equal(taken.dense()[legal], dense[legal])
    b, g, p, c = legal.nonzero().T
    torch.testing.assert_close(taken.score(b, g, p, c), dense[b, g, p, c])
    scorer = taken.scorer()
    assert scorer is not None
    torch.testing.assert_close(scorer.score(b, g, p, c), dense[b, g, p, c])
    duals = some_duals(taken, 1, 0.0)
    found = price(scorer, taken.lengths, **duals, tolerance=1e-9, room=N**3)
    alone = {**some_duals(taken, 1, 0.0)}
    expected = price(Scorer.dense(torch.where(legal, dense, 0.0)), taken.lengths, **alone, tolerance=1e-9, room=N**3)
    assert torch.equal(found.count, expected.count) and int(found.count.sum()) > 0
    for row, count in enumerate(found.count.tolist()):
        assert torch.equal(found.triples[row, :count], expected.triples[row, :count])
