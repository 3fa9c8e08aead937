"""Trees to test distributions with, and what is true of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor
from torch.autograd import grad

import gpuparse as gp
from gpuparse import plain
from gpuparse.distributions import TreeDistribution
from tests.distributions.families import F64, NEG_INF, close, normal
from tests.oracle import Enumeration, has_crossing, is_tree, random_instance

LEAN = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
# share of forbidden arcs, magnitude of the scores
SCORES = pytest.mark.parametrize(
    ("forbidden", "magnitude"), [(0.0, 1.0), (0.3, 1.0), (0.8, 1.0), (0.5, 30.0), (0.3, 1e4)]
)


@cache
def enumerations(
    words: int,
    forbidden: float,
    magnitude: float,
    dtype: torch.dtype,
    single_root: bool,
    projective: bool,
    batch: int = 6,
) -> tuple[Tensor, Tensor, list[Enumeration]]:
    """A ragged batch with NaN wherever nothing is read, and the truth about each of its sentences."""
    arcs, lengths = random_instance(
        words, batch=batch, words=words, forbidden=forbidden, magnitude=magnitude, dtype=dtype
    )
    return arcs, lengths, enumerate_batch(arcs, lengths, single_root=single_root, projective=projective)


def enumerate_batch(arcs: Tensor, lengths: Tensor, *, single_root: bool, projective: bool) -> list[Enumeration]:
    return [
        Enumeration(a[: n + 1, : n + 1], single_root=single_root, projective=projective)
        for a, n in zip(arcs, lengths.tolist(), strict=True)
    ]


def padded(parts: list[Tensor], nodes: int) -> Tensor:
    """[n+1, n+1] tensors as one [B, N, N], zeros elsewhere."""
    out = torch.zeros(len(parts), nodes, nodes, dtype=F64)
    for b, part in enumerate(parts):
        out[b, : len(part), : len(part)] = part
    return out


def arcs_of(heads: Tensor) -> Tensor:
    """1 at the arcs of trees [..., N], 0 elsewhere: [..., N, N]."""
    nodes = torch.arange(heads.shape[-1])
    return (heads[..., None, :] == nodes[:, None]).double()


def codes(heads: Tensor) -> Tensor:
    """Trees [..., n+1] as whole numbers in lexicographic order."""
    n = heads.shape[-1] - 1
    return (heads[..., 1:] * (n + 1) ** torch.arange(n - 1, -1, -1)).sum(-1)


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


class TreeCases:
    """What tests of trees need. A subclass says which distribution it is of, and what its trees are."""

    distribution: type[TreeDistribution]
    projective: bool
    plain_log_partition: Callable[[Tensor, Tensor, bool], Tensor]

    # ------------------------------------------------------------------------------------------ what it needs

    def enumerated(
        self, words: int, forbidden: float, magnitude: float, dtype: torch.dtype, single_root: bool
    ) -> tuple[TreeDistribution, list[Enumeration]]:
        arcs, lengths, oracles = enumerations(words, forbidden, magnitude, dtype, single_root, self.projective)
        return self.distribution(arcs, lengths, single_root=single_root), oracles

    def check_trees(self, heads: Tensor, lengths: Tensor, single_root: bool) -> None:
        """Are heads [..., B, N] trees of the kind, -1 at node 0 and past the end?"""
        assert heads.dtype == torch.int64
        nodes = heads.shape[-1]
        heads, lengths = heads.reshape(-1, nodes), lengths.expand(heads.shape[:-1]).reshape(-1)
        word = plain.semiring.word_mask(lengths, nodes)
        assert bool(((heads >= 0) == word).all())
        assert bool((heads <= lengths[:, None]).all())
        assert bool(is_tree(heads).all())
        if single_root:
            assert bool(((heads == 0).sum(1) == 1).all())
        if self.projective:
            for n in lengths.unique().tolist():
                assert not bool(has_crossing(heads[lengths == n, : n + 1]).any())

    def log_count(self, n: int, single_root: bool) -> float:
        """log of the number of trees of n words."""
        if self.projective and single_root:
            return math.lgamma(3 * n - 1) - math.lgamma(n) - math.lgamma(2 * n) - math.log(n)
        if self.projective:
            return math.lgamma(3 * n + 1) - math.lgamma(n + 1) - math.lgamma(2 * n + 1) - math.log(2 * n + 1)
        return (n - 1) * math.log(n if single_root else n + 1)

    def plain_entropy(self, arcs: Tensor, lengths: Tensor, single_root: bool) -> Tensor:
        w, _ = plain.semiring.centre(plain.semiring.clean(arcs, lengths))
        mu = plain.generic.marginals(type(self).plain_log_partition, w, lengths, single_root)
        log_z = type(self).plain_log_partition(w, lengths, single_root)
        return log_z - (mu * torch.where(w > NEG_INF, w, 0.0)).flatten(1).sum(1)

    def everything(self, p: TreeDistribution) -> dict[str, Tensor]:
        """All that is not random."""
        heads, scores = p.topk(3)
        return {
            "log_partition": p.log_partition,
            "marginals": p.marginals,
            "argmax": p.argmax,
            "max": p.max,
            "topk heads": heads,
            "topk scores": scores,
            "entropy": p.entropy(),
            "log_prob": p.log_prob(p.argmax),
        }

    def check_against_plain(self, arcs: Tensor, lengths: Tensor, single_root: bool, tol: float) -> None:
        """log Z, marginals, entropy and first and second derivatives, against log-space."""
        f = type(self).plain_log_partition
        arcs = arcs.clone().requires_grad_()
        v = normal(*arcs.shape, seed=5)
        p = self.distribution(arcs, lengths, single_root=single_root)
        close(p.log_partition.detach(), f(arcs, lengths, single_root).detach(), tol)
        mu = plain.generic.marginals(f, arcs.detach(), lengths, single_root)
        close(p.marginals.detach(), mu, tol)
        close(grad(p.log_partition.sum(), arcs, create_graph=True)[0].detach(), mu, tol)
        hvp = plain.generic.hvp(f, arcs.detach(), lengths, single_root, v)
        close(grad((p.marginals * v).sum(), arcs, retain_graph=True)[0], hvp, tol)
        third = plain.generic.third(f, arcs.detach(), lengths, single_root, v, v)
        first = grad((p.marginals * v).sum(), arcs, create_graph=True)[0]
        if first.requires_grad:
            close(grad((first * v).sum(), arcs)[0], third, tol)
        want = self.plain_entropy(arcs, lengths, single_root)
        got = p.entropy()
        close(got.detach(), want.detach(), tol)
        close(grad(got.sum(), arcs)[0], grad(want.sum(), arcs)[0], tol)


class Projective(TreeCases):
    distribution = gp.ProjectiveTrees
    projective = True
    plain_log_partition = staticmethod(plain.eisner.log_partition)


class NonProjective(TreeCases):
    distribution = gp.NonProjectiveTrees
    projective = False
    plain_log_partition = staticmethod(plain.matrix_tree.log_partition)
