"""The test that every distribution passes: against all structures of short sentences, and finite differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck
from torch.distributions import Categorical, kl_divergence

import gpuparse as gp
from tests.distributions.checks import (
    DIFFERENTIABLE,
    SCORES,
    check_best,
    check_derivatives,
    check_kl,
    check_samples,
    check_sums,
    free_scores,
    value_of,
)
from tests.distributions.families import Family, enumerate_all, everything, leaves_of, marginals_of, plainly, summed
from tests.distributions.numeric import F32, F64, INF, NEG_INF, chi_square, close, generator, normal, tolerance

LEAN = settings(max_examples=20, deadline=None)


# -------------------------------------------------------------------------------------------------- against enumeration


@SCORES
def test_sums(family: Family, forbidden: float, magnitude: float, dtype: torch.dtype) -> None:
    for words in range(1, family.words + 1):
        batch = family.scores(words, words=words, forbidden=forbidden, magnitude=magnitude, dtype=dtype)
        check_sums(family, batch, dtype, magnitude)
        assert all(bool((m >= 0).all()) for m in marginals_of(family.make(*batch)).values())


@SCORES
def test_best(family: Family, forbidden: float, magnitude: float, dtype: torch.dtype) -> None:
    """Of scores that are real, and of few values with many equals."""
    for words in range(1, family.words + 1):
        scores, lengths = family.scores(words, words=words, forbidden=forbidden, magnitude=magnitude, dtype=dtype)
        check_best(family, (scores, lengths), dtype)
        few = {name: (x * (2 / magnitude)).round() for name, x in scores.items()}
        check_best(family, (few, lengths), dtype, k=64 if words < 4 else 1)


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


@LEAN
@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(1, 4),
    words=st.integers(1, 4),
    forbidden=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    magnitude=st.sampled_from([0.0, 1.0, 100.0, 1e4]),
    dtype=st.sampled_from([F32, F64]),
    keep=st.booleans(),
)
def test_any_instance(
    family: Family,
    seed: int,
    batch: int,
    words: int,
    forbidden: float,
    magnitude: float,
    dtype: torch.dtype,
    keep: bool,
) -> None:
    """Any set of possible parts: a structure is found if and only if there is one."""
    options: dict[str, Any] = {"forbidden": forbidden, "magnitude": magnitude, "dtype": dtype, "keep": keep}
    scores, lengths = family.scores(seed, batch=batch, words=words, **options)
    check_sums(family, (scores, lengths), dtype, 10 * magnitude)
    check_best(family, (scores, lengths), dtype)
    oracles = enumerate_all(family, scores, lengths)
    drawn = family.make(scores, lengths, validate_args=False).sample((2,))
    for b, o in enumerate(oracles):
        assert bool((o.scores[o.where(drawn[:, b])] > NEG_INF if o.exists else drawn[:, b].flatten() == -1).all())
    impossible = [b for b, o in enumerate(oracles) if not o.exists]
    if impossible and type(family.random(0)).exists:
        with pytest.raises(ValueError, match=f"sentence {impossible[0]} "):
            family.make(scores, lengths)
    else:
        family.make(scores, lengths)


@pytest.mark.exhaustive
def test_thousands(family: Family) -> None:
    """Sentences of up to five words, scores of magnitude 1 to 100, up to 60 % of them forbidden."""
    draw = torch.Generator().manual_seed(0)
    for seed in range(50):
        forbidden, digits = torch.rand(2, generator=draw).tolist()
        options: dict[str, Any] = {"batch": 100, "words": 5, "forbidden": 0.6 * forbidden, "magnitude": 100**digits}
        batch, other = (family.scores(s, **options, keep=seed % 5 > 0) for s in (seed, seed))
        check_sums(family, batch, F64, 100.0)
        check_best(family, batch, F64)
        for x in other[0].values():
            x += torch.randn(x.shape, generator=draw).to(x.dtype)
            x[(torch.rand(x.shape, generator=draw) < 0.1 * forbidden) & ~x.isnan()] = NEG_INF
        check_kl(family, batch, other, 1e-9)  # logarithms of ratios of sums of up to 1296 doubles


# ---------------------------------------------------------------------------------------------------- two distributions


@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_kl(family: Family, forbidden: float, dtype: torch.dtype) -> None:
    for seed in range(3):
        batch, (other, lengths) = (family.scores(seed, forbidden=0.2, dtype=dtype) for _ in "pq")
        g = generator(seed)
        for x in other.values():
            x += torch.randn(x.shape, generator=g).to(dtype)
            x[(torch.rand(x.shape, generator=g) < forbidden / 5) & ~x.isnan()] = NEG_INF
        check_kl(family, batch, (other, lengths), 1e-5 if dtype == F32 else 1e-10)


@pytest.mark.parametrize("gap", [5.0, 50.0, 300.0, 800.0, 1e5])
def test_kl_of_what_is_rare(family: Family, gap: float) -> None:
    """However small the probability of what q forbids, the divergence is infinite; unless no structure of p has it."""
    scores, lengths = family.scores(1, batch=1, words=3, forbidden=0.0, poison=False)
    name, first = next(iter(scores.items()))
    (o,) = enumerate_all(family, scores, lengths)
    own = o.expected((torch.arange(len(o.scores)) == 1).double())[name] > 0
    other = ((o.marginals[name] > 0) & ~own).nonzero()
    likely = first + gap * own
    for part in other.tolist():
        less, few = likely.clone(), torch.where(own, first, NEG_INF)
        less[(0, *part)] = NEG_INF
        p, q = (family.make({**scores, name: x}, lengths, validate_args=False) for x in (likely, less))
        assert kl_divergence(p, q).tolist() == [INF] and bool(kl_divergence(q, p).isfinite())
        one_more = few.clone()
        one_more[(0, *part)] = 0.5
        check_kl(family, ({**scores, name: one_more}, lengths), ({**scores, name: few}, lengths), 1e-12)


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_kl_hessian_is_the_fisher_information(family: Family, shift: float) -> None:
    """At p = q (also if a word's scores are shifted, which changes nothing) it is the covariance."""
    scores, lengths = family.scores(4, batch=5, forbidden=0.0, poison=False)
    along = {name: normal(*x.shape, seed=2) for name, x in scores.items()}
    leaves, (name, first) = leaves_of(scores), next(iter(scores.items()))
    shape = (5, 1, first.shape[2]) if name == "arcs" else (5, first.shape[1], 1)
    leaves[name] = (first + shift * normal(*shape, seed=3)).requires_grad_()
    every = list(leaves.values())
    value = kl_divergence(family.make(scores, lengths), family.make(leaves, lengths))
    by = grad(value.sum(), every, create_graph=True)
    again = grad(by, every, list(along.values()), materialize_grads=True)
    want = summed(scores, [o.derivative([along]) for o in enumerate_all(family, scores, lengths)])
    for one, two, kind in zip(by, again, leaves, strict=True):
        close(one.detach(), torch.zeros_like(one), 1e-12)
        close(two, want[kind], 1e-11)


def test_kl_of_other_things(family: Family) -> None:
    scores, lengths = family.scores(0, forbidden=0.0, poison=False)
    p = family.make(scores, lengths)
    with pytest.raises(ValueError, match=r"lengths of sentence 0 must be the same in p and q"):
        kl_divergence(p, family.make(scores, lengths - torch.tensor([1, 0, 0])))
    for options in ({"batch": 2}, {"words": family.words + 1}):
        with pytest.raises(ValueError, match="must have the same shape"):
            kl_divergence(p, family.random(0, **options, forbidden=0.0))
    for other in (gp.ProjectiveTrees, gp.NonProjectiveTrees, gp.TagChains, gp.TrigramChains):
        if type(p) is not other:
            rows = {gp.TagChains: [torch.zeros(4, 4)], gp.TrigramChains: [torch.zeros(4, 4, 4)]}.get(other, [])
            stranger = other(torch.zeros(3, 4, 4), *rows)
            for x, y in ((p, stranger), (stranger, p)):
                with pytest.raises(ValueError, match=r"KL needs two distributions over the same (trees|chains)"):
                    kl_divergence(x, y)
    with pytest.raises(NotImplementedError):
        kl_divergence(p, Categorical(torch.ones(2, 3)))


# -------------------------------------------------------------------------------------------------------------- samples


@pytest.mark.parametrize("wide", [False, True])
def test_sample_frequencies(family: Family, wide: bool) -> None:
    scores, lengths = family.scores(5, forbidden=0.3)
    if wide:  # a range that no double holds
        scores = {name: x + (x > 0) * 800.0 for name, x in scores.items()}
    check_samples(family, scores, lengths)


def test_samples_are_independent(family: Family) -> None:
    """Of the same sentence twice in a batch, and of one draw and the next."""
    scores, lengths = family.scores(3, batch=1, words=3, forbidden=0.0)
    (o,) = enumerate_all(family, scores, lengths)
    torch.manual_seed(2)
    drawn, pairs = o.where(family.make(scores, lengths).expand([2]).sample((20_000,))), torch.outer(o.probs, o.probs)
    for first, second in ((drawn[:, 0], drawn[:, 1]), (drawn[0::2, 0], drawn[1::2, 0])):
        seen = (first * len(o.probs) + second).bincount(minlength=pairs.numel())
        statistic, bound = chi_square(seen, pairs.flatten())
        assert statistic < bound


@pytest.mark.parametrize("magnitude", [1.0, 1e4])
def test_samples_of_larger_sentences(family: Family, magnitude: float) -> None:
    """Parts of the draws come as often as the marginals say."""
    scores, lengths = family.scores(5, words=14, forbidden=0.0, magnitude=magnitude, poison=False)
    name, first = next(iter(scores.items()))
    p = family.make({**scores, name: first.requires_grad_()}, lengths)
    torch.manual_seed(1)
    draws = 2000
    value = p.score(p.sample((draws,)))
    assert bool(value.isfinite().all())
    (seen,), mu = grad(value.sum() / draws, first), marginals_of(p)[name].detach()
    sigma = (mu * (1 - mu) / draws).clamp(min=0).sqrt()
    assert bool(((seen - mu).abs() <= 5 * sigma + 5 / draws).all())


def test_sample_shapes_and_seeds(family: Family) -> None:
    p = family.random(1)
    for shape in ((), (2, 3), (7,), (0,), torch.Size([2]), [2], (0, 3)):
        drawn = p.sample(shape)
        assert drawn.shape == (*shape, *p.batch_shape, *p.event_shape) and not drawn.requires_grad
        assert bool((p.log_prob(drawn) > NEG_INF).all())
    torch.manual_seed(7)
    first = p.sample((50,)), p.sample((50,))
    assert not torch.equal(*first)
    torch.manual_seed(7)
    assert torch.equal(p.sample((50,)), first[0]) and torch.equal(p.sample((50,)), first[1])


# ---------------------------------------------------------------------------------------------------------- derivatives


@SCORES
def test_derivatives(family: Family, forbidden: float, magnitude: float, dtype: torch.dtype) -> None:
    check_derivatives(family, family.scores(4, forbidden=forbidden, magnitude=magnitude, dtype=dtype), dtype, magnitude)


def test_gradients_of_best(family: Family) -> None:
    """Of max they are what the best structure is made of; so too of the scores of the k best."""
    scores, lengths = family.scores(2)
    leaves = leaves_of(scores)
    p = family.make(leaves, lengths)
    chosen = []
    for b, o in enumerate(enumerate_all(family, scores, lengths)):
        best = torch.arange(len(o.scores)) == o.where(p.argmax[b])
        chosen.append(o.expected(best.double()))
    want = summed(scores, chosen)
    for value in [p.max] + ([p.topk(2)[1][0]] if hasattr(p, "topk") else []):
        by = grad(value.sum(), list(leaves.values()), retain_graph=True, materialize_grads=True)
        assert all(torch.equal(g, want[name]) for name, g in zip(leaves, by, strict=True))


@pytest.mark.parametrize("what", ["log_partition", "entropy"])
def test_any_order_of_derivative(family: Family, what: str) -> None:
    """To the fourth, by directions that depend on the scores themselves, as plain torch has them."""
    scores, lengths = family.scores(2, batch=2, words=3, forbidden=0.2, poison=False)

    def derivatives() -> list[Tensor]:
        leaves = list(leaves_of(scores).values())
        p = family.make(dict(zip(scores, leaves, strict=True)), lengths)
        g = grad((p.entropy() if what == "entropy" else p.log_partition).sum(), leaves, create_graph=True)
        found = []
        for _ in range(3):
            total = sum((a * a * torch.where(x.isfinite(), x, 0.0)).sum() for a, x in zip(g, leaves, strict=True))
            g = grad(total, leaves, create_graph=True, materialize_grads=True)  # type: ignore[arg-type]
            found.append(torch.cat([x.detach().flatten() for x in g]))
        return found

    got = derivatives()
    with plainly():
        want = derivatives()
    for order, (x, y) in enumerate(zip(got, want, strict=True), 2):
        assert float((x - y).abs().max()) <= 1e-10 * float(y.abs().max().clamp(min=1)), f"derivative {order}"


def test_gradient_in_one_of_several(family: Family) -> None:
    scores, lengths = family.scores(5, words=3)
    for name in scores:
        outcomes = []
        for leaves in (leaves_of(scores), {**scores, **leaves_of({name: scores[name]})}):
            p = family.make(leaves, lengths)
            total = p.entropy().sum() + sum(m.square().sum() for m in marginals_of(p).values())
            (first,) = grad(total, leaves[name], create_graph=True)
            outcomes.append((first.detach(), grad(first.square().sum(), leaves[name])[0]))
        for x, y in zip(*outcomes, strict=True):
            close(x, y, 1e-12)


@DIFFERENTIABLE
def test_gradcheck(family: Family, what: str) -> None:
    """First and second derivatives by finite differences, in all scores at once."""
    free, make, _ = free_scores(family, 8)
    best = make(*free).argmax
    other = make(*(0.5 * x.detach() for x in free))

    def value(*x: Tensor) -> Tensor:
        return value_of(what, make(*x), best, other)

    assert gradcheck(value, free, fast_mode=True)
    assert gradgradcheck(value, free, fast_mode=True)
    if what == "kl":
        assert gradcheck(lambda *x: kl_divergence(other, make(*x)), free, fast_mode=True)


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


@pytest.mark.parametrize("differentiable", [True, False])
def test_what_entropies_share_is_made_once(
    family: Family, differentiable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, lengths = family.scores(0, forbidden=0.0, poison=False)
    p, q = (family.make(leaves_of(scores) if differentiable else scores, lengths) for _ in "pq")
    made, wide = [], type(p)._wide
    monkeypatch.setattr(type(p), "_wide", lambda self: (made.append(self), wide(self))[1])
    with torch.set_grad_enabled(differentiable):
        for _ in range(2):
            p.entropy(), kl_divergence(p, q)
    assert sum(x is p for x in made) == 1


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
