"""Head automata: the kernel and plain torch against all heads and all sets of children, and each other."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from gpuparse.decoding.scores import Scores
from gpuparse.ops.automata import Stars, automata
from tests.oracle import all_trees
from tests.stars_oracle import (
    DTYPES,
    INF,
    KINDS,
    Given,
    by_plain,
    enumerated,
    equal,
    some_change,
    some_scores,
    star_of,
    star_value,
)


@pytest.mark.parametrize("dtype", DTYPES, ids=("float32", "float64"))
@pytest.mark.parametrize("kind", KINDS)
def test_all_stars(kind: tuple[bool, ...], dtype: torch.dtype) -> None:
    for seed, lengths in enumerate(([5, 3, 1], [4, 2], [5, 4], [3, 5, 2], [5], [2, 1])):
        single_root = seed % 2 == 1
        given = some_scores(kind, lengths, dtype, seed)
        for found in (automata(*given, single_root=single_root), by_plain(given, single_root)):
            headed = given.up is not None or given.grandparents is not None
            for b, n in enumerate(lengths):
                for p in range(max(lengths) + 1):
                    g, children = star_of(found, b, p)
                    value = float(found.values[b, p])
                    if p > n:
                        assert (g, children, value) == (-1, (), 0.0)
                        continue
                    expected = enumerated(given, b, p, single_root)
                    assert value == pytest.approx(expected, abs=1e-12)  # sums of at most 15 terms, in two orders
                    assert (g >= 0) == (headed and p > 0 and value > -INF)
                    assert g not in (p, *children) and p not in children
                    if value > -INF:
                        assert star_value(given, b, p, g, children) == pytest.approx(value, abs=1e-12)
                    else:
                        assert not children


@pytest.mark.parametrize("dtype", DTYPES, ids=("float32", "float64"))
@pytest.mark.parametrize("kind", KINDS)
def test_kernel_is_plain_torch(kind: tuple[bool, ...], dtype: torch.dtype) -> None:
    """Ties included, and with few and with many children."""
    for seed, (longest, whole, less) in enumerate(product((1, 7, 9, 18, 26), (False, True), (-0.5, 0.5, 3.0))):
        given = some_scores(
            kind, [longest, max(1, longest - 3), 1, longest // 2 + 1], dtype, seed, whole=whole, less=less
        )
        lengths = given.lengths.clone()
        lengths[3] = seed % 2  # 0: nothing to do
        given = given._replace(lengths=lengths)
        equal(automata(*given, single_root=seed % 3 == 0), by_plain(given, seed % 3 == 0))


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_that_are_as_they_were(kind: tuple[bool, ...]) -> None:
    """What was found before is taken over where nothing changed, and there alone."""
    for seed in range(12):
        given, before, changed = some_change(kind, seed)
        equal(automata(*given, before=before), automata(*given))
        wrong = before._replace(stars=before.stars._replace(values=before.stars.values + 1000.0))
        took = automata(*given, before=wrong).values - automata(*given).values > 500
        word = torch.arange(given.down.shape[1]) <= given.lengths[:, None]
        there = word & (before.stars.values > -INF)
        assert torch.equal(took & there, ~changed & there) and bool((took & there).any()) and bool(changed.any())


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentence_alone_is_what_it_is_in_a_batch(kind: tuple[bool, ...]) -> None:
    lengths = [6, 11, 2, 8]
    given = some_scores(kind, lengths, torch.float64, 1)
    found = automata(*given)
    for b, n in enumerate(lengths):
        one = Given(*(None if x is None else x[b : b + 1] for x in given))  # type: ignore[arg-type]
        cut = (x if x is None else x[tuple([slice(None)] + [slice(n + 1)] * (x.dim() - 1))] for x in one)
        alone = automata(*Given(*cut))  # type: ignore[arg-type]
        equal(alone, Stars(found.children[b : b + 1, : n + 1, : n + 1], *(x[b : b + 1, : n + 1] for x in found[1:])))


def test_stars_of_a_tree_add_up_to_its_score() -> None:
    """Forced by ``down`` and ``up``: what the scores of trees say of siblings and grandparents."""
    n = 4
    given = some_scores((True, True, True), [n], torch.float64, 0)
    zeros = torch.zeros(1, n + 1, n + 1, dtype=torch.float64)
    scores = Scores(zeros, siblings=given.siblings, grandparents=given.grandparents)
    for tree in all_trees(n, single_root=False, projective=False)[::3]:
        arcs = torch.zeros(n + 1, n + 1, dtype=torch.bool)
        arcs[tree[1:], torch.arange(1, n + 1)] = True
        forced = torch.where(arcs, 1000.0, -INF).double()[None]
        found = automata(forced, torch.where(arcs, 0.0, -INF).double()[None], *given[2:])
        assert torch.equal(found.children[0], arcs) and torch.equal(found.heads[0], tree)
        total = float(found.values.sum()) - 1000.0 * n
        assert total == pytest.approx(float(scores.total(tree[None])), abs=1e-9)  # 1000 costs three digits


def test_bounds_rule_out_no_head_by_rounding() -> None:
    """Heads that differ in the last bits of large numbers."""
    generator = torch.Generator().manual_seed(0)
    for seed in range(6):
        given = some_scores((True, True, True), [20], torch.float64, 3 * seed)
        assert given.siblings is not None and given.grandparents is not None and given.up is not None
        tiny = torch.rand(given.grandparents.shape, generator=generator, dtype=torch.float64) * 2.0 ** (seed - 50)
        same = given.grandparents[:, 19:20].nan_to_num(0.5) * 0 + 1.0
        size = 10.0 ** (2 * seed)
        given = given._replace(
            up=torch.where(given.up.isnan(), torch.nan, 0.0),
            grandparents=torch.where(given.grandparents.isnan(), torch.nan, size * (same + tiny)),
            siblings=given.siblings - size,
        )
        equal(automata(*given), by_plain(given, False))


def test_no_head_no_star() -> None:
    given = some_scores((True, True, True), [3], torch.float64, 0)
    assert given.up is not None
    given.up[0, :, 2] = -INF
    given.down[0, 0] = -INF
    for found in (automata(*given, single_root=True), by_plain(given, True)):
        assert found.values[0, [0, 2]].tolist() == [-INF, -INF] and found.heads[0].ge(0).tolist() == [0, 1, 0, 1]
        assert not found.children[0, [0, 2]].any()
    assert automata(*given).values[0, 0] == 0.0  # any number of children: none


def test_ties() -> None:
    """The smallest head, and no child for nothing."""
    N = 6
    zeros, cubes = torch.zeros(1, N, N), torch.zeros(1, N, N, N)
    for siblings, grandparents in product((None, cubes), repeat=2):
        found = automata(zeros, zeros, siblings, grandparents, torch.tensor([N - 1]))
        assert found.heads.tolist() == [[-1, 0, 0, 0, 0, 0]]
        assert not found.children.any() and not found.values.any()


def test_mixed_numbers_are_float64() -> None:
    given = some_scores((True, True, True), [9, 4], torch.float32, 4)
    assert given.siblings is not None
    wide = Given(*(x.double() if x is not None and x.is_floating_point() else x for x in given))  # type: ignore[arg-type]
    equal(automata(*given._replace(siblings=given.siblings.double())), automata(*wide))


def test_fake_tensors() -> None:
    with FakeTensorMode():
        cubes = torch.empty(3, 5, 5, 5)
        found = automata(cubes[..., 0], None, cubes, cubes, torch.empty(3, dtype=torch.int64))
        assert found.children.shape == (3, 5, 5) and found.children.dtype == torch.bool
        assert found.heads.shape == (3, 5) and found.values.dtype == torch.float64


def test_no_sentences() -> None:
    found = automata(torch.empty(0, 3, 3), None, None, None, torch.empty(0, dtype=torch.int64))
    assert found.children.shape == (0, 3, 3) and found.values.shape == (0, 3)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("down", torch.zeros(2, 3, 4), r"down must have shape \[B, N, N\] .* got \[2, 3, 4\]"),
        ("up", torch.zeros(2, 3, 3), r"up must have shape \[2, 4, 4\] on cpu to fit down, got \[2, 3, 3\] on cpu"),
        ("siblings", torch.zeros(2, 4, 4), r"siblings must have shape \[2, 4, 4, 4\]"),
        (
            "grandparents",
            torch.zeros(2, 4, 4, 4).int(),
            "grandparents must be float32 or float64, got int32; convert it",
        ),
        ("lengths", torch.ones(2), r"lengths must be int64 \[2\] on cpu, got float32 \[2\] on cpu"),
    ],
)
def test_messages(name: str, wrong: Tensor, message: str) -> None:
    given = some_scores((True, True, True), [3, 2], torch.float64, 0)
    with pytest.raises(ValueError, match=message):
        automata(*given._replace(**{name: wrong}))
