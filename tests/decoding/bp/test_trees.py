"""TREE and PTREE against all trees, with messages of any size and some that forbid or demand; their gradients."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from gpuparse import bp
from gpuparse.decoding.bp.graph import Graph
from gpuparse.ops import library
from gpuparse.ops.library import plain_torch
from gpuparse.ops.plain import bp_tree
from gpuparse.ops.plain.bp_tree import escapes
from tests.decoding.bp import brute
from tests.decoding.bp.some import random

N = 5
NEG_INF = float("-inf")


@pytest.mark.parametrize("size", [40.0, 1000.0])
@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("kind", [bp.Tree, bp.ProjectiveTree])
def test_tree_keeps_digits_of_what_is_unlikely(kind: type[bp.Tree], single_root: bool, size: float) -> None:
    """Marginals down to exp(-150) and up to 1 - exp(-150), which a double cannot tell from 1; and beyond."""
    lengths = torch.tensor([4])
    graph = Graph(lengths, N)
    for seed in range(5):
        q = random(torch.Generator().manual_seed(seed), 1, N, N, size=size)
        q = torch.where(graph.links, q, NEG_INF)
        family = kind(single_root=single_root)
        (f,) = brute.tree(kind is bp.ProjectiveTree, single_root, lengths, 0)
        assert brute.check(f, (q,), family.propagate((q,), graph))[0] == 16


def tree_messages(q: Tensor, single_root: bool) -> None:
    """TREE against all trees, but where there is none; the batch at once and one by one; by kernels and without."""
    with plain_torch():
        tree_messages_here(q, single_root)
    tree_messages_here(q, single_root)


def tree_messages_here(q: Tensor, single_root: bool) -> None:
    lengths = torch.full((len(q),), q.shape[1] - 1)
    graph = Graph(lengths, q.shape[1])
    family = bp.Tree(single_root=single_root)
    q = torch.where(graph.links, q, NEG_INF)
    (out,) = family.propagate((q,), graph)
    for b in range(len(q)):
        (f,) = brute.tree(False, single_root, lengths, b)
        (alone,) = family.propagate((q[b : b + 1],), Graph(lengths[b : b + 1], q.shape[1]))
        torch.testing.assert_close(alone[0], out[b], atol=1e-9, rtol=1e-12)
        brute.check(f, (q,), (out,), rel=1e-12)


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("minus", [0.0, 0.4])
def test_tree_with_heavy_root(minus: float, single_root: bool) -> None:
    """Arcs of the root that weigh exp(100) to exp(400) times the others, which tempts to take two of them."""
    g = torch.Generator().manual_seed(0)
    q = random(g, 16, N, N, minus=minus)
    q[:, 0] = random(g, 16, N) + torch.arange(100.0, 420.0, 20.0)[:, None]
    tree_messages(q, single_root)


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("size", [5.0, 50.0, 120.0, 250.0, 1000.0])
def test_tree_with_sparse_arcs(size: float, single_root: bool) -> None:
    """Where many arcs of little weight may be all that there is."""
    g = torch.Generator().manual_seed(1)
    tree_messages(torch.cat([random(g, 8, N, N, minus=minus, size=size) for minus in (0.2, 0.5)]), single_root)
    only = torch.full((1, N, N), NEG_INF, dtype=torch.float64)
    for h, m, v in [(2, 1, 0), (1, 2, 0), (3, 2, -1), (1, 3, 0), (4, 3, -1), (1, 4, 0), (0, 4, -1)]:
        only[0, h, m] = v * size
    tree_messages(only, single_root)
    found = bp.BeliefPropagation([bp.Link(only), bp.Tree(single_root=single_root)]).run()
    assert not found.impossible.any() and float(found.log_partition) == pytest.approx(-3 * size)


@pytest.mark.parametrize("single_root, apart", [(True, 150.0), (False, 590.0)])
def test_tree_without_looking(single_root: bool, apart: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU without kernels: what the docstring promises."""
    monkeypatch.setattr(bp_tree, "can_validate", lambda *_: False)
    monkeypatch.setattr(library, "has_kernel", lambda *_: False)
    g = torch.Generator().manual_seed(3)
    q = torch.rand(8, N, N, generator=g, dtype=torch.float64)
    tree_messages_here(q * apart, single_root)
    q[:, 0] += apart - 1
    tree_messages_here(q, single_root)
    q = torch.rand(8, N, N, generator=g, dtype=torch.float64) * (apart / N - 2)  # log N is less than 2
    tree_messages_here(torch.where(torch.rand(q.shape, generator=g) < 0.4, NEG_INF, q), single_root)


@pytest.mark.parametrize("size", [12.0, 20.0])
@pytest.mark.parametrize("single_root", [True, False])
def test_tree_with_sparse_arcs_of_long_sentences(
    single_root: bool, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is added up without logs, and proven, is what comes of logs; so are the derivatives."""
    g = torch.Generator().manual_seed(2)
    lengths = torch.tensor([20, 25, 12, 25])
    graph, family = Graph(lengths, 26), bp.Tree(single_root=single_root)
    q = torch.where(graph.links, random(g, 4, 26, 26, minus=0.6, size=size), NEG_INF)
    q[:2, 0] = torch.where(graph.links[:2, 0], random(g, 2, 26), NEG_INF)
    logs: list[int] = []  # how many sentences are added up as logs

    def counted(walk: Tensor, root: Tensor, *, log: bool = False) -> Tensor:
        logs[-1] += log * len(walk)
        return escapes(walk, root, log=log)

    monkeypatch.setattr(bp_tree, "escapes", counted)
    weight, found = random(g, 4, 26, 26), []
    for least in (bp_tree._LEAST_LOG, torch.inf):
        monkeypatch.setattr(bp_tree, "_LEAST_LOG", least)
        logs.append(0)
        with plain_torch():
            found.append(with_gradient(family, q, weight, graph))
        out = found[-1][0]
        for path in (nullcontext, plain_torch):
            with torch.no_grad(), path():
                torch.testing.assert_close(family.propagate((q,), graph)[0], out.detach(), atol=1e-9, rtol=1e-12)
    assert logs[0] < logs[1]
    torch.testing.assert_close(found[0], found[1], atol=1e-8, rtol=1e-9)
    torch.testing.assert_close(with_gradient(family, q, weight, graph), found[1], atol=1e-8, rtol=1e-9)


def with_gradient(family: bp.Factors, q: Tensor, weight: Tensor, graph: Graph) -> tuple[Tensor, Tensor]:
    """Messages, and the gradient of their weighted sum."""
    leaf = q.clone().requires_grad_()
    (out,) = family.propagate((leaf,), graph)
    finite = out.isfinite()
    return out.detach(), torch.autograd.grad((weight[finite] * out[finite]).sum(), leaf)[0]


@pytest.mark.parametrize("size", [1.0, 20.0, 300.0, 1000.0])
@pytest.mark.parametrize("minus, plus", [(0.0, 0.0), (0.3, 0.0), (0.2, 0.04)])
@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("kind", [bp.Tree, bp.ProjectiveTree])
def test_gradient_of_trees_is_a_difference_of_probabilities(
    kind: type[bp.Tree], single_root: bool, minus: float, plus: float, size: float
) -> None:
    """A message about a link has the derivative P(other link | it) - P(other link | not it) by the one about another:
    over all trees, also where words of a cycle like each other so much that a double cannot tell 1 - p from 1."""
    lengths, compared = torch.tensor([4, 1, 3, 2, 4, 3]), 0
    graph, family = Graph(lengths, N), kind(single_root=single_root)
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        q = random(g, 6, N, N, minus=minus, plus=plus, size=size)
        if seed:
            q[:, 1, 2], q[:, 2, 1] = 30.0 * seed, 30.0 * seed
        q = torch.where(graph.links, q, NEG_INF)
        weight = random(g, 6, N, N)
        out, by = with_gradient(family, q, weight, graph)
        for b in range(6):
            (f,) = brute.tree(kind is bp.ProjectiveTree, single_root, lengths, b)
            arcs = [at for _, at in f.edges]
            odds = torch.stack([q[at] for at in arcs])
            demanded = odds == torch.inf
            trees = f.values
            wrong = (~trees & demanded) | (trees & (odds == NEG_INF))
            if wrong.any(1).all():
                continue  # no tree is possible
            expected = torch.zeros(len(arcs), dtype=torch.float64)
            for e, at in enumerate(arcs):
                if not out[at].isfinite():
                    continue
                others = torch.arange(len(arcs)) != e
                fits, it, free = ~(wrong & others).any(1), trees[:, e], others & odds.isfinite()
                log = (trees[:, free] * odds[free]).sum(1)
                given = [torch.softmax(log.masked_fill(~(fits & x), NEG_INF), 0) @ trees.double() for x in (it, ~it)]
                expected += weight[at] * torch.where(free, given[0] - given[1], 0.0)
                compared += 1
            found = torch.stack([by[at] for at in arcs])
            torch.testing.assert_close(found, expected, atol=1e-11, rtol=0)  # scores of 1000 have 13 digits left
    assert compared > 20


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3, 6, 17, 40, 60])
def test_gradient_of_tree_in_long_sentences(n: int, single_root: bool) -> None:
    """As plain torch has it: ragged, with forbidden links, large finite masks, and a sentence without trees."""
    g = torch.Generator().manual_seed(n)
    lengths = torch.tensor([n, max(1, n - 1), n, (n + 1) // 2, n, n])
    graph, family = Graph(lengths, n + 1), bp.Tree(single_root=single_root)
    q = random(g, 6, n + 1, n + 1, size=3.0)
    q[1] = random(g, n + 1, n + 1, minus=0.5, size=3.0)
    some = torch.rand(n + 1, n + 1, generator=g) < 0.5
    q[2, some], q[3] = -1e4, q[3] * 20
    q[4, 1:, -1] = NEG_INF
    q[5, 0] = NEG_INF
    q = torch.where(graph.links, q, NEG_INF)
    weight = random(g, 6, n + 1, n + 1)
    found = with_gradient(family, q, weight, graph)
    with plain_torch():
        expected = with_gradient(family, q, weight, graph)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    assert n < 3 or float(found[1].abs().max()) > 0.1


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("minus", [0.0, 0.2])
def test_gradcheck_of_tree(minus: float, single_root: bool) -> None:
    graph = Graph(torch.tensor([4, 2]), N)
    q = torch.where(graph.links, random(torch.Generator().manual_seed(0), 2, N, N, minus=minus), NEG_INF)
    free = q.isfinite()

    def messages(x: Tensor) -> Tensor:
        (out,) = bp.Tree(single_root=single_root).propagate((q.masked_scatter(free, x),), graph)
        return out[out.isfinite()]

    assert torch.autograd.gradcheck(messages, q[free].requires_grad_())


@pytest.mark.parametrize("n", [1, 2, 3, 6, 9, 20, 33])
def test_escapes(n: int) -> None:
    """Against the linear equations of each target."""
    g = torch.Generator().manual_seed(n)
    walk, root = torch.rand(2, n, n, generator=g).double(), torch.rand(2, n, generator=g).double()
    walk = walk * (1 - torch.eye(n))
    found = escapes(walk, root)
    torch.testing.assert_close(escapes(walk.log(), root.log(), log=True).exp(), found, atol=1e-12, rtol=1e-12)
    total = walk.sum(2) + root
    p, end = walk / total[..., None], root / total
    for m in range(n):
        rest = [i for i in range(n) if i != m]
        if rest:
            u = torch.linalg.solve(torch.eye(n - 1) - p[:, rest][:, :, rest], end[:, rest, None])[..., 0]
            torch.testing.assert_close(found[:, rest, m], u, atol=1e-12, rtol=1e-12)
