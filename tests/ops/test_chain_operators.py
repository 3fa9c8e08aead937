"""The operators over chains as torch sees them: schema, fake implementation, autograd, tracing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gpuparse.ops import chains

KINDS = pytest.mark.parametrize("kind", ("shared", "own", "trigrams"))


def example(kind: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = {"shared": (1, 1, 3, 3), "own": (2, 3, 3, 3), "trigrams": (1, 1, 9, 3)}[kind]
    unary, pairs = (torch.randn(s, generator=generator, dtype=dtype) for s in ((2, 4, 3), shape))
    return unary.requires_grad_(), pairs.requires_grad_(), torch.tensor([4, 3])


@KINDS
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_opcheck(kind: str, dtype: torch.dtype) -> None:
    unary, pairs, lengths = example(kind, dtype)
    trigrams = kind == "trigrams"
    u, v = torch.rand_like(unary).requires_grad_(), torch.rand_like(pairs).requires_grad_()
    weight = torch.rand(2, dtype=torch.float64, requires_grad=True)
    ops = torch.ops.gpuparse
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (ops.chain_value_0, (unary, pairs, lengths, trigrams)),
        (ops.chain_value_1, (unary, pairs, lengths, u, v, trigrams)),
        (ops.chain_value_2, (unary, pairs, lengths, u, v, u, v, trigrams)),
        (ops.chain_gradient_0, (unary, pairs, lengths, weight, trigrams, True, True)),
        (ops.chain_gradient_0, (unary, pairs, lengths, weight, trigrams, True, False)),
        (ops.chain_gradient_1, (unary, pairs, lengths, weight, u, v, trigrams, True, True)),
        (ops.chain_topk, (unary.detach(), pairs.detach(), lengths, trigrams, 3)),
        (ops.chain_sample, (unary.detach(), pairs.detach(), lengths, torch.tensor([5]), trigrams, 4)),
    ]
    for op, args in calls:
        torch.library.opcheck(op.default, args)
    plain = [x.detach() for x in (unary, pairs, lengths, weight, u, v, u, v)]
    torch.library.opcheck(ops.chain_gradient_2.default, (*plain, trigrams, True, True))


@KINDS
def test_each_family_is_the_gradient_of_the_other(kind: str) -> None:
    """By finite differences, in scores, weights and directions; the highest order goes over to plain torch."""
    unary, pairs, lengths = example(kind)
    trigrams = kind == "trigrams"
    weight = torch.rand(2, dtype=torch.float64, requires_grad=True)
    along = [torch.randn_like(x).requires_grad_() for x in (unary, pairs) * 2]
    for order in range(chains.ORDERS):
        directions = along[: 2 * order]
        value, gradient = chains.VALUES[order], chains.GRADIENTS[order]
        assert torch.autograd.gradcheck(
            lambda *x, f=value: f(*x[:2], lengths, *x[2:], trigrams), (unary, pairs, *directions)
        )
        assert torch.autograd.gradcheck(
            lambda *x, f=gradient: f(*x[:2], lengths, *x[2:], trigrams, True, True), (unary, pairs, weight, *directions)
        )


def test_lengths_must_be_int64() -> None:
    unary, pairs, lengths = example("shared")
    with pytest.raises(ValueError, match="lengths must be int64"):
        torch.ops.gpuparse.chain_topk(unary.detach(), pairs.detach(), lengths.int(), False, 2)


def test_many_sentences_share_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer groups than sentences."""
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(70, 3, 4, generator=generator, dtype=torch.float64)
    pairs = torch.randn(1, 1, 4, 4, generator=generator, dtype=torch.float64)
    lengths, weight = torch.randint(1, 4, (70,), generator=generator), torch.rand(70, dtype=torch.float64)
    expected = chains.sums(unary, pairs, lengths, False, weight=weight)
    monkeypatch.setattr(chains, "_GROUP_CELLS", 1)
    found = chains.sums(unary, pairs, lengths, False, weight=weight)
    torch.testing.assert_close(found, expected)
