"""The conventions: what is refused and in what words, what is a tree, what is never read."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.distributions import TreeDistribution
from gpuparse.ops import check_flags
from gpuparse.ops.plain import check
from gpuparse.structures import trees
from tests import oracle
from tests.distributions.numeric import F32, F64, INF, NAN, NEG_INF, normal
from tests.oracle import all_trees, never_read, random_instance
from tests.refusals import refusal

DISTRIBUTIONS = [gp.ProjectiveTrees, gp.NonProjectiveTrees]

roots = pytest.mark.parametrize("single_root", [True, False], ids=["single", "multi"])
distributions = pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda d: d.__name__)
takers = pytest.mark.parametrize(
    "take", [*DISTRIBUTIONS, gp.mst], ids=lambda f: f.__name__
)  # everything that takes (arcs, lengths, *, single_root, validate_args)

Take = Callable[..., Any]
scores = partial(normal, seed=0)


both_paths = pytest.mark.usefixtures("path")


# ------------------------------------------------------------------------------------------------------- arcs


@takers
@pytest.mark.parametrize(
    ("arcs", "start", "end"),
    [
        *((x, "arcs must be a tensor", type(x).__name__) for x in (None, [[[0.0, 1.0], [0.0, 0.0]]], 3.0, "arcs")),
        *(
            (torch.zeros(1, 3, 3, dtype=getattr(torch, name)), f"arcs must be float32 or float64, got {name}", "")
            for name in ("int64", "int32", "bool", "complex64", "float8_e5m2")
        ),
        *(
            (torch.zeros(shape), "arcs must have shape [B, N, N]", f"got {list(shape)}")
            for shape in ((), (3,), (3, 3), (2, 3, 4), (1, 2, 3, 3), (2, 1, 1), (2, 0, 0), (0, 1, 1))
        ),
    ],
)
def test_bad_arcs(arcs: Any, start: str, end: str, take: Take) -> None:
    text = refusal(lambda: take(arcs))
    assert text.startswith(start) and text.endswith(end)


@both_paths
@takers
@roots
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("bad", [NAN, INF], ids=["nan", "inf"])
@pytest.mark.parametrize("place", [(0, 0, 1), (1, 2, 3), (2, 4, 1), (2, 1, 4)])
def test_nan_and_infinity(
    place: tuple[int, int, int], bad: float, dtype: torch.dtype, take: Take, single_root: bool
) -> None:
    b, h, m = place
    arcs = scores(3, 5, 5, dtype=dtype)
    arcs[place] = bad
    text = refusal(lambda: take(arcs, single_root=single_root))
    assert text.startswith(f"arcs[{b}, {h}, {m}] is {bad} (sentence {b}, head {h}, modifier {m}); ")
    assert refusal(lambda: take(arcs, single_root=single_root, validate_args=True)) == text
    heads = result(take(arcs, single_root=single_root, validate_args=False))
    assert heads[b].tolist() == [-1] * 5
    fine = [x for x in range(3) if x != b]
    assert torch.equal(heads[fine], result(take(arcs[fine], single_root=single_root)))


@both_paths
@takers
def test_the_first_bad_score_is_named(take: Take) -> None:
    arcs = scores(4, 5, 5)
    arcs[1, 3, 3] = NAN  # the diagonal is not read
    arcs[1, 3, 0] = NAN  # nor is column 0
    arcs[2, :, 1] = INF
    arcs[3] = NAN
    arcs[0, 1, 2] = NEG_INF  # forbidden is not bad
    assert refusal(lambda: take(arcs)).startswith("arcs[2, 0, 1] is inf (sentence 2, ")


@takers
@pytest.mark.filterwarnings("error")
def test_bad_scores_with_a_gradient(take: Take) -> None:
    arcs = scores(2, 4, 4)
    arcs[1, 0, 2] = NAN
    assert refusal(lambda: take(arcs.requires_grad_())).startswith("arcs[1, 0, 2] is nan")


# ---------------------------------------------------------------------------------------------------- lengths


@takers
@pytest.mark.parametrize(
    ("lengths", "why"),
    [
        ([1.0, 2.0], "lengths must be integers, got float32"),
        (torch.tensor([1.0, 2.0], dtype=F64), "lengths must be integers, got float64"),
        ([True, False], "lengths must be integers, got bool"),
        (torch.tensor([1, 2], dtype=torch.complex64), "lengths must be integers, got complex64"),
        ("23", "lengths must be a tensor or list of 2 integers: "),
        (["a", "b"], "lengths must be a tensor or list of 2 integers: "),
        ([[1, 2], [3]], "lengths must be a tensor or list of 2 integers: "),
        ([None, 2], "lengths must be a tensor or list of 2 integers: "),
        ({1, 2}, "lengths must be a tensor or list of 2 integers: "),
        ([1], "lengths must have shape [B] = [2] like arcs, got [1]"),
        ([], "lengths must have shape [B] = [2] like arcs, got [0]"),
        (2, "lengths must have shape [B] = [2] like arcs, got []"),
        ([1, 2, 3], "lengths must have shape [B] = [2] like arcs, got [3]"),
        ([[1, 2]], "lengths must have shape [B] = [2] like arcs, got [1, 2]"),
        ([3, 0], "lengths[1] is 0, but sentence 1 must have 1 to 3 words"),
        ([4, 1], "lengths[0] is 4, but sentence 0 must have 1 to 3 words"),
        (torch.tensor([3, -1]), "lengths[1] is -1, but sentence 1 must have 1 to 3 words"),
        ([3, 2**40], f"lengths[1] is {2**40}, but sentence 1 must have 1 to 3 words"),
        ([3, 2**70], "lengths"),
    ],
    ids=repr,
)
def test_bad_lengths(lengths: Any, why: str, take: Take) -> None:
    text = refusal(lambda: take(scores(2, 4, 4), lengths))
    assert text.startswith(why)


@takers
def test_good_lengths(take: Take) -> None:
    """Tensors of any integer type, lists, tuples, ranges, arrays."""
    arcs = scores(3, 4, 4)
    want = result(take(arcs, torch.tensor([1, 2, 3])))
    kinds = (torch.int32, torch.int16, torch.int8, torch.uint8)
    for lengths in (
        [1, 2, 3],
        (1, 2, 3),
        range(1, 4),
        torch.tensor([1, 2, 3]).numpy(),
        *(torch.tensor([1, 2, 3], dtype=kind) for kind in kinds),
    ):
        assert torch.equal(result(take(arcs, lengths)), want)
    assert torch.equal(result(take(arcs)), result(take(arcs, [3, 3, 3])))


def result(x: Any) -> Tensor:
    return x.argmax if isinstance(x, TreeDistribution) else x  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------------- no tree


def impossible(kind: str) -> Tensor:
    """A sentence of four words without any tree of a kind."""
    arcs = scores(5, 5)
    if kind == "no head":
        arcs[:, 3] = NEG_INF
    elif kind == "no root":
        arcs[0] = NEG_INF
    elif kind == "cut off":  # 3 and 4 have each other only
        arcs[:3, 3:] = NEG_INF
    elif kind == "two roots":  # the root is the only head of 1 and of 2
        arcs[1:, 1:3] = NEG_INF
    elif kind == "crossing":  # 0 -> 1 -> 2 -> 4 and 1 -> 3, all else forbidden
        only = torch.tensor([-1, 0, 1, 1, 2])
        arcs = torch.where(only == torch.arange(5)[:, None], arcs, NEG_INF)
    return arcs


@both_paths
@takers
@roots
@pytest.mark.parametrize("kind", ["no head", "no root", "cut off", "two roots", "crossing"])
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_no_tree(kind: str, dtype: torch.dtype, take: Take, single_root: bool) -> None:
    """Refused where there is none of the kind, taken where there is; the sentence is named, and the word."""
    arcs = torch.stack([scores(5, 5), scores(5, 5), impossible(kind)]).to(dtype)
    projective = take is gp.ProjectiveTrees
    fine = (kind == "two roots" and not single_root) or (kind == "crossing" and not projective)
    if fine:
        heads = result(take(arcs, single_root=single_root))
        assert bool((heads[:, 1:] >= 0).all())
        return
    text = refusal(lambda: take(arcs, single_root=single_root))
    name = ("projective tree" if projective else "tree") + (" with a single root" if single_root else "")
    why = ": every head of word 3 scores -inf" if kind == "no head" else " under its -inf scores"
    assert text == f"arcs of sentence 2 allow no {name}{why}"
    heads = result(take(arcs, single_root=single_root, validate_args=False))
    assert heads[2].tolist() == [-1] * 5
    assert torch.equal(heads[:2], result(take(arcs[:2], single_root=single_root)))


@both_paths
@takers
def test_no_tree_within_the_length(take: Take) -> None:
    """Heads past the sentence's end are no heads of its words."""
    arcs = scores(1, 5, 5)
    arcs[0, :3, 2] = NEG_INF
    assert bool((result(take(arcs)) >= 0)[0, 1:].all())
    assert refusal(lambda: take(arcs, [2])).startswith("arcs of sentence 0 allow no ")
    take(arcs, [1])


# ------------------------------------------------------------------------------------------------------ heads


@distributions
@pytest.mark.parametrize(
    ("heads", "why"),
    [
        (None, "heads must be an integer tensor [..., B, N]"),
        ([[-1, 0, 1, 2]] * 2, "heads must be an integer tensor [..., B, N]"),
        (torch.zeros(2, 4), "heads must be an integer tensor [..., B, N]"),
        (torch.zeros(2, 4, dtype=torch.bool), "heads must be an integer tensor [..., B, N]"),
        (torch.zeros(2, 4, dtype=torch.complex64), "heads must be an integer tensor [..., B, N]"),
        (torch.zeros(4, dtype=torch.int64), "heads must have shape [..., B, N] = [..., 2, 4] like arcs, got [4]"),
        (torch.zeros(2, 3, dtype=torch.int64), "heads must have shape [..., B, N] = [..., 2, 4] like arcs"),
        (torch.zeros(1, 4, dtype=torch.int64), "heads must have shape [..., B, N] = [..., 2, 4] like arcs"),
        (torch.zeros(2, 4, 5, dtype=torch.int64), "heads must have shape [..., B, N] = [..., 2, 4] like arcs"),
    ],
    ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_bad_heads(heads: Any, why: str, distribution: type[TreeDistribution]) -> None:
    assert refusal(lambda: distribution(scores(2, 4, 4)).log_prob(heads)).startswith(why)


@both_paths
@distributions
@pytest.mark.parametrize("value", [-1, -7, 3, 99])
def test_heads_out_of_range(value: int, distribution: type[TreeDistribution]) -> None:
    p = distribution(scores(2, 5, 5), [4, 2])
    heads = p.sample((3, 2))
    heads[:, :, 1, 3:] = 99  # not read
    assert bool(p.log_prob(heads).isfinite().all())
    heads[1, 0, 1, 2] = value
    text = refusal(lambda: p.log_prob(heads))
    assert text == f"heads of sentence 1: word 2 has head {value}, not in 0..2"
    unchecked = distribution(scores(2, 5, 5), [4, 2], validate_args=False)
    got = unchecked.log_prob(heads)
    assert got[1, 0, 1] == NEG_INF
    assert int(got.isneginf().sum()) == 1


@distributions
def test_heads_of_any_integer_type(distribution: type[TreeDistribution]) -> None:
    p = distribution(scores(2, 4, 4))
    want = p.log_prob(p.argmax)
    for kind in (torch.int32, torch.int16, torch.int8):
        assert torch.equal(p.log_prob(p.argmax.to(kind)), want)


# ---------------------------------------------------------------------------------------------------- is_tree


@roots
@pytest.mark.parametrize("projective", [True, False], ids=["projective", "nonprojective"])
@pytest.mark.parametrize("n", range(1, 5))
def test_is_tree_of_every_head_vector(n: int, projective: bool, single_root: bool) -> None:
    """Alone, and with padding that holds anything; also heads that are not in the sentence."""
    every = torch.cartesian_prod(*[torch.arange(-1, n + 2)] * n).view(-1, n)
    family = all_trees(n, single_root=single_root, projective=projective)[:, 1:]
    want = (every[:, None] == family).all(2).any(1)
    assert int(want.sum()) == oracle.count(n, single_root=single_root, projective=projective)
    for pad, node0 in ((0, -1), (1, 0), (3, 99)):
        heads = torch.cat(
            [
                torch.full((len(every), 1), node0),
                every,
                torch.randint(-2, 9, (len(every), pad), generator=torch.Generator().manual_seed(0)),
            ],
            1,
        )
        lengths = torch.full((len(every),), n)
        got = trees.is_tree(heads, lengths, projective=projective, single_root=single_root)
        assert torch.equal(got, want)
        batched = trees.is_tree(heads[:, None], lengths[:1], projective=projective, single_root=single_root)
        assert torch.equal(batched[:, 0], want)


@roots
def test_is_tree_of_deep_trees(single_root: bool) -> None:
    """A chain of any depth reaches the root, and one closed at its end does not."""
    for n in (1, 2, 3, 4, 7, 8, 9, 31, 32, 33, 64, 100):
        up, down = torch.arange(-1, n), torch.tensor([-1, *range(2, n + 1), 0])
        ring = torch.tensor([-1, n, *range(1, n)])
        heads, lengths = torch.stack([up, down, ring]), torch.full((3,), n)
        got = trees.is_tree(heads, lengths, projective=True, single_root=single_root)
        assert got.tolist() == [True, True, False]


def test_tree_scores() -> None:
    """Sums of the arcs; nothing else is read."""
    arcs, lengths = random_instance(0, batch=4, words=5, forbidden=0.0, dtype=F32)
    p = gp.ProjectiveTrees(arcs, lengths)
    heads = p.sample((3,))
    got = trees.tree_scores(arcs, heads, lengths)
    for s in range(3):
        for b, n in enumerate(lengths.tolist()):
            want = sum(float(arcs[b, heads[s, b, m], m]) for m in range(1, n + 1))
            assert math.isclose(float(got[s, b]), want, rel_tol=1e-6, abs_tol=1e-7)


# ----------------------------------------------------------------------------------------------- not checked


@both_paths
@takers
def test_unchecked_lengths(take: Take) -> None:
    """Out of range: no crash, and the sentence beside is right."""
    arcs = scores(3, 4, 4)
    want = result(take(arcs[:1], [2]))
    for wrong in (0, -5, 4, 2**40):
        heads = result(take(arcs, [2, wrong, 3], validate_args=False))
        assert torch.equal(heads[:1], want)


# ------------------------------------------------------------------------------------------------ never read


@both_paths
@roots
@pytest.mark.parametrize("junk", [NAN, INF, 1e30])
def test_mst_reads_nothing_else(junk: float, single_root: bool) -> None:
    arcs, lengths = random_instance(6, batch=8, words=9, poison=False)
    dirty = arcs.masked_fill(never_read(lengths, 10), junk)
    assert torch.equal(gp.mst(dirty, lengths, single_root=single_root), gp.mst(arcs, lengths, single_root=single_root))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((2, -1), "(2, -1)"),
        ("a", "'a'"),
        (10**200, "a number of 665 bits"),
        (Fraction(3), "a Fraction"),
        (scores(2), "a Tensor"),
    ],
)
def test_values_in_messages(value: object, text: str) -> None:
    assert trees.short(value) == text


@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("nodes", [2, 3, 8, 9, 17])
def test_what_is_odd_is_seen_wherever_it_is_read(nodes: int, dtype: torch.dtype) -> None:
    """By the kernel as by plain torch: one score of a sentence, at every place, for full sentences and shorter ones."""
    for odd in (NAN, INF, NEG_INF, 2.0**20, -(2.0**20), 2.0**20 - 1, torch.finfo(dtype).min):
        arcs = torch.zeros(nodes**2, nodes**2, dtype=dtype).fill_diagonal_(odd).view(-1, nodes, nodes)
        for words in {nodes - 1, max(1, nodes - 2)}:
            lengths = torch.full((len(arcs),), words)
            assert torch.equal(check_flags(arcs, lengths), check.flags(arcs, lengths))
