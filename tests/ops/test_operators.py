"""The operators as torch sees them: schema, fake implementation, autograd, tracing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gpuparse as gp
from gpuparse.backend import choose
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


@STRUCTURES
def test_lengths_must_be_int64(s: Structure) -> None:
    arcs, lengths = example()
    with pytest.raises(ValueError, match="lengths must be int64"):
        getattr(torch.ops.gpuparse, f"{s.name}_argmax")(arcs.detach(), lengths.int(), True)


def test_a_kernel_that_does_not_compile_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that kernel: the others stay, and one warning tells why."""
    backend = choose._choose("cpu")[0]
    assert backend is not None

    def prepare(name: str, number: str) -> None:
        if name == "eisner":
            raise RuntimeError("the compiler ran out of memory\nand more")

    monkeypatch.setattr(backend, "prepare", prepare)
    choose._prepared.cache_clear()
    arcs, lengths = example()
    try:
        with pytest.warns(RuntimeWarning, match="the compiler ran out of memory") as caught:
            trees = gp.ProjectiveTrees(arcs, lengths)
            trees.log_partition.sum().backward()
        assert len(caught) == 1
        torch.testing.assert_close(arcs.grad, torch.ops.gpuparse.eisner_marginals(arcs.detach(), lengths, True)[1])
        assert choose.has_kernel("cpu", "mst", "double")
    finally:
        choose._prepared.cache_clear()
        choose._warn.cache_clear()


def test_compiled_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    arcs, lengths = example()
    expected = gp.mst(arcs, lengths)
    monkeypatch.setattr(choose, "_prepared", lambda *_: (None, "GPUPARSE_BACKEND=torch"))
    compiled = torch.compile(lambda x: gp.mst(x, lengths), backend="eager")
    assert torch.equal(compiled(arcs.detach()), expected)
