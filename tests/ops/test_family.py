"""A family that is declared here, without kernels: every word takes one of T tags by itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpuparse.ops.family import Bundle, Family, Plain
from gpuparse.ops.plain.semiring import NEG_INF, logsumexp


def masks(scores: Bundle, lengths: Tensor) -> list[Tensor | None]:
    tags, shared = scores
    assert tags is not None
    words = (torch.arange(tags.shape[1]) < lengths[:, None])[..., None].expand_as(tags)
    return [words, None if shared is None else torch.ones(1, tags.shape[2], dtype=torch.bool)]


def total(scores: Bundle) -> Tensor:
    tags, shared = scores
    assert tags is not None
    return tags.double() if shared is None else tags.double() + shared.double().view(-1, 1, tags.shape[2])


def log_partition(scores: Bundle, lengths: Tensor, last: bool) -> Tensor:
    """``last`` forbids the last tag."""
    x = total(scores)
    x = torch.where(torch.arange(x.shape[2]) < x.shape[2] - last, x, NEG_INF)
    words = torch.arange(x.shape[1]) < lengths[:, None]
    return torch.where(words, logsumexp(torch.where(words[..., None], x, 0.0), 2), 0.0).sum(1)


def argmax(scores: Bundle, lengths: Tensor, last: bool) -> Tensor:
    x = total(scores)[..., : -1 if last else None]
    return torch.where(torch.arange(x.shape[1]) < lengths[:, None], x.argmax(2), -1)


CHOICES = Family(
    name="choices",
    scores={"tags": "B n T", "shared?": "B T"},
    inputs="Tensor lengths, bool last",
    sizes="B n T",
    structure=lambda B, n, T: (B, n),
    plain=Plain(masks, log_partition, argmax=argmax),
)


def example(shared: bool) -> tuple[tuple[Tensor, Tensor | None], Tensor]:
    generator = torch.Generator().manual_seed(1)
    tags = torch.randn(3, 4, 3, generator=generator, dtype=torch.float64)
    tags[1, 2:] = float("nan")  # past the end: never read
    tags[2, 0, 1] = NEG_INF
    scores = torch.randn(3, generator=generator, dtype=torch.float64)
    return (tags.requires_grad_(), scores.requires_grad_() if shared else None), torch.tensor([4, 2, 3])


@pytest.mark.parametrize("last", (False, True))
@pytest.mark.parametrize("shared", (False, True))
def test_sums_follow_from_the_declaration(shared: bool, last: bool) -> None:
    scores, lengths = example(shared)
    log_z, mu, by_shared = CHOICES.marginals(scores, lengths, last)
    p = total(scores)[..., : 3 - last].softmax(2)
    expected = torch.zeros_like(mu)
    for b, n in enumerate(lengths.tolist()):
        expected[b, :n, : 3 - last] = p[b, :n]
    torch.testing.assert_close(mu, expected)
    torch.testing.assert_close(CHOICES.log_partition(scores, lengths, last), log_z)
    assert (by_shared is None) == (not shared)
    if shared:
        torch.testing.assert_close(by_shared, expected.sum(1))  # one for every sentence
    found = [x for x in scores if x is not None]
    by = torch.autograd.grad(log_z.sum(), found)
    torch.testing.assert_close(by[0], mu)
    if shared:
        torch.testing.assert_close(by[1], by_shared.sum(0))


@pytest.mark.parametrize("shared", (False, True))
def test_derivatives_of_every_order(shared: bool) -> None:
    (tags, scores), lengths = example(shared)
    tags = torch.where(tags.isfinite(), tags, 0.5).detach().requires_grad_()

    def marginals(*given: Tensor) -> tuple[Tensor, ...]:
        bundle = given if shared else (*given, None)
        return tuple(x for x in CHOICES.marginals(bundle, lengths, True) if x is not None)

    given = (tags,) if scores is None else (tags, scores)
    assert torch.autograd.gradcheck(marginals, given)
    assert torch.autograd.gradgradcheck(marginals, given)


def test_bad_scores_and_lengths() -> None:
    """What nobody checked: a length past the end is the end, and a sentence with a bad score has no answer."""
    (tags, _), _ = example(False)
    tags, lengths = tags.detach(), torch.tensor([9, 4, 3])
    log_z, mu, _ = CHOICES.marginals((tags, None), lengths, False)
    assert log_z.isnan().tolist() == mu.isnan().flatten(1).all(1).tolist() == [False, True, False]
    assert torch.equal(CHOICES.argmax((tags, None), lengths, False)[0], tags[0].argmax(1))
    assert (CHOICES.argmax((tags, None), lengths, False)[1] == -1).all()
