"""The operators as torch sees them: schema, fake implementation, autograd, tracing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gpuparse as gp
from gpuparse.ops import EISNER, MATRIX_TREE, Structure

STRUCTURES = pytest.mark.parametrize("s", (EISNER, MATRIX_TREE), ids=lambda s: s.name)


def example(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    arcs = torch.randn(2, 5, 5, generator=generator, dtype=dtype)
    return arcs.requires_grad_(), torch.tensor([4, 2])


@STRUCTURES
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_opcheck(s: Structure, dtype: torch.dtype) -> None:
    arcs, lengths = example(dtype)
    plain = arcs.detach()
    u, v = torch.rand_like(plain), torch.rand_like(plain)
    ops: dict[str, tuple[Any, ...]] = {
        "log_partition": (plain, lengths, True),
        "marginals": (arcs, lengths, True),
        "hvp": (arcs, lengths, True, u.requires_grad_()),
        "third": (plain, lengths, True, u.detach(), v),
        "argmax": (plain, lengths, True),
        "topk": (plain, lengths, False, 3),
        "sample": (plain, lengths, torch.tensor([5]), True, 4),
    }
    for name, args in ops.items():
        torch.library.opcheck(getattr(torch.ops.gpuparse, f"{s.name}_{name}").default, args)
    torch.library.opcheck(torch.ops.gpuparse.check.default, (plain, lengths))


@pytest.mark.parametrize("kind", (gp.ProjectiveTrees, gp.NonProjectiveTrees))
def test_compiled_loss_is_the_same(kind: type[gp.ProjectiveTrees] | type[gp.NonProjectiveTrees]) -> None:
    """One graph, without a break, through the constructor, log_prob and entropy."""
    arcs, lengths = example()
    heads = kind(arcs, lengths).argmax

    def loss(scores: torch.Tensor) -> torch.Tensor:
        trees = kind(scores, lengths)
        return (trees.entropy() - trees.log_prob(heads)).sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(arcs), loss(arcs))
    found, expected = torch.autograd.grad(compiled(arcs), arcs), torch.autograd.grad(loss(arcs), arcs)
    torch.testing.assert_close(found, expected)
