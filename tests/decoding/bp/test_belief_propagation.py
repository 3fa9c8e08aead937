"""Belief propagation: exact on graphs without cycles, its schedules, and its derivatives."""

from __future__ import annotations

import math
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

import gpuparse as gp
from gpuparse import bp
from gpuparse.decoding.bp import belief_propagation, graph, messages
from gpuparse.decoding.bp import tree as tree_module
from tests.decoding.bp import brute
from tests.oracle import NEG_INF, random_instance

TREES = [(bp.Tree, gp.NonProjectiveTrees), (bp.ProjectiveTree, gp.ProjectiveTrees)]
# Numbers near 1 to 100 and a few hundred additions of them.
EXACT = {"atol": 1e-9, "rtol": 1e-9}


def cube(g: torch.Generator, B: int, N: int, k: int = 3, size: float = 1.0) -> Tensor:
    return torch.randn(B, *[N] * k, generator=g, dtype=torch.float64) * size


def everything(seed: int, lengths: Tensor, N: int) -> tuple[list[Tensor], object]:
    """Scores, and all families made of them."""
    g, B, T = torch.Generator().manual_seed(seed), len(lengths), 2
    scores = [
        cube(g, B, N, 2),
        cube(g, B, N),
        cube(g, B, N),
        cube(g, B, N),
        cube(g, B, N, 2),
        cube(g, B, N, 2),
        torch.randn(B, N - 1, T, generator=g).double(),
        torch.randn(B, N, N, T, T, generator=g).double(),
        torch.randn(T, T, T, generator=g).double(),
        torch.randn(B, 1, generator=g).double(),
    ]

    def make(x: list[Tensor], tree: bp.Factors | None = None) -> list[bp.Factors]:
        return [
            bp.Link(x[0]),
            bp.Grand(x[1]),
            bp.Sib(x[2]),
            bp.ChildSequence(x[3], x[4]),
            bp.NoCross(x[5]),
            bp.Tag(x[6]),
            bp.TagLink(x[7]),
            bp.Trigram(x[8]),
            bp.Pair(torch.tensor([[[0, 1, 1, 2]]]).expand(len(x[9]), 1, 4), x[9]),
            bp.NotTwo(),
            bp.NoTwoCycle(),
            bp.ExactlyOne(),
            bp.AtMostOne(),
            tree or bp.Tree(),
        ]

    return scores, make


@pytest.mark.parametrize("magnitude", [3.0, 1e4])
@pytest.mark.parametrize("schedule", ["parallel", "serial"])
@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("tree, exact", TREES)
def test_tree_and_link_are_exact(
    tree: type[bp.Tree],
    exact: type[gp.ProjectiveTrees],
    single_root: bool,
    schedule: belief_propagation.Schedule,
    magnitude: float,
) -> None:
    for seed in range(5):
        arcs, lengths = random_instance(seed, magnitude=magnitude)
        factors = [bp.Link(arcs), tree(single_root=single_root)]
        found = gp.BeliefPropagation(factors, schedule=schedule).run(lengths)
        expected = exact(arcs, lengths, single_root=single_root)
        torch.testing.assert_close(found.links, expected.marginals, **EXACT)
        torch.testing.assert_close(found.log_partition, expected.log_partition, **EXACT)
        torch.testing.assert_close(found.factors[1], expected.marginals, **EXACT)
        torch.testing.assert_close(found.factors[0], expected.marginals, **EXACT)
        assert found.converged.all() and not found.impossible.any()
        assert (found.iterations <= 3).all()


def test_tag_and_trigram_are_exact() -> None:
    g = torch.Generator().manual_seed(0)
    unary, trigrams = torch.randn(4, 5, 3, generator=g).double() * 2, torch.randn(3, 3, 3, generator=g).double()
    unary[0, 1, 2] = NEG_INF
    lengths = torch.tensor([5, 1, 2, 3])
    found = gp.BeliefPropagation([bp.Tag(unary), bp.Trigram(trigrams)]).run(lengths)
    expected = gp.TrigramChains(unary, trigrams, lengths)
    torch.testing.assert_close(found.tags, expected.marginals, **EXACT)
    torch.testing.assert_close(found.log_partition, expected.log_partition, **EXACT)
    torch.testing.assert_close(found.factors[0], expected.marginals, **EXACT)
    counts = expected.trigram_marginals.sum((0, 1))
    torch.testing.assert_close(found.factors[1], counts, **EXACT)


@pytest.mark.parametrize("mode", ["sum", "max"])
def test_tags_and_links_without_a_cycle(mode: belief_propagation.Mode) -> None:
    """Two words; 2 -> 1 is forbidden, so that one TAGLINK alone joins the tags."""
    g = torch.Generator().manual_seed(1)
    T = 3
    arcs, unary = torch.randn(1, 3, 3, generator=g).double(), torch.randn(1, 2, T, generator=g).double()
    both = torch.randn(1, 3, 3, T, T, generator=g).double()
    arcs[0, 2, 1] = NEG_INF
    found = gp.BeliefPropagation([bp.Link(arcs), bp.Tag(unary), bp.TagLink(both)], iterations=20, mode=mode).run()
    scores, links, tags = [], [], []
    for a in torch.cartesian_prod(*[torch.arange(2)] * 3).tolist():
        for s in range(T):
            for t in range(T):
                one, two, three = a
                total = one * (arcs[0, 0, 1] + both[0, 0, 1, 0, s]) + two * (arcs[0, 0, 2] + both[0, 0, 2, 0, t])
                total = total + three * (arcs[0, 1, 2] + both[0, 1, 2, s, t]) + unary[0, 0, s] + unary[0, 1, t]
                scores.append(total)
                links.append(a)
                tags.append((s, t))
    weight, true = torch.stack(scores), torch.tensor(links).bool()
    add = torch.logsumexp if mode == "sum" else torch.amax
    torch.testing.assert_close(found.log_partition[0], add(weight, 0), **EXACT)
    for e, (h, m) in enumerate([(0, 1), (0, 2), (1, 2)]):
        odds = add(weight[true[:, e]], 0) - add(weight[~true[:, e]], 0)
        torch.testing.assert_close(found.log_odds[0, h, m], odds, **EXACT)
    which = torch.tensor(tags)
    expected = torch.stack([torch.stack([add(weight[which[:, i] == t], 0) for t in range(T)]) for i in range(2)])
    torch.testing.assert_close(found.tags, torch.softmax(expected, 1)[None], **EXACT)


@pytest.mark.parametrize("mode", ["sum", "max"])
def test_pairs_without_a_cycle(mode: belief_propagation.Mode) -> None:
    """A chain of pairs, some of them hard, with links that are forbidden and links that come to be demanded."""
    lengths = torch.tensor([2, 2, 2, 2])
    edges = brute.links(lengths, 0)  # 0->1, 2->1, 0->2, 1->2
    pairs = torch.tensor([[[0, 1, 2, 1], [2, 1, 0, 2], [0, 2, 1, 2]]]).expand(4, 3, 4)
    g = torch.Generator().manual_seed(3)
    arcs, scores = torch.randn(4, 3, 3, generator=g).double(), torch.randn(4, 3, generator=g).double()
    arcs[1, 2, 1], scores[2, 1] = NEG_INF, NEG_INF
    arcs[3, 0, 1] = NEG_INF
    found = gp.BeliefPropagation([bp.Link(arcs), bp.Pair(pairs, scores)], iterations=20, mode=mode).run(lengths)
    add = torch.logsumexp if mode == "sum" else torch.amax
    for b in range(4):
        values = torch.cartesian_prod(*[torch.arange(2)] * 4).bool()
        one = torch.stack([arcs[b, h, m] for h, m in edges])
        weight = torch.where(values, one, 0.0).sum(1)
        for p, row in enumerate(pairs[b].tolist()):
            x, y = edges.index((row[0], row[1])), edges.index((row[2], row[3]))
            weight = weight + torch.where(values[:, x] & values[:, y], scores[b, p], 0.0)
        torch.testing.assert_close(found.log_partition[b], add(weight, 0), **EXACT)
        for e, (h, m) in enumerate(edges):
            odds = add(weight[values[:, e]], 0) - add(weight[~values[:, e]], 0)
            torch.testing.assert_close(found.log_odds[b, h, m], odds, **EXACT)


def test_demanded_links_in_log_z() -> None:
    """EXACTLY1 with a single head left demands it; log Z counts its score, and a contradiction is found."""
    arcs = torch.randn(3, 3, 3, generator=torch.Generator().manual_seed(0)).double()
    arcs[0, 2, 1] = NEG_INF
    arcs[2, [0, 2], [1, 1]] = NEG_INF
    found = gp.BeliefPropagation([bp.Link(arcs), bp.ExactlyOne()]).run()
    expected = torch.stack([torch.logsumexp(arcs[:, [0, 2], 1], 1), torch.logsumexp(arcs[:, [0, 1], 2], 1)]).sum(0)
    torch.testing.assert_close(found.log_partition, expected, **EXACT)
    assert found.log_odds[0, 0, 1] == torch.inf and found.links[0, 0, 1] == 1
    assert found.impossible.tolist() == [False, False, True]
    assert (found.links[2] == 0).all()
    torch.testing.assert_close(found.links[1, [0, 2], 1], torch.softmax(arcs[1, [0, 2], 1], 0), **EXACT)
    grand = torch.randn(3, 3, 3, 3, generator=torch.Generator().manual_seed(1)).double()
    with_more = gp.BeliefPropagation([bp.Link(arcs[:1]), bp.ExactlyOne(), bp.Grand(grand[:1])], iterations=30).run()
    # 0 -> 1 is true, so 1 -> 2 takes the score of 0 -> 1 -> 2, and 1 has no other head
    heads = torch.stack([arcs[0, 0, 2], arcs[0, 1, 2] + grand[0, 0, 1, 2]])
    torch.testing.assert_close(with_more.log_partition[0], arcs[0, 0, 1] + torch.logsumexp(heads, 0), **EXACT)
    torch.testing.assert_close(with_more.links[0, [0, 1], 2], torch.softmax(heads, 0), **EXACT)


def test_no_tree_at_all() -> None:
    arcs, lengths = random_instance(0, forbidden=0.0)
    arcs[0, :, 2] = NEG_INF
    found = gp.BeliefPropagation([bp.Link(arcs), bp.Tree()]).run(lengths)
    assert found.log_partition[0] == NEG_INF and found.log_partition[1:].isfinite().all()
    assert not found.links.isnan().any() and not found.log_odds.isnan().any()


@pytest.mark.parametrize("tree, exact", TREES)
def test_max_product_finds_the_best_tree(tree: type[bp.Tree], exact: type[gp.ProjectiveTrees]) -> None:
    for seed in range(3):
        arcs, lengths = random_instance(seed)
        found = gp.BeliefPropagation([bp.Link(arcs), tree()], mode="max").run(lengths)
        expected = exact(arcs, lengths)
        torch.testing.assert_close(found.log_partition, expected.max, **EXACT)
        best = expected.argmax
        assert torch.equal(torch.where(best >= 0, found.log_odds.argmax(1), -1), best)
        cold = gp.BeliefPropagation([bp.Link(arcs), tree()], temperatures=[4.0, 1.0, 0.1, 1e-4]).run(lengths)
        picked = torch.zeros_like(arcs, dtype=torch.bool).scatter(1, best.clamp(min=0)[:, None], best[:, None] >= 0)
        torch.testing.assert_close(cold.links, picked.double(), atol=1e-6, rtol=0)
        assert (cold.iterations >= 4).all()


def gentle(factors: list[bp.Factors]) -> list[bp.Factors]:
    """Without the constraints that say over and over what TREE says, and keep beliefs from settling."""
    return [f for f in factors if not isinstance(f, bp.NoCross | bp.NotTwo | bp.ExactlyOne | bp.AtMostOne)]


def test_schedules_and_damping_come_to_the_same() -> None:
    lengths = torch.tensor([4, 2, 1, 3])
    scores, make = everything(0, lengths, 5)
    scores = [x * 0.3 for x in scores]
    plain = gp.BeliefPropagation(gentle(make(scores)), iterations=200, tolerance=1e-12, damping=0.3).run(lengths)
    serial = gp.BeliefPropagation(gentle(make(scores)), iterations=200, tolerance=1e-12, schedule="serial").run(lengths)
    damped = gp.BeliefPropagation(gentle(make(scores)), iterations=200, tolerance=1e-12, damping=0.5).run(lengths)
    assert plain.converged.all() and serial.converged.all() and damped.converged.all()
    for other in (serial, damped):
        torch.testing.assert_close(other.links, plain.links, atol=1e-9, rtol=0)
        torch.testing.assert_close(other.tags, plain.tags, atol=1e-9, rtol=0)
        torch.testing.assert_close(other.log_partition, plain.log_partition, atol=1e-8, rtol=0)
    assert serial.iterations.sum() < damped.iterations.sum()


def test_sentences_leave_when_they_have_converged() -> None:
    lengths = torch.tensor([4, 2, 1, 3])
    scores, make = everything(1, lengths, 5)
    settings = {"iterations": 60, "tolerance": 1e-7, "damping": 0.3}
    together = gp.BeliefPropagation(gentle(make(scores)), **settings).run(lengths)
    assert len(set(together.iterations.tolist())) > 1
    for b in range(len(lengths)):
        alone = [x if x.dim() == 3 and x.shape[0] == x.shape[1] == 2 else x[b : b + 1] for x in scores]
        found = gp.BeliefPropagation(gentle(make(alone)), **settings).run(lengths[b : b + 1])
        torch.testing.assert_close(found.links[0], together.links[b], atol=1e-12, rtol=0)
        torch.testing.assert_close(found.log_partition[0], together.log_partition[b], atol=1e-10, rtol=0)
        assert found.iterations[0] == together.iterations[b]
        assert found.residuals[0] == pytest.approx(float(together.residuals[b]), abs=1e-12)


def test_bethe_gradient_is_the_factor_beliefs() -> None:
    """At a fixed point log Z depends on the scores through the factors alone."""
    lengths = torch.tensor([3, 2])
    scores, make = everything(2, lengths, 4)
    leaves = [(x * 0.3).requires_grad_() for x in scores]
    found = gp.BeliefPropagation(gentle(make(leaves)), iterations=300, tolerance=1e-13, damping=0.3).run(lengths)
    assert found.converged.all()
    by = torch.autograd.grad(found.log_partition.sum(), leaves, allow_unused=True)
    beliefs = found.factors
    at = {0: 0, 1: 1, 2: 2, 3: 3, 6: 4, 7: 5, 8: 6, 9: 7}
    for leaf, family in at.items():
        expected = beliefs[family].detach()
        if family == 3:  # the entries of `last` are there too
            head = torch.eye(4, dtype=torch.bool)[:, None, :]
            torch.testing.assert_close(by[4], expected.diagonal(0, 1, 3).transpose(1, 2), atol=1e-8, rtol=0)
            expected = torch.where(head, 0.0, expected)
        torch.testing.assert_close(by[leaf], expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize("tree", [bp.Tree(), bp.Tree(single_root=False), bp.ProjectiveTree()])
def test_gradcheck_through_the_iterations(tree: bp.Factors) -> None:
    lengths = torch.tensor([3, 2])
    scores, make = everything(4, lengths, 4)
    g = torch.Generator().manual_seed(0)
    scores[0][0, 1, 3] = NEG_INF
    scores[1][0, 1, 2, 3] = NEG_INF
    free = [x.isfinite() for x in scores]
    directions = [
        torch.where(f, torch.randn(x.shape, generator=g).double(), 0.0) for f, x in zip(free, scores, strict=True)
    ]

    def along(t: Tensor) -> tuple[Tensor, ...]:
        each = zip(free, scores, directions, strict=True)
        moved = [torch.where(f, torch.where(f, x, 0.0) + t * d, x) for f, x, d in each]
        settings = gp.BeliefPropagation(make(moved, tree), iterations=3, tolerance=0.0, damping=0.2)
        found = settings.run(lengths)
        results = found.links, found.tags, found.log_partition, found.factors[1], found.factors[3]
        return tuple((x * torch.linspace(0.5, 1.5, x.numel()).view(x.shape)).sum() for x in results)

    t = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(along, (t,))
    assert torch.autograd.gradgradcheck(lambda t: along(t)[0], (t,))


@pytest.mark.parametrize("options", [{}, {"schedule": "serial", "temperatures": (2.0, 1.0)}, {"tolerance": 0.05}])
def test_recomputed_iterations(options: dict[str, Any]) -> None:
    """The same gradients, with little that is kept for them."""
    lengths = torch.tensor([4, 2, 1, 3])
    scores, make = everything(1, lengths, 5)
    found, kept = [], []
    for recompute in (False, True):
        leaves = [x.clone().requires_grad_() for x in scores]
        sizes: list[int] = []
        with saved_tensors_hooks(lambda x, sizes=sizes: (sizes.append(x.nbytes), x)[1], lambda x: x):
            settings = gp.BeliefPropagation(make(leaves), iterations=6, recompute=recompute, **options)
            loss = (settings.run(lengths).links ** 2).sum()
        found.append(torch.autograd.grad(loss, leaves, allow_unused=True))
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 8
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("mode", ["sum", "max"])
@pytest.mark.parametrize("tree", [bp.Tree(), bp.ProjectiveTree()])
def test_no_nan_in_gradients(tree: bp.Factors, mode: belief_propagation.Mode) -> None:
    for seed in range(4):
        arcs, lengths = random_instance(seed, forbidden=0.5, poison=True)
        g = torch.Generator().manual_seed(seed)
        grand, sib, seq = (cube(g, len(lengths), arcs.shape[1]) for _ in range(3))
        grand[torch.rand(grand.shape, generator=g) < 0.3] = NEG_INF
        leaves = [x.requires_grad_() for x in (arcs, grand, sib, seq)]
        factors = [bp.Link(arcs), bp.Grand(grand), bp.Sib(sib), bp.ChildSequence(seq), bp.ExactlyOne(), tree]
        found = gp.BeliefPropagation(factors, iterations=3, mode=mode).run(lengths)
        assert not found.links.isnan().any()
        (found.links.sum() + found.log_odds[found.log_odds.isfinite()].sum()).backward()
        assert not any(x.grad.isnan().any() for x in leaves)


@pytest.mark.parametrize("tree", [bp.Tree(), bp.ProjectiveTree()])
def test_without_looking(tree: bp.Factors, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: nothing leaves the batch, and no way is chosen by values."""
    lengths = torch.tensor([4, 2, 1, 3])
    scores, make = everything(1, lengths, 5)
    scores[0][0, 1, 3] = NEG_INF
    expected = gp.BeliefPropagation(gentle(make(scores, tree)), iterations=40, damping=0.3).run(lengths)
    for module in (graph, messages, tree_module, belief_propagation):
        monkeypatch.setattr(module, "can_validate", lambda *_: False)
    found = gp.BeliefPropagation(gentle(make(scores, tree)), iterations=40, damping=0.3).run(lengths)
    torch.testing.assert_close(found.links, expected.links, **EXACT)
    torch.testing.assert_close(found.tags, expected.tags, **EXACT)
    torch.testing.assert_close(found.log_partition, expected.log_partition, atol=1e-8, rtol=0)
    assert torch.equal(found.iterations, expected.iterations) and torch.equal(found.converged, expected.converged)


def test_a_few_sentences_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = torch.tensor([4, 2, 1, 3])
    scores, make = everything(1, lengths, 5)
    expected = gp.BeliefPropagation(gentle(make(scores)), iterations=7).run(lengths)
    monkeypatch.setattr(belief_propagation, "_NEAR", 1)
    found = gp.BeliefPropagation(gentle(make(scores)), iterations=7).run(lengths)
    torch.testing.assert_close(found.links, expected.links, **EXACT)
    torch.testing.assert_close(found.log_partition, expected.log_partition, **EXACT)
    for one, other in zip(found.factors, expected.factors, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


def test_inference_mode_and_no_sentences() -> None:
    lengths = torch.tensor([4, 2])
    scores, make = everything(1, lengths, 5)
    expected = gp.BeliefPropagation(make(scores), iterations=3).run(lengths)
    with torch.inference_mode():
        found = gp.BeliefPropagation(make(scores), iterations=3).run(lengths)
        for one, other in zip(found.factors, expected.factors, strict=True):
            torch.testing.assert_close(one, other, **EXACT)
    none = [x if x.dim() == 3 and x.shape[0] == x.shape[1] == 2 else x[:0] for x in scores]
    found = gp.BeliefPropagation(make(none), iterations=3).run(lengths[:0])
    assert found.links.shape == (0, 5, 5) and found.log_partition.shape == (0,)


def test_user_family() -> None:
    """The family of the README: its beliefs are expected numbers of links."""
    text = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(  class \w+\(bp\.Factors\):.*?)\n  ```", text, re.DOTALL)
    names: dict[str, Any] = {"bp": bp, "torch": torch}
    exec(textwrap.dedent(example), names)
    arcs, lengths = random_instance(0, forbidden=0.0, poison=False)
    scores = torch.randn(len(lengths), 6, generator=torch.Generator().manual_seed(0)).double()
    node = torch.arange(6)
    apart = (node - node[:, None]).abs()
    for mode, temperature in (("sum", 1.0), ("sum", 2.0), ("max", 1.0)):
        families = [bp.Link(arcs), names["Distance"](scores), bp.Tree()]
        found = gp.BeliefPropagation(families, mode=mode, temperatures=[temperature]).run(lengths)
        expected = gp.NonProjectiveTrees((arcs + scores[:, apart]) / temperature, lengths)
        best = expected.max if mode == "max" else expected.log_partition
        torch.testing.assert_close(found.log_partition, best, **EXACT)
        if mode == "sum":
            torch.testing.assert_close(found.links, expected.marginals, **EXACT)
            counts = torch.zeros_like(scores).index_add(1, apart.flatten(), expected.marginals.flatten(1))
            torch.testing.assert_close(found.factors[1], counts, **EXACT)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("n", [1, 2])
def test_beliefs_of_factors_in_too_short_sentences(n: int, grad: bool) -> None:
    unary, trigrams = torch.zeros(2, n, 3).double(), torch.zeros(3, 3, 3).double().requires_grad_(grad)
    found = gp.BeliefPropagation([bp.Tag(unary), bp.Trigram(trigrams)]).run()
    assert found.factors[1].shape == (3, 3, 3) and (found.factors[1] == 0).all()


def test_log_partition_at_a_temperature_and_of_given_nodes() -> None:
    arcs, lengths = random_instance(0)
    settings = gp.BeliefPropagation([bp.Link(arcs), bp.Tree()], iterations=3, temperatures=[3.0, 1.0, 2.0])
    expected = gp.NonProjectiveTrees(arcs / 2, lengths).log_partition
    torch.testing.assert_close(settings.run(lengths).log_partition, expected, **EXACT)
    torch.testing.assert_close(settings.log_partition(lengths), expected, **EXACT)
    trees = gp.BeliefPropagation([bp.Tree(single_root=False)]).log_partition([1, 3], nodes=4)
    torch.testing.assert_close(trees.exp(), torch.tensor([1.0, 16.0]).double(), **EXACT)  # Cayley


def test_errors() -> None:
    arcs = torch.zeros(2, 4, 4)
    wrong_arcs = arcs.clone()
    wrong_arcs[1, 0, 2] = math.nan
    wrong: dict[str, Any]
    for wrong in (
        {"iterations": 0},
        {"iterations": 2.5},
        {"iterations": "3"},
        {"tolerance": -1.0},
        {"tolerance": math.nan},
        {"tolerance": "x"},
        {"damping": 1.0},
        {"damping": None},
        {"schedule": "random"},
        {"mode": "mean"},
        {"temperatures": [0.0]},
        {"temperatures": []},
        {"temperatures": 2.0},
        {"temperatures": ["1"]},
        {"temperatures": [math.inf]},
        {"temperatures": [1e-310]},
        {"temperatures": [3.0, 2.0, 1.0], "iterations": 2},
    ):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))}"):
            gp.BeliefPropagation([bp.Link(arcs)], **wrong)
    for factors, message in (
        ([], "factors must have one family"),
        (bp.Link(arcs), "factors must be a list of families of factors, got Link"),
        (bp.Tree, "factors must be a list of families of factors, got Tree"),
        (None, "factors must be a list of families of factors, got NoneType"),
        ([bp.Tree(), None], r"factors\[1\] must be a family of factors \(bp.Factors\), got NoneType"),
        ([bp.Tree], r"factors\[0\] is the class Tree; make one: Tree\(...\)"),
    ):
        with pytest.raises(ValueError, match=message):
            gp.BeliefPropagation(factors)
    with pytest.raises(ValueError, match="same sentences"):
        gp.BeliefPropagation([bp.Link(arcs), bp.Link(arcs[:1])]).run()
    with pytest.raises(ValueError, match="nodes"):
        gp.BeliefPropagation([bp.Tree()]).run([1, 2])
    with pytest.raises(ValueError, match="nodes is 9, but factors are of 4"):
        gp.BeliefPropagation([bp.Link(arcs)]).run([1, 2], nodes=9)
    with pytest.raises(ValueError, match="nodes must be an integer"):
        gp.BeliefPropagation([bp.Tree()]).log_partition([1, 2], nodes=1)
    with pytest.raises(ValueError, match="lengths must be a tensor or list"):
        gp.BeliefPropagation([bp.Tree()]).run(2, nodes=3)
    with pytest.raises(ValueError, match=r"scores\[1, 0, 2\] of Link is nan \(sentence 1\)"):
        gp.BeliefPropagation([bp.Link(wrong_arcs)]).run()
    with pytest.raises(ValueError, match="lengths"):
        gp.BeliefPropagation([bp.Link(arcs)]).run([4, 1])
    found = gp.BeliefPropagation([bp.ExactlyOne()]).run(torch.tensor([2]), nodes=3)
    torch.testing.assert_close(found.links[0, :, 1], torch.tensor([0.5, 0.0, 0.5]).double())


def test_errors_of_factors() -> None:
    siblings = torch.zeros(2, 4, 4, 4)
    for last, message in (([1], "last must be a tensor, got list"), (torch.ones(2, 4, 4).long(), "last must be float")):
        with pytest.raises(ValueError, match=message):
            bp.ChildSequence(siblings, last)
    with pytest.raises(ValueError, match="T >= 1"):
        bp.TagLink(torch.zeros(2, 4, 4, 0, 0))
    with pytest.raises(ValueError, match="T >= 1"):
        bp.Trigram(torch.zeros(0, 0, 0))
    for wrong in ([[[0, 1, 1, 2]]], torch.zeros(1, 1, 4)):
        with pytest.raises(ValueError, match="pairs must be an integer tensor"):
            bp.Nand(wrong)
    with pytest.raises(ValueError, match=r"pairs must have shape \[B, P, 4\], got \[1, 4\]"):
        bp.Nand(torch.tensor([[0, 1, 1, 2]]))
    for row in ([0, 1, 1, 4], [0, 1, 2, 2], [0, 0, 1, 2], [0, 1, 0, 1]):  # past N, diagonal, to the root, with itself
        pairs = torch.tensor([[[0, 1, 1, 2], [-1, 9, 0, 0]], [[0, 1, 1, 3], row]])
        with pytest.raises(ValueError, match=r"pairs\[1, 1\] is .* \(sentence 1\); it must be two different links"):
            gp.BeliefPropagation([bp.Nand(pairs), bp.Tree()]).run([3, 2], nodes=4)
    nand = gp.BeliefPropagation([bp.Nand(pairs[:, :1]), bp.Tree()]).run(
        [3, 2], nodes=4
    )  # 1 -> 3 is past the second's end
    assert nand.factors[0].tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("mode", ["sum", "max"])
def test_fake_tensors(mode: belief_propagation.Mode) -> None:
    """No value is looked at where that may mean waiting."""
    with FakeTensorMode(), torch.no_grad():
        lengths = torch.full((3,), 4)
        g = [(3, 5, 5), *[(3, 5, 5, 5)] * 3, *[(3, 5, 5)] * 2, (3, 4, 2), (3, 5, 5, 2, 2), (2, 2, 2)]
        x = [torch.zeros(shape) for shape in g]
        pair = bp.Pair(torch.zeros(3, 1, 4, dtype=torch.int64), torch.zeros(3, 1))
        hard = [bp.NotTwo(), bp.NoTwoCycle(), bp.ExactlyOne(), bp.AtMostOne(), bp.Tree(), bp.ProjectiveTree()]
        of_links = [bp.Link(x[0]), bp.Grand(x[1]), bp.Sib(x[2]), bp.ChildSequence(x[3], x[4]), bp.NoCross(x[5]), pair]
        of_tags = [bp.Tag(x[6]), bp.TagLink(x[7]), bp.Trigram(x[8])]
        factors = [*of_links, *of_tags, *hard]
        found = gp.BeliefPropagation(factors, iterations=2, damping=0.1, mode=mode, temperatures=[2.0]).run(lengths)
        assert found.links.shape == (3, 5, 5) and found.tags is not None and found.tags.shape == (3, 4, 2)
        assert found.log_partition.shape == (3,)
