"""What an iteration of dual decomposition asks of a GPU."""

from __future__ import annotations

import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.dual.multipliers import LOOK
from gpuparse.decoding.dual.parsing import second_order
from tests.budget import Budget, budget

B, n = 32, 20
KINDS = (("grandparents", "siblings"), ("siblings",), ("grandparents",))


def some_scores(*kinds: str) -> gp.Scores:
    g = torch.Generator().manual_seed(0)
    N = n + 1
    lengths = torch.randint(n // 2, n + 1, (B,), generator=g)
    pairs = {kind: 0.5 * torch.randn(B, N, N, N, generator=g) for kind in kinds}
    return gp.Scores(2 * torch.randn(B, N, N, generator=g), lengths, **pairs)


def counted(scores: gp.Scores, iterations: int) -> tuple[Budget, int]:
    with budget() as found:
        parse = gp.decode(scores, "dd", iterations=iterations)
    return found, int(parse.iterations.max())


@pytest.mark.parametrize("kinds", KINDS, ids="+".join)
def test_waits_and_operations_an_iteration(kinds: tuple[str, ...]) -> None:
    """Of a whole call, all that comes before and after the iterations included."""
    found, iterations = counted(some_scores(*kinds), 200)
    assert iterations > 150
    assert found.waits.total() <= 0.1 * iterations, found.waits
    assert found.operations.total() <= 25 * iterations, found.operations


def test_an_iteration_is_nine_operations() -> None:
    """And no wait, until somebody looks who is done."""
    scores = some_scores("grandparents", "siblings")
    few, _ = counted(scores, 3)
    more, _ = counted(scores, 3 + LOOK - 4)
    assert more.waits == few.waits, more.waits - few.waits
    added = more.operations - few.operations
    assert added.total() <= 9 * (LOOK - 4), added


def test_looking_less_often_changes_nothing() -> None:
    scores = some_scores("grandparents", "siblings")
    here = second_order(scores, iterations=90).run()
    with budget():
        there = second_order(scores, iterations=90).run()
    assert bool(here.certified.any())
    for name in ("score", "bound", "certified", "iterations", "duals", "scores", "sizes"):
        x, y = getattr(here, name), getattr(there, name)
        assert torch.equal(x.nan_to_num(99.0), y.nan_to_num(99.0)), name
    assert torch.equal(here.structures["heads"], there.structures["heads"])
    for x, y in zip(here.penalties, there.penalties, strict=True):
        assert all(torch.equal(x[name], y[name]) for name in x)


def test_the_counter() -> None:
    """It sees what waits and what does not."""
    x = torch.arange(6.0)
    with budget() as found:
        y = x.view(2, 3)[0] + 1
        y[1:].mul_(2)
    assert found.operations.total() == 2 and not found.waits and found.bytes.total() == 12 + 8
    for wait in (
        lambda: x.sum().item(),
        lambda: bool(x[0] > 1),
        lambda: x[x > 1],
        lambda: x.nonzero(),
        lambda: x.tolist(),
        lambda: x.cpu(),
        lambda: torch.tensor([1], device="cpu"),
        lambda: torch.equal(x, x),
        lambda: x.repeat_interleave(torch.ones(6, dtype=torch.int64)),
    ):
        with budget() as found:
            wait()
        assert found.waits.total() == 1 and "the caller" in str(found.waits), found.waits
    with budget() as found:
        x.masked_fill_(x > 3, 0)
        x[x > 1] = 0
    assert not found.waits
