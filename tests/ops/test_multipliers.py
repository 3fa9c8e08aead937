"""A step of dual decomposition and what trees and stars say of arcs: kernels against plain torch and enumeration."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import gpuparse as gp
from gpuparse.decoding.dual.oracles import HeadAutomata, TreeOracle
from gpuparse.decoding.dual.steps import Polyak
from gpuparse.ops import multipliers as ops_multipliers
from gpuparse.ops.automata import automata
from gpuparse.ops.library import plain_torch
from gpuparse.ops.multipliers import multipliers, readings
from gpuparse.ops.plain.multipliers import CERTIFIED, DONE, SCORE
from tests.multipliers_oracle import Torch, equal, some_step
from tests.stars_oracle import some_scores

DTYPES = (torch.float32, torch.float64)
KINDS = ((True, True), (True, False), (False, True))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_step_is_that_of_plain_torch(dtype: torch.dtype) -> None:
    certified = done = better = 0
    for seed in range(252):
        asked = some_step(seed, dtype)
        found = asked.answer()
        equal(found, asked.answer(rule=Torch))
        with plain_torch():
            equal(found, asked.answer())
        known = found["known"]
        assert known is not None and found["better"] is not None
        certified += int(known[:, CERTIFIED].sum()) - 1
        done, better = done + int(known[:, DONE].sum()) - 1, better + int(found["better"].sum())
    assert 50 < certified < done < 252 * 4 and better > 50


def test_what_is_done_stays() -> None:
    for seed in range(12):
        asked = some_step(seed)
        found = asked.answer()
        for name in ("u", "sums", "least", "known"):
            before, after = asked.changed[name], found[name]
            assert (before is None and after is None) or torch.equal(before[3], after[3])  # type: ignore[index]
        assert found["trace"][:, 3].isnan().all() and not found["better"][3]  # type: ignore[index]


def test_without_a_score_it_is_known_where_all_agree() -> None:
    asked = some_step(21)
    assert asked.score is None
    known = asked.answer()["known"]
    before = asked.changed["known"]
    assert known is not None and before is not None
    dual = asked.values.sum(1)
    assert float(known[0, SCORE]) == max(float(dual[0]), float(before[0, SCORE]))
    assert torch.equal(known[1:, SCORE], before[1:, SCORE])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_readings(kind: tuple[bool, bool], dtype: torch.dtype) -> None:
    """By kernel and plain torch; values are those of the oracles, and the score is that of the tree."""
    for seed, lengths in enumerate(([5, 3, 1], [2], [9, 4, 8], [70, 3])):
        given = some_scores((True, *kind), lengths, dtype, seed)
        pairs, counts, root = given[2:4], given.lengths, seed % 2 == 0
        arcs, tree = given.down.double(), given.down.double() * 0.75
        arcs[-1, :, 1] = tree[-1, :, 1] = -torch.inf  # no tree
        trees = TreeOracle(tree, counts, single_root=root).best({})
        heads = trees.structures["heads"]
        stars = automata(arcs, given.up, *pairs, counts, single_root=root)
        args = tree, arcs, *pairs, counts, heads, stars
        says, values, score = readings(*args)
        with plain_torch():
            plainly = readings(*args)
        assert torch.equal(says, plainly[0])
        for x, y in zip((values, score), plainly[1:], strict=True):
            torch.testing.assert_close(x, y, rtol=1e-13, atol=1e-13)  # sums of at most 71 numbers, in two orders
        named = dict(zip(("siblings", "grandparents"), pairs, strict=True))
        whole = gp.Scores(arcs, counts, **named, validate_args=False)
        torch.testing.assert_close(score, whole.total(heads), rtol=1e-13, atol=1e-13)
        both = HeadAutomata(arcs, counts, *pairs, root, None if given.up is None else given.up.double()).best({})
        torch.testing.assert_close(values, torch.stack([trees.value, both.value], 1), rtol=1e-13, atol=1e-13)
        assert float(values[-1, 0]) == float(score[-1]) == -torch.inf
        expected = [trees.indicators["arcs"], both.indicators["arcs"]]
        expected += [trees.indicators["arcs"], both.indicators["heads"]] if kind[1] else []
        assert torch.equal(says, torch.stack(expected, 1).flatten(1))


def test_fake_tensors() -> None:
    with FakeTensorMode():
        square, cube = torch.empty(2, 5, 5, dtype=torch.float64), torch.empty(2, 5, 5, 5)
        counts = torch.empty(2, dtype=torch.int64)
        stars = automata(square, square, cube, cube, counts)
        says, values, score = readings(square, square, cube, cube, counts, stars.heads, stars)
        assert says.shape == (2, 100) and values.shape == (2, 2) and score.shape == (2,)
        state = [torch.empty_like(says) for _ in range(3)]
        known, better = says.new_empty(2, 15), score.new_empty(2, dtype=torch.bool)
        parts = [(2, 25), (2, 25)], torch.empty(2, 2, dtype=torch.int64)
        rule = Polyak().begin(2, torch.device("cpu"))
        made = says.new_empty(3, 2)
        for own in (rule, Torch(rule)):
            multipliers(says, values, score, square, square, parts, *state, known, better, made, own, False)


def test_plain_torch_launches_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []
    real = ops_multipliers._multipliers_op
    monkeypatch.setattr(ops_multipliers, "_multipliers_op", lambda *args: launched.append(real(*args)))
    some_step(0).answer()
    assert len(launched) == 1
    with plain_torch():
        some_step(0).answer()
    assert len(launched) == 1
