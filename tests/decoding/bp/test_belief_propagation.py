"""Belief propagation: exact on graphs without cycles, its schedules, and its derivatives."""

from __future__ import annotations

import math
import re
import textwrap
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

import gpuparse as gp
from gpuparse import bp
from gpuparse.decoding.bp import belief_propagation
from tests.decoding.bp import brute
from tests.decoding.bp.some import LENGTHS, assert_same, make, run, shapes
from tests.decoding.instances import normal
from tests.decoding.refusals import refuses
from tests.oracle import NEG_INF, random_instance

TREES = [(bp.Tree, gp.NonProjectiveTrees), (bp.ProjectiveTree, gp.ProjectiveTrees)]
# Numbers near 1 to 100 and a few hundred additions of them.
EXACT = {"atol": 1e-9, "rtol": 1e-9}


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
    unary, trigrams = normal(0, (4, 5, 3), (3, 3, 3))
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
    T = 3
    arcs, unary, both = normal(1, (1, 3, 3), (1, 2, T), (1, 3, 3, T, T))
    arcs[0, 2, 1] = NEG_INF
    found = gp.BeliefPropagation([bp.Link(arcs), bp.Tag(unary), bp.TagLink(both)], iterations=20, mode=mode).run()
    scores, links, tags = [], [], []
    for one, two, three, s, t in product(*[range(2)] * 3, *[range(T)] * 2):
        total = one * (arcs[0, 0, 1] + both[0, 0, 1, 0, s]) + two * (arcs[0, 0, 2] + both[0, 0, 2, 0, t])
        scores.append(total + three * (arcs[0, 1, 2] + both[0, 1, 2, s, t]) + unary[0, 0, s] + unary[0, 1, t])
        links.append((one, two, three))
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
    arcs, scores = normal(3, (4, 3, 3), (4, 3))
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
    arcs, grand = normal(0, (3, 3, 3), (3, 3, 3, 3))
    arcs[0, 2, 1] = NEG_INF
    arcs[2, [0, 2], [1, 1]] = NEG_INF
    found = gp.BeliefPropagation([bp.Link(arcs), bp.ExactlyOne()]).run()
    expected = torch.stack([torch.logsumexp(arcs[:, [0, 2], 1], 1), torch.logsumexp(arcs[:, [0, 1], 2], 1)]).sum(0)
    torch.testing.assert_close(found.log_partition, expected, **EXACT)
    assert found.log_odds[0, 0, 1] == torch.inf and found.links[0, 0, 1] == 1
    assert found.impossible.tolist() == [False, False, True]
    assert (found.links[2] == 0).all()
    torch.testing.assert_close(found.links[1, [0, 2], 1], torch.softmax(arcs[1, [0, 2], 1], 0), **EXACT)
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


def test_schedules_and_damping_come_to_the_same() -> None:
    scores = [x * 0.3 for x in normal(0, *shapes(4, 5))]
    settings = {"iterations": 200, "tolerance": 1e-12}
    plain, damped = (run(scores, **settings, damping=damping) for damping in (0.3, 0.5))
    serial = run(scores, **settings, schedule="serial")
    assert plain.converged.all() and serial.converged.all() and damped.converged.all()
    for other in (serial, damped):
        assert_same(other, plain, log_z=1e-8)
    assert serial.iterations.sum() < damped.iterations.sum()


def test_sentences_leave_when_they_have_converged() -> None:
    scores = normal(1, *shapes(4, 5))
    settings = {"iterations": 60, "tolerance": 1e-7, "damping": 0.3}
    together = run(scores, **settings)
    assert len(set(together.iterations.tolist())) > 1
    for b in range(len(LENGTHS)):
        alone = [x if len(x) == 2 else x[b : b + 1] for x in scores]
        found = run(alone, LENGTHS[b : b + 1], **settings)
        torch.testing.assert_close(found.links[0], together.links[b], atol=1e-12, rtol=0)
        torch.testing.assert_close(found.log_partition[0], together.log_partition[b], atol=1e-10, rtol=0)
        assert found.iterations[0] == together.iterations[b]
        assert found.residuals[0] == pytest.approx(float(together.residuals[b]), abs=1e-12)


def test_bethe_gradient_is_the_factor_beliefs() -> None:
    """At a fixed point log Z depends on the scores through the factors alone."""
    lengths = torch.tensor([3, 2])
    leaves = [(x * 0.3).requires_grad_() for x in normal(2, *shapes(2, 4))]
    found = run(leaves, lengths, iterations=300, tolerance=1e-13, damping=0.3)
    assert found.converged.all()
    by = torch.autograd.grad(found.log_partition.sum(), leaves, allow_unused=True)
    at = {0: 0, 1: 1, 2: 2, 3: 3, 6: 4, 7: 5, 8: 6, 9: 7}
    for leaf, family in at.items():
        expected = found.factors[family].detach()
        if family == 3:  # the entries of `last` are there too
            head = torch.eye(4, dtype=torch.bool)[:, None, :]
            torch.testing.assert_close(by[4], expected.diagonal(0, 1, 3).transpose(1, 2), atol=1e-8, rtol=0)
            expected = torch.where(head, 0.0, expected)
        torch.testing.assert_close(by[leaf], expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize("tree", [bp.Tree(), bp.Tree(single_root=False), bp.ProjectiveTree()])
def test_gradcheck_through_the_iterations(tree: bp.Factors) -> None:
    lengths = torch.tensor([3, 2])
    scores = normal(4, *shapes(2, 4))
    scores[0][0, 1, 3] = NEG_INF
    scores[1][0, 1, 2, 3] = NEG_INF
    free = [x.isfinite() for x in scores]
    directions = [torch.where(f, d, 0.0) for f, d in zip(free, normal(0, *shapes(2, 4)), strict=True)]

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


@pytest.mark.parametrize("schedule", ["parallel", "serial"])
@pytest.mark.parametrize("tree", [bp.Tree, bp.ProjectiveTree])
def test_nothing_is_said_twice(
    tree: type[bp.Tree], schedule: belief_propagation.Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TREE hears LINK, which always says the same: once before that and once after it. The gradient is the same."""
    (arcs,) = normal(1, (4, 5, 5))
    sent, send = [], tree.send
    monkeypatch.setattr(tree, "send", lambda self, *given: (sent.append(tree), send(self, *given))[1])
    found = []
    for iterations in (2, 9):
        leaf = arcs.clone().requires_grad_()
        factors = [tree(), bp.Link(leaf)]
        beliefs = gp.BeliefPropagation(factors, iterations=iterations, tolerance=0.0, schedule=schedule).run(LENGTHS)
        found.append((beliefs.links, *torch.autograd.grad((beliefs.links**2).sum(), leaf)))
    assert len(sent) == 4
    assert beliefs.converged.all() and (beliefs.residuals == 0).all()
    assert beliefs.iterations.tolist() == [3, 3, 2, 3]  # there is one tree of one word
    torch.testing.assert_close(found[0], found[1], atol=1e-12, rtol=0)
    gp.BeliefPropagation(factors, iterations=9, damping=0.5, tolerance=0.0, schedule=schedule).run(LENGTHS)
    assert len(sent) > 10


@pytest.mark.parametrize("options", [{}, {"schedule": "serial", "temperatures": (2.0, 1.0)}, {"tolerance": 0.05}])
def test_recomputed_iterations(options: dict[str, Any]) -> None:
    """The same gradients, with little that is kept for them."""
    scores = normal(1, *shapes(4, 5))
    found, kept = [], []
    for recompute in (False, True):
        leaves = [x.clone().requires_grad_() for x in scores]
        sizes: list[int] = []
        with saved_tensors_hooks(lambda x, sizes=sizes: (sizes.append(x.nbytes), x)[1], lambda x: x):
            settings = gp.BeliefPropagation(make(leaves), iterations=6, recompute=recompute, **options)
            loss = (settings.run(LENGTHS).links ** 2).sum()
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
        grand, sib, seq = normal(seed, *[(len(lengths), *[arcs.shape[1]] * 3)] * 3)
        grand[grand < -0.5] = NEG_INF  # nearly a third
        leaves = [x.requires_grad_() for x in (arcs, grand, sib, seq)]
        factors = [bp.Link(arcs), bp.Grand(grand), bp.Sib(sib), bp.ChildSequence(seq), bp.ExactlyOne(), tree]
        found = gp.BeliefPropagation(factors, iterations=3, mode=mode).run(lengths)
        assert not found.links.isnan().any()
        (found.links.sum() + found.log_odds[found.log_odds.isfinite()].sum()).backward()
        assert not any(x.grad.isnan().any() for x in leaves)


def test_inference_mode_and_no_sentences() -> None:
    lengths, scores = torch.tensor([4, 2]), normal(1, *shapes(2, 5))
    expected = gp.BeliefPropagation(make(scores), iterations=3).run(lengths)
    with torch.inference_mode():
        assert_same(gp.BeliefPropagation(make(scores), iterations=3).run(lengths), expected)
    none = [x[:0] if number != 8 else x for number, x in enumerate(scores)]
    found = gp.BeliefPropagation(make(none), iterations=3).run(lengths[:0])
    assert found.links.shape == (0, 5, 5) and found.log_partition.shape == (0,)


def test_user_family() -> None:
    """The family of the README: its beliefs are expected numbers of links."""
    text = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(  class \w+\(bp\.Factors\):.*?)\n  ```", text, re.DOTALL)
    names: dict[str, Any] = {"bp": bp, "torch": torch}
    exec(textwrap.dedent(example), names)
    arcs, lengths = random_instance(0, forbidden=0.0, poison=False)
    (scores,) = normal(0, (len(lengths), 6))
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
        refuses(f"^{next(iter(wrong))}", gp.BeliefPropagation, [bp.Link(arcs)], **wrong)
    for factors, message in (
        ([], "factors must have one family"),
        (bp.Link(arcs), "factors must be a list of families of factors, got Link"),
        (bp.Tree, "factors must be a list of families of factors, got Tree"),
        (None, "factors must be a list of families of factors, got NoneType"),
        ([bp.Tree(), None], r"factors\[1\] must be a family of factors \(bp.Factors\), got NoneType"),
        ([bp.Tree], r"factors\[0\] is the class Tree; make one: Tree\(...\)"),
    ):
        refuses(message, gp.BeliefPropagation, factors)
    refuses("same sentences", gp.BeliefPropagation([bp.Link(arcs), bp.Link(arcs[:1])]).run)
    refuses("nodes", gp.BeliefPropagation([bp.Tree()]).run, [1, 2])
    refuses("nodes is 9, but factors are of 4", gp.BeliefPropagation([bp.Link(arcs)]).run, [1, 2], nodes=9)
    refuses("nodes must be an integer", gp.BeliefPropagation([bp.Tree()]).log_partition, [1, 2], nodes=1)
    refuses("lengths must be a tensor or list", gp.BeliefPropagation([bp.Tree()]).run, 2, nodes=3)
    refuses(r"scores\[1, 0, 2\] of Link is nan \(sentence 1\)", gp.BeliefPropagation([bp.Link(wrong_arcs)]).run)
    refuses("lengths", gp.BeliefPropagation([bp.Link(arcs)]).run, [4, 1])
    found = gp.BeliefPropagation([bp.ExactlyOne()]).run(torch.tensor([2]), nodes=3)
    torch.testing.assert_close(found.links[0, :, 1], torch.tensor([0.5, 0.0, 0.5]).double())


def test_errors_of_factors() -> None:
    siblings = torch.zeros(2, 4, 4, 4)
    for last, message in (([1], "last must be a tensor, got list"), (torch.ones(2, 4, 4).long(), "last must be float")):
        refuses(message, bp.ChildSequence, siblings, last)
    refuses("T >= 1", bp.TagLink, torch.zeros(2, 4, 4, 0, 0))
    refuses("T >= 1", bp.Trigram, torch.zeros(0, 0, 0))
    for wrong in ([[[0, 1, 1, 2]]], torch.zeros(1, 1, 4)):
        refuses("pairs must be an integer tensor", bp.Nand, wrong)
    refuses(r"pairs must have shape \[B, P, 4\], got \[1, 4\]", bp.Nand, torch.tensor([[0, 1, 1, 2]]))
    for row in ([0, 1, 1, 4], [0, 1, 2, 2], [0, 0, 1, 2], [0, 1, 0, 1]):  # past N, diagonal, to the root, with itself
        pairs = torch.tensor([[[0, 1, 1, 2], [-1, 9, 0, 0]], [[0, 1, 1, 3], row]])
        with pytest.raises(ValueError, match=r"pairs\[1, 1\] is .* \(sentence 1\); it must be two different links"):
            gp.BeliefPropagation([bp.Nand(pairs), bp.Tree()]).run([3, 2], nodes=4)
    # 1 -> 3 is past the second's end
    nand = gp.BeliefPropagation([bp.Nand(pairs[:, :1]), bp.Tree()]).run([3, 2], nodes=4)
    assert nand.factors[0].tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("n", (2, 3))
def test_nocross_that_says_nothing(n: int) -> None:
    """All scores 0 and no word has to have one head: every set of arcs is as good."""
    factor = bp.NoCross(torch.zeros(1, n + 1, n + 1), exactly_one=False)
    beliefs = bp.BeliefPropagation([factor]).run()
    assert beliefs.log_partition.item() == pytest.approx(n * n * math.log(2))
