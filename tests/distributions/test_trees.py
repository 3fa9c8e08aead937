"""One test that every distribution over trees passes: enumeration, counts, finite differences, other code."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck
from torch.distributions import Distribution, kl_divergence

import gpuparse as gp
from gpuparse import plain
from gpuparse.backend import backend_for
from gpuparse.distributions import TreeDistribution
from tests.oracle import Enumeration, all_trees, count, has_crossing, is_tree, never_read, random_instance

INF, NEG_INF, NAN = math.inf, -math.inf, math.nan
F32, F64 = torch.float32, torch.float64
LEAN = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
# share of forbidden arcs, magnitude of the scores
SCORES = pytest.mark.parametrize(
    ("forbidden", "magnitude"), [(0.0, 1.0), (0.3, 1.0), (0.8, 1.0), (0.5, 30.0), (0.3, 1e4)]
)


@pytest.fixture(scope="module", params=[True, False], ids=["single", "multi"])
def single_root(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module", params=[F64, F32], ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors this small only lose by threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def close(got: Tensor, want: Tensor, tol: float) -> None:
    """Equal up to `tol`, absolute below 1 and relative above; of any dtype."""
    torch.testing.assert_close(got.double(), want.double(), rtol=tol, atol=tol)


def tolerance(dtype: torch.dtype, magnitude: float = 1.0) -> float:
    """Rounding of the result; in float64 also of the scores, which are worth `magnitude` of their digits."""
    return 3e-7 if dtype == F32 else max(1e-11, 1e-13 * magnitude)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=dtype)


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


def rival(arcs: Tensor, lengths: Tensor, *, forbidden: float, seed: int) -> Tensor:
    """Other scores of the same sentences; -inf by a mask of their own, which leaves one tree of `arcs`."""
    g = generator(seed)
    other = torch.randn(arcs.shape, generator=g, dtype=F64)
    mask = torch.rand(arcs.shape, generator=g) < forbidden
    for b, o in enumerate(enumerate_batch(arcs, lengths, single_root=True, projective=True)):
        best = o.trees[int(o.scores.argmax())]
        mask[b, best[1:], torch.arange(1, len(best))] = False
    other = other.masked_fill(mask, NEG_INF)
    return other.masked_fill(never_read(lengths, arcs.shape[1]), NAN).to(arcs.dtype)


def arcs_of(heads: Tensor) -> Tensor:
    """1 at the arcs of trees [..., N], 0 elsewhere: [..., N, N]."""
    nodes = torch.arange(heads.shape[-1])
    return (heads[..., None, :] == nodes[:, None]).double()


def chi_square(seen: Tensor, probs: Tensor) -> tuple[float, float]:
    """The statistic of counts [T] against probabilities [T], rare ones pooled, and what it hardly exceeds."""
    total = int(seen.sum())
    want, seen = probs * total, seen.double()
    often = want >= 5
    if bool((~often).any()) and float(want[~often].sum()) >= 5:
        want = torch.cat([want[often], want[~often].sum()[None]])
        seen = torch.cat([seen[often], seen[~often].sum()[None]])
    else:
        want, seen = want[often], seen[often]
    freedom = max(1, len(want) - 1)
    return float(((seen - want) ** 2 / want).sum()), freedom + 4 * math.sqrt(2 * freedom) + 8


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


class TreeDistributionTests:
    """The test. A subclass says which distribution it is of, and what its trees are."""

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

    # ------------------------------------------------------------------------------------ against enumeration

    @SCORES
    @pytest.mark.parametrize("words", range(1, 6))
    def test_log_partition(
        self, words: int, forbidden: float, magnitude: float, single_root: bool, dtype: torch.dtype
    ) -> None:
        p, oracles = self.enumerated(words, forbidden, magnitude, dtype, single_root)
        assert p.log_partition.dtype == dtype
        close(p.log_partition, torch.stack([o.log_partition for o in oracles]), tolerance(dtype))

    @SCORES
    @pytest.mark.parametrize("words", range(1, 6))
    def test_marginals(
        self, words: int, forbidden: float, magnitude: float, single_root: bool, dtype: torch.dtype
    ) -> None:
        p, oracles = self.enumerated(words, forbidden, magnitude, dtype, single_root)
        assert p.marginals.dtype == dtype
        tol = tolerance(dtype, magnitude)
        close(p.marginals, padded([o.marginals for o in oracles], words + 1), tol)
        assert bool((p.marginals >= 0).all())
        word = plain.semiring.word_mask(p.lengths, words + 1)
        close(p.marginals.sum(1), word.double(), tol)  # every word has one head
        assert not bool(p.marginals[never_read(p.lengths, words + 1)].any())
        assert not bool(p.marginals[p.arcs == NEG_INF].any())
        if single_root:
            close(p.marginals[:, 0].sum(1), torch.ones(len(oracles)), tol)

    @SCORES
    @pytest.mark.parametrize("words", range(1, 6))
    def test_argmax_and_max(
        self, words: int, forbidden: float, magnitude: float, single_root: bool, dtype: torch.dtype
    ) -> None:
        p, oracles = self.enumerated(words, forbidden, magnitude, dtype, single_root)
        heads = p.argmax
        assert heads.shape == (len(oracles), words + 1)
        self.check_trees(heads, p.lengths, single_root)
        for b, o in enumerate(oracles):
            close(o.score(heads[b, : int(p.lengths[b]) + 1]), o.max, 1e-13)
        assert p.max.dtype == dtype
        close(p.max, torch.stack([o.max for o in oracles]), tolerance(dtype))
        assert torch.equal(p.mode, heads)

    @SCORES
    @pytest.mark.parametrize("ties", [False, True], ids=["real", "ties"])
    @pytest.mark.parametrize("k", [1, 3, 64])
    def test_topk(
        self, k: int, ties: bool, forbidden: float, magnitude: float, single_root: bool, dtype: torch.dtype
    ) -> None:
        arcs, lengths, oracles = enumerations(5, forbidden, magnitude, dtype, single_root, self.projective)
        if ties:
            arcs = (arcs * (2 / magnitude)).round()
            oracles = enumerate_batch(arcs, lengths, single_root=single_root, projective=self.projective)
        p = self.distribution(arcs, lengths, single_root=single_root)
        heads, scores = p.topk(k)
        assert heads.shape == (k, *arcs.shape[:2])
        assert scores.shape == (k, len(arcs))
        assert (heads.dtype, scores.dtype) == (torch.int64, dtype)
        for b, o in enumerate(oracles):
            n = int(lengths[b])
            exist = min(k, int((o.scores > NEG_INF).sum()))
            assert bool((heads[exist:, b] == -1).all())
            assert bool((scores[exist:, b] == NEG_INF).all())
            self.check_trees(heads[:exist, b], lengths[b], single_root)
            assert len(heads[:exist, b].unique(dim=0)) == exist
            close(scores[:exist, b], o.sorted_scores[:exist], tolerance(dtype))
            found = torch.stack([o.score(t) for t in heads[:exist, b, : n + 1]])
            close(found, o.sorted_scores[:exist], 1e-13)
        close(scores[0], p.max, 1e-13)

    def test_topk_of_what(self, single_root: bool) -> None:
        p, _ = self.enumerated(3, 0.3, 1.0, F64, single_root)
        for k in (0, 65, -1, 2.0, True, None):
            with pytest.raises(ValueError, match=r"k must be a whole number from 1 to 64"):
                p.topk(k)  # type: ignore[arg-type]

    def test_topk_scores_and_max_have_gradients(self, single_root: bool) -> None:
        arcs, lengths, _ = enumerations(4, 0.3, 1.0, F64, single_root, self.projective)
        arcs = arcs.clone().requires_grad_()
        p = self.distribution(arcs, lengths, single_root=single_root)
        assert torch.equal(grad(p.max.sum(), arcs)[0], arcs_of(p.argmax))
        heads, scores = p.topk(4)
        weight = torch.tensor([1.0, 0.5, -2.0, 3.0], dtype=F64)[:, None]
        total = torch.where(scores > NEG_INF, scores * weight, 0.0).sum()
        close(grad(total, arcs)[0], (arcs_of(heads) * weight[:, :, None, None]).sum(0), 1e-14)

    @SCORES
    @pytest.mark.parametrize("words", range(1, 6))
    def test_entropy(
        self, words: int, forbidden: float, magnitude: float, single_root: bool, dtype: torch.dtype
    ) -> None:
        p, oracles = self.enumerated(words, forbidden, magnitude, dtype, single_root)
        assert p.entropy().dtype == dtype
        close(p.entropy(), torch.stack([o.entropy for o in oracles]), tolerance(dtype, 10 * magnitude))

    @SCORES
    @pytest.mark.parametrize("words", range(1, 5))
    def test_log_prob_of_every_head_vector(
        self, words: int, forbidden: float, magnitude: float, single_root: bool, dtype: torch.dtype
    ) -> None:
        """Trees of the kind have their probability, all else -inf; node 0 and the padding are not read."""
        p, oracles = self.enumerated(words, forbidden, magnitude, dtype, single_root)
        tol = tolerance(dtype, magnitude)
        rows = torch.arange((words + 1) ** words)
        heads = torch.full((len(rows), len(oracles), words + 1), 99)
        want = torch.full(heads.shape[:2], NEG_INF, dtype=F64)
        number = []
        for b, o in enumerate(oracles):
            n = len(o.trees[0]) - 1
            every = torch.cartesian_prod(*[torch.arange(n + 1)] * n).view(-1, n)
            log_probs = torch.full((len(every),), NEG_INF, dtype=F64)
            log_probs[codes(o.trees)] = o.scores - o.log_partition
            heads[:, b, 1 : n + 1] = every[rows % len(every)]  # a shorter sentence's come several times
            want[:, b] = log_probs[rows % len(every)]
            number.append(len(every))
        got = p.log_prob(heads)
        assert got.shape == heads.shape[:2]
        assert got.dtype == dtype
        assert torch.equal(got.isneginf(), want.isneginf())
        close(got, want, tol)
        for b, m in enumerate(number):
            close(got[:m, b].double().exp().sum(), torch.ones(()), 10 * tol)
        # one tree a sentence, and any dimensions before
        close(p.log_prob(heads[-1]), want[-1], tol)
        close(p.log_prob(heads[None, :, None]), want[None, :, None], tol)

    def test_log_prob_of_no_tree(self, single_root: bool) -> None:
        p = self.distribution(torch.zeros(1, 5, 5), single_root=single_root)

        def log_prob(*heads: int) -> float:
            return float(p.log_prob(torch.tensor([[-1, *heads]])))

        close(torch.tensor(log_prob(0, 1, 2, 3)), torch.tensor(-self.log_count(4, single_root)), 1e-6)
        assert log_prob(2, 1, 0, 3) == NEG_INF  # a cycle
        assert log_prob(2, 3, 1, 0) == NEG_INF
        assert log_prob(1, 0, 2, 3) == NEG_INF  # its own head
        assert (log_prob(0, 0, 2, 3) == NEG_INF) == single_root  # two words under the root
        assert (log_prob(0, 1, 1, 2) == NEG_INF) == self.projective  # 1 -> 3 and 2 -> 4 cross
        assert (log_prob(3, 0, 2, 2) == NEG_INF) == self.projective  # 0 -> 2 and 3 -> 1 cross

    # -------------------------------------------------------------------------------------- two distributions

    @pytest.mark.parametrize("forbidden", [0.0, 0.3])
    @pytest.mark.parametrize("words", range(1, 6))
    def test_kl(self, words: int, forbidden: float, single_root: bool, dtype: torch.dtype) -> None:
        """Finite if q forbids nothing that p allows, inf otherwise."""
        arcs, lengths, oracles = enumerations(words, 0.3, 1.0, dtype, single_root, self.projective)
        other = rival(arcs, lengths, forbidden=forbidden, seed=words)
        rivals = enumerate_batch(other, lengths, single_root=single_root, projective=self.projective)
        p = self.distribution(arcs, lengths, single_root=single_root)
        q = self.distribution(other, lengths, single_root=single_root)
        assert kl_divergence(p, q).dtype == dtype
        for a, b, x, y in ((p, q, oracles, rivals), (q, p, rivals, oracles)):
            want = torch.stack([s.kl(t) for s, t in zip(x, y, strict=True)])
            close(kl_divergence(a, b), want, tolerance(dtype))
        assert bool((kl_divergence(p, p) == 0).all())
        shifted = self.distribution(arcs + 3.0, lengths, single_root=single_root)  # the same distribution
        close(kl_divergence(p, shifted), torch.zeros(len(arcs)), 1e-6 if dtype == F32 else 1e-13)

    @pytest.mark.parametrize("gap", [5.0, 50.0, 300.0, 800.0, 1e5])
    def test_kl_of_a_forbidden_tree_that_is_rare(self, gap: float, single_root: bool) -> None:
        """However small the probability of what q forbids, the divergence is infinite."""
        arcs = torch.zeros(1, 3, 3, dtype=F64)
        arcs[0, 0, 1] = arcs[0, 1, 2] = gap / 2
        other = torch.zeros(1, 3, 3, dtype=F64)
        other[0, 2, 1] = NEG_INF
        p = self.distribution(arcs, single_root=single_root)
        q = self.distribution(other, single_root=single_root)
        assert kl_divergence(p, q).tolist() == [INF]
        assert bool(kl_divergence(q, p).isfinite())

    def test_kl_ignores_what_is_in_no_tree(self, single_root: bool) -> None:
        """q forbids an arc that p allows, but that no tree of p can have."""
        arcs = normal(1, 4, 4, seed=0)
        arcs[0, 0, 2:] = arcs[0, 1, 3] = arcs[0, 3, 2] = NEG_INF  # 0 -> 1 -> 2 -> 3 is what is left
        other = arcs.clone()
        other[0, 2, 1] = other[0, 3, 1] = NEG_INF
        p, q = (self.distribution(x, single_root=single_root) for x in (arcs, other))
        close(kl_divergence(p, q), torch.zeros(1), 1e-14)
        close(kl_divergence(q, p), torch.zeros(1), 1e-14)

    def test_kl_gradients(self, single_root: bool) -> None:
        arcs, lengths = random_instance(8, batch=2, words=3, forbidden=0.35)
        where = arcs.isfinite()
        x, y = (normal(int(where.sum()), seed=s).requires_grad_() for s in (0, 1))

        def kl(x: Tensor, y: Tensor) -> Tensor:
            p, q = (self.distribution(arcs.masked_scatter(where, z), lengths, single_root=single_root) for z in (x, y))
            return kl_divergence(p, q)

        assert gradcheck(kl, (x, y))
        assert gradgradcheck(kl, (x, y))

    @pytest.mark.parametrize("shift", [0.0, 3.0])
    def test_kl_hessian_is_the_fisher_information(self, shift: float, single_root: bool) -> None:
        """At p = q (also if a word's scores are shifted, which changes nothing) it is the covariance."""
        arcs, lengths, oracles = enumerations(4, 0.0, 1.0, F64, single_root, self.projective, batch=16)
        arcs = arcs.masked_fill(never_read(lengths, 5), 0.0)
        v = normal(*arcs.shape, seed=2)
        other = (arcs + shift * normal(len(arcs), 1, 5, seed=3)).requires_grad_()
        p = self.distribution(arcs, lengths, single_root=single_root)
        value = kl_divergence(p, self.distribution(other, lengths, single_root=single_root))
        (first,) = grad(value.sum(), other, create_graph=True)
        (second,) = grad((first * v).sum(), other)
        size = [n + 1 for n in lengths.tolist()]
        want = padded([o.hvp(v[b, :s, :s]) for b, (o, s) in enumerate(zip(oracles, size, strict=True))], 5)
        close(first.detach(), torch.zeros_like(arcs), 1e-12)
        close(second, want, 1e-11)

    def test_kl_of_different_kinds(self, single_root: bool) -> None:
        arcs = normal(2, 4, 4, seed=0)
        p = self.distribution(arcs, single_root=single_root)
        wrong: list[tuple[Distribution, str]] = [
            (self.distribution(arcs, single_root=not single_root), "same trees"),
            (self.distribution(normal(2, 5, 5, seed=0), single_root=single_root), "same shape"),
            (self.distribution(normal(1, 4, 4, seed=0), single_root=single_root), "same shape"),
            (self.distribution(arcs, torch.tensor([3, 2]), single_root=single_root), "lengths"),
        ]
        wrong += [
            (kind(arcs, single_root=single_root), "same trees")
            for kind in (gp.ProjectiveTrees, gp.NonProjectiveTrees)
            if kind is not self.distribution
        ]
        for q, why in wrong:
            for x, y in ((p, q), (q, p)):
                with pytest.raises(ValueError, match=why):
                    kl_divergence(x, y)
        with pytest.raises(NotImplementedError):
            kl_divergence(p, torch.distributions.Categorical(torch.ones(2, 3)))

    # ------------------------------------------------------------------------------------------------ samples

    @pytest.mark.parametrize("scores", ["even", "masked", "wide"])
    def test_sample_frequencies(self, scores: str, single_root: bool, dtype: torch.dtype) -> None:
        """20,000 draws of whole trees, by chi-square; never a tree of probability 0."""
        arcs, lengths = random_instance(11, batch=4, words=4, forbidden=0.0 if scores == "even" else 0.4, dtype=dtype)
        lengths[1] = 3
        if scores == "wide":  # a range that no double holds, and trees that are all the same good
            arcs = arcs + (arcs > 0) * 3000.0
        arcs = arcs.masked_fill(never_read(lengths, 5), NAN)
        p = self.distribution(arcs, lengths, single_root=single_root)
        torch.manual_seed(0)
        heads = p.sample((20_000,))
        assert heads.shape == (20_000, 4, 5)
        self.check_trees(heads, lengths, single_root)
        oracles = enumerate_batch(arcs, lengths, single_root=single_root, projective=self.projective)
        for b, o in enumerate(oracles):
            n = int(lengths[b])
            drawn = torch.searchsorted(codes(o.trees), codes(heads[:, b, : n + 1]))
            seen = drawn.bincount(minlength=len(o.trees))
            assert not bool(seen[o.probs == 0].any())
            statistic, bound = chi_square(seen, o.probs)
            assert statistic < bound, (b, n)

    def test_samples_of_larger_sentences(self, single_root: bool) -> None:
        """The arcs of the draws come as often as the marginals say."""
        arcs, lengths = random_instance(5, batch=3, words=14, forbidden=0.4)
        p = self.distribution(arcs, lengths, single_root=single_root)
        torch.manual_seed(1)
        draws = 4000
        heads = p.sample((draws,))
        self.check_trees(heads, lengths, single_root)
        seen, mu = arcs_of(heads).mean(0), p.marginals
        sigma = (mu * (1 - mu) / draws).clamp(min=0).sqrt()
        assert bool(((seen - mu).abs() <= 5 * sigma + 5 / draws).all())
        assert not bool(seen[arcs == NEG_INF].any())

    def test_samples_are_independent(self, single_root: bool) -> None:
        """Of the same sentence twice in a batch, and of one draw and the next."""
        p = self.distribution(normal(1, 4, 4, seed=3), single_root=single_root).expand([2])
        torch.manual_seed(2)
        heads = p.sample((20_000,))
        trees = all_trees(3, single_root=single_root, projective=self.projective)
        drawn = torch.searchsorted(codes(trees), codes(heads))
        probs = p.log_prob(trees[:, None].expand(-1, 2, -1)).exp()[:, 0]
        pairs = torch.outer(probs, probs).flatten()
        for first, second in ((drawn[:, 0], drawn[:, 1]), (drawn[0::2, 0], drawn[1::2, 0])):
            seen = (first * len(trees) + second).bincount(minlength=len(pairs))
            statistic, bound = chi_square(seen, pairs)
            assert statistic < bound

    def test_sample_shapes_and_seeds(self, single_root: bool) -> None:
        p, oracles = self.enumerated(5, 0.3, 1.0, F64, single_root)
        for shape in ((), (2, 3), (7,), (0,), torch.Size([2])):
            heads = p.sample(shape)
            assert heads.shape == (*shape, len(oracles), 6)
            assert not heads.requires_grad
            self.check_trees(heads, p.lengths, single_root)
        torch.manual_seed(7)
        first, second = p.sample((50,)), p.sample((50,))
        assert not torch.equal(first, second)
        torch.manual_seed(7)
        assert torch.equal(p.sample((50,)), first)
        assert torch.equal(p.sample((50,)), second)
        torch.manual_seed(8)
        assert not torch.equal(p.sample((50,)), first)

    def test_samples_of_wide_scores(self, single_root: bool) -> None:
        """Scores to 1e4 either way: every draw is a tree that is possible."""
        arcs, lengths = random_instance(9, batch=4, words=40, forbidden=0.7, magnitude=1e4)
        p = self.distribution(arcs, lengths, single_root=single_root)
        heads = p.sample((20,))
        self.check_trees(heads, lengths, single_root)
        assert bool(p.log_prob(heads).isfinite().all())

    # -------------------------------------------------------------------------------------------- derivatives

    @SCORES
    def test_derivatives_against_enumeration(
        self, forbidden: float, magnitude: float, single_root: bool, dtype: torch.dtype
    ) -> None:
        """Derivatives of log Z up to the third, with NaN where no score and no direction is read."""
        arcs, lengths, oracles = enumerations(5, forbidden, magnitude, dtype, single_root, self.projective)
        u, v = normal(2, *arcs.shape, seed=1, dtype=dtype)
        size = [n + 1 for n in lengths.tolist()]
        unread = never_read(lengths, 6)
        arcs = arcs.clone().requires_grad_()
        p = self.distribution(arcs, lengths, single_root=single_root)
        (first,) = grad(p.log_partition.sum(), arcs, create_graph=True)
        (second,) = grad(first, arcs, v.masked_fill(unread, NAN), create_graph=True)
        (third,) = grad(second, arcs, u.masked_fill(unread, NAN))
        tol = 1e-5 if dtype == F32 else tolerance(dtype, magnitude)
        close(first.detach(), padded([o.marginals for o in oracles], 6), tol)
        want = [o.hvp(v[b, :s, :s]) for b, (o, s) in enumerate(zip(oracles, size, strict=True))]
        close(second.detach(), padded(want, 6), tol)
        want = [o.third(u[b, :s, :s], v[b, :s, :s]) for b, (o, s) in enumerate(zip(oracles, size, strict=True))]
        close(third, padded(want, 6), tol)
        for g in (first, second, third):
            assert not bool(g[unread].any())
            assert not bool(g[arcs == NEG_INF].any())

    @pytest.mark.parametrize("what", ["log_partition", "marginals", "entropy", "log_prob", "max"])
    def test_gradcheck(self, what: str, single_root: bool) -> None:
        """By finite differences over the finite scores of a masked, ragged batch."""
        arcs, lengths = random_instance(8, batch=2, words=3, forbidden=0.35)
        where = arcs.isfinite()
        assert bool((arcs == NEG_INF).any())
        assert lengths.tolist() != [3, 3]
        free = arcs[where].clone().requires_grad_()
        heads = self.distribution(arcs, lengths, single_root=single_root).argmax

        def f(values: Tensor) -> Tensor:
            p = self.distribution(arcs.masked_scatter(where, values), lengths, single_root=single_root)
            if what == "log_prob":
                return p.log_prob(heads)
            return p.entropy() if what == "entropy" else getattr(p, what)  # type: ignore[no-any-return]

        assert gradcheck(f, (free,))
        if what != "max":  # linear in pieces
            assert gradgradcheck(f, (free,))

    @pytest.mark.parametrize("what", ["log_partition", "entropy"])
    def test_any_order_of_derivative(self, what: str, single_root: bool) -> None:
        """To the fourth, by directions that depend on the scores themselves, as plain torch has them."""
        start, lengths = random_instance(2, batch=2, words=3, forbidden=0.2, poison=False)

        def derivatives(f: Callable[[Tensor], Tensor]) -> list[Tensor]:
            arcs = start.clone().requires_grad_()
            x = torch.where(arcs.isfinite(), arcs, 0.0)
            (g,) = grad(f(arcs).sum(), arcs, create_graph=True)
            out = [g.detach()]
            for _ in range(3):
                (g,) = grad((g * g * x).sum(), arcs, create_graph=True)
                out.append(g.detach())
            return out

        def ours(arcs: Tensor) -> Tensor:
            p = self.distribution(arcs, lengths, single_root=single_root)
            return p.entropy() if what == "entropy" else p.log_partition

        def plainly(arcs: Tensor) -> Tensor:
            f = self.plain_entropy if what == "entropy" else type(self).plain_log_partition
            return f(arcs, lengths, single_root)

        for order, (got, want) in enumerate(zip(derivatives(ours), derivatives(plainly), strict=True), 1):
            scale = float(want.abs().max().clamp(min=1))
            assert float((got - want).abs().max()) <= 1e-10 * scale, f"derivative {order}"

    def test_no_grad_then_grad(self, single_root: bool) -> None:
        """What was computed without a gradient is not given out later where one is wanted."""
        arcs, lengths, oracles = enumerations(4, 0.3, 1.0, F64, single_root, self.projective)
        arcs = arcs.clone().requires_grad_()
        with torch.no_grad():
            p = self.distribution(arcs, lengths, single_root=single_root)
            q = self.distribution(arcs.detach() + 1.0, lengths, single_root=single_root)
            without = self.everything(p)
            kl_divergence(p, q)
        assert not any(x.requires_grad for x in without.values())
        (mu,) = grad(p.log_partition.sum(), arcs, retain_graph=True)
        close(mu, padded([o.marginals for o in oracles], 5), 1e-12)
        fresh = self.distribution(arcs, lengths, single_root=single_root)
        for f in (
            lambda d: d.marginals.square().sum(),
            lambda d: d.entropy().sum(),
            lambda d: d.max.sum(),
            lambda d: d.topk(2)[1][0].sum(),
            lambda d: d.log_prob(d.argmax).sum(),
            lambda d: kl_divergence(d, q).sum(),
            lambda d: kl_divergence(q, d).sum(),
        ):
            assert torch.equal(grad(f(p), arcs, retain_graph=True)[0], grad(f(fresh), arcs, retain_graph=True)[0])
        with torch.no_grad():
            assert not p.entropy().requires_grad or p.entropy().detach().equal(without["entropy"])

    def test_scores_that_require_a_gradient(self, single_root: bool, dtype: torch.dtype) -> None:
        """The same values with and without; backward fills .grad of a leaf through what made the scores."""
        arcs, lengths, _ = enumerations(5, 0.3, 1.0, dtype, single_root, self.projective)
        leaf = arcs.clone().requires_grad_()
        p = self.distribution(leaf * 1.0, lengths, single_root=single_root)
        q = self.distribution(arcs, lengths, single_root=single_root)
        a, b = self.everything(p), self.everything(q)
        for name in a:
            assert torch.equal(a[name].detach(), b[name]), name
            assert not b[name].requires_grad
            assert a[name].requires_grad == a[name].is_floating_point()
        (-p.log_prob(p.argmax).sum() + p.entropy().sum()).backward()
        assert leaf.grad is not None
        assert leaf.grad.dtype == dtype
        assert bool(leaf.grad.isfinite().all())
        assert not bool(leaf.grad[never_read(lengths, 6)].any())

    # ------------------------------------------------------------------------------------- larger and extreme

    def test_counts(self, single_root: bool, dtype: torch.dtype) -> None:
        """All scores zero: Z is the number of trees of 1 to 60 words, and the entropy its logarithm."""
        lengths = torch.arange(1, 61)
        p = self.distribution(torch.zeros(60, 61, 61, dtype=dtype), lengths, single_root=single_root)
        want = torch.tensor([self.log_count(n, single_root) for n in range(1, 61)], dtype=F64)
        close(p.log_partition, want, 1e-7 if dtype == F32 else 1e-12)
        close(p.entropy(), want, 1e-7 if dtype == F32 else 1e-12)

    def test_closed_forms_of_the_counts(self, single_root: bool) -> None:
        for n in range(1, 61):
            exact = count(n, single_root=single_root, projective=self.projective)
            assert math.isclose(self.log_count(n, single_root), math.log(exact), rel_tol=1e-13, abs_tol=1e-12)
            if n <= 5:
                assert exact == len(all_trees(n, single_root=single_root, projective=self.projective))

    @pytest.mark.parametrize("words", [2, 5, 12, 30])
    def test_large_magnitudes(self, words: int, single_root: bool) -> None:
        """Scores uniform in ±1e4; and few values of that size, so that many trees are about equal."""
        g = generator(words)
        shape = (3, words + 1, words + 1)
        uniform = (torch.rand(shape, generator=g, dtype=F64) * 2 - 1) * 1e4
        few = torch.randint(-1, 2, shape, generator=g) * 1e4 + torch.randn(shape, generator=g, dtype=F64)
        lengths = torch.tensor([words, max(1, words - 1), max(1, words // 2)])
        for arcs in (uniform, few):
            self.check_against_plain(arcs, lengths, single_root, 1e-9)

    @pytest.mark.parametrize("gap", [50.0, 500.0, 5000.0])
    def test_best_heads_in_cycles(self, gap: float, single_root: bool) -> None:
        """Nearly one tree, where every word's best head is on a cycle."""
        small = with_cycles(5, gap, seed=4)
        p = self.distribution(small, single_root=single_root)
        lengths = torch.full((4,), 5)
        oracles = enumerate_batch(small, lengths, single_root=single_root, projective=self.projective)
        close(p.log_partition, torch.stack([o.log_partition for o in oracles]), 1e-12)
        close(p.marginals, torch.stack([o.marginals for o in oracles]), 1e-10)
        close(p.entropy(), torch.stack([o.entropy for o in oracles]), 1e-9)
        close(p.max, torch.stack([o.max for o in oracles]), 1e-13)
        self.check_against_plain(with_cycles(13, gap, seed=6), torch.tensor([13, 12, 7, 13]), single_root, 1e-9)

    @pytest.mark.parametrize("gap", [10.0, 100.0, 400.0, 700.0, 5000.0])
    @pytest.mark.parametrize("words", [2, 3, 6])
    def test_chain_with_ways_back(self, words: int, gap: float, single_root: bool) -> None:
        """Root -> a -> b -> c ..., from the left and from the right, and arcs back that are bad and in no tree."""
        arcs = torch.full((2, words + 1, words + 1), NEG_INF, dtype=F64)
        trees = torch.full((2, words + 1), -1)
        for b, order in enumerate((list(range(1, words + 1)), list(range(words, 0, -1)))):
            for h, m in zip([0, *order], order, strict=False):
                arcs[b, h, m] = 0.0
                trees[b, m] = h
                if h > 0:
                    arcs[b, m, h] = -gap
        p = self.distribution(arcs, single_root=single_root)
        close(p.log_partition, torch.zeros(2), 1e-12)
        close(p.marginals, arcs_of(trees), 1e-12)
        close(p.entropy(), torch.zeros(2), 1e-10)
        assert torch.equal(p.sample((3,)), trees.expand(3, -1, -1))
        self.check_against_plain(arcs, p.lengths, single_root, 1e-9)

    @pytest.mark.parametrize("magnitude", [100.0, 700.0, 3000.0])
    @pytest.mark.parametrize("forbidden", [0.3, 0.7])
    def test_many_sentences_of_a_wide_range(self, forbidden: float, magnitude: float, single_root: bool) -> None:
        """About where the range of doubles ends."""
        for words in (3, 6):
            arcs, lengths = random_instance(
                words, batch=300, words=words, forbidden=forbidden, magnitude=magnitude, poison=False
            )
            self.check_against_plain(arcs, lengths, single_root, 1e-9)
            heads = self.distribution(arcs, lengths, single_root=single_root).sample()
            self.check_trees(heads, lengths, single_root)
            score = torch.where(arcs_of(heads) > 0, arcs, 0.0).sum((1, 2))
            assert bool(score.isfinite().all())

    def test_one_possible_tree(self, single_root: bool, dtype: torch.dtype) -> None:
        """All but a chain, a star or a zigzag is forbidden."""
        zigzag = [-1, 0, 6, 2, 5, 3, 1]
        trees = torch.tensor([[-1, 0, 1, 2, 3, 4, 5], [-1, 2, 0, 2, 2, 2, 2], zigzag, [-1, 0, -1, -1, -1, -1, -1]])
        lengths = torch.tensor([6, 6, 6, 1])
        arcs = torch.where(arcs_of(trees) > 0, normal(4, 7, 7, seed=0) * 1e3, NEG_INF).to(dtype)
        arcs.requires_grad_()
        p = self.distribution(arcs, lengths, single_root=single_root)
        score = torch.where(arcs_of(trees) > 0, arcs.detach(), 0.0).double().sum((1, 2))
        close(p.log_partition.detach(), score, tolerance(dtype))
        close(p.marginals.detach(), arcs_of(trees), 1e-13)
        close(p.entropy().detach(), torch.zeros(4), 1e-10)
        close(p.log_prob(trees).detach(), torch.zeros(4), 1e-10 if dtype == F64 else 1e-6)
        assert torch.equal(p.argmax, trees)
        assert torch.equal(p.sample((3,)), trees.expand(3, -1, -1))
        heads, scores = p.topk(3)
        assert torch.equal(heads[0], trees)
        assert bool((heads[1:] == -1).all())
        assert bool((scores[1:] == NEG_INF).all())
        for value in (p.marginals.sum(), (p.marginals * normal(4, 7, 7, seed=1)).sum(), p.entropy().sum()):
            close(grad(value, arcs, retain_graph=True)[0], torch.zeros(4, 7, 7), 1e-10)

    @pytest.mark.parametrize("low", [-1e4, -1e9, -1e30])
    def test_forbidden_by_a_finite_score(self, low: float, single_root: bool) -> None:
        """A score far below all others is as good as -inf."""
        arcs, lengths, oracles = enumerations(4, 0.5, 1.0, F64, single_root, self.projective)
        finite = arcs.masked_fill(arcs == NEG_INF, low)
        p = self.distribution(finite, lengths, single_root=single_root)
        close(p.log_partition, torch.stack([o.log_partition for o in oracles]), 1e-11)
        close(p.marginals, padded([o.marginals for o in oracles], 5), 1e-11)

    @pytest.mark.parametrize("low", [-1e4, -1e9, -1e14, -1e30])
    def test_a_low_score_that_every_tree_needs(self, low: float, single_root: bool) -> None:
        """Words 1 and 2 prefer each other: then an arc of the root just costs what it does."""
        arcs = torch.full((1, 3, 3), low, dtype=F64)
        arcs[0, 1, 2] = arcs[0, 2, 1] = 0.0
        p = self.distribution(arcs, single_root=single_root)
        close(p.log_partition, torch.tensor([low + math.log(2)], dtype=F64), 1e-12)
        close(p.marginals[0, 0, 1:], torch.tensor([0.5, 0.5]), 1e-11)
        self.check_trees(p.sample((5,)), p.lengths, single_root)

    @pytest.mark.parametrize("offset", [1e4, -3e4])
    def test_offsets_cost_no_digits(self, offset: float, single_root: bool, dtype: torch.dtype) -> None:
        """A constant for all heads of a word changes log Z only."""
        arcs, lengths, oracles = enumerations(5, 0.3, 1.0, F64, single_root, self.projective)
        arcs = ((arcs * 64).round() / 64).to(dtype)  # exact also with the offset
        oracles = enumerate_batch(arcs, lengths, single_root=single_root, projective=self.projective)
        p = self.distribution(arcs + offset, lengths, single_root=single_root)
        close(p.marginals, padded([o.marginals for o in oracles], 6), tolerance(dtype))
        close(p.entropy(), torch.stack([o.entropy for o in oracles]), tolerance(dtype))
        want = [o.log_prob(h[: n + 1]) for o, h, n in zip(oracles, p.argmax, lengths.tolist(), strict=True)]
        close(p.log_prob(p.argmax), torch.stack(want), 1e-6 if dtype == F32 else 1e-10)

    def test_one_word(self, single_root: bool, dtype: torch.dtype) -> None:
        """One tree: of sentences that are all of one word, alone or in a longer batch."""
        for nodes in (2, 5):
            arcs = torch.full((3, nodes, nodes), NAN, dtype=dtype)
            arcs[:, 0, 1] = torch.tensor([0.5, -1e4, 1e4])
            arcs.requires_grad_()
            p = self.distribution(arcs, torch.ones(3, dtype=torch.int64), single_root=single_root)
            want = torch.zeros(3, nodes, nodes)
            want[:, 0, 1] = 1
            heads = torch.tensor([-1, 0, -1, -1, -1][:nodes]).expand(3, -1)
            assert p.log_partition.tolist() == [0.5, -1e4, 1e4]
            assert torch.equal(p.marginals, want.to(dtype))
            assert torch.equal(p.argmax, heads)
            assert p.max.tolist() == [0.5, -1e4, 1e4]
            assert torch.equal(p.sample((4,)), heads.expand(4, -1, -1))
            assert p.entropy().tolist() == [0, 0, 0]
            assert p.log_prob(heads).tolist() == [0, 0, 0]
            assert torch.equal(p.topk(2)[0], torch.stack([heads, torch.full_like(heads, -1)]))
            assert torch.equal(grad(p.log_partition.sum(), arcs)[0], want.to(dtype))
            assert not bool(grad(p.marginals.sum(), arcs)[0].any())

    def test_two_hundred_words(self, single_root: bool, dtype: torch.dtype) -> None:
        arcs = normal(2, 201, 201, seed=0, dtype=dtype) * torch.tensor([1.0, 30.0])[:, None, None]
        arcs = arcs.to(dtype).requires_grad_()
        p = self.distribution(arcs, torch.tensor([200, 150]), single_root=single_root)
        self.check_trees(p.argmax, p.lengths, single_root)
        self.check_trees(p.sample((2,)), p.lengths, single_root)
        heads, scores = p.topk(2)
        self.check_trees(heads, p.lengths, single_root)
        assert bool((scores[0] >= scores[1]).all())
        word = plain.semiring.word_mask(p.lengths, 201)
        close(p.marginals.sum(1).detach(), word.double(), 1e-5 if dtype == F32 else 1e-11)
        assert bool((p.log_partition >= p.max).all())
        assert bool((p.entropy() > 0).all())
        assert bool((p.entropy() < self.log_count(200, single_root)).all())
        (g,) = grad(p.entropy().sum(), arcs)
        assert bool(g.isfinite().all())
        even = self.distribution(torch.zeros(1, 201, 201, dtype=dtype), single_root=single_root)
        want = torch.tensor([self.log_count(200, single_root)], dtype=F64)
        close(even.log_partition, want, 1e-6 if dtype == F32 else 1e-12)

    def test_empty_batch(self, single_root: bool, dtype: torch.dtype) -> None:
        arcs = torch.empty(0, 4, 4, dtype=dtype, requires_grad=True)
        for lengths in (None, [], torch.empty(0, dtype=torch.int64)):
            p = self.distribution(arcs, lengths, single_root=single_root)
            assert p.log_partition.shape == p.max.shape == p.entropy().shape == kl_divergence(p, p).shape == (0,)
            assert p.marginals.shape == (0, 4, 4)
            assert p.argmax.shape == (0, 4)
            assert [x.shape for x in p.topk(3)] == [(3, 0, 4), (3, 0)]
            assert p.sample((2, 3)).shape == (2, 3, 0, 4)
            assert p.log_prob(p.sample((2,))).shape == (2, 0)
            total = p.log_partition.sum() + p.marginals.sum() + p.entropy().sum() + p.max.sum()
            assert grad(total, arcs)[0].shape == (0, 4, 4)

    # ------------------------------------------------------------------------------- memory, batches, threads

    def test_strides_do_not_matter(self, single_root: bool, dtype: torch.dtype) -> None:
        """Transposed, sliced and expanded scores; the gradient comes back in the shape of what they view."""
        arcs, lengths, _ = enumerations(5, 0.3, 1.0, dtype, single_root, self.projective)
        want = self.everything(self.distribution(arcs, lengths, single_root=single_root))
        transposed = arcs.mT.contiguous().mT
        wide = torch.full((6, 12, 13), NAN, dtype=dtype)
        wide[:, ::2, 1:12:2] = arcs
        permuted = arcs.permute(1, 2, 0).contiguous().permute(2, 0, 1)
        strided = torch.stack([lengths, -lengths], 1)[:, 0]
        for view in (transposed, wide[:, ::2, 1:12:2], permuted):
            assert not view.is_contiguous()
            got = self.everything(self.distribution(view, strided, single_root=single_root))
            for name, value in want.items():
                assert torch.equal(got[name], value), name
        base = arcs[:1].mT.clone().requires_grad_()
        p = self.distribution(base.mT.expand(3, -1, -1), lengths[:1].expand(3), single_root=single_root)
        for b in range(3):
            assert torch.equal(p.marginals[b].detach(), want["marginals"][0])
        (g,) = grad(p.log_partition.sum(), base)
        close(g.mT[0], 3 * want["marginals"][0], tolerance(dtype))

    @pytest.mark.parametrize("magnitude", [1.0, 1e3])
    def test_sentences_do_not_depend_on_their_batch(
        self, magnitude: float, single_root: bool, dtype: torch.dtype
    ) -> None:
        """The same alone, in the batch and with more padding: sums by torch nearly, kernels to the last bit."""
        arcs, lengths = random_instance(13, batch=5, words=11, forbidden=0.3, magnitude=magnitude, dtype=dtype)
        wide = torch.full((5, 18, 18), NAN, dtype=dtype)
        wide[:, :12, :12] = arcs
        together = self.everything(self.distribution(arcs, lengths, single_root=single_root))
        further = self.everything(self.distribution(wide, lengths, single_root=single_root))
        tol = tolerance(dtype, magnitude)
        exact = 0.0 if backend_for(arcs.device) else tol
        for b, n in enumerate(lengths.tolist()):
            own = arcs[b : b + 1, : n + 1, : n + 1]
            alone = self.everything(self.distribution(own, [n], single_root=single_root))
            for batch in (together, further):
                for name in ("max", "log_prob", "entropy"):
                    close(batch[name][b], alone[name][0], tol)
                close(batch["topk scores"][:, b], alone["topk scores"][:, 0], tol)
                close(batch["log_partition"][b], alone["log_partition"][0], exact)
                close(batch["marginals"][b, : n + 1, : n + 1], alone["marginals"][0], exact)
                assert torch.equal(batch["argmax"][b, : n + 1], alone["argmax"][0])
                assert torch.equal(batch["topk heads"][:, b, : n + 1], alone["topk heads"][:, 0])

    def test_neighbours_without_a_tree(self, single_root: bool) -> None:
        """Sentences that are impossible or NaN (unchecked) leave the others as they are."""
        arcs, lengths, _ = enumerations(4, 0.3, 1.0, F64, single_root, self.projective)
        broken = arcs.clone()
        broken[1, 0, 1] = NAN
        broken[3, :, 1] = NEG_INF
        fine = [0, 2, 4, 5]
        outcomes = []
        for x in (arcs, broken):
            x = x.clone().requires_grad_()
            p = self.distribution(x, lengths, single_root=single_root, validate_args=False)
            (first,) = grad(p.marginals[fine].square().sum() + p.entropy()[fine].sum(), x)
            outcomes.append([p.log_partition, p.marginals, p.argmax, p.entropy(), first])
        for a, b in zip(*outcomes, strict=True):
            assert torch.equal(a[fine], b[fine])
        assert not bool(outcomes[1][-1][3].any())

    @pytest.mark.parametrize("magnitude", [1.0, 1e3])
    def test_new_memory_may_hold_anything(
        self, magnitude: float, single_root: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is not initialised is not read: every length around the width of a SIMD register, twice."""

        def dirty(make: Callable[..., Tensor], value: float, whole: int) -> Callable[..., Tensor]:
            def make_dirty(*args: Any, **kwargs: Any) -> Tensor:
                new = make(*args, **kwargs)
                return new.fill_(value if new.is_floating_point() else whole)

            return make_dirty

        for words in (*range(1, 20), 33):
            arcs, lengths = random_instance(words, batch=2, words=words, magnitude=magnitude, dtype=dtype)
            v = normal(*arcs.shape, seed=0, dtype=dtype)
            outcomes = []
            for value, whole in ((NAN, 2**30), (1e30, -1)):
                with monkeypatch.context() as patch:
                    for name in ("empty", "empty_like"):
                        patch.setattr(torch, name, dirty(getattr(torch, name), value, whole))
                    torch.manual_seed(0)
                    x = arcs.clone().requires_grad_()
                    p = self.distribution(x, lengths, single_root=single_root)
                    (hvp,) = grad((p.marginals * v).sum(), x, create_graph=True)
                    third = grad((hvp * v).sum(), x)[0] if hvp.requires_grad else hvp
                    outcomes.append({**self.everything(p), "hvp": hvp, "third": third, "sample": p.sample((3,))})
            for name, result in outcomes[0].items():
                assert not bool(result.isnan().any()), (name, words)
                assert torch.equal(result, outcomes[1][name]), (name, words)

    def test_threads_do_not_matter(self, single_root: bool, dtype: torch.dtype) -> None:
        arcs, lengths = random_instance(17, batch=9, words=12, forbidden=0.3, magnitude=3.0, dtype=dtype)
        outcomes = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            x = arcs.clone().requires_grad_()
            p = self.distribution(x, lengths, single_root=single_root)
            first = grad(p.marginals.square().sum(), x, create_graph=True)[0]
            outcomes.append({**self.everything(p), "first": first, "sample": p.sample((5,))})
        for name, value in outcomes[0].items():
            assert torch.equal(value, outcomes[1][name]), name

    # ---------------------------------------------------------------------- what torch.distributions asks for

    def test_is_a_distribution(self, single_root: bool) -> None:
        p = self.distribution(normal(2, 5, 5, seed=0), [4, 2], single_root=single_root)
        assert isinstance(p, Distribution)
        assert p.batch_shape == (2,)
        assert p.event_shape == (5,)
        name = self.distribution.__name__
        assert repr(p) == f"{name}(sentences: 2, words: 4, single_root={single_root})"
        assert torch.equal(p.mode, p.argmax)
        assert bool(p.support.check(p.sample((3,))).all())
        assert not bool(p.support.check(torch.full((2, 5), 5)).any())
        assert self.distribution(normal(2, 5, 5, seed=0)).single_root

    def test_single_root_is_keyword_only(self) -> None:
        with pytest.raises(TypeError):
            self.distribution(torch.zeros(1, 3, 3), None, True)  # type: ignore[misc]

    def test_expand(self, single_root: bool) -> None:
        arcs, lengths = random_instance(1, batch=1, words=4)
        arcs = arcs.requires_grad_()
        p = self.distribution(arcs, lengths, single_root=single_root)
        wide = p.expand(torch.Size([5]))
        assert type(wide) is type(p)
        assert wide.batch_shape == (5,)
        assert wide.single_root == single_root
        for name, value in self.everything(wide).items():
            want = self.everything(p)[name]
            axis = 1 if name.startswith("topk") else 0
            assert torch.equal(value, want.repeat_interleave(5, axis)), name
        close(grad(wide.log_partition.sum(), arcs)[0], 5 * p.marginals.detach(), 1e-13)
        assert wide.sample((3,)).shape == (3, 5, 5)
        pair = self.distribution(arcs.detach().repeat(2, 1, 1), lengths.repeat(2), single_root=single_root)
        assert pair.expand([2]).batch_shape == (2,)
        assert p.expand([0]).log_partition.shape == (0,)
        for wrong in ([3], [4, 2], []):
            with pytest.raises(ValueError, match="batch_shape"):
                pair.expand(wrong)

    def test_expanded_still_checks_its_input(self, single_root: bool) -> None:
        p = self.distribution(normal(1, 4, 4, seed=0), single_root=single_root).expand([2])
        with pytest.raises(ValueError, match=r"heads of sentence 0: word 1 has head 9"):
            p.log_prob(torch.full((2, 4), 9))
        q = self.distribution(normal(2, 4, 4, seed=1), [3, 2], single_root=single_root)
        with pytest.raises(ValueError, match="lengths"):
            kl_divergence(p, q)

    # ------------------------------------------------------------------------------------------- any instance

    @LEAN
    @given(
        seed=st.integers(0, 10**6),
        batch=st.integers(1, 4),
        words=st.integers(1, 5),
        forbidden=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
        magnitude=st.sampled_from([0.0, 1.0, 100.0, 1e4]),
        dtype=st.sampled_from([F32, F64]),
    )
    def test_any_small_instance(
        self,
        seed: int,
        batch: int,
        words: int,
        forbidden: float,
        magnitude: float,
        dtype: torch.dtype,
        single_root: bool,
    ) -> None:
        arcs, lengths = random_instance(
            seed, batch=batch, words=words, forbidden=forbidden, magnitude=magnitude, dtype=dtype
        )
        p = self.distribution(arcs, lengths, single_root=single_root)
        oracles = enumerate_batch(arcs, lengths, single_root=single_root, projective=self.projective)
        tol = tolerance(dtype, 10 * magnitude)
        close(p.log_partition, torch.stack([o.log_partition for o in oracles]), tolerance(dtype))
        close(p.marginals, padded([o.marginals for o in oracles], words + 1), tol)
        close(p.entropy(), torch.stack([o.entropy for o in oracles]), tol)
        close(p.max, torch.stack([o.max for o in oracles]), tolerance(dtype))
        heads, scores = p.topk(4)
        for b, o in enumerate(oracles):
            exist = min(4, int((o.scores > NEG_INF).sum()))
            close(scores[:exist, b], o.sorted_scores[:exist], tolerance(dtype))
            assert bool((heads[exist:, b] == -1).all())
        self.check_trees(p.argmax, lengths, single_root)
        self.check_trees(p.sample((2,)), lengths, single_root)
        assert bool(p.log_prob(p.sample((2,))).isfinite().all())

    @LEAN
    @given(data=st.data(), words=st.integers(1, 4), batch=st.integers(1, 3))
    def test_any_mask(self, data: st.DataObject, words: int, batch: int, single_root: bool) -> None:
        """Any set of possible arcs: a tree is found if and only if there is one."""
        lengths = torch.tensor(data.draw(st.lists(st.integers(1, words), min_size=batch, max_size=batch)))
        size = batch * (words + 1) ** 2
        scores = st.sampled_from([NEG_INF, NEG_INF, 0.0, 1.0, -1e4, 1e4])
        arcs = torch.tensor(data.draw(st.lists(scores, min_size=size, max_size=size)), dtype=F64)
        arcs = arcs.view(batch, words + 1, words + 1)
        oracles = enumerate_batch(arcs, lengths, single_root=single_root, projective=self.projective)
        p = self.distribution(arcs, lengths, single_root=single_root, validate_args=False)
        close(p.log_partition, torch.stack([o.log_partition for o in oracles]), 1e-11)
        close(p.marginals, padded([o.marginals for o in oracles], words + 1), 1e-11)
        possible = torch.tensor([o.has_tree for o in oracles])
        close(p.max, torch.stack([o.max for o in oracles]), 1e-13)
        heads = p.argmax
        assert bool((heads[~possible] == -1).all())
        self.check_trees(heads[possible], lengths[possible], single_root)
        drawn = p.sample()
        assert bool((drawn[~possible] == -1).all())
        self.check_trees(drawn[possible], lengths[possible], single_root)
        total = torch.tensor([int((o.scores > NEG_INF).sum()) for o in oracles])
        assert torch.equal((p.topk(64)[1] > NEG_INF).sum(0), total.clamp(max=64))
        if bool(possible.all()):
            self.distribution(arcs, lengths, single_root=single_root)
        else:
            with pytest.raises(ValueError, match=f"sentence {int((~possible).nonzero()[0])} "):
                self.distribution(arcs, lengths, single_root=single_root)

    @LEAN
    @given(
        seed=st.integers(0, 10**6),
        words=st.integers(1, 12),
        forbidden=st.sampled_from([0.0, 0.5, 0.9]),
        low=st.floats(-1e4, 1e4),
        high=st.floats(-1e4, 1e4),
    )
    def test_any_range(
        self, seed: int, words: int, forbidden: float, low: float, high: float, single_root: bool
    ) -> None:
        """Scores uniform between two bounds: log-space says the same, also of the derivatives."""
        arcs, lengths = random_instance(seed, batch=2, words=words, forbidden=forbidden)
        uniform = low + (high - low) * torch.rand(arcs.shape, generator=generator(seed), dtype=F64)
        arcs = torch.where(arcs.isfinite(), uniform, arcs)
        self.check_against_plain(arcs, lengths, single_root, 1e-9)

    # ------------------------------------------------------------------------------------ as an object

    def test_other_kinds_of_derivatives_are_refused(self, single_root: bool) -> None:
        """They would be silently wrong: the operators know reverse mode only."""
        arcs = normal(1, 4, 4, seed=0)

        def log_z(x: Tensor) -> Tensor:
            return self.distribution(x, single_root=single_root).log_partition.sum()

        with pytest.raises(ValueError, match=r"arcs must not be under torch\.func or forward-mode"):
            torch.func.jvp(log_z, (arcs,), (arcs,))
        with pytest.raises(ValueError, match=r"use torch\.autograd"):
            torch.func.grad(log_z)(arcs)
        with forward_ad.dual_level(), pytest.raises(ValueError, match="forward-mode"):
            log_z(forward_ad.make_dual(arcs, arcs))

    def test_copies(self, single_root: bool) -> None:
        arcs = normal(2, 4, 4, seed=0).requires_grad_()
        p = self.distribution(arcs, single_root=single_root)
        results = p.log_partition, p.entropy(), p.argmax
        for q in (copy.copy(p), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
            assert torch.equal(q.log_partition, results[0]) and torch.equal(q.entropy(), results[1])
            assert torch.equal(q.argmax, results[2])

    def test_inference_mode_then_grad(self, single_root: bool) -> None:
        arcs = normal(2, 4, 4, seed=0).requires_grad_()
        p = self.distribution(arcs, single_root=single_root)
        with torch.inference_mode():
            inside = p.marginals, p.log_partition
        loss = (p.marginals**2).sum() + p.log_partition.sum()
        assert torch.equal(inside[0], p.marginals) and torch.equal(inside[1], p.log_partition)
        assert bool(grad(loss, arcs)[0].any())

    def test_what_is_given_out_is_the_callers(self, single_root: bool) -> None:
        p = self.distribution(normal(1, 4, 4, seed=0), single_root=single_root)
        before = p.max
        p.argmax.fill_(0)
        assert torch.equal(p.max, before)

    def test_rounding_does_not_cross_zero(self, single_root: bool) -> None:
        arcs = 1e4 * (2 * torch.rand(4, 41, 41, generator=generator(0), dtype=F64) - 1)
        p = self.distribution(arcs, single_root=single_root)
        assert bool((p.entropy() >= 0).all()) and bool((p.log_prob(p.argmax) <= 0).all())


class TestProjectiveTrees(TreeDistributionTests):
    distribution = gp.ProjectiveTrees
    projective = True
    plain_log_partition = staticmethod(plain.eisner.log_partition)

    @pytest.mark.filterwarnings("ignore:.*does not define `arg_constraints`:UserWarning")
    def test_against_torch_struct(self, single_root: bool) -> None:
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


class TestNonProjectiveTrees(TreeDistributionTests):
    distribution = gp.NonProjectiveTrees
    projective = False
    plain_log_partition = staticmethod(plain.matrix_tree.log_partition)

    @pytest.mark.parametrize("seed", range(3))
    def test_against_ufal(self, seed: int) -> None:
        ufal = pytest.importorskip("ufal.chu_liu_edmonds")
        arcs = normal(1, 31, 31, seed=seed)
        _, best = ufal.chu_liu_edmonds(arcs[0].mT.contiguous().numpy())
        close(gp.NonProjectiveTrees(arcs, single_root=False).max, torch.tensor([best], dtype=F64), 1e-12)

    @pytest.mark.parametrize("words", [1, 2, 20, 60])
    def test_even_marginals(self, words: int, single_root: bool) -> None:
        """All trees alike: with a single root every head has 1/n, else 1/(n+1) and the root twice that."""
        mu = gp.NonProjectiveTrees(torch.zeros(1, words + 1, words + 1, dtype=F64), single_root=single_root).marginals
        want = torch.full((words + 1, words + 1), 1 / (words if single_root else words + 1), dtype=F64)
        want[0] = 1 / words if single_root else 2 / (words + 1)
        want[:, 0] = 0
        close(mu[0], want.fill_diagonal_(0), 1e-13)

    def test_a_word_with_no_other_head(self) -> None:
        """Words 2 and 3 have no heads but each other and the root, whichever is taken first."""
        arcs = torch.full((1, 4, 4), NEG_INF, dtype=F64)
        for h, m in ((0, 2), (0, 3), (2, 3), (3, 2), (2, 1), (3, 1)):
            arcs[0, h, m] = 0.25 * h - 0.5 * m
        for order in ([0, 1, 2, 3], [0, 2, 1, 3], [0, 2, 3, 1], [0, 3, 2, 1]):
            x = arcs[:, order][:, :, order]
            o = Enumeration(x[0], single_root=True, projective=False)
            p = gp.NonProjectiveTrees(x)
            close(p.log_partition, o.log_partition[None], 1e-13)
            close(p.marginals, o.marginals[None], 1e-13)
            drawn = torch.searchsorted(codes(o.trees), codes(p.sample((4000,))[:, 0]))
            statistic, bound = chi_square(drawn.bincount(minlength=len(o.trees)), o.probs)
            assert statistic < bound
