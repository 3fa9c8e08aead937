"""Dual decomposition against all trees: bounds, certificates, steps, sentences that leave, branch and bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.decoding.dual import fallback, parsing
from gpuparse.decoding.dual.branch import TAGS, TREES, tighten
from gpuparse.decoding.dual.fallback import _promising
from gpuparse.decoding.dual.oracles import SecondOrderOracle, TreeOracle
from gpuparse.decoding.dual.parsing import second_order
from gpuparse.dual import Decreasing, DualDecomposition, Found, Halving, Polyak
from gpuparse.ops.automata import automata
from tests.decoding.instances import LENGTHS, best, check_best, check_sound, instance, normal
from tests.decoding.refusals import refuses

STEPS = [Polyak(), Halving(), Decreasing()]
KINDS = [("grandparents",), ("siblings",), ("grandparents", "siblings")]
kinds = pytest.mark.parametrize("parts", KINDS, ids="+".join)


@kinds
@pytest.mark.parametrize("single_root", [True, False])
def test_certified_is_best(parts: tuple[str, ...], single_root: bool) -> None:
    certified = 0
    for seed in range(8):
        scores = instance(seed, parts, 0.1 * (seed % 2))
        try:
            found = gp.decode(scores, "dd", single_root=single_root, iterations=150)
        except ValueError:
            continue
        check_sound(found, best(scores, single_root))
        certified += int(found.certified.sum())
    assert certified > 12


@kinds
def test_exact(parts: tuple[str, ...]) -> None:
    branched = 0
    for seed in range(4):
        scores = instance(seed, parts, strength=3.0)
        found = gp.decode(scores, "dd", exact=True, iterations=60)
        check_best(found, best(scores))
        branched += int((found.stats["branches"] > 0).sum())
    assert branched > 0


@kinds
def test_auto_is_the_chain(parts: tuple[str, ...]) -> None:
    handed = 0
    for seed in range(6):
        scores = instance(seed, parts, strength=3.0)
        expected = best(scores)
        found = gp.decode(scores, exact=True, iterations=20)
        check_best(found, expected)
        handed += int(found.stats["fallback"].sum())
        check_sound(gp.decode(scores, iterations=20), expected)
    assert handed > 0


@kinds
def test_promising_arcs(parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The best tree has no others, where a tree is known and nothing is proven; and they are not all arcs. Fewer of a
    word, if fewer are wanted."""
    left = few = 0
    for seed in range(12):
        scores = instance(seed, parts, strength=2.0)
        made = second_order(scores, iterations=25)
        found = made.run()
        exact = gp.decode(scores, "ppc", exact=True)
        rows = (~found.certified & (found.score > -math.inf)).nonzero()[:, 0]
        monkeypatch.setattr(fallback, "HEADS", 1)
        best_ones = _promising(made, found)[rows]
        monkeypatch.setattr(fallback, "HEADS", 6)
        arcs = _promising(made, found)[rows]
        assert torch.equal(best_ones.any(1), arcs.any(1)) and bool((arcs | ~best_ones).all())
        for own, b in zip(arcs, rows.tolist(), strict=True):
            n = int(LENGTHS[b])
            assert bool(own[exact.heads[b, 1 : n + 1], torch.arange(1, n + 1)].all())
            left, few = left + 1, few + int(own.sum() < n * n)
    assert left > 3 and few > 0


@pytest.mark.parametrize("step", STEPS, ids=lambda s: type(s).__name__)
@kinds
def test_the_dual_is_a_bound(parts: tuple[str, ...], step: Any) -> None:
    """Never below the best score; and no rise without a cut of the step."""
    for seed in range(5):
        scores = instance(seed, parts)
        found = second_order(scores, step=step, iterations=80).run()
        expected = best(scores)
        duals = found.duals
        assert bool(((duals >= expected - 1e-9) | duals.isnan()).all())
        if not isinstance(step, Polyak):  # a rise cuts the step
            rose, cut = duals[1:] > duals[:-1], found.sizes[1:] < found.sizes[:-1]
            assert torch.equal(rose, cut)
        assert bool((found.bound <= duals[0] + 1e-12).all())


def test_polyak_cuts_where_the_dual_rises_above_its_start() -> None:
    rule = Polyak(factor=2.0, patience=1000, shrink=0.5).begin(2, torch.device("cpu"))
    one = torch.ones(2, dtype=torch.float64)
    assert rule.size(10 * one, 10 * one, 0 * one, one).tolist() == [20, 20]
    dual, bound = torch.tensor([[11.0, 9.0], [10.0, 9.0]]).double()
    assert rule.size(dual, bound, 0 * one, one).tolist() == [11, 18]
    assert rule.take(torch.tensor([1])).size(one[:1] * 8, one[:1] * 8, 0 * one[:1], one[:1]).tolist() == [16]


def test_polyak_is_patient() -> None:
    rule = Polyak(factor=1.0, patience=2, shrink=0.5).begin(1, torch.device("cpu"))
    one = torch.ones(1, dtype=torch.float64)
    assert [float(rule.size(x * one, x * one, 0 * one, one)) for x in (4, 4, 4, 4, 3)] == [4, 4, 2, 2, 1.5]


def test_halving_and_decreasing() -> None:
    one = torch.ones(1, dtype=torch.float64)
    for rule, expected in ((Halving(0.5), [1, 0.5, 0.5, 0.25]), (Decreasing(0.5), [1, 0.5, 0.5, 1 / 3])):
        begun = rule.begin(1, torch.device("cpu"))
        assert [float(begun.size(x * one, one, one, one)) for x in (3, 4, 2, 3)] == pytest.approx(expected)


def test_batches_and_leaving_do_not_matter() -> None:
    scores = instance(1, ("grandparents", "siblings"))
    whole = second_order(scores, iterations=40).run()
    for b, n in enumerate(LENGTHS.tolist()):
        N = n + 1
        given = {kind: getattr(scores, kind).dense()[b : b + 1, :N, :N, :N] for kind in ("grandparents", "siblings")}
        alone = second_order(gp.Scores(scores.arcs[b : b + 1, :N, :N], **given), iterations=40).run()
        k = int(alone.iterations[0])
        assert int(whole.iterations[b]) == k
        torch.testing.assert_close(whole.duals[:k, b], alone.duals[:, 0])
        torch.testing.assert_close(whole.score[b], alone.score[0])
        assert whole.structures["heads"][b, :N].tolist() == alone.structures["heads"][0].tolist()


@kinds
def test_stars_that_are_not_looked_for_again(parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch and of one sentence: the same to the last bit."""
    for rows in ([0, 1, 3], [0], [3]):
        made = second_order(instance(5, parts).take(torch.tensor(rows)), iterations=60)
        found = made.run()
        with monkeypatch.context() as patched:
            patched.setattr(parsing, "automata", lambda *given, before, **options: automata(*given, **options))
            anew = made.run()
        assert torch.equal(found.duals.nan_to_num(99.0), anew.duals.nan_to_num(99.0))
        assert torch.equal(found.structures["heads"], anew.structures["heads"])


def test_warm_penalties() -> None:
    """From the penalties at which it ended, it is at the bound at once."""
    scores = instance(2, strength=0.7)
    decomposition = second_order(scores, iterations=200)
    found = decomposition.run()
    again = decomposition.run(found.penalties)
    assert bool(found.certified.any())
    assert bool((again.iterations[found.certified] <= 2).all())


def test_three_oracles() -> None:
    """Arcs in three parts, one of them projective: the best projective tree."""
    scores = instance(3)
    arcs = scores.arcs.nan_to_num(0.0)
    pairs = scores.grandparents.dense().nan_to_num(0.0)  # type: ignore[union-attr]
    oracles = [
        SecondOrderOracle(0.2 * arcs, LENGTHS, None, pairs),
        TreeOracle(0.5 * arcs, LENGTHS),
        TreeOracle(0.3 * arcs, LENGTHS, projective=True),
    ]
    whole = gp.Scores(arcs, LENGTHS, grandparents=pairs)

    def primal(found: Sequence[Found], rows: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        heads = found[0].structures["heads"]
        return {"heads": heads}, whole.take(rows).total(heads)

    found = DualDecomposition(oracles, primal=primal, iterations=300).run()
    expected = best(whole, projective=True)
    assert bool(found.certified.all())
    torch.testing.assert_close(found.score, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("output", ["best", "last", "average"])
def test_outputs(output: str) -> None:
    scores = instance(4, strength=4.0)
    made = second_order(scores, iterations=5)
    found = DualDecomposition(made.oracles, primal=made.primal, iterations=5, output=output).run()  # type: ignore[arg-type]
    assert not bool(found.certified.all())
    check_sound(found, best(scores))
    torch.testing.assert_close(scores.total(found.structures["heads"]), found.score)


@dataclass(frozen=True)
class Coin:
    """One of two sides."""

    scores: Tensor
    name: str = "side"

    @property
    def device(self) -> torch.device:
        return self.scores.device

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {self.name: tuple(self.scores.shape)}

    def best(self, penalties: Mapping[str, Tensor]) -> Found:
        value, side = (self.scores + penalties.get(self.name, 0.0)).max(1)
        return Found(value, {self.name: torch.nn.functional.one_hot(side, 2).double()}, {"side": side})

    def take(self, rows: Tensor) -> Coin:
        return Coin(self.scores[rows], self.name)


def test_an_oracle_of_ones_own() -> None:
    one, other = torch.tensor([[0.0, 1.0], [2.0, 1.0]]).double(), torch.tensor([[3.0, 0.0], [0.0, 0.5]]).double()
    found = DualDecomposition([Coin(one), Coin(other)], step=Decreasing(0.5)).run()
    assert found.structures["side"].tolist() == [0, 0]
    assert found.score.tolist() == [3, 2] and bool(found.certified.all())


def test_no_structure_at_all() -> None:
    none = torch.full((1, 2), -math.inf, dtype=torch.float64)
    found = DualDecomposition([Coin(none), Coin(torch.zeros(1, 2).double())]).run()
    assert found.bound.tolist() == [-math.inf] and not bool(found.certified.any())
    assert found.structures["side"].tolist() == [-1] and int(found.iterations[0]) == 1


def test_a_sentence_without_a_tree() -> None:
    """Two words, both of which may only hang from the root, one of them alone."""
    arcs = torch.full((2, 3, 3), -math.inf, dtype=torch.float64)
    arcs[:, 0, 1:] = -1.0
    arcs[1, 1, 2] = 0.0
    found = TreeOracle(arcs, torch.tensor([2, 2])).best({})
    assert found.value.tolist() == [-math.inf, -1.0]
    oracles = [TreeOracle(x, torch.tensor([2, 2])) for x in (arcs, 0 * arcs.clamp(min=-1))]
    both = DualDecomposition(oracles).run()
    assert both.bound.tolist() == [-math.inf, -1.0] and both.certified.tolist() == [False, True]


def test_branching_stops_at_its_limit() -> None:
    scores = instance(0, strength=4.0)
    made = second_order(scores, iterations=5)
    found, nodes, _ = tighten(made, made.run(), TREES, nodes=1)
    assert int(nodes.max()) <= 1
    check_sound(found, best(scores))


def test_branching_comes_to_an_end() -> None:
    """With so few iterations nearly nothing is proven before all is fixed; words past the end are never fixed."""
    scores = instance(1, strength=4.0)
    made = second_order(scores, iterations=1)
    found, *_ = tighten(made, made.run(), TREES, nodes=100_000)
    check_best(found, best(scores))


def test_errors() -> None:
    coin = Coin(torch.zeros(1, 2).double())
    refuses("oracles must be two or more, got 1", DualDecomposition, [coin])
    refuses("oracles must share an indicator", DualDecomposition, [coin, Coin(coin.scores, "other")])
    with pytest.raises(ValueError, match="agree: 'edge' is an indicator of fewer than two oracles; there are side"):
        DualDecomposition([coin, coin], agree=["edge"])
    refuses("iterations must be a whole number from 1 on, got 0", DualDecomposition, [coin, coin], iterations=0)
    refuses("indicator 'side' must have one shape", DualDecomposition, [coin, Coin(torch.zeros(2, 2).double())])
    refuses("output must be best, last or average, got 'first'", DualDecomposition, [coin, coin], output="first")
    refuses("agree must be a list of names, got 'side'", DualDecomposition, [coin, coin], agree="side")
    refuses(r"oracles\[1\] must have device, shapes, best and take, got int", DualDecomposition, [coin, 1])
    refuses(r"step must be a rule of gpuparse.decoding.dual.*got Polyak", DualDecomposition, [coin, coin], step=Polyak)
    decomposition = DualDecomposition([coin, coin])
    refuses("penalties must be one for each of 2 oracles, got 1", decomposition.run, [{}])
    with pytest.raises(ValueError, match=r"penalties\[1\]: 'sode' is nothing that oracle must agree on"):
        decomposition.run([{}, {"sode": coin.scores}])
    with pytest.raises(ValueError, match=r"penalties\[0\]\['side'\] must be finite and of shape \[1, 2\]"):
        decomposition.run([{"side": coin.scores / 0}, {}])
    scores = instance(0)
    for wrong, match in (
        ({"threads": 0}, "threads must be"),
        ({"iterations": 0}, "iterations must be a whole number from 1 on, got 0"),
        ({"nodes": -1}, "nodes must be a whole number from 0 on, got -1"),
        ({"step": "x"}, "step must be a rule"),
    ):
        refuses(match, gp.decode, scores, "dd", **wrong)
    refuses("share must be a number from 0 to 1, got 2", second_order, scores, share=2)
    made = second_order(scores, iterations=1)
    refuses("groups must have all indicators that must agree, but 'arcs' is in none", tighten, made, made.run(), TAGS)


@pytest.mark.parametrize("size", [1e-10, 1e-6, 1e6])
@kinds
def test_scores_of_any_size(parts: tuple[str, ...], size: float) -> None:
    scores = instance(2, parts)
    pairs = {kind: size * getattr(scores, kind).dense() for kind in parts}
    found = gp.decode(gp.Scores(size * scores.arcs, LENGTHS, **pairs), "dd", exact=True, iterations=100)
    assert bool(found.certified.all())
    torch.testing.assert_close(found.score, size * best(scores), rtol=1e-8, atol=0)


def test_far_from_zero() -> None:
    """What all heads of a word have more changes nothing."""
    for seed in range(4):
        scores = instance(seed, strength=3.0)
        far = gp.Scores(scores.arcs + 1e9, LENGTHS, grandparents=scores.grandparents)
        found = gp.decode(far, "dd", iterations=60)
        here = found.certified
        torch.testing.assert_close(scores.total(found.heads)[here], best(scores)[here], rtol=0, atol=1e-4)
        assert bool((found.bound >= best(far) - 1e-5).all())


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_all_arcs_to_one_oracle(share: float) -> None:
    for seed in range(4):
        scores = instance(seed, forbidden=0.2)
        check_sound(second_order(scores, share=share, iterations=60).run(), best(scores))


def test_nothing_is_known_without_a_primal() -> None:
    """A node with nothing left to choose is not done if its structure was never seen."""
    for seed in range(6):
        scores = instance(seed, strength=3.0)
        made = second_order(scores, iterations=1)
        bare = DualDecomposition(made.oracles, iterations=1)
        found, *_ = tighten(bare, bare.run(), TREES, nodes=2000)
        check_sound(found, best(scores))


def test_without_a_tree_in_a_batch() -> None:
    """It stays in the batch for a while, and its penalties stay numbers."""
    arcs, pairs = normal(0, (20, 4, 4), (20, 4, 4, 4))
    arcs[0] = -math.inf
    decomposition = second_order(gp.Scores(arcs, grandparents=pairs, validate_args=False), iterations=20)
    found = decomposition.run()
    assert all(bool(x.isfinite().all()) for of_oracle in found.penalties for x in of_oracle.values())
    assert float(found.bound[0]) == float(decomposition.run(found.penalties).bound[0]) == -math.inf
