"""Scores of any size: what all structures share is taken off, a finite mask is a mask, and the rest is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import kl_divergence

from gpuparse import NonProjectiveTrees, ProjectiveTrees, Scores, SecondOrderTrees, TagChains, decode, mst, viterbi

F64 = torch.float64


def eighths(*shape: int, seed: int = 0) -> Tensor:
    """Numbers that stay exact beside 2^50."""
    return torch.randint(-16, 16, shape, generator=torch.Generator().manual_seed(seed)).to(F64) * 0.5


ARCS, UNARY, ROWS = eighths(2, 5, 5), eighths(2, 4, 3), eighths(3, 3)
LENGTHS = torch.tensor([4, 3])
BIG = 2.0**50
WORD = torch.tensor([1.0, -1.0, 3.0, 2.0, -2.0], dtype=F64) * BIG  # of each word, and of the root


@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mask", [-1e4, -1e9, -1e16, -1e30, None])
@pytest.mark.parametrize("family", [NonProjectiveTrees, ProjectiveTrees])
def test_a_finite_mask_is_a_mask(family: Any, mask: float | None, dtype: torch.dtype) -> None:
    low = torch.finfo(dtype).min if mask is None else mask
    arcs = ARCS.to(dtype)
    masked = torch.zeros(2, 5, 5, dtype=torch.bool)
    masked[:, 1, 2] = masked[:, 2, 3] = masked[:, 0, 1] = True
    p, q = (family(arcs.masked_fill(masked, x).requires_grad_(), LENGTHS) for x in (-math.inf, low))
    eps = 8 * torch.finfo(p.marginals.dtype).eps  # the matrix-tree theorem's rounding is absolute
    assert torch.allclose(p.marginals, q.marginals, rtol=eps, atol=eps)
    assert float(q.marginals[masked].detach().abs().max()) == (math.exp(-1e4) if mask == -1e4 else 0)
    assert torch.allclose(p.log_partition, q.log_partition) and torch.allclose(p.entropy(), q.entropy())
    q.log_partition.sum().backward()
    assert bool(torch.isfinite(q.marginals).all())


def test_a_mask_of_tags_labels_and_rows() -> None:
    low = torch.finfo(F64).min
    masked = torch.zeros(3, 3, dtype=torch.bool)
    masked[0, 1] = masked[2, 2] = True
    p, q = (TagChains(UNARY, ROWS.masked_fill(masked, x), LENGTHS) for x in (-math.inf, low))
    for name in ("marginals", "transition_marginals"):
        assert torch.allclose(getattr(p, name), getattr(q, name), rtol=1e-14, atol=0)
    labels = eighths(2, 5, 5, 3)
    labels[..., 1] = low
    found = decode(Scores(ARCS, LENGTHS, labels=labels), "mst")
    assert not bool((found.labels == 1).any())


def conflict(size: float) -> Tensor:
    """Words 1 and 2 want each other, and so far that what leads out of their cycle is lost."""
    arcs = torch.tensor([[[0.0, 0.3, 0.1], [0.0, 0.0, size], [0.0, size, 0.0]]], dtype=F64)
    return torch.cat([torch.zeros(1, 3, 3, dtype=F64), arcs])


REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "chain": (r"^unary of sentence 0", lambda: TagChains(torch.tensor([[[0.0, 1e16], [0.0, 0.3]]]), cross())),
    "positive": (r"^arcs\[1, 1, 2\] is 1e\+300; scores must be below", lambda: NonProjectiveTrees(conflict(1e300))),
    "float32": (r"^arcs of sentence 0 add up to more than a float32", lambda: NonProjectiveTrees(least(torch.float32))),
    "second order": (
        r"^siblings of sentence 0 are too far apart",
        lambda: SecondOrderTrees(third_word_alone(), siblings=far_siblings()),
    ),
    "viterbi": (r"^unary of sentence 0", lambda: viterbi(torch.tensor([[[0.0, 1e16], [0.0, 0.3]]]), cross())),
}


def test_best_trees_are_never_refused() -> None:
    """Where two words have to hang from a root that costs much, sums lose digits, and some tree is best in doubles."""
    arcs = two_roots()
    found = mst(arcs, single_root=False)
    assert torch.equal(found, decode(Scores(arcs), single_root=False).heads)
    assert int((found[1] == 0).sum()) == 2


def cross() -> Tensor:
    """The best tag of the first word costs as much as it gives."""
    return torch.tensor([[0.1, 0.2], [-1e16, -1e16]])


def least(dtype: torch.dtype) -> Tensor:
    return torch.full((1, 4, 4), torch.finfo(dtype).min, dtype=dtype)


def two_roots() -> Tensor:
    """Words 1 and 2, and 3 and 4, want each other; the rest is far below."""
    arcs = torch.full((2, 5, 5), -1e16, dtype=F64)
    arcs[0] = 0.0
    arcs[:, 1, 2] = arcs[:, 2, 1] = arcs[:, 3, 4] = arcs[:, 4, 3] = 0.5
    return arcs


def third_word_alone() -> Tensor:
    """Only word 3 may hang on the root."""
    arcs = torch.zeros(1, 4, 4)
    arcs[0, 0, 1:3] = -math.inf
    return arcs


def far_siblings() -> Tensor:
    """Words 1 and 2 want each other, and word 3 is far from being the head of either."""
    x = torch.zeros(1, 4, 4, 4)
    x[0, 3, :, 1:3] = -1e12
    return x


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_told_apart_is_refused(kind: str) -> None:
    text, call = REFUSED[kind]
    with pytest.raises(ValueError, match=text) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 1


def test_nothing_is_refused_where_nothing_is_looked_at() -> None:
    NonProjectiveTrees(conflict(1e300), validate_args=False)
    decode(Scores(two_roots(), validate_args=False), single_root=False)


def test_gradients_of_large_scores() -> None:
    arcs = (ARCS + WORD).requires_grad_()
    p, q = NonProjectiveTrees(arcs, LENGTHS), NonProjectiveTrees(ARCS.clone().requires_grad_(), LENGTHS)
    for name in ("log_partition", "marginals"):
        weights = eighths(*getattr(p, name).shape, seed=3)
        (found,) = torch.autograd.grad((getattr(p, name) * weights).sum(), p.arcs)
        (want,) = torch.autograd.grad((getattr(q, name) * weights).sum(), q.arcs)
        assert torch.allclose(found, want, rtol=1e-11, atol=1e-12)
    (found,), (want,) = (torch.autograd.grad(x.entropy().sum(), x.arcs) for x in (p, q))
    assert torch.allclose(found, want, rtol=1e-11, atol=1e-12)


def test_sums_that_cancel() -> None:
    """What words' scores have in common is added up without a loss."""
    offsets = torch.tensor([0.0, 1e16, -1e16, 3e15, -3e15], dtype=F64)
    p, q = NonProjectiveTrees(torch.zeros(1, 5, 5, dtype=F64)), NonProjectiveTrees(offsets.expand(1, 5, 5))
    assert torch.equal(p.log_partition, q.log_partition)


def test_several_roots_that_cost_much() -> None:
    """One word hangs on the root then; what another would cost is still known."""
    arcs = torch.zeros(1, 3, 3, dtype=F64)
    arcs[:, 0] = -1e20
    p = NonProjectiveTrees(arcs, single_root=False)
    assert torch.allclose(p.marginals[0, 0, 1:], torch.tensor([0.5, 0.5], dtype=F64))
    assert float(p.log_prob(torch.tensor([[-1, 0, 0]]))[0]) == pytest.approx(-1e20)
    assert bool((p.topk(2)[0][:, 0, 1:] == 0).sum(1).eq(1).all())
    with pytest.raises(ValueError, match="trees from rank 2 on cannot be told apart"):
        p.topk(3)
    q = NonProjectiveTrees(torch.zeros(1, 3, 3, dtype=F64), single_root=False)
    assert float(kl_divergence(q, p)[0]) == pytest.approx(1e20 / 3)
