"""What is special about trees: what is none, cycles of best heads, counts, other code."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import kl_divergence

import gpuparse as gp
from gpuparse.distributions import TreeDistribution
from gpuparse.structures.masks import word_mask
from tests.distributions.checks import check_against_plain, check_best, check_samples, check_sums
from tests.distributions.families import FAMILIES, enumerate_all
from tests.distributions.numeric import F32, F64, NEG_INF, close, normal
from tests.oracle import count, has_crossing, is_tree


class Kind(NamedTuple):
    name: str
    distribution: type[TreeDistribution]
    projective: bool
    single_root: bool

    def make(self, arcs: Tensor, lengths: Any = None) -> TreeDistribution:
        return self.distribution(arcs, lengths, single_root=self.single_root)

    def log_count(self, n: int) -> float:
        return math.log(count(n, single_root=self.single_root, projective=self.projective))

    def check(self, heads: Tensor, lengths: Tensor) -> None:
        """Are heads [..., B, N] trees of the kind, -1 at node 0 and past the end?"""
        nodes = heads.shape[-1]
        heads, lengths = heads.reshape(-1, nodes), lengths.expand(heads.shape[:-1]).reshape(-1)
        assert bool(((heads >= 0) == word_mask(lengths, nodes)).all())
        assert bool((heads <= lengths[:, None]).all()) and bool(is_tree(heads).all())
        assert not self.single_root or bool(((heads == 0).sum(1) == 1).all())
        for n in lengths.unique().tolist() if self.projective else ():
            assert not bool(has_crossing(heads[lengths == n, : n + 1]).any())


KINDS = [
    Kind("projective", gp.ProjectiveTrees, True, True),
    Kind("projective, many roots", gp.ProjectiveTrees, True, False),
    Kind("any trees", gp.NonProjectiveTrees, False, True),
    Kind("any trees, many roots", gp.NonProjectiveTrees, False, False),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


def arcs_of(heads: Tensor) -> Tensor:
    """1 at the arcs of trees [..., N], 0 elsewhere: [..., N, N]."""
    return (heads[..., None, :] == torch.arange(heads.shape[-1])[:, None]).double()


def with_cycles(words: int, gap: float, *, seed: int, batch: int = 4) -> Tensor:
    """Scores whose best heads form cycles of two and of three words, by `gap` better than all else."""
    arcs = normal(batch, words + 1, words + 1, seed=seed)
    for b in range(batch):
        step = 2 + b % 2
        for first in range(1, words + 1, step):
            ring = list(range(first, min(first + step, words + 1)))
            for h, m in zip(ring, ring[1:] + ring[:1], strict=True):
                if h != m:
                    arcs[b, h, m] += gap
    return arcs


@pytest.mark.parametrize(
    "name", [name for name, family in FAMILIES.items() if next(iter(family.shapes(1, 1))) == "arcs"]
)
def test_log_prob_of_every_head_vector(name: str, dtype: torch.dtype) -> None:
    """Trees of the kind have their probability, all else -inf; node 0 and the padding are not read."""
    family = FAMILIES[name]
    scores, lengths = family.scores(1, words=4, forbidden=0.2, dtype=dtype)
    p = family.make(scores, lengths)
    every = torch.cartesian_prod(*[torch.arange(5)] * 4)
    for b, o in enumerate(enumerate_all(family, scores, lengths)):
        n = int(lengths[b])
        heads = torch.full((len(every), 3, 5), 99)
        heads[:, b, 1 : n + 1] = every[:, :n].clamp(max=n)
        heads[:, [x for x in range(3) if x != b]] = p.argmax[[x for x in range(3) if x != b]]
        known = {tuple(tree): i for i, tree in enumerate(o.structures[:, 1:].tolist())}
        places = torch.tensor([known.get(tuple(tree), -1) for tree in heads[:, b, 1 : n + 1].tolist()])
        want = torch.where(places >= 0, (o.scores - o.log_partition)[places], NEG_INF)
        close(p.log_prob(heads)[:, b], want, 1e-6 if dtype == F32 else 1e-11)


def test_kl_of_other_roots(kind: Kind) -> None:
    arcs = normal(2, 4, 4, seed=0)
    p, q = kind.make(arcs), kind.distribution(arcs, single_root=not kind.single_root)
    for x, y in ((p, q), (q, p)):
        with pytest.raises(ValueError, match="same trees"):
            kl_divergence(x, y)


def test_single_root_is_keyword_only(kind: Kind) -> None:
    with pytest.raises(TypeError):
        kind.distribution(torch.zeros(1, 3, 3), None, True)  # type: ignore[misc]
    p = kind.make(torch.zeros(2, 5, 5), [4, 2])
    assert repr(p) == f"{kind.distribution.__name__}(sentences: 2, words: 4, single_root={kind.single_root})"
    assert kind.distribution(torch.zeros(2, 5, 5)).single_root


# -------------------------------------------------------------------------------------------------- larger and extreme


def test_counts(kind: Kind, dtype: torch.dtype) -> None:
    """All scores zero: Z is the number of trees of 1 to 60 words, and the entropy its logarithm."""
    p = kind.make(torch.zeros(60, 61, 61, dtype=dtype), torch.arange(1, 61))
    want = torch.tensor([kind.log_count(n) for n in range(1, 61)], dtype=F64)
    for found in (p.log_partition, p.entropy()):
        close(found, want, 1e-7 if dtype == F32 else 1e-12)


@pytest.mark.parametrize("gap", [50.0, 500.0, 5000.0])
def test_best_heads_in_cycles(gap: float, kind: Kind) -> None:
    """Nearly one tree, where every word's best head is on a cycle."""
    family = FAMILIES[kind.name]
    small = {"arcs": with_cycles(5, gap, seed=4)}, torch.full((4,), 5)
    check_sums(family, small, F64, gap)
    check_best(family, small, F64)
    check_against_plain(family, {"arcs": with_cycles(13, gap, seed=6)}, torch.tensor([13, 12, 7, 13]))


@pytest.mark.parametrize("gap", [10.0, 100.0, 400.0, 700.0, 5000.0])
@pytest.mark.parametrize("words", [2, 3, 6])
def test_chain_with_ways_back(words: int, gap: float, kind: Kind) -> None:
    """Root -> a -> b -> c ..., from the left and from the right, and arcs back that are bad and in no tree."""
    arcs = torch.full((2, words + 1, words + 1), NEG_INF, dtype=F64)
    trees = torch.full((2, words + 1), -1)
    for b, order in enumerate((list(range(1, words + 1)), list(range(words, 0, -1)))):
        for h, m in zip([0, *order], order, strict=False):
            arcs[b, h, m] = 0.0
            trees[b, m] = h
            if h > 0:
                arcs[b, m, h] = -gap
    p = kind.make(arcs)
    close(p.log_partition, torch.zeros(2), 1e-12)
    close(p.marginals, arcs_of(trees), 1e-12)
    close(p.entropy(), torch.zeros(2), 1e-10)
    assert torch.equal(p.sample((3,)), trees.expand(3, -1, -1))
    check_against_plain(FAMILIES[kind.name], {"arcs": arcs}, p.lengths)


@pytest.mark.parametrize("low", [-1e4, -1e9, -1e14, -1e30])
def test_a_low_score_that_every_tree_needs(low: float, kind: Kind) -> None:
    """Words 1 and 2 prefer each other: then an arc of the root just costs what it does."""
    arcs = torch.full((1, 3, 3), low, dtype=F64)
    arcs[0, 1, 2] = arcs[0, 2, 1] = 0.0
    p = kind.make(arcs)
    close(p.log_partition, torch.tensor([low + math.log(2)], dtype=F64), 1e-12)
    close(p.marginals[0, 0, 1:], torch.tensor([0.5, 0.5]), 1e-11)
    kind.check(p.sample((5,)), p.lengths)


def test_two_hundred_words(kind: Kind, dtype: torch.dtype) -> None:
    arcs = normal(2, 201, 201, seed=0, dtype=dtype) * torch.tensor([1.0, 30.0], dtype=dtype)[:, None, None]
    p = kind.make(arcs.requires_grad_(), [200, 150])
    heads, scores = p.topk(2)
    for found in (p.argmax, p.sample((2,)), heads):
        kind.check(found, p.lengths)
    assert bool((scores[0] >= scores[1]).all()) and bool((p.log_partition >= p.max).all())
    word = word_mask(p.lengths, 201)
    close(p.marginals.sum(1).detach(), word.double(), 1e-5 if dtype == F32 else 1e-11)
    assert bool((p.entropy() > 0).all()) and bool((p.entropy() < kind.log_count(200)).all())
    assert bool(grad(p.entropy().sum(), arcs)[0].isfinite().all())
    even = kind.make(torch.zeros(1, 201, 201, dtype=dtype))
    close(even.log_partition, torch.tensor([kind.log_count(200)], dtype=F64), 1e-6 if dtype == F32 else 1e-12)


# ----------------------------------------------------------------------------------------------------------- other code


@pytest.mark.filterwarnings("ignore:.*does not define `arg_constraints`:UserWarning")
@pytest.mark.parametrize("single_root", [True, False])
def test_against_torch_struct(single_root: bool) -> None:
    """Its potentials have the root's scores on the diagonal."""
    torch_struct = pytest.importorskip("torch_struct")
    arcs, lengths = normal(4, 13, 13, seed=0), torch.tensor([12, 7, 10, 1])

    def folded(x: Tensor) -> Tensor:
        inner = x[:, 1:, 1:].clone()
        inner.diagonal(dim1=1, dim2=2).copy_(x[:, 0, 1:])
        return inner

    potentials = folded(arcs).requires_grad_() * 1.0
    theirs: Any = torch_struct.DependencyCRF(potentials, lengths=lengths, multiroot=not single_root)
    p = gp.ProjectiveTrees(arcs, lengths, single_root=single_root)
    close(p.log_partition, theirs.partition.detach(), 1e-12)
    close(folded(p.marginals), theirs.marginals.detach(), 1e-12)


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("words", [1, 2, 20, 60])
def test_even_marginals(words: int, single_root: bool) -> None:
    """All trees alike: with a single root every head has 1/n, else 1/(n+1) and the root twice that."""
    mu = gp.NonProjectiveTrees(torch.zeros(1, words + 1, words + 1, dtype=F64), single_root=single_root).marginals
    want = torch.full((words + 1, words + 1), 1 / (words if single_root else words + 1), dtype=F64)
    want[0] = 1 / words if single_root else 2 / (words + 1)
    want[:, 0] = 0
    close(mu[0], want.fill_diagonal_(0), 1e-13)


@pytest.mark.parametrize("order", ([0, 1, 2, 3], [0, 2, 1, 3], [0, 2, 3, 1], [0, 3, 2, 1]))
def test_a_word_with_no_other_head(order: list[int]) -> None:
    """Words 2 and 3 have no heads but each other and the root, whichever is taken first."""
    arcs = torch.full((1, 4, 4), NEG_INF, dtype=F64)
    for h, m in ((0, 2), (0, 3), (2, 3), (3, 2), (2, 1), (3, 1)):
        arcs[0, h, m] = 0.25 * h - 0.5 * m
    scores, lengths, family = {"arcs": arcs[:, order][:, :, order]}, torch.tensor([3]), FAMILIES["any trees"]
    check_sums(family, (scores, lengths), F64, 1.0)
    check_against_plain(family, scores, lengths)
    check_samples(family, scores, lengths)
