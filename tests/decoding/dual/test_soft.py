"""Soft dual decomposition: a smooth bound that falls, its gradient, and the hard answer as it gets cold."""

from __future__ import annotations

import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.decoding.dual.soft import SoftDualDecomposition, SoftSecondOrder, SoftTrees, softly
from tests.decoding.instances import LENGTHS, best, instance, normal
from tests.decoding.refusals import refuses

SHAPES = (4, 6, 6), (4, 6, 6, 6)


def test_a_bound_that_falls() -> None:
    for seed in range(6):
        arcs, pairs = normal(seed, *SHAPES)
        scores = gp.Scores(arcs, LENGTHS, grandparents=pairs)
        found = softly(scores, iterations=30)
        log_z = gp.SecondOrderTrees(arcs, LENGTHS, grandparents=pairs).log_partition
        assert bool((found.values >= best(scores, projective=True) - 1e-9).all())
        assert bool((found.value >= log_z - 1e-9).all())  # structures that both have are counted once
        assert bool((found.value <= found.values[0] + 1e-9).all())
        apart = [softly(scores, iterations=k).marginals["arcs"] for k in (1, 30)]
        one, thirty = ((m[0] - m[1]).abs().sum((1, 2)) for m in apart)
        assert bool((thirty <= one + 1e-9).all()) and float(thirty.sum()) < 0.3 * float(one.sum())


def test_cold_is_hard() -> None:
    certain = 0
    for seed in range(4):
        scores = instance(seed, strength=0.5)
        found = softly(scores, temperature=1.0, final=1e-3, iterations=200)
        expected = best(scores, projective=True)
        assert bool((found.value >= expected - 1e-9).all())
        near = found.value - expected < 0.05
        heads = found.marginals["arcs"][1].argmax(1)
        for b in near.nonzero()[:, 0].tolist():
            n = int(LENGTHS[b])
            tree = torch.cat([torch.tensor([-1]), heads[b, 1 : n + 1], torch.full((5 - n,), -1)])
            torch.testing.assert_close(scores.total(tree.expand(4, -1))[b], expected[b], rtol=0, atol=1e-6)
            certain += 1
    assert certain > 10


def test_gradcheck() -> None:
    arcs, pairs = normal(1, *SHAPES)
    arcs, pairs = arcs[1:2, :4, :4].clone().requires_grad_(), pairs[1:2, :4, :4, :4].clone().requires_grad_()

    def value(arcs: Tensor, pairs: Tensor) -> Tensor:
        found = softly(gp.Scores(arcs, grandparents=pairs, validate_args=False), iterations=3)
        return torch.cat([found.value.flatten(), (found.marginals["arcs"] ** 2).sum().flatten()])

    assert torch.autograd.gradcheck(value, (arcs, pairs))


def test_first_order() -> None:
    arcs, _ = normal(2, *SHAPES)
    found = softly(gp.Scores(arcs, LENGTHS), iterations=40)
    assert bool((found.value >= gp.ProjectiveTrees(arcs, LENGTHS).log_partition - 1e-9).all())


def test_errors() -> None:
    arcs, pairs = normal(3, *SHAPES)
    oracles = [SoftTrees(arcs, LENGTHS), SoftSecondOrder(arcs, LENGTHS, None, pairs)]
    refuses("oracles must be two or more, got 1", SoftDualDecomposition, oracles[:1])
    refuses("temperature must be above 0, got 0", SoftDualDecomposition, oracles, temperature=0)
    refuses("iterations must be a whole number from 1 on, got 0", SoftDualDecomposition, oracles, iterations=0)
