"""The test that every distribution passes: against all structures of short sentences, and finite differences."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck
from torch.distributions import Categorical, Distribution, kl_divergence

import gpuparse as gp
from tests.distributions.families import (
    F32,
    F64,
    FAMILIES,
    INF,
    NAN,
    NEG_INF,
    Family,
    chi_square,
    close,
    enumerate_all,
    everything,
    marginals_of,
    tolerance,
)

# share of forbidden scores, magnitude of the scores
SCORES = pytest.mark.parametrize(
    ("forbidden", "magnitude"), [(0.0, 1.0), (0.3, 1.0), (0.7, 1.0), (0.4, 30.0), (0.3, 1e4)]
)


@pytest.fixture(scope="module", params=FAMILIES.values(), ids=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return request.param  # type: ignore[no-any-return]


def leaves_of(scores: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.clone().requires_grad_() for name, x in scores.items()}


def without(family: Family, b: int, **options: Any) -> tuple[dict[str, Tensor], Tensor]:
    """A batch whose sentence b has no structure, though others have."""
    scores, lengths = family.scores(3, forbidden=0.2, poison=False, **options)
    first = next(iter(scores.values()))
    first[b] = NEG_INF
    return scores, lengths


# -------------------------------------------------------------------------------------------------- against enumeration


@SCORES
def test_sums(family: Family, forbidden: float, magnitude: float, dtype: torch.dtype) -> None:
    for words in range(1, family.words + 1):
        scores, lengths = family.scores(words, words=words, forbidden=forbidden, magnitude=magnitude, dtype=dtype)
        p, oracles = family.make(scores, lengths), enumerate_all(family, scores, lengths)
        assert p.log_partition.dtype == p.entropy().dtype == dtype
        close(p.log_partition, torch.stack([o.log_partition for o in oracles]), tolerance(dtype))
        close(p.entropy(), torch.stack([o.entropy for o in oracles]), tolerance(dtype, 10 * magnitude))
        for name, found in marginals_of(p).items():
            assert found.dtype == dtype and bool((found >= 0).all())
            for b, o in enumerate(oracles):
                want = o.marginals[name] if name in o.marginals else found[b]
                close(found[b] if found[b].dim() == want.dim() else found[b].sum(0), want, tolerance(dtype, magnitude))


@SCORES
def test_best(family: Family, forbidden: float, magnitude: float, dtype: torch.dtype) -> None:
    for words in range(1, family.words + 1):
        scores, lengths = family.scores(words, words=words, forbidden=forbidden, magnitude=magnitude, dtype=dtype)
        p = family.make(scores, lengths)
        found, best, ranked = p.argmax, p.max, p.topk(4) if hasattr(p, "topk") else None
        assert best.dtype == dtype and found.dtype == torch.int64 and torch.equal(p.mode, found)
        for b, o in enumerate(enumerate_all(family, scores, lengths)):
            close(best[b], o.scores.max(), tolerance(dtype))
            (chosen,) = (o.padded == found[b]).flatten(1).all(1).nonzero()[:, 0].tolist()
            close(o.scores[chosen], o.scores.max(), 1e-13)
            if ranked is not None:
                exist = min(4, int((o.scores > NEG_INF).sum()))
                close(ranked[1][:exist, b], o.scores.sort(descending=True).values[:exist], tolerance(dtype))
                same = (o.padded == ranked[0][:exist, b, None]).flatten(2).all(2)
                assert bool((same.sum(1) == 1).all()) and int(same.any(0).sum()) == exist
                assert bool((ranked[0][exist:, b] == -1).all()) and bool((ranked[1][exist:, b] == NEG_INF).all())


@SCORES
def test_log_prob_and_score(family: Family, forbidden: float, magnitude: float, dtype: torch.dtype) -> None:
    """Of every structure; of a sample as of one alone."""
    scores, lengths = family.scores(1, forbidden=forbidden, magnitude=magnitude, dtype=dtype)
    p = family.make(scores, lengths)
    for b, o in enumerate(enumerate_all(family, scores, lengths)):
        every = p.argmax.expand(len(o.padded), *p.argmax.shape).clone()
        every[:, b] = o.padded
        found, value = p.log_prob(every), p.score(every)
        assert found.dtype == value.dtype == dtype and found.shape == value.shape == every.shape[:2]
        close(found[:, b], o.scores - o.log_partition, tolerance(dtype, 10 * magnitude))
        close(value[:, b], o.scores, tolerance(dtype))
        close(p.log_prob(every[0]), found[0], 1e-13)
        assert p.log_prob(every[None]).shape == (1, *found.shape)
    nothing = torch.full_like(p.argmax, -1)
    q = family.make(scores, lengths, validate_args=False)
    assert bool((q.log_prob(nothing) == NEG_INF).all()) and bool((q.score(nothing) == NEG_INF).all())


def test_gradients_of_best(family: Family) -> None:
    """Of max they are what the best structure is made of; so too of the scores of the k best."""
    scores, lengths = family.scores(2)
    leaves = leaves_of(scores)
    p = family.make(leaves, lengths)
    values = [p.max] + ([p.topk(2)[1][0]] if hasattr(p, "topk") else [])
    for value in values:
        by = dict(
            zip(
                leaves, grad(value.sum(), list(leaves.values()), retain_graph=True, materialize_grads=True), strict=True
            )
        )
        for name, (structures, parts, used) in ((x, family.all(n)) for x in leaves for n in [int(lengths[0])]):
            o = enumerate_all(family, scores, lengths)[0]
            chosen = int((o.padded == p.argmax[0]).flatten(1).all(1).nonzero()[0])
            own = torch.zeros_like(o.marginals[name])
            weight = used[name][chosen].double()
            own.index_put_(tuple(parts[name][chosen].unbind(-1)), weight, accumulate=True)
            if by[name].dim() > own.dim():
                assert torch.equal(by[name][0], own) and len(structures) == len(o.padded)


@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_kl(family: Family, forbidden: float, dtype: torch.dtype) -> None:
    """Finite if q forbids nothing that p allows, inf otherwise."""
    for seed in range(3):
        scores, lengths = family.scores(seed, forbidden=0.2, dtype=dtype)
        other = {name: x.clone() for name, x in family.scores(seed, forbidden=0.2, dtype=dtype)[0].items()}
        g = torch.Generator().manual_seed(seed)
        for x in other.values():
            x += torch.randn(x.shape, generator=g).to(dtype)
            x[(torch.rand(x.shape, generator=g) < forbidden / 5) & ~x.isnan()] = NEG_INF
        p, q = family.make(scores, lengths), family.make(other, lengths, validate_args=False)
        oracles, rivals = (enumerate_all(family, x, lengths) for x in (scores, other))
        for a, b, mine, others in ((p, q, oracles, rivals), (q, p, rivals, oracles)):
            found = kl_divergence(a, b)
            assert found.dtype == dtype
            for x, y, value in zip(mine, others, found, strict=True):
                want = x.kl(y) if x.exists and y.exists else torch.tensor(INF if x.exists else 0.0)
                close(value, want, 1e-5 if dtype == F32 else 1e-10)
        assert bool((kl_divergence(p, p) == 0).all())
        assert bool((kl_divergence(p, q) >= 0).all())


def test_kl_of_other_things(family: Family) -> None:
    scores, lengths = family.scores(0, forbidden=0.0, poison=False)
    p = family.make(scores, lengths)
    with pytest.raises(ValueError, match=r"lengths of sentence 0 must be the same in p and q"):
        kl_divergence(p, family.make(scores, lengths - torch.tensor([1, 0, 0])))
    with pytest.raises(ValueError, match="must have the same shape"):
        kl_divergence(p, family.random(0, batch=2, forbidden=0.0))
    other = gp.TagChains if isinstance(p, gp.ProjectiveTrees) else gp.ProjectiveTrees
    stranger = other(torch.zeros(3, 4, 4), *([torch.zeros(4, 4)] if other is gp.TagChains else []))
    for x, y in ((p, stranger), (stranger, p)):
        with pytest.raises(ValueError, match=r"KL needs two distributions over the same (trees|chains)"):
            kl_divergence(x, y)
    with pytest.raises(NotImplementedError):
        kl_divergence(p, Categorical(torch.ones(2, 3)))


# -------------------------------------------------------------------------------------------------------------- samples


@pytest.mark.parametrize("wide", [False, True])
def test_sample_frequencies(family: Family, wide: bool) -> None:
    """Whole structures, by chi-square; never one of probability 0."""
    scores, lengths = family.scores(5, forbidden=0.3)
    if wide:  # a range that no double holds
        scores = {name: x + (x > 0) * 800.0 for name, x in scores.items()}
    torch.manual_seed(0)
    drawn = family.make(scores, lengths).sample((4000,))
    for b, o in enumerate(enumerate_all(family, scores, lengths)):
        same = (drawn[:, b, None].flatten(2) == o.padded.flatten(1)).all(2)
        assert bool((same.sum(1) == 1).all()) and not bool(same[:, o.probs == 0].any())
        statistic, bound = chi_square(same.sum(0), o.probs)
        assert statistic < bound, b


def test_sample_shapes_and_seeds(family: Family) -> None:
    p = family.random(1)
    for shape in ((), (2, 3), (7,), (0,), torch.Size([2])):
        drawn = p.sample(shape)
        assert drawn.shape == (*shape, *p.batch_shape, *p.event_shape) and not drawn.requires_grad
        assert bool((p.log_prob(drawn) > NEG_INF).all())
    torch.manual_seed(7)
    first = p.sample((50,)), p.sample((50,))
    assert not torch.equal(*first)
    torch.manual_seed(7)
    assert torch.equal(p.sample((50,)), first[0]) and torch.equal(p.sample((50,)), first[1])


# ---------------------------------------------------------------------------------------------------------- derivatives


def free_scores(family: Family, seed: int) -> tuple[tuple[Tensor, ...], Callable[..., Any]]:
    """The finite scores of a masked, ragged batch, and what makes a distribution of them."""
    scores, lengths = family.scores(seed, batch=2, words=3, forbidden=0.3)
    lengths[1] = 2
    where = {name: x.isfinite() for name, x in scores.items()}

    def make(*values: Tensor) -> Any:
        pairs = zip(scores.items(), values, strict=True)
        return family.make({name: x.masked_scatter(where[name], v) for (name, x), v in pairs}, lengths)

    return tuple(x[where[name]].clone().requires_grad_() for name, x in scores.items()), make


@pytest.mark.parametrize("what", ["log_partition", "marginals", "entropy", "log_prob", "kl"])
def test_gradcheck(family: Family, what: str) -> None:
    """First and second derivatives by finite differences, in all scores at once."""
    free, make = free_scores(family, 8)
    best = make(*free).argmax
    other = make(*(0.5 * x.detach() for x in free))

    def value(*x: Tensor) -> Tensor:
        p = make(*x)
        if what == "marginals":
            return torch.cat([m.square().flatten() for m in marginals_of(p).values()])
        if what == "log_prob":
            return p.log_prob(best)  # type: ignore[no-any-return]
        return kl_divergence(p, other) if what == "kl" else p.entropy() if what == "entropy" else p.log_partition

    assert gradcheck(value, free, fast_mode=True)
    assert gradgradcheck(value, free, fast_mode=True)
    if what == "kl":
        assert gradcheck(lambda *x: kl_divergence(other, make(*x)), free, fast_mode=True)


def test_gradient_of_log_partition_is_the_marginals(family: Family, dtype: torch.dtype) -> None:
    """Nothing comes to what is forbidden or not read."""
    scores, lengths = family.scores(4, dtype=dtype)
    leaves = leaves_of(scores)
    p = family.make(leaves, lengths)
    oracles = enumerate_all(family, scores, lengths)
    by = dict(zip(leaves, grad(p.log_partition.sum(), list(leaves.values())), strict=True))
    for name, g in by.items():
        each = [o.marginals[name] for o in oracles]
        close(g, torch.stack(each) if g.dim() > each[0].dim() else torch.stack(each).sum(0), 10 * tolerance(dtype))
        assert g.dtype == dtype and not bool(g[~scores[name].isfinite()].any())


def test_no_grad_then_grad(family: Family) -> None:
    """What was computed without a gradient, or in inference mode, is not given out later where one is wanted."""
    scores, lengths = family.scores(6)
    for mode in (torch.no_grad, torch.inference_mode):
        leaves = leaves_of(scores)
        q, *both = (family.make(x, lengths, validate_args=False) for x in (scores, leaves, leaves))
        p, fresh = both
        with mode():
            before = everything(p)
            kl_divergence(p, q)
        assert not any(x.requires_grad for x in before.values())
        for name, x in everything(p).items():
            assert torch.equal(x.detach(), before[name]) and x.requires_grad == x.is_floating_point(), name
        for f in (
            lambda d: d.log_partition.sum(),
            lambda d: sum(m.square().sum() for m in marginals_of(d).values()),
            lambda d: d.entropy().sum(),
            lambda d: d.max.sum(),
            lambda d: d.log_prob(d.argmax).sum(),
            lambda d, q=q: kl_divergence(d, q).sum() + kl_divergence(q, d).sum(),
        ):
            found = [grad(f(x), list(leaves.values()), retain_graph=True, materialize_grads=True) for x in (p, fresh)]
            assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))


def test_other_kinds_of_derivatives_are_refused(family: Family) -> None:
    """They would be silently wrong: the operators know reverse mode only."""
    scores, lengths = family.scores(0, poison=False)
    name, first = next(iter(scores.items()))

    def log_z(x: Tensor) -> Tensor:
        return family.make({**scores, name: x}, lengths).log_partition.sum()  # type: ignore[no-any-return]

    with pytest.raises(ValueError, match=rf"{name} must not be under torch\.func or forward-mode"):
        torch.func.jvp(log_z, (first,), (first,))
    with pytest.raises(ValueError, match=r"use torch\.autograd"):
        torch.func.grad(log_z)(first)
    with forward_ad.dual_level(), pytest.raises(ValueError, match="forward-mode"):
        log_z(forward_ad.make_dual(first, first))


# ------------------------------------------------------------------------------------------------ batches and sentences


def test_no_structure(family: Family, dtype: torch.dtype) -> None:
    """log Z is -inf, the entropy and the divergence 0, and neighbours are as ever; an error where that is said."""
    scores, lengths = without(family, 1, dtype=dtype)
    leaves = leaves_of(scores)
    p = family.make(leaves, lengths, validate_args=False)
    fine = [0, 2]
    alone = family.make(
        {n: x[fine] if x.shape[:1] == (3,) and x.dim() == p.parts[n] else x for n, x in scores.items()}, lengths[fine]
    )
    assert p.log_partition[1] == NEG_INF and p.max[1] == NEG_INF and p.entropy()[1] == 0
    assert bool((p.argmax[1] == -1).all()) and bool((p.sample((3,))[:, 1] == -1).all())
    assert not any(bool(m[1].any()) for m in marginals_of(p).values())
    for x in (p.argmax, alone.sample((2,)).repeat_interleave(2, 1)[:, :3]):
        assert bool((p.log_prob(x)[..., 1] == NEG_INF).all()) and bool((p.score(x)[..., 1] == NEG_INF).all())
    for name, x in everything(alone).items():
        axis = 1 if name.startswith("topk") else 0
        assert torch.equal(everything(p)[name].index_select(axis, torch.tensor(fine)), x), name
    q = family.make({name: 0.5 * x for name, x in scores.items()}, lengths, validate_args=False)
    some = family.make(family.scores(3, forbidden=0.0, poison=False, dtype=dtype)[0], lengths)
    assert kl_divergence(p, q)[1] == 0 and kl_divergence(p, some)[1] == 0 and kl_divergence(some, p)[1] == INF
    value = (
        p.log_partition[fine].sum() + p.entropy().sum() + kl_divergence(p, q).sum() + p.log_prob(p.argmax)[fine].sum()
    )
    for name, g in zip(leaves, grad(value, list(leaves.values())), strict=True):
        assert bool(g.isfinite().all()), name
        assert g.dim() != p.parts[name] or not bool(g[1].any()), name
    if p.exists:
        with pytest.raises(ValueError, match=r"sentence 1 allows? no (projective )?(tree|chain)"):
            family.make(scores, lengths)
    else:
        assert family.make(scores, lengths).log_partition[1] == NEG_INF


@pytest.mark.parametrize("value", [NAN, INF])
def test_bad_scores(family: Family, value: float) -> None:
    """They are named where values are looked at, and make NaN of their sentence alone where they are not."""
    scores, lengths = family.scores(2, forbidden=0.0, poison=False)
    name, first = next(iter(scores.items()))
    where = (1, 0, 1)
    first[where] = value
    with pytest.raises(
        ValueError, match=rf"^{name}\[1, 0, 1\] is {value} \(sentence 1.*; scores must be finite, or -inf for"
    ):
        family.make(scores, lengths)
    p = family.make(scores, lengths, validate_args=False)
    for x in (p.log_partition, p.entropy()):
        assert x.isnan().tolist() == [False, True, False]
    assert bool((p.argmax[1] == -1).all()) and bool((p.sample((2,))[:, 1] == -1).all())
    assert bool(marginals_of(p)[name][1].isnan().any()) and not bool(marginals_of(p)[name][[0, 2]].isnan().any())


def test_sentences_do_not_depend_on_their_batch(family: Family, dtype: torch.dtype) -> None:
    """Alone and without padding they are the same."""
    scores, lengths = family.scores(9, words=7, forbidden=0.0, dtype=dtype)
    p = family.make(scores, lengths)
    whole = everything(p)
    for b, n in enumerate(lengths.tolist()):
        cut = {}
        for name, shape in family.shapes(1, n).items():
            own = scores[name].dim() == p.parts[name]
            cut[name] = (
                scores[name][(slice(b, b + 1) if own else slice(None), *map(slice, shape[1:]))] if own else scores[name]
            )
        for name, x in everything(family.make(cut, [n])).items():
            inner = whole[name][:, b : b + 1] if name.startswith("topk") else whole[name][b : b + 1]
            inner = inner[tuple(map(slice, x.shape))]
            close(inner, x, tolerance(dtype, 10.0)) if x.is_floating_point() else torch.testing.assert_close(inner, x)


def test_empty_batch(family: Family, dtype: torch.dtype) -> None:
    leaves = {name: torch.zeros(s, dtype=dtype, requires_grad=True) for name, s in family.shapes(0, 4).items()}
    for lengths in (None, [], torch.empty(0, dtype=torch.int64)):
        p = family.make(leaves, lengths)
        values = [p.log_partition, p.max, p.entropy(), kl_divergence(p, p)]
        assert all(x.shape == (0,) and x.dtype == dtype for x in values)
        assert p.argmax.shape == (0, *p.event_shape) and p.sample((2, 3)).shape == (2, 3, 0, *p.event_shape)
        assert p.log_prob(p.sample((2,))).shape == p.score(p.sample((2,))).shape == (2, 0)
        if hasattr(p, "topk"):
            assert [x.shape[:2] for x in p.topk(3)] == [(3, 0)] * 2
        total = sum(x.sum() for x in (*values, *marginals_of(p).values()))
        by = grad(total, list(leaves.values()), materialize_grads=True)  # type: ignore[arg-type]
        assert [x.shape for x in by] == [x.shape for x in leaves.values()]


def test_memory_and_threads_do_not_matter(family: Family, dtype: torch.dtype) -> None:
    """Transposed scores, strided lengths and two threads."""
    scores, lengths = family.scores(4, batch=5, forbidden=0.2, dtype=dtype)
    views = {name: x.mT.contiguous().mT if x.dim() > 1 else torch.stack([x, x], 1)[:, 0] for name, x in scores.items()}
    torch.manual_seed(0)
    p = family.make(scores, lengths)
    want = {**everything(p), "sample": p.sample((3,))}
    torch.set_num_threads(2)
    torch.manual_seed(0)
    q = family.make(views, torch.stack([lengths, -lengths], 1)[:, 0])
    found = {**everything(q), "sample": q.sample((3,))}
    for name, x in want.items():
        close(found[name], x, tolerance(dtype)) if x.is_floating_point() else torch.testing.assert_close(found[name], x)


def test_large_scores(family: Family, dtype: torch.dtype) -> None:
    """A constant that all structures have changes log Z alone; scores are such that sums are exact."""
    scores, lengths = family.scores(7, forbidden=0.0, poison=False)
    scores = {name: ((x * 8).round() / 8).to(dtype) for name, x in scores.items()}
    name, first = next(iter(scores.items()))
    p = family.make(scores, lengths)
    q = family.make({**scores, name: first + 2.0**20}, lengths)
    close(q.log_partition.double(), p.log_partition.double() + 2.0**20 * lengths, 1e-6 if dtype == F32 else 1e-12)
    assert torch.equal(q.argmax, p.argmax)
    tol = 1e-6 if dtype == F32 else 1e-11
    for x, y in ((p.entropy(), q.entropy()), (p.log_prob(p.argmax), q.log_prob(p.argmax))):
        close(y, x, tol)
    for kind, x in marginals_of(p).items():
        close(marginals_of(q)[kind], x, tol)
    close(kl_divergence(p, q), torch.zeros(3), tol)
    with pytest.raises(ValueError, match=rf"^{name}\[.*\] is 1e\+300; scores must be below"):
        family.make(
            {**scores, name: first.double() + 1e300, **{n: x.double() for n, x in scores.items() if n != name}}, lengths
        )


# -------------------------------------------------------------------------------------------------------- as an object


def test_is_a_distribution(family: Family) -> None:
    p = family.random(1)
    assert isinstance(p, Distribution) and p.batch_shape == (3,) and p.event_shape == p.argmax.shape[1:]
    assert repr(p).startswith(f"{type(p).__name__}(sentences: 3, words: {family.words}, ")
    assert bool(p.support.check(p.sample((3,))).all()) and not bool(p.support.check(p.argmax + 1000).any())
    assert len(p.scores) == len(p.parts)


def test_expand(family: Family) -> None:
    scores, lengths = family.scores(1, batch=1)
    leaves = leaves_of(scores)
    p = family.make(leaves, lengths)
    wide = p.expand(torch.Size([3]))
    assert type(wide) is type(p) and wide.batch_shape == (3,) and wide.sample((2,)).shape == (2, 3, *p.event_shape)
    for name, x in everything(p).items():
        assert torch.equal(everything(wide)[name], x.repeat_interleave(3, 1 if name.startswith("topk") else 0)), name
    for x, y in zip(
        grad(wide.log_partition.sum(), list(leaves.values())),
        grad(p.log_partition.sum(), list(leaves.values())),
        strict=True,
    ):
        close(x, 3 * y, 1e-12)
    assert p.expand([0]).log_partition.shape == (0,) and wide.expand([3]).batch_shape == (3,)
    for wrong in ([2], [4, 2], []):
        with pytest.raises(ValueError, match="batch_shape"):
            wide.expand(wrong)
    with pytest.raises(ValueError):  # it still looks at what it is given
        wide.log_prob(torch.full((3, 1), 9))


def test_copies(family: Family) -> None:
    scores, lengths = family.scores(1)
    p = family.make(scores, lengths)
    want = everything(p)
    for q in (copy.copy(p), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert repr(q) == repr(p)
        for name, x in everything(q).items():
            assert torch.equal(x, want[name]), name


def test_what_is_given_out_is_the_callers(family: Family) -> None:
    p = family.random(0)
    before = p.max
    p.argmax.fill_(0)
    assert torch.equal(p.max, before)


def test_rounding_does_not_cross_zero(family: Family) -> None:
    p = family.random(0, batch=8, forbidden=0.0, magnitude=1e4, words=6)
    assert bool((p.entropy() >= 0).all()) and bool((p.log_prob(p.argmax) <= 0).all())
    assert math.isclose(float(p.log_prob(p.argmax)[0]), float(p.max[0] - p.log_partition[0]), abs_tol=1e-9)
    assert p.log_partition.dtype == F64
