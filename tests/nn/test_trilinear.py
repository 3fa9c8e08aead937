"""Trilinear parts: lists of triples against all at once, bounds that hold to the last bit, gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gpuparse.decoding.parts import KINDS, Kind, legal_pairs, legal_triples
from gpuparse.decoding.scores import Scores
from gpuparse.nn.trilinear import Trilinear, TrilinearParts

kinds = pytest.mark.parametrize("kind", KINDS)
F32, F64 = torch.float32, torch.float64
dtypes = pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def padded(factors: list[Tensor], lengths: Tensor, value: float) -> list[Tensor]:
    """With a value past each sentence's end that nothing may read."""
    past = torch.arange(factors[0].shape[1]) > lengths[:, None]
    return [factor.masked_fill(past[:, :, None], value) for factor in factors]


def random_parts(
    kind: Kind, dtype: torch.dtype, seed: int = 0, *, words: int = 7, rank: int = 5, batch: int = 4, pad: float = 1e6
) -> TrilinearParts:
    g = generator(seed)
    lengths = torch.randint(1, words + 1, (batch,), generator=g)
    lengths[0] = words
    factors = [torch.randn(batch, words + 1, rank, generator=g, dtype=F64).to(dtype) for _ in range(3)]
    first, second, third = padded(factors, lengths, pad)
    return TrilinearParts(first, second, third, lengths, kind=kind)


def all_triples(parts: TrilinearParts) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    sentence, i, j, k = legal_triples(parts.kind, parts.lengths, parts.nodes).nonzero(as_tuple=True)
    return sentence, i, j, k


def check_bounds(parts: TrilinearParts) -> None:
    """Never below an exact score, from a list or from all at once, without any tolerance."""
    listed = torch.full((len(parts.lengths), *[parts.nodes] * 3), -math.inf, dtype=parts.dtype)
    places = all_triples(parts)
    listed[places] = parts.score(*places)
    read = legal_triples(parts.kind, parts.lengths, parts.nodes)
    everything = torch.where(read, parts.dense(), -math.inf)
    scored = parts.scored
    for axis in range(3):
        bound = parts.bound(axis)
        assert bound.dtype == parts.dtype
        assert not bool(bound.isnan().any())
        for exact in (listed, everything):
            assert bool((exact.amax(axis + 1) <= bound).all())
        pairs = legal_pairs(parts.kind, axis, parts.lengths, parts.nodes)
        assert bool(bound[~pairs].isneginf().all())
    assert parts.scored == scored


@kinds
@dtypes
def test_all_at_once_and_one_by_one(kind: Kind, dtype: torch.dtype) -> None:
    parts = random_parts(kind, dtype)
    sentence, i, j, k = places = all_triples(parts)
    listed = parts.score(*places)
    assert listed.dtype == dtype
    assert parts.scored == len(i)
    dense = parts.dense()
    assert parts.scored == len(i) + 4 * 8**3
    # float64 sums in another order, then rounded: the same but for their last bits
    torch.testing.assert_close(dense[places], listed, rtol=2 * torch.finfo(dtype).eps, atol=1e-14)
    for t in range(0, len(i), 37):
        a, b, c = (parts.factors[which][sentence[t], node[t]] for which, node in enumerate((i, j, k)))
        want = math.fsum(float(x) * float(y) * float(z) for x, y, z in zip(a, b, c, strict=True))
        assert math.isclose(float(listed[t]), want, rel_tol=1e-6 if dtype == F32 else 1e-12, abs_tol=1e-6)


@kinds
def test_precision_of_float32_products_does_not_matter(kind: Kind) -> None:
    parts = random_parts(kind, F32, rank=64)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        want = parts.dense()
        torch.set_float32_matmul_precision("medium")
        assert torch.equal(parts.dense(), want)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(parts.dense(), want)
            check_bounds(parts)
    finally:
        torch.set_float32_matmul_precision(before)


def score_of_chain(parts: TrilinearParts, **given: TrilinearParts | Tensor) -> Tensor:
    """Of trees in which each word hangs on the one before."""
    heads = torch.where(torch.arange(8) <= parts.lengths[:, None], torch.arange(-1, 7), -1)
    return Scores(torch.zeros(4, 8, 8, dtype=F64), parts.lengths, **given).tree_score(heads)


@kinds
def test_as_scores_of_a_tree(kind: Kind) -> None:
    """Lazily scored or dense, a tree has the same score; only the triples asked for are counted."""
    parts = random_parts(kind, F64)
    lazy = score_of_chain(parts, **{kind: parts})
    assert parts.scored == 4 * 8
    torch.testing.assert_close(lazy, score_of_chain(parts, **{kind: parts.dense()}), rtol=1e-12, atol=1e-12)


@kinds
def test_no_gradient_comes_from_padding(kind: Kind) -> None:
    """A tree's score is a number, and so is its gradient, whatever stands past the end."""
    lengths = torch.tensor([7, 3, 1, 5])
    factors = [torch.randn(4, 8, 5, generator=generator(seed), dtype=F64) for seed in range(3)]
    factors = [factor.requires_grad_() for factor in padded(factors, lengths, torch.nan)]
    parts = TrilinearParts(*factors, lengths, kind=kind)
    score = score_of_chain(parts, **{kind: parts})
    gradients = torch.autograd.grad(score.sum(), factors)
    assert score.isfinite().all() and all(gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.any() for gradient in gradients)


@kinds
@dtypes
@pytest.mark.parametrize("rank", [1, 2, 17, 100])
def test_bounds(rank: int, kind: Kind, dtype: torch.dtype) -> None:
    for seed in range(4):
        parts = random_parts(kind, dtype, seed, rank=rank, words=1 + 3 * seed)
        check_bounds(parts)
        for axis in range(3):
            assert torch.equal(parts.bound(axis).isfinite(), legal_pairs(kind, axis, parts.lengths, parts.nodes))


def adversaries() -> Iterator[tuple[str, list[Tensor]]]:
    """Factors that make rounding matter: the bound is met by some triple, terms cancel, ranges are wide."""
    g = generator(7)
    B, N, R = 2, 7, 33
    same = torch.rand(B, 1, R, generator=g, dtype=F64).expand(B, N, R).contiguous()
    yield "all nodes alike", [same, same.clone() * 1.1, same.clone() / 3]
    signs = torch.randint(0, 2, (B, 1, R), generator=g).double() * 2 - 1
    yield "alike but for signs", [same * signs, same * signs.roll(1, -1), same * 0.7]
    big = torch.where(torch.arange(R) % 2 == 0, 1e8, -1e8) * (1 + 1e-7 * torch.rand(B, N, R, generator=g).double())
    yield "cancelling", [big, torch.ones(B, N, R, dtype=F64), 1 + torch.rand(B, N, R, generator=g).double() * 1e-7]
    wide = torch.randn(B, N, R, generator=g, dtype=F64) * 10.0 ** torch.randint(-12, 12, (B, N, R), generator=g)
    yield "wide", [wide, wide.flip(1), wide.flip(2)]
    yield "zero", [torch.zeros(B, N, R, dtype=F64), wide, wide]
    yield "tiny", [torch.full((B, N, R), 1e-30, dtype=F64), wide * 1e-30, wide * 1e-30]
    huge = torch.full((B, N, R), 1e30, dtype=F64)
    yield "huge", [huge, wide, -huge]
    root = torch.randn(B, N, R, generator=g, dtype=F64)
    root[:, 0] *= 1e3
    yield "a root unlike the words", [root, root.clone(), root.clone()]


@kinds
@dtypes
@pytest.mark.parametrize(("name", "factors"), list(adversaries()), ids=[name for name, _ in adversaries()])
@pytest.mark.parametrize("short", [False, True], ids=["full", "ragged"])
def test_bounds_under_rounding(name: str, factors: list[Tensor], short: bool, kind: Kind, dtype: torch.dtype) -> None:
    lengths = torch.tensor([6, 2 if short else 6])
    first, second, third = padded([factor.to(dtype) for factor in factors], lengths, 1e20)
    check_bounds(TrilinearParts(first, second, third, lengths, kind=kind))


@kinds
def test_bounds_at_the_end_of_the_range(kind: Kind) -> None:
    """float64 products that overflow or underflow on the way: then a bound may be infinite, never too low."""
    g = generator(3)
    sizes = [(1e-200, 1e-200, 1e300), (1e300, 1e-200, 1e-200), (1e-308, 1e-10, 1e307), (1e150, 1e150, 1e-300)]
    for scales in sizes:
        factors = [torch.randn(2, 5, 4, generator=g, dtype=F64) * scale for scale in scales]
        parts = TrilinearParts(factors[0], factors[1], factors[2], kind=kind)
        check_bounds(parts)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), kind=st.sampled_from(KINDS), words=st.integers(1, 4), rank=st.integers(1, 4))
def test_any_bounds(data: st.DataObject, kind: Kind, words: int, rank: int) -> None:
    size = (words + 1) * rank
    values = st.lists(st.floats(-1e4, 1e4, width=32), min_size=size, max_size=size)
    first, second, third = (torch.tensor(data.draw(values), dtype=F32).view(1, words + 1, rank) for _ in range(3))
    check_bounds(TrilinearParts(first, second, third, kind=kind))


@kinds
@pytest.mark.parametrize("axis", range(3))
def test_padding_does_not_loosen(kind: Kind, axis: int) -> None:
    """The same sentence alone and in a batch with NaN past its end: the same bounds, to the bit."""
    parts = random_parts(kind, F32, pad=math.nan)
    bound = parts.bound(axis)
    for b, n in enumerate(parts.lengths.tolist()):
        first, second, third = (factor[b : b + 1, : n + 1] for factor in parts.factors)
        alone = TrilinearParts(first, second, third, kind=kind).bound(axis)
        torch.testing.assert_close(bound[b, : n + 1, : n + 1], alone[0], rtol=2e-7, atol=0)  # order of the sum
        assert bool(bound[b, n + 1 :].isneginf().all()) and bool(bound[b, :, n + 1 :].isneginf().all())


@kinds
def test_rank_one_bounds_are_met(kind: Kind) -> None:
    """With one product the best word is the best of all: the bound is that score but for what rounding may take."""
    parts = random_parts(kind, F64, rank=1, words=5)
    first, second, third = parts.factors
    full = torch.einsum("bir,bjr,bkr->bijk", first, second, third)
    node = torch.arange(6)
    word = ((node >= 1) & (node <= parts.lengths[:, None])).double()
    over_words = torch.where(word[:, None, None, :] > 0, full, -math.inf).amax(3)
    legal = legal_pairs(kind, 2, parts.lengths, 6)
    torch.testing.assert_close(parts.bound(2)[legal], over_words[legal], rtol=1e-12, atol=1e-12)


def test_the_root_is_taken_exactly() -> None:
    """A root far from the words: bounds over grandparents are not the sum of its extremes, over children not its."""
    g = generator(5)
    factors = [torch.rand(1, 6, 8, generator=g, dtype=F64) for _ in range(3)]
    calm = [TrilinearParts(*factors, kind="grandparents").bound(axis) for axis in (0, 2)]
    factors[0][:, 0] = torch.where(torch.arange(8) % 2 == 0, 1e3, -1e3)
    factors[2][:, 0] = 1e9  # no child of anything
    parts = TrilinearParts(*factors, kind="grandparents")
    exact = torch.where(legal_triples("grandparents", parts.lengths, 6), parts.dense(), -math.inf).amax(1)
    near = torch.maximum(calm[0], exact) * (1 + 1e-9)
    assert bool((parts.bound(0)[0, 1:, 1:] <= near[0, 1:, 1:]).all())
    torch.testing.assert_close(parts.bound(2)[0, 1:], calm[1][0, 1:], rtol=1e-12, atol=0)


@kinds
def test_gradients(kind: Kind) -> None:
    g = generator(2)
    factors = [torch.randn(2, 4, 3, generator=g, dtype=F64).requires_grad_() for _ in range(3)]
    places = [torch.tensor(x) for x in ([0, 0, 1, 1], [0, 2, 0, 1], [1, 1, 3, 1], [3, 3, 2, 2])]

    def dense(*given: Tensor) -> Tensor:
        return TrilinearParts(*given, kind=kind).dense()

    def listed(*given: Tensor) -> Tensor:
        return TrilinearParts(*given, kind=kind).score(*places)

    for function in (dense, listed):
        assert torch.autograd.gradcheck(function, factors)
        assert torch.autograd.gradgradcheck(function, factors)
    assert not TrilinearParts(*factors, kind=kind).bound(0).requires_grad


@kinds
def test_module(kind: Kind) -> None:
    """Zero at first, with a gradient that gets it going; parts that fit Scores."""
    torch.manual_seed(0)
    module = Trilinear(6, 4, 0.2, hidden=5, kind=kind)
    states, lengths = torch.randn(3, 5, 6), torch.tensor([4, 2, 1])
    optimiser = torch.optim.Adam(module.parameters(), lr=0.1)
    heads = torch.tensor([[-1, 2, 0, 2, 3], [-1, 2, 0, -1, -1], [-1, 0, -1, -1, -1]])
    values = []
    for _ in range(20):
        scores = Scores(torch.zeros(3, 5, 5), lengths, **{kind: module(states, lengths)})
        loss = -scores.tree_score(heads).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        values.append(float(loss.detach()))
    assert values[0] == 0.0
    assert values[-1] < -1.0
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in module.parameters())
    check_bounds(module.eval()(states, lengths))


def test_module_drops_out_in_training_only() -> None:
    """One mask a sentence: of two equal words both change alike. Under autocast parts are in float32."""
    torch.manual_seed(0)
    module = Trilinear(6, 4, 0.5, hidden=16)
    states = torch.randn(1, 1, 6).expand(2, 3, 6)
    first = module(states).factors[0]
    assert torch.equal(first[:, 0], first[:, 2]) and not torch.equal(first[0], first[1])
    module.eval()
    assert torch.equal(module(states).factors[0], module(states).factors[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        parts = module(torch.randn(2, 4, 6))
    assert parts.dtype == F32
    check_bounds(parts)


def test_bad_input() -> None:
    x, siblings = torch.zeros(2, 4, 3), partial(TrilinearParts, kind="siblings")
    bad = x.clone()
    bad[1, 3, 2] = math.inf
    siblings(x, bad, x, [3, 2])  # not read
    shape = "must have the shape, dtype and device of first"
    for what, run in (
        (rf"third {shape}, \[2, 4, 3\] float32", lambda: siblings(x, x, x.double())),
        (r"second must have the shape.*got \[2, 5, 3\]", lambda: siblings(x, torch.zeros(2, 5, 3), x)),
        (r"first must have shape \[B, N, R\]", lambda: siblings(x[0], x[0], x[0])),
        ("first must be float32 or float64, got bfloat16; convert it", lambda: siblings(x.bfloat16(), x, x)),
        ("first must be a tensor, got list", lambda: siblings([], x, x)),  # type: ignore[arg-type]
        (r"second\[1, 3, 2\] is inf \(sentence 1, node 3\); what siblings are", lambda: siblings(x, bad, x)),
        (r"lengths\[0\] is 4", lambda: siblings(x, x, x, [4, 2])),
        ("kind must be one of", lambda: Trilinear(4, 3, kind="cousins")),  # type: ignore[arg-type]
        ("rank must be at least 1, got 0", lambda: Trilinear(4, 0)),
        ("dropout must be in 0..1, below 1, got 1.0", lambda: Trilinear(4, 3, 1.0)),
    ):
        with pytest.raises(ValueError, match=f"^{what}"):
            run()
