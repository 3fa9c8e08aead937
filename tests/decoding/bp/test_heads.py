"""Heads as variables: exact on graphs without cycles, TREE and links as they were, GRAND and NOCROSS."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import gpuparse as gp
from gpuparse import bp
from gpuparse.decoding.bp import belief_propagation
from gpuparse.decoding.bp.graph import Graph
from gpuparse.ops.library import plain_torch
from tests.decoding.bp import brute
from tests.decoding.bp.some import random
from tests.decoding.instances import normal
from tests.oracle import NEG_INF, all_trees, random_instance

PATHS = pytest.mark.parametrize("path", [nullcontext, plain_torch])
MODES = pytest.mark.parametrize("mode", ["sum", "max"])
TREES = [(bp.Tree, gp.NonProjectiveTrees), (bp.ProjectiveTree, gp.ProjectiveTrees)]
Path = Callable[[], AbstractContextManager[None]]
EXACT = {"atol": 1e-9, "rtol": 1e-9}


def run(factors: list[bp.Factors], lengths: Tensor | None = None, **settings: Any) -> belief_propagation.Beliefs:
    return bp.BeliefPropagation(factors, variables="heads", **settings).run(lengths)


def choices(n: int) -> Tensor:
    """All ways to give each of n words a head [A, n + 1], tree or not."""
    each = [[h for h in range(n + 1) if h != m] for m in range(1, n + 1)]
    return torch.tensor([[-1, *heads] for heads in product(*each)])


def check(
    found: belief_propagation.Beliefs, b: int, heads: Tensor, weights: Tensor, mode: str, sure: bool = False
) -> None:
    """Beliefs about links, and log Z, by all assignments. ``sure``: as probabilities, nothing else having settled."""
    add = torch.logsumexp if mode == "sum" else torch.amax

    def total(x: Tensor) -> Tensor:
        return add(x, 0) if len(x) else torch.tensor(NEG_INF).double()

    torch.testing.assert_close(found.log_partition[b], total(weights), **EXACT)
    for h, m in product(range(heads.shape[1]), range(1, heads.shape[1])):
        if h != m:
            it = heads[:, m] == h
            true, false = total(weights[it]), total(weights[~it])
            if sure:
                torch.testing.assert_close(found.links[b, h, m], torch.sigmoid(true - false), **EXACT)
            else:
                torch.testing.assert_close(found.log_odds[b, h, m], true - false, **EXACT)


def of_arcs(arcs: Tensor, heads: Tensor) -> Tensor:
    return sum(arcs[heads[:, m], m] for m in range(1, heads.shape[1]))


def of_pairs(pairs: Tensor, heads: Tensor) -> Tensor:
    """Scores [g, p, c] of arcs after each other."""
    total = torch.zeros(len(heads), dtype=torch.float64)
    for c in range(1, heads.shape[1]):
        p = heads[:, c]
        g = heads.gather(1, p[:, None])[:, 0]
        total += torch.where((p > 0) & (g != c), pairs[g.clamp(min=0), p, c], 0.0)
    return total


def crosses(i: Tensor, j: int, k: Tensor, l: int) -> Tensor:  # noqa: E741
    a, b, c, d = i.clamp(max=j), i.clamp(min=j), k.clamp(max=l), k.clamp(min=l)
    return ((a < c) & (c < b) & (b < d)) | ((c < a) & (a < d) & (d < b))


@PATHS
@pytest.mark.parametrize("magnitude", [3.0, 1e4])
@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("tree, exact", TREES)
def test_tree_and_link_are_exact(
    tree: type[bp.Tree], exact: type[gp.ProjectiveTrees], single_root: bool, magnitude: float, path: Path
) -> None:
    """With every constraint that says once more what heads are."""
    for seed in range(3):
        arcs, lengths = random_instance(seed, magnitude=magnitude)
        more = [bp.ExactlyOne(), bp.AtMostOne(), bp.NotTwo()] if seed else []
        with path():
            found = run([bp.Link(arcs), tree(single_root=single_root), *more], lengths)
            expected = exact(arcs, lengths, single_root=single_root)
            torch.testing.assert_close(found.links, expected.marginals, **EXACT)
            torch.testing.assert_close(found.log_partition, expected.log_partition, **EXACT)
            for beliefs in found.factors[:2]:
                torch.testing.assert_close(beliefs, expected.marginals, **EXACT)
        assert found.converged.all() and not found.impossible.any() and (found.iterations <= 3).all()


@pytest.mark.parametrize("magnitude", [1.0, 1e4])
@pytest.mark.parametrize("masks", [0.0, NEG_INF, -1e4])
@PATHS
@MODES
def test_grandparents_without_a_cycle(mode: Any, path: Path, masks: float, magnitude: float) -> None:
    """Scores of some pairs of words alone, which are a tree; no constraint but that a word has one head."""
    n, lengths = 4, torch.tensor([4, 3, 4, 4])
    arcs, pairs = normal(7, (4, n + 1, n + 1), (4, *[n + 1] * 3))
    arcs, pairs = arcs * magnitude, pairs * magnitude
    some = torch.zeros(n + 1, n + 1, dtype=torch.bool)
    for p, c in ((1, 2), (2, 3), (4, 2)):
        some[p, c] = True
    pairs = torch.where(some, pairs, 0.0)
    if masks:
        pairs[0, 0, 1, 2] = pairs[0, 3, 1, 2] = pairs[2, :, 4, 2] = arcs[3, [0, 1, 3], 2] = masks
    with path():
        found = run([bp.Link(arcs), bp.Grand(pairs)], lengths, iterations=20, mode=mode)
        beliefs = found.factors[1] if mode == "sum" else None
    for b, length in enumerate(lengths.tolist()):
        heads = choices(length)
        weights = of_arcs(arcs[b], heads) + of_pairs(pairs[b], heads)
        check(found, b, heads, weights, mode, sure=magnitude > 1)
        if beliefs is None:
            continue
        likely = torch.softmax(weights, 0)
        for g, p, c in product(range(length + 1), range(1, length + 1), range(1, length + 1)):
            if g != p and g != c and some[p, c]:
                both = (heads[:, p] == g) & (heads[:, c] == p)
                assert float(beliefs[b, g, p, c]) == pytest.approx(float(likely[both].sum()), abs=1e-9)
    assert found.converged.all()


@MODES
def test_crossings_without_a_cycle(mode: Any) -> None:
    n, lengths = 4, torch.tensor([4, 3])
    arcs, scores = normal(8, (2, n + 1, n + 1), (2, n + 1, n + 1))
    keep = torch.zeros_like(scores)
    for j, l in ((1, 3), (2, 3), (3, 4)):  # noqa: E741
        keep[:, j, l] = 2 * scores[:, j, l]
    keep[1, 2, 3] = NEG_INF
    found = run([bp.Link(arcs), bp.NoCross(keep)], lengths, iterations=20, mode=mode)
    for b, length in enumerate(lengths.tolist()):
        heads = choices(length)
        weights = of_arcs(arcs[b], heads)
        for j, l in product(range(1, length + 1), repeat=2):  # noqa: E741
            if j < l:
                weights = weights + torch.where(crosses(heads[:, j], j, heads[:, l], l), keep[b, j, l], 0.0)
        check(found, b, heads, weights, mode)


@pytest.mark.parametrize("schedule", ["parallel", "serial"])
@PATHS
@pytest.mark.parametrize("tree, exact", TREES)
def test_pairs_that_say_nothing_of_grandparents(
    tree: type[bp.Tree], exact: type[gp.ProjectiveTrees], path: Path, schedule: Any
) -> None:
    """The same whatever g is: as if arcs had it, but those of the root. Links as variables are far from that."""
    arcs, lengths = random_instance(1, forbidden=0.2)
    arcs, pairs = arcs.double(), 2 * normal(2, arcs.shape)[0]
    moved = arcs.clone()
    moved[:, 1:] += pairs[:, 1:]
    grand = pairs[:, None].expand(-1, arcs.shape[1], -1, -1)
    expected = exact(moved, lengths)
    factors = [bp.Link(arcs), bp.Grand(grand), tree()]
    with path():
        found = run(factors, lengths, schedule=schedule)
        torch.testing.assert_close(found.links, expected.marginals, **EXACT)
        torch.testing.assert_close(found.log_partition, expected.log_partition, **EXACT)
        links = bp.BeliefPropagation(factors, iterations=50, schedule=schedule).run(lengths)
    assert found.converged.all()
    assert float((links.links - expected.marginals).abs().max()) > 0.05


@pytest.mark.parametrize("projective", [False, True])
def test_nearer_to_the_truth(projective: bool) -> None:
    """Than with links as variables, of grandparents, in the mean over instances."""
    n, B = 5, 24
    arcs, pairs = normal(3, (B, n + 1, n + 1), (B, *[n + 1] * 3))
    heads = all_trees(n, single_root=True, projective=projective)
    weights = torch.stack([of_arcs(2 * arcs[b], heads) + of_pairs(pairs[b], heads) for b in range(B)])
    right = torch.stack([(torch.softmax(weights, 1) @ (heads == h).double()) for h in range(n + 1)], 1)
    tree = bp.ProjectiveTree() if projective else bp.Tree()
    factors = [bp.Link(2 * arcs), bp.Grand(pairs), tree]
    apart = []
    for variables in ("links", "heads"):
        settings = bp.BeliefPropagation(factors, variables=variables, iterations=100, damping=0.3, schedule="serial")
        found = settings.run()
        log_z = (found.log_partition - torch.logsumexp(weights, 1)).abs().mean()
        apart.append((float((found.links - right)[:, :, 1:].abs().mean()), float(log_z)))
    assert apart[1][0] < 0.85 * apart[0][0] and apart[1][1] < apart[0][1], apart


def test_families_of_links_come_to_the_same() -> None:
    """Once nothing changes: TREE has one edge to a link, and says all there is about a word's head."""
    B, N, T = 3, 5, 2
    lengths = torch.tensor([4, 3, 2])
    arcs, sib, seq, unary, both = normal(4, (B, N, N), *[(B, N, N, N)] * 2, (B, N - 1, T), (B, N, N, T, T))
    arcs[0, 1, 2] = seq[1, 0, 1, 2] = NEG_INF
    pairs = torch.tensor([[[0, 1, 1, 2], [0, 2, 2, 1]]]).expand(B, 2, 4)
    factors = [bp.Link(arcs), bp.Sib(0.3 * sib), bp.ChildSequence(0.3 * seq), bp.Tag(unary), bp.TagLink(0.3 * both)]
    factors += [bp.Pair(pairs, torch.ones(B, 2)), bp.NoTwoCycle(), bp.Tree()]
    settings: dict[str, Any] = {"iterations": 300, "tolerance": 1e-13, "damping": 0.3}
    same_word = bp.Pair(torch.tensor([[[0, 1, 2, 1]]]).expand(B, 1, 4), torch.ones(B, 1))  # says nothing of heads
    one = bp.BeliefPropagation(factors, **settings).run(lengths)
    other = run([*factors, same_word], lengths, **settings)
    assert one.converged.all() and other.converged.all()
    torch.testing.assert_close(one.links, other.links, atol=1e-9, rtol=0)
    torch.testing.assert_close(one.tags, other.tags, atol=1e-9, rtol=0)
    for k in (1, 2, 3, 4):
        torch.testing.assert_close(one.factors[k], other.factors[k], atol=1e-9, rtol=0)


@pytest.mark.parametrize("tree, exact", TREES)
def test_crossings_do_not_run_away(tree: type[bp.Tree], exact: type[gp.ProjectiveTrees]) -> None:
    """NOCROSS demands nothing: scores of 0 say nothing at all, others settle; of links they leave the truth at once."""
    n, B = 5, 12
    arcs, scores = normal(6, (B, n + 1, n + 1), (B, n + 1, n + 1))
    still = [bp.Link(arcs), bp.NoCross(torch.zeros_like(scores)), tree()]
    expected = exact(arcs)
    found = run(still)
    torch.testing.assert_close(found.links, expected.marginals, **EXACT)
    torch.testing.assert_close(found.log_partition, expected.log_partition, **EXACT)
    links = bp.BeliefPropagation(still, iterations=10).run()
    assert not links.converged.all() and float((links.links - expected.marginals).abs().max()) > 0.5
    heads = all_trees(n, single_root=True, projective=tree is bp.ProjectiveTree)
    lively = run([bp.Link(arcs), bp.NoCross(scores), tree()], iterations=60, schedule="serial")
    assert lively.converged.all()
    weights = torch.stack([of_arcs(arcs[b], heads) for b in range(B)])
    for j, l in product(range(1, n + 1), repeat=2):  # noqa: E741
        if j < l:
            weights = weights + torch.where(crosses(heads[:, j], j, heads[:, l], l), scores[:, j, l, None], 0.0)
    right = torch.stack([(torch.softmax(weights, 1) @ (heads == h).double()) for h in range(n + 1)], 1)
    assert float((lively.links - right)[:, :, 1:].abs().mean()) < 0.02


@PATHS
@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("infinite", [0.0, 0.3])
@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("kind", [bp.Tree, bp.ProjectiveTree])
def test_messages_of_trees(kind: type[bp.Tree], single_root: bool, infinite: float, maximise: bool, path: Path) -> None:
    """Of a head what the trees with it weigh, but for its own weight: they differ as the sums do."""
    lengths = torch.tensor([4, 1, 3, 2])
    graph = Graph(lengths, 5, 0, maximise, heads=True)
    compared = 0
    for seed in range(4):
        q = random(torch.Generator().manual_seed(seed), 4, 5, 5, minus=infinite, size=[2.0, 200.0][seed % 2])
        q = torch.where(graph.links, q, NEG_INF)
        with path():
            (out,) = kind(single_root=single_root).of_heads().propagate((q,), graph)
        for b in range(4):
            (f,) = brute.tree(kind is bp.ProjectiveTree, single_root, lengths, b)
            messages, _ = brute.expect(f, (q,), maximise)
            found = {at[1:]: (float(out[at]), true) for (_, at), (true, _) in zip(f.edges, messages, strict=True)}
            for m in range(1, int(lengths[b]) + 1):
                each = [pair for (_, word), pair in found.items() if word == m]
                if max(true for _, true in each) == NEG_INF:
                    continue
                assert [x == NEG_INF for x, _ in each] == [true == NEG_INF for _, true in each]
                apart = [x - true for x, true in each if true > NEG_INF]
                assert max(apart) - min(apart) < 1e-9
                compared += len(apart)
    assert compared > 30


@pytest.mark.parametrize("minus, plus", [(0.0, 0.0), (0.2, 0.0), (0.2, 0.04)])
@pytest.mark.parametrize("size", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("kind", [bp.Tree, bp.ProjectiveTree])
def test_gradient_of_trees(kind: type[bp.Tree], single_root: bool, size: float, minus: float, plus: float) -> None:
    """By the kernel as by plain torch."""
    lengths = torch.tensor([7, 1, 3, 6])
    graph, family = Graph(lengths, 8, heads=True), kind(single_root=single_root).of_heads()
    g = torch.Generator().manual_seed(1)
    q = torch.where(graph.links, random(g, 4, 8, 8, minus=minus, plus=plus, size=size), NEG_INF)
    weight, found = random(g, 4, 8, 8), []
    for path in (nullcontext, plain_torch):
        leaf = q.clone().requires_grad_()
        with path():
            (out,) = family.propagate((leaf,), graph)
            finite = out.isfinite()
            by = torch.autograd.grad((weight[finite] * out[finite]).sum(), leaf)[0]
        possible = torch.isfinite(torch.where(graph.links, out, NEG_INF).amax(1))[:, 1:] | ~graph.words[:, 1:]
        keep = possible.all(1)
        found.append((out.detach()[keep], by[keep]))
    torch.testing.assert_close(found[0], found[1], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("damping, counted", [(0.0, 1.0), (0.4, 0.5)])
@pytest.mark.parametrize("projective", [None, False, True])
@pytest.mark.parametrize("arcs, pairs", [(1.0, 1.0), (30.0, 5.0), (300.0, 50.0), (1e4, 1e4)])
def test_kernel_of_grandparents(
    arcs: float, pairs: float, projective: bool | None, damping: float, counted: float
) -> None:
    """By products, by logs and in plain torch; pairs and links are forbidden, and sentences have a single word."""
    B, n = 6, 19
    links, grand = normal(3, (B, n + 1, n + 1), (B, *[n + 1] * 3))
    links, grand = links * arcs, grand * pairs
    links[2, 1, 3] = links[2, 4, 1] = links[4, 1:, 5] = NEG_INF
    grand[3][grand[3] < -pairs] = NEG_INF
    grand[4] = grand[4].clamp(-30.0, 30.0)
    lengths = torch.tensor([19, 8, 9, 17, 7, 1])
    trees: list[bp.Factors] = [] if projective is None else [bp.ProjectiveTree() if projective else bp.Tree()]
    found = []
    for path, schedule in product((nullcontext, plain_torch), ("serial", "parallel")):
        with path(), torch.no_grad():
            settings: dict[str, Any] = {"schedule": schedule, "damping": damping, "tolerance": 0.0, "iterations": 4}
            families = [bp.Link(links), bp.Grand(grand, counted=counted), *trees]
            found.append(run(families, lengths, **settings))
    for one, other in zip(found[:2], found[2:], strict=True):
        # differences of probabilities keep half of their bits at least
        torch.testing.assert_close(one.links, other.links, atol=1e-7 if trees else 1e-10, rtol=0)
        assert not one.links.isnan().any()


@pytest.mark.parametrize("tree", [None, bp.Tree(), bp.Tree(single_root=False), bp.ProjectiveTree()])
def test_gradcheck_through_the_iterations(tree: bp.Factors | None) -> None:
    lengths = torch.tensor([3, 2])
    shapes = [(2, 4, 4), (2, 4, 4, 4), (2, 4, 4, 4), (2, 4, 4)]
    scores = normal(4, *shapes)
    scores[0][0, 1, 3] = scores[1][0, 0, 2, 3] = NEG_INF
    free = [x.isfinite() for x in scores]
    directions = [torch.where(f, d, 0.0) for f, d in zip(free, normal(0, *shapes), strict=True)]

    def along(t: Tensor) -> tuple[Tensor, ...]:
        each = zip(free, scores, directions, strict=True)
        x = [torch.where(f, torch.where(f, x, 0.0) + t * d, x) for f, x, d in each]
        families = [bp.Link(x[0]), bp.Grand(x[1]), bp.ChildSequence(x[2]), bp.NoCross(x[3]), *([tree] if tree else [])]
        found = run(families, lengths, iterations=3, tolerance=0.0, damping=0.2)
        results = found.links, found.log_partition, found.factors[1], found.factors[3]
        return tuple((x * torch.linspace(0.5, 1.5, x.numel()).view(x.shape)).sum() for x in results)

    t = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(along, (t,))
    assert torch.autograd.gradgradcheck(lambda t: along(t)[0], (t,))


@pytest.mark.parametrize("counted", [1.0, 0.5])
@pytest.mark.parametrize("tree", [bp.Tree(), bp.ProjectiveTree()])
def test_bethe_gradient_is_the_factor_beliefs(tree: bp.Factors, counted: float) -> None:
    """With messages as constants, and through them all: at a fixed point the free energy is stationary."""
    lengths = torch.tensor([4, 3, 2])
    leaves = [(0.5 * x).requires_grad_() for x in normal(2, (3, 5, 5), (3, 5, 5, 5), (3, 5, 5, 5))]
    factors = [bp.Link(leaves[0]), bp.Grand(leaves[1], counted=counted), bp.ChildSequence(leaves[2]), tree]
    settings = bp.BeliefPropagation(factors, variables="heads", iterations=300, tolerance=1e-13, damping=0.3)
    found = settings.run(lengths)
    assert found.converged.all()
    through = torch.autograd.grad(found.log_partition.sum(), leaves, retain_graph=True)
    constant = torch.autograd.grad(settings.log_partition(lengths).sum(), leaves)
    for k in range(3):  # (2 words: a share of 2^-26 is taken for nothing)
        torch.testing.assert_close(through[k], constant[k], atol=1e-7, rtol=0)
    torch.testing.assert_close(constant[1], found.factors[1].detach(), atol=1e-7, rtol=0)
    torch.testing.assert_close(constant[0], found.links.detach(), atol=1e-7, rtol=0)
    word = torch.arange(5)[:, None] > 0  # of p -> c: p has one head
    torch.testing.assert_close(
        torch.where(word, constant[1].sum(1), 0.0), torch.where(word, constant[0], 0.0), atol=1e-7, rtol=0
    )


@pytest.mark.parametrize("options", [{"temperatures": (3.0, 2.0)}, {"recompute": True}, {"tolerance": 0.05}])
def test_options(options: dict[str, Any]) -> None:
    """Messages keep the scores that they were made of; gradients come to the same if iterations are computed again."""
    scores = normal(5, (4, 6, 6), (4, 6, 6, 6))
    lengths, found = torch.tensor([5, 1, 4, 2]), []
    for path, recompute in ((nullcontext, options.get("recompute", False)), (plain_torch, False)):
        leaves = [x.clone().requires_grad_() for x in scores]
        with path():
            how = {**options, "recompute": recompute, "iterations": 6, "schedule": "serial"}
            with torch.no_grad():
                plain = run([bp.Tree(), bp.Link(leaves[0]), bp.Grand(leaves[1])], lengths, **how)
            beliefs = run([bp.Tree(), bp.Link(leaves[0]), bp.Grand(leaves[1])], lengths, **how)
            torch.testing.assert_close(plain.links, beliefs.links, atol=1e-12, rtol=0)
            torch.testing.assert_close(plain.log_partition, beliefs.log_partition, atol=1e-12, rtol=0)
            found.append(torch.autograd.grad((beliefs.links**2).sum(), leaves))
    torch.testing.assert_close(found[0], found[1], atol=1e-11, rtol=0)


def test_no_head_at_all() -> None:
    arcs, lengths = random_instance(0, forbidden=0.0)
    arcs[0, :, 2] = NEG_INF
    pairs = normal(0, (*arcs.shape, arcs.shape[1]))[0]
    for tree in (bp.Tree(), bp.ProjectiveTree()):
        found = run([bp.Link(arcs), bp.Grand(pairs), tree], lengths)
        assert found.log_partition[0] == NEG_INF and found.log_partition[1:].isfinite().all()
        assert found.impossible.tolist() == [True, *[False] * (len(lengths) - 1)]
        assert (found.links[0] == 0).all() and not found.links.isnan().any()


def test_what_is_demanded() -> None:
    """A factor of links leaves one head: all others are forbidden, in log Z as well."""
    (arcs,) = normal(9, (1, 4, 4))
    links = torch.tensor([[[0, 1, 0, 2], [0, 2, 0, 3]]])
    arcs[0, [2, 3], 1] = NEG_INF  # 1 is under the root, so that neither 2 is nor 3
    found = run([bp.Link(arcs), bp.Nand(links[:, :1]), bp.Nand(links[:, 1:])], iterations=10)
    heads = choices(3)
    weights = of_arcs(arcs[0], heads)
    weights = weights.masked_fill((heads[:, 2] == 0) & ((heads[:, 1] == 0) | (heads[:, 3] == 0)), NEG_INF)
    check(found, 0, heads[weights > NEG_INF], weights[weights > NEG_INF], "sum")


@pytest.mark.parametrize("projective", [False, True])
def test_decoding(projective: bool) -> None:
    """Heads are the variables unless links are asked for."""
    arcs, pairs = normal(3, (6, 7, 7), (6, 7, 7, 7))
    scores = gp.Scores(arcs, grandparents=pairs)
    how: dict[str, Any] = {"projective": projective, "iterations": 4, "tolerance": 0.0}
    tree = bp.ProjectiveTree() if projective else bp.Tree()
    residuals = []
    for given in ({}, {"variables": "heads", "counted": 1.0}, {"variables": "links"}):
        residuals.append(gp.decode(scores, "bp", **how, **given).stats["residual"])
        grand = bp.Grand(pairs, counted=given.get("counted", 0.5))
        heads = given.get("variables") != "links"
        factors = [bp.Link(arcs), grand, tree] if heads else [tree, bp.Link(arcs), grand]
        variables = "heads" if heads else "links"
        settings = bp.BeliefPropagation(factors, iterations=4, tolerance=0.0, schedule="serial", variables=variables)
        with torch.no_grad():
            torch.testing.assert_close(residuals[-1], settings.run().residuals, atol=1e-12, rtol=0)
    assert not torch.equal(residuals[0], residuals[1]) and not torch.equal(residuals[1], residuals[2])


def test_errors() -> None:
    for wrong in (0, 1.5, "1", float("nan")):
        with pytest.raises(ValueError, match=r"^counted must be a number above 0 and up to 1, got "):
            bp.Grand(torch.zeros(1, 3, 3, 3), counted=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r'^variables must be "links" or "heads", got .words.$'):
        bp.BeliefPropagation([bp.Tree()], variables="words")  # type: ignore[arg-type]
