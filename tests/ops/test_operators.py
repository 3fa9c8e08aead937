"""The operators as torch sees them: schema, fake implementation, autograd, tracing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import gpuparse as gp
from gpuparse.ops.backend import choose
from tests.declared import example


def scores(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    arcs = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return arcs.requires_grad_(), torch.tensor([4, 2])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, dtype) for name in ("eisner", "matrix_tree") for dtype in (torch.float32, torch.float64)),
        *((name, torch.float64) for name in ("siblings", "grandparents", "grandsiblings", "third order")),
        *((name, torch.float64) for name in ("cky, spans", "lexical")),
    ],
)
def test_opcheck(name: str, dtype: torch.dtype) -> None:
    family, given, inputs = example(name, dtype, 4, symbols=4, tags=2, rules=8)
    plain = [None if x is None else x.nan_to_num(0.5, neginf=-1.0) for x in given]
    leaves, u, v = ([None if x is None else f(x) for x in plain] for f in (leaf, torch.rand_like, torch.rand_like))
    tensors, flags = inputs[: family.tensors], inputs[family.tensors :]
    calls: dict[str, tuple[Any, ...]] = {
        "log_partition": (*plain, *inputs),
        "marginals": (*leaves, *inputs),
        "hvp": (*leaves, *inputs, *u),
        "third": (*plain, *inputs, *u, *v),
        "argmax": (*plain, *inputs),
        "topk": (*plain, *inputs, 3),
        "sample": (*plain, *tensors, torch.tensor([5]), *flags, 4),
    }
    assert family.operators.keys() <= calls.keys()
    for kind in family.operators:
        torch.library.opcheck(getattr(torch.ops.gpuparse, f"{family.name}_{kind}").default, calls[kind])
    with pytest.raises(ValueError, match="lengths must be int64"):
        wrong = (x.int() if x is inputs[family.tensors - 1] else x for x in inputs)  # type: ignore[attr-defined]
        family.operators["argmax"](*plain, *wrong)


def leaf(x: torch.Tensor) -> torch.Tensor:
    return x.clone().requires_grad_()


def test_opcheck_of_checks() -> None:
    torch.library.opcheck(torch.ops.gpuparse.check.default, tuple(x.detach() for x in scores()))


def test_a_kernel_that_does_not_compile_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that kernel: the others stay, and one warning tells why."""
    backend = choose._choose("cpu")[0]
    assert backend is not None

    def prepare(name: str, number: str, device: torch.device) -> None:
        if name == "eisner":
            raise RuntimeError("the compiler ran out of memory\nand more")

    monkeypatch.setattr(backend, "prepare", prepare)
    choose._prepared.cache_clear()
    arcs, lengths = scores()
    try:
        with pytest.warns(RuntimeWarning, match="the compiler ran out of memory") as caught:
            trees = gp.ProjectiveTrees(arcs, lengths)
            trees.log_partition.sum().backward()
        assert len(caught) == 1
        torch.testing.assert_close(arcs.grad, torch.ops.gpuparse.eisner_marginals(arcs.detach(), lengths, True)[1])
        assert choose.has_kernel(torch.device("cpu"), "mst", "double")
    finally:
        choose._prepared.cache_clear()
        choose._warn.cache_clear()


def test_compiled_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    arcs, lengths = scores()
    expected = gp.mst(arcs, lengths)
    monkeypatch.setattr(choose, "_prepared", lambda *_: (None, "GPUPARSE_BACKEND=torch"))
    compiled = torch.compile(lambda x: gp.mst(x, lengths), backend="eager")
    assert torch.equal(compiled(arcs.detach()), expected)


def test_who_looks_on_sees_operators() -> None:
    """Called at once else, with or without a gradient: the results are the same."""
    arcs, lengths = scores()
    seen: list[str] = []

    class Looking(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def run() -> list[torch.Tensor]:
        trees = gp.ProjectiveTrees(arcs, lengths)
        return [trees.log_partition, *torch.autograd.grad(trees.log_partition.sum(), arcs), trees.argmax]

    alone = run()
    with Looking():
        watched = run()
    for one, other in zip(alone, watched, strict=True):
        assert torch.equal(one, other)
    assert {f"gpuparse.eisner_{kind}.default" for kind in ("marginals", "argmax")} <= set(seen)
    assert type(alone[0].grad_fn).__name__ == "gpuparse_eisner_marginalsBackward"
