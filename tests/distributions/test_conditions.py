"""Conditional distributions of every family: against all structures that meet the condition, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.distributions import kl_divergence

from tests.distributions.checks import (
    DIFFERENTIABLE,
    check_against_plain,
    check_best,
    check_derivatives,
    check_kl,
    check_samples,
    check_sums,
    free_scores,
    value_of,
)
from tests.distributions.conditions import Condition, masked, some_condition, under
from tests.distributions.families import FAMILIES, Family, enumerate_all, everything, leaves_of
from tests.distributions.numeric import F32, F64, INF, NEG_INF, close
from tests.refusals import refusal

Batch = tuple[dict[str, Tensor], Tensor]


def check_given(family: Family, batch: Batch, *conditions: Condition, validate: bool) -> None:
    """All sums, the best, log_prob of all structures in and out of the condition, samples, and KL from the base."""
    scores, lengths = batch
    known, base = under(family, *conditions, validate=validate), enumerate_all(family, scores, lengths)
    oracles = enumerate_all(known, scores, lengths)
    # Where all structures left have a mask, sums of such numbers are rounded, here and in the list.
    far = max((-float(o.log_partition) for o in oracles if o.exists), default=0.0)
    magnitude = max(1.0, far / 100)
    check_sums(known, batch, F64, magnitude)
    try:
        check_best(known, batch, F64)
    except ValueError as error:  # what topk refuses of large masks on the root's arcs, with conditions or without
        assert "arcs of sentence" in str(error) and "too far apart: trees from rank" in str(error), error
    p, q = family.make(scores, lengths, validate_args=validate), known.make(scores, lengths)
    tol = max(1e-9, 1e-13 * magnitude)
    torch.manual_seed(0)
    drawn, best = q.sample((4,)), q.argmax
    found, kl = q.log_prob(drawn), kl_divergence(q, p)
    for b, o in enumerate(oracles):
        every = best.expand(len(o.padded), *best.shape).clone()
        every[:, b] = o.padded
        close(q.log_prob(every)[:, b], o.scores - o.log_partition if o.exists else o.scores, tol)
        assert bool((q.score(every)[:, b] == p.score(every)[:, b].where(o.scores > NEG_INF, NEG_INF)).all())
        if o.exists:
            assert bool((o.scores[o.where(drawn[:, b])] > NEG_INF).all()) and bool(found[:, b].isfinite().all())
            close(kl[b], base[b].log_partition - o.log_partition, tol)
        else:
            assert bool((drawn[:, b] == -1).all()) and float(kl[b]) == 0
        weight = torch.where(family.has(int(lengths[b])).flatten(1), o.probs[:, None], 0.0).sum(0)
        if family.facts.axis == 2:  # spans, which need not have had scores
            n, T = int(lengths[b]), q.tags.shape[2]
            shares = weight.view(n, n, -1)
            close(q.span_marginals[b, :n, :n, T:], shares[..., T:] * (torch.ones(n, n).triu(1) > 0)[..., None], tol)
            close(q.tag_marginals[b, :n], shares.diagonal().T[:, :T], tol)


@pytest.mark.parametrize("kind", ["plain", "required", "forbidden", "most", "masks"])
@pytest.mark.parametrize("validate", [True, False])
def test_against_the_structures_that_meet_it(family: Family, kind: str, validate: bool) -> None:
    shares = {"required": {"forbidden": 0.0}, "forbidden": {"required": 0.0}, "most": {"required": 0.9}}
    for seed in range(4):
        scores, lengths = family.scores(seed, words=1 + seed % family.words, forbidden=0.2)
        if kind == "masks":
            if not validate:  # large scores need to be looked at
                return
            scores = masked(scores, seed)
        oracles = enumerate_all(family, scores, lengths)
        condition = some_condition(family, lengths, seed, oracles=oracles, **shares.get(kind, {}))
        check_given(family, (scores, lengths), condition, validate=validate)


def test_conditions_of_conditions(family: Family) -> None:
    """One after the other is both together, and the second may be impossible under the first."""
    scores, lengths = family.scores(3, forbidden=0.1)
    oracles = enumerate_all(family, scores, lengths)
    first = some_condition(family, lengths, 0, required=0.0, forbidden=0.2, oracles=oracles)
    left = enumerate_all(under(family, first), scores, lengths)
    second = some_condition(family, lengths, 1, required=0.4, forbidden=0.1, oracles=left)
    check_given(family, (scores, lengths), first, second, validate=True)
    check_given(family, (scores, lengths), second, first, second, validate=True)
    p = family.make(scores, lengths)
    one, other = p.given(**first.on(p.lengths.device)), p.given(**second.on(p.lengths.device))
    both = one.given(required=second.required, forbidden=second.forbidden)
    assert type(one) is type(p) and one.batch_shape == p.batch_shape and one.event_shape == p.event_shape
    close(both.log_partition, other.given(forbidden=first.forbidden).log_partition, 1e-12)


def test_no_condition(family: Family) -> None:
    """Nothing required and nothing forbidden, or not even said."""
    p = family.random(1)
    assert p.given() is p
    nothing = torch.zeros(3, *family.facts.shape(int(p.lengths.max())), dtype=torch.bool)
    want, found = everything(p), everything(p.given(nothing.any(family.facts.axis + 1).long() - 1, nothing))
    for name, x in want.items():
        close(found[name], x, 1e-12)


def test_single_precision(family: Family) -> None:
    scores, lengths = family.scores(6, forbidden=0.2, dtype=F32)
    condition = some_condition(family, lengths, 0, oracles=enumerate_all(family, scores, lengths))
    check_sums(under(family, condition), (scores, lengths), F32, 1.0)
    check_best(under(family, condition), (scores, lengths), F32)


def test_samples(family: Family) -> None:
    scores, lengths = family.scores(5, forbidden=0.1)
    oracles = enumerate_all(family, scores, lengths)
    check_samples(under(family, some_condition(family, lengths, 2, oracles=oracles)), scores, lengths)


def test_two_conditions_of_one_distribution(family: Family) -> None:
    """Their divergence; inf where the second forbids what the first allows."""
    scores, lengths = family.scores(4, forbidden=0.1)
    oracles = enumerate_all(family, scores, lengths)
    known = under(family, some_condition(family, lengths, 1, required=0.0, forbidden=0.1, oracles=oracles))
    check_kl(known, (scores, lengths), ({name: 0.5 * x for name, x in scores.items()}, lengths), 1e-10)
    p, q = family.make(scores, lengths), known.make(scores, lengths)
    some = torch.tensor(
        [bool(((o.probs > 0) & ~known.allowed(b, int(lengths[b]))).any()) for b, o in enumerate(oracles)]
    )  # type: ignore[misc]
    assert torch.equal(kl_divergence(p, q) == INF, some)


def test_derivatives(family: Family) -> None:
    """None come to what the condition forbids."""
    batch = family.scores(4, forbidden=0.2)
    condition = some_condition(family, batch[1], 4, oracles=enumerate_all(family, *batch))
    check_derivatives(under(family, condition), batch, F64, 1.0)
    check_against_plain(under(family, condition), *batch)


@DIFFERENTIABLE
def test_gradcheck(family: Family, what: str) -> None:
    """In the scores of the distribution that the condition is on."""
    free, make, batch = free_scores(family, 8)
    condition = some_condition(family, batch[1], 0, oracles=enumerate_all(family, *batch)).on(batch[1].device)
    best = make(*free).given(**condition).argmax

    def value(*x: Tensor) -> Tensor:
        p = make(*x)
        return value_of(what, p.given(**condition), best, p)

    assert gradcheck(value, free, fast_mode=True)
    assert gradgradcheck(value, free, fast_mode=True)


@pytest.mark.exhaustive
def test_thousands(family: Family) -> None:
    """Ten thousand sentences of up to five words over all families, a third of the batches with large masks, a third
    with conditions that may be impossible."""
    family = replace(family, words=5)
    for seed in range(50):
        scores, lengths = family.scores(seed, batch=10, words=2 + seed % 4, forbidden=0.05 * (seed % 7))
        if seed % 3 == 1:
            scores = masked(scores, seed)
        oracles = enumerate_all(family, scores, lengths) if seed % 3 < 2 else None
        shares = {"required": 0.1 * (1 + seed % 9), "forbidden": 0.1 * (seed % 5)}
        condition = some_condition(family, lengths, seed, oracles=oracles, **shares)
        if oracles is None:
            check_any(family, (scores, lengths), condition)
        check_given(family, (scores, lengths), condition, validate=oracles is not None)


def check_any(family: Family, batch: Batch, condition: Condition) -> None:
    """A condition is refused where a sentence has no structure under it: always if it has to have one, elsewhere if the
    condition contradicts itself."""
    p, oracles = family.make(*batch), enumerate_all(under(family, condition), *batch)
    none = [b for b, o in enumerate(oracles) if not o.exists]
    if not none or not type(p).exists:
        try:
            p.given(**condition.on(p.lengths.device))
        except ValueError as error:
            assert any(f"sentence {b}:" in str(error) for b in none), error
    else:
        line = refusal(p.given, **condition.on(p.lengths.device))
        assert any(f"sentence {b}" in line for b in none), line


def test_any_condition(family: Family) -> None:
    for seed in range(30):
        batch = family.scores(seed, forbidden=0.1)
        check_any(family, batch, some_condition(family, batch[1], seed, required=0.5, forbidden=0.05 * (seed % 4)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["projective", "tags"])
def test_compiled_loss_is_the_same(name: str) -> None:
    """One graph, without a break."""
    torch.compiler.reset()
    scores, lengths = FAMILIES[name].scores(1, batch=2, forbidden=0.0, poison=False)
    condition = some_condition(FAMILIES[name], lengths, 0, oracles=enumerate_all(FAMILIES[name], scores, lengths))
    leaves = leaves_of(scores)
    every = list(leaves.values())

    def loss(*x: Tensor) -> Tensor:
        p = FAMILIES[name].make(dict(zip(leaves, x, strict=True)), lengths).given(**condition.on(lengths.device))
        return (p.entropy() + p.log_partition).sum()  # type: ignore[no-any-return]

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for x, y in zip(grad(compiled(*every), every), grad(loss(*every), every), strict=True):
        close(x, y, 1e-12)
