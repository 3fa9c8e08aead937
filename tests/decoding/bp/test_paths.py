"""Belief propagation comes to the same by kernels and by plain torch, where values can be looked at and where not."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import gpuparse as gp
from gpuparse import bp, ops
from gpuparse.decoding.bp import belief_propagation, graph, messages
from gpuparse.ops.library import plain_torch
from gpuparse.ops.plain import bp_children, bp_tree, links
from tests.decoding.bp.some import assert_same, make, run, shapes
from tests.decoding.instances import normal
from tests.oracle import NEG_INF


def look_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, from now on."""
    for module in (graph, messages, bp_children, bp_tree, links, belief_propagation):
        monkeypatch.setattr(module, "can_validate", lambda *_: False)


@pytest.mark.parametrize("options", [{}, {"temperatures": (2.0, 0.5)}, {"damping": 0.2}, {"tolerance": 0.01}])
@pytest.mark.parametrize("arcs, pairs", [(1.0, 1.0), (3.0, 20.0), (300.0, 2.0), (1e4, 5.0)])
@pytest.mark.parametrize("tree", [bp.Tree(), bp.ProjectiveTree()])
def test_messages_as_odds(tree: bp.Factors, arcs: float, pairs: float, options: dict[str, Any]) -> None:
    """Without a gradient messages of GRAND are odds, as far as they are in range: beliefs are the same. Links are
    forbidden, and all but demanded."""
    B, n = 6, 9
    links, grand = normal(3, (B, n + 1, n + 1), (B, n + 1, n + 1, n + 1))
    links, grand = links * arcs, (grand * pairs).clamp(-99.0, 99.0)  # at a temperature of 0.5 they are out of range
    links[2, 1, 3] = links[2, 4, 1] = NEG_INF
    links[4, 1:, 5] = NEG_INF
    lengths = torch.tensor([9, 8, 9, 1, 7, 2])
    settings = gp.BeliefPropagation([tree, bp.Link(links), bp.Grand(grand)], iterations=6, schedule="serial", **options)
    with torch.no_grad():
        found = settings.run(lengths)
    odds = [isinstance(run.messages[2], graph.Odds) for run in found._runs]
    assert any(odds) == (not options.get("damping") and (pairs < 20 or not options.get("temperatures")))
    expected = settings.run(lengths)
    assert not any(isinstance(run.messages[2], graph.Odds) for run in expected._runs)
    assert_same(found, expected, log_z=1e-9 * max(1.0, arcs))
    assert torch.equal(found.iterations, expected.iterations)
    with plain_torch(), torch.no_grad():
        assert_same(found, settings.run(lengths), log_z=1e-9 * max(1.0, arcs))


@pytest.mark.parametrize("pairs", [1.0, 1e3])
@pytest.mark.parametrize("n", [19, 57])
def test_messages_as_odds_of_long_sentences(n: int, pairs: float) -> None:
    """Products of many messages, all of them small, large or both."""
    lengths = torch.tensor([n, n - 8, n])
    links, grand = normal(4, (3, n + 1, n + 1), (3, n + 1, n + 1, n + 1))
    grand = (grand * pairs).clamp(-100.0, 100.0)
    grand[1], grand[2] = grand[1].abs(), -grand[2].abs()
    settings = gp.BeliefPropagation([bp.Tree(), bp.Link(links), bp.Grand(grand)], iterations=3)
    with torch.no_grad():
        found = settings.run(lengths)
    expected = settings.run(lengths)
    assert isinstance(found._runs[0].messages[2], graph.Odds)
    # messages of up to 100, 2 n of them a link, each rounded
    torch.testing.assert_close(found.log_odds, expected.log_odds, atol=1e-9, rtol=1e-12)
    torch.testing.assert_close(found.residuals, expected.residuals, atol=1e-9, rtol=0)


@pytest.mark.parametrize("mode", ["sum", "max"])
@pytest.mark.parametrize("options", [{}, {"damping": 0.3}, {"schedule": "serial"}, {"temperatures": (2.0, 1.0, 1.0)}])
@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("variables", ["links", "heads"])
@pytest.mark.parametrize("masks", [0.0, NEG_INF, -1e4])
def test_kernels_and_plain_torch(
    masks: float,
    variables: belief_propagation.Variables,
    projective: bool,
    options: dict[str, Any],
    mode: belief_propagation.Mode,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same beliefs after the same numbers of iterations, of sentences that converge one after the other; also where
    these stay in the batch."""
    lengths = torch.tensor([5, 1, 3, 2, 4])
    links, grand, sib = normal(5, (5, 6, 6), (5, 6, 6, 6), (5, 6, 6, 6))
    if masks:
        links[:, 1:, 1], links[0, 2, 3], grand[0, 0, 1, 3], sib[0, 0, 1, 2] = masks, masks, masks, masks
    tree = bp.ProjectiveTree() if projective else bp.Tree()
    factors = [tree, bp.Link(links), bp.Grand(grand * 0.3), bp.ChildSequence(sib * 0.3)]
    settings = gp.BeliefPropagation(factors, iterations=9, tolerance=1e-3, mode=mode, variables=variables, **options)
    with torch.no_grad():
        found = [settings.run(lengths)]
    found.append(settings.run(lengths))
    with plain_torch():
        found.append(settings.run(lengths))
        look_away(monkeypatch)
        found.append(settings.run(lengths))
    first = found[0]
    assert len(set(first.iterations.tolist())) > 1
    for other in found[1:]:
        assert torch.equal(first.iterations, other.iterations)
        assert torch.equal(first.converged, other.converged)
        torch.testing.assert_close(first.residuals, other.residuals, atol=1e-9, rtol=0)
        torch.testing.assert_close(first.links, other.links, atol=1e-9, rtol=0)


@pytest.mark.parametrize("may_stop", [False, True])
def test_settling(may_stop: bool) -> None:
    """What a sentence that had converged has is kept."""
    before, after = normal(6, (3, 4, 5, 5), (3, 4, 5, 5))
    for x in (before, after):
        x[1:] = (x[1:] > 1.0).double()
    before[:, 2:] = after[:, 2:]
    residuals, others = torch.tensor([3.0, 4.0, 5.0, 6.0]).double(), torch.tensor([0.0, 0.0, 0.25, 2.0]).double()
    converged, iterations = torch.tensor([False, True, False, False]), torch.tensor([1, 2, 3, 4])
    for path in (nullcontext, plain_torch):
        with path():
            found = ops.bp.settle(before, after, others, residuals, converged, iterations, 0.25, may_stop)
        assert found[0][1:].tolist() == [4.0, 0.25, 2.0] and 0.25 < found[0][0] <= 1.0
        assert found[1].tolist() == [False, True, may_stop, False]
        assert found[2].tolist() == [2, 2, 4, 5]


@pytest.mark.parametrize("tree", [bp.Tree(), bp.ProjectiveTree()])
def test_without_looking(tree: bp.Factors, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: nothing leaves the batch, and no way is chosen by values."""
    scores = normal(1, *shapes(4, 5))
    scores[0][0, 1, 3] = NEG_INF
    expected = run(scores, tree=tree, iterations=40, damping=0.3)
    look_away(monkeypatch)
    found = run(scores, tree=tree, iterations=40, damping=0.3)
    assert_same(found, expected, log_z=1e-8)
    assert torch.equal(found.iterations, expected.iterations) and torch.equal(found.converged, expected.converged)


def test_a_few_sentences_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = normal(1, *shapes(4, 5))
    expected = run(scores, iterations=7)
    monkeypatch.setattr(belief_propagation, "_NEAR", 1)
    assert_same(run(scores, iterations=7), expected)


@pytest.mark.parametrize("variables", ["links", "heads"])
@pytest.mark.parametrize("mode", ["sum", "max"])
def test_fake_tensors(mode: belief_propagation.Mode, variables: belief_propagation.Variables) -> None:
    """No value is looked at where that may mean waiting."""
    with FakeTensorMode(), torch.no_grad():
        lengths = torch.full((3,), 4)
        factors = [*make([torch.zeros(shape) for shape in shapes(3, 5)]), bp.ProjectiveTree()]
        how: dict[str, Any] = {"mode": mode, "variables": variables, "temperatures": [2.0]}
        found = gp.BeliefPropagation(factors, iterations=2, damping=0.1, **how).run(lengths)
        assert found.links.shape == (3, 5, 5) and found.tags is not None and found.tags.shape == (3, 4, 2)
        assert found.log_partition.shape == (3,)
