"""The plain torch path against enumeration, closed-form counts and finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpuparse.ops.plain import check, eisner, generic, matrix_tree, mst, semiring
from tests.oracle import Enumeration, never_read, random_instance

pytestmark = pytest.mark.usefixtures("one_thread")

NEG_INF = float("-inf")
LOG_PARTITION = {True: eisner.log_partition, False: matrix_tree.log_partition}  # by `projective`
ARGMAX = {True: eisner.argmax, False: mst.mst}

roots = pytest.mark.parametrize("single_root", [True, False], ids=["single", "multi"])
families = pytest.mark.parametrize("projective", [True, False], ids=["projective", "nonprojective"])


def enumerate_batch(arcs: Tensor, lengths: Tensor, *, single_root: bool, projective: bool) -> list[Enumeration]:
    return [
        Enumeration(a[: n + 1, : n + 1], single_root=single_root, projective=projective)
        for a, n in zip(arcs, lengths.tolist(), strict=True)
    ]


def close(x: Tensor, y: Tensor, tol: float = 1e-10) -> None:
    torch.testing.assert_close(x, y, rtol=tol, atol=tol)


# ----------------------------------------------------------------------------------------------- the sums


def test_logsumexp_at_minus_infinity() -> None:
    x = torch.tensor([[NEG_INF, NEG_INF], [0.5, NEG_INF], [1e4, -1e4]], dtype=torch.float64, requires_grad=True)
    y = semiring.logsumexp(x, 1)
    assert y.tolist() == [NEG_INF, 0.5, 1e4]
    g = x
    for _ in range(4):
        (g,) = torch.autograd.grad(y.sum() if g is x else (g * g).sum(), x, create_graph=True)
        assert bool(g.isfinite().all())
        assert g[0].tolist() == [0, 0]


@families
@roots
def test_no_nan_at_any_order(single_root: bool, projective: bool) -> None:
    """Sentences with and without a tree in one batch, NaN where nothing is read, four derivatives."""
    arcs, lengths = random_instance(5, batch=4, words=4, forbidden=0.6)
    arcs[1, :, 1] = NEG_INF  # no head for word 1
    arcs[2] = NEG_INF
    arcs.requires_grad_()
    y = LOG_PARTITION[projective](arcs, lengths, single_root)
    assert y[1:3].tolist() == [NEG_INF, NEG_INF]
    assert bool(y[[0, 3]].isfinite().all())
    g = torch.autograd.grad(y.sum(), arcs, create_graph=True)[0]
    for order in range(4):
        assert bool(g.isfinite().all()), order
        assert not bool(g[1:3].any())
        assert not bool(g[never_read(lengths, 5)].any())
        (g,) = torch.autograd.grad((g * torch.arange(25.0).view(5, 5)).sum(), arcs, create_graph=True)


# ------------------------------------------------------------------------- trees: the best, k best, samples


@families
@roots
def test_argmax_ties_are_deterministic(single_root: bool, projective: bool) -> None:
    """Alone or in a batch with longer ones, equal scores give the same tree."""
    lengths = torch.tensor([5, 3, 4, 3])
    heads = ARGMAX[projective](torch.zeros(4, 6, 6), lengths, single_root)
    for b, n in enumerate(lengths.tolist()):
        alone = ARGMAX[projective](torch.zeros(1, n + 1, n + 1), torch.tensor([n]), single_root)
        assert heads[b, : n + 1].tolist() == alone[0].tolist()


@families
@roots
def test_samples_survive_rounding(monkeypatch: pytest.MonkeyPatch, single_root: bool, projective: bool) -> None:
    """Should a head of probability 0 ever be drawn, it is not taken."""
    monkeypatch.setattr(generic, "_draw", lambda p: p.argmin(1))
    arcs, lengths = random_instance(10, batch=6)
    heads = generic.sample(LOG_PARTITION[projective], arcs, lengths, single_root, 1)[0]
    for b, o in enumerate(enumerate_batch(arcs, lengths, single_root=single_root, projective=projective)):
        assert o.score(heads[b, : int(lengths[b]) + 1]) > NEG_INF


def test_draw_takes_no_weight_of_zero() -> None:
    p = torch.tensor([0.0, 0.0, 1e-300, 0.0, 3.0, 1.0, 0.0], dtype=torch.float64).expand(4000, -1)
    torch.manual_seed(0)
    freq = generic._draw(p).bincount(minlength=7) / 4000
    assert freq[[0, 1, 2, 3, 6]].tolist() == [0, 0, 0, 0, 0]
    assert abs(float(freq[4]) - 0.75) < 0.05


# ------------------------------------------------------------------------------ any mask, any size, any mode


@families
@roots
@pytest.mark.parametrize("nodes", [1, 2])
def test_smallest(nodes: int, single_root: bool, projective: bool) -> None:
    """No words (the empty tree) and one word, for which log Z is linear."""
    arcs = torch.full((2, nodes, nodes), 0.75)
    lengths = torch.tensor([nodes - 1, 0])
    log_partition, argmax = LOG_PARTITION[projective], ARGMAX[projective]
    want = torch.zeros(2, nodes, nodes)
    want[0, 0, 1:] = 1
    heads = [[-1, 0][:nodes], [-1, -1][:nodes]]
    assert log_partition(arcs, lengths, single_root).tolist() == [0.75 * (nodes - 1), 0]
    assert torch.equal(generic.marginals(log_partition, arcs, lengths, single_root), want)
    assert not generic.hvp(log_partition, arcs, lengths, single_root, arcs).any()
    assert not generic.third(log_partition, arcs, lengths, single_root, arcs, arcs).any()
    assert argmax(arcs, lengths, single_root).tolist() == heads
    assert generic.topk(argmax, arcs, lengths, single_root, 3)[0].tolist() == heads
    assert (generic.topk(argmax, arcs, lengths, single_root, 3)[1:] == -1).all()
    assert generic.sample(log_partition, arcs, lengths, single_root, 2)[1].tolist() == heads


def run_all(arcs: Tensor, lengths: Tensor, single_root: bool, projective: bool) -> list[Tensor]:
    log_partition, argmax = LOG_PARTITION[projective], ARGMAX[projective]
    return [
        log_partition(arcs, lengths, single_root),
        generic.marginals(log_partition, arcs, lengths, single_root),
        generic.hvp(log_partition, arcs, lengths, single_root, torch.ones_like(arcs)),
        generic.third(log_partition, arcs, lengths, single_root, torch.ones_like(arcs), torch.ones_like(arcs)),
        argmax(arcs, lengths, single_root),
        generic.topk(argmax, arcs, lengths, single_root, 3),
        generic.sample(log_partition, arcs, lengths, single_root, 2),
    ]


@families
@roots
def test_inference_mode(single_root: bool, projective: bool) -> None:
    arcs, lengths = random_instance(6, words=4)
    torch.manual_seed(0)
    want = run_all(arcs, lengths, single_root, projective)
    with torch.inference_mode():
        torch.manual_seed(0)
        got = run_all(arcs.clone(), lengths.clone(), single_root, projective)
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


def test_what_scores_hold() -> None:
    """Only what is read is looked at: arcs to words of the sentence from other nodes of it."""
    found = []
    for value in (0.0, 2.0**20 - 1, 2.0**20, -(2.0**20), 1 - 2.0**20, NEG_INF, -NEG_INF, float("nan")):
        arcs = torch.zeros(2, 4, 4, dtype=torch.float64)
        arcs[:, 3, 1] = value  # the second sentence has no third word
        found.append(check.flags(arcs, torch.tensor([3, 2])).tolist())
    assert found == [[0, 0], [0, 0], [8, 0], [8, 0], [0, 0], [2, 0], [9, 0], [1, 0]]
    assert check.flags(torch.zeros(3, 4, 4), torch.tensor([0, 4, 3])).tolist() == [4, 4, 0]
