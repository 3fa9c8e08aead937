"""One test that every distribution over chains of tags passes: enumeration, finite differences, other code."""

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

from gpuparse import plain
from gpuparse.backend import backend_for, choose
from gpuparse.distributions import ChainDistribution, TagChains, TrigramChains
from gpuparse.ops import chains
from tests.chain_oracle import ChainEnumeration, all_chains, enumerate_chains, random_chains
from tests.distributions.test_trees import chi_square, close, normal, tolerance

INF, NEG_INF, NAN = math.inf, -math.inf, math.nan
F32, F64 = torch.float32, torch.float64
LEAN = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
# share of forbidden scores, magnitude of the scores
SCORES = pytest.mark.parametrize(
    ("forbidden", "magnitude"), [(0.0, 1.0), (0.3, 1.0), (0.6, 1.0), (0.4, 30.0), (0.3, 1e4)]
)
SIZES = pytest.mark.parametrize(
    ("words", "tags"), [(1, 1), (1, 3), (2, 1), (2, 2), (2, 4), (3, 1), (3, 3), (5, 2), (4, 4), (5, 3)]
)


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


@cache
def enumerations(
    size: int, shared: bool, words: int, tags: int, forbidden: float, magnitude: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, list[ChainEnumeration]]:
    """A ragged batch with NaN wherever nothing is read, and the truth about each of its sentences."""
    unary, rows, lengths = random_chains(
        10 * words + tags,
        size=size,
        shared=shared,
        batch=5,
        words=words,
        tags=tags,
        forbidden=forbidden,
        magnitude=magnitude,
        dtype=dtype,
    )
    return unary, rows, lengths, enumerate_chains(unary, rows, lengths)


def padded(parts: list[Tensor], words: int) -> Tensor:
    """Tensors [n, ...] as one [B, words, ...], zeros elsewhere."""
    out = torch.zeros(len(parts), words, *parts[0].shape[1:], dtype=F64)
    for b, part in enumerate(parts):
        out[b, : len(part)] = part
    return out


def stacked(values: list[Tensor]) -> Tensor:
    return torch.stack(values)


class ChainDistributionTests:
    """The test. A subclass says which distribution it is of, and what its scores are like."""

    distribution: type[ChainDistribution]
    size: int  # tags that are scored together
    shared: bool = True  # by all sentences and places

    # ------------------------------------------------------------------------------------------ what it needs

    def make(self, unary: Tensor, rows: Tensor, lengths: Any = None, **options: Any) -> ChainDistribution:
        return self.distribution(unary, rows, lengths, **options)  # type: ignore[arg-type]

    def random(self, seed: int, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
        return random_chains(seed, size=self.size, shared=self.shared, **options)

    def enumerated(
        self, words: int, tags: int, forbidden: float, magnitude: float, dtype: torch.dtype
    ) -> tuple[ChainDistribution, list[ChainEnumeration]]:
        unary, rows, lengths, oracles = enumerations(self.size, self.shared, words, tags, forbidden, magnitude, dtype)
        return self.make(unary, rows, lengths), oracles

    def row_marginals(self, p: ChainDistribution) -> Tensor:
        return p.transition_marginals if isinstance(p, TagChains) else p.trigram_marginals  # type: ignore[attr-defined]

    def places(self, words: int) -> int:
        return max(0, words + 1 - self.size)

    def rows_like(self, per_place: list[Tensor], words: int) -> Tensor:
        """Sums over the oracles' [P, T, ...] in the shape of the scores as they are given."""
        if self.shared:
            return sum(x.sum(0) for x in per_place)  # type: ignore[return-value]
        return padded(per_place, self.places(words))

    def direction_of(self, rows: Tensor, b: int, n: int) -> Tensor:
        """What sentence b of n words sees of other scores like `rows`, place by place."""
        P = self.places(n)
        return rows.expand(P, *rows.shape) if self.shared else rows[b, :P]

    def check_tags(self, tags: Tensor, lengths: Tensor, T: int) -> None:
        """Are tags [..., B, n] chains, -1 past the end?"""
        assert tags.dtype == torch.int64
        word = torch.arange(tags.shape[-1]) < lengths[:, None]
        assert bool(((tags >= 0) == word).all())
        assert bool((tags < T).all())

    def everything(self, p: ChainDistribution) -> dict[str, Tensor]:
        """All that is not random."""
        tags, scores = p.topk(3)
        return {
            "log_partition": p.log_partition,
            "marginals": p.marginals,
            "row marginals": self.row_marginals(p),
            "argmax": p.argmax,
            "max": p.max,
            "topk tags": tags,
            "topk scores": scores,
            "entropy": p.entropy(),
            "log_prob": p.log_prob(p.argmax),
        }

    def rival(
        self, p: ChainDistribution, unary: Tensor, rows: Tensor, *, forbidden: float, seed: int
    ) -> tuple[Tensor, Tensor]:
        """Other scores of the same sentences; -inf by a mask of their own, which leaves the best chains of `p`."""
        g = torch.Generator().manual_seed(seed)
        leaves = unary.clone().requires_grad_(), rows.clone().requires_grad_()
        used = grad(self.make(*leaves, p.lengths).max.sum(), leaves, materialize_grads=True, allow_unused=True)
        others = []
        for x, keep in zip((unary, rows), used, strict=True):
            mask = (torch.rand(x.shape, generator=g) < forbidden) & ~(keep > 0)
            others.append(torch.randn(x.shape, generator=g, dtype=F64).masked_fill(mask, NEG_INF).to(x.dtype))
        return others[0], others[1]

    def check_against_plain(self, unary: Tensor, rows: Tensor, lengths: Tensor, tol: float) -> None:
        """Values and derivatives up to the third, against log-space."""
        x, y = unary.clone().requires_grad_(), rows.clone().requires_grad_()
        p = self.make(x, y, lengths)
        trigrams, pairs = p.trigrams_in_a_row, p._pairs.detach()
        u, v = torch.randn_like(unary), torch.randn_like(pairs)
        weight = torch.linspace(0.5, 2.0, len(lengths), dtype=F64)
        for order in range(3):
            along = [(u, v)] * order
            want = plain.chain.value(unary, pairs, lengths, trigrams, along)
            close(chains.value(unary, pairs, lengths, trigrams, along), want, tol)
            both = plain.chain.gradient(unary, pairs, lengths, trigrams, weight, along)
            for got, expected in zip(chains.sums(unary, pairs, lengths, trigrams, along, weight), both, strict=True):
                close(got, expected, tol)

    # ------------------------------------------------------------------------------------ against enumeration

    @SCORES
    @SIZES
    def test_sums(self, words: int, tags: int, forbidden: float, magnitude: float, dtype: torch.dtype) -> None:
        p, oracles = self.enumerated(words, tags, forbidden, magnitude, dtype)
        tol = tolerance(dtype, magnitude)
        assert p.log_partition.dtype == p.marginals.dtype == p.entropy().dtype == dtype
        close(p.log_partition, stacked([o.log_partition for o in oracles]), tolerance(dtype))
        close(p.marginals, padded([o.marginals for o in oracles], words), tol)
        close(self.row_marginals(p), padded([o.row_marginals for o in oracles], self.places(words)), tol)
        close(p.entropy(), stacked([o.entropy for o in oracles]), tolerance(dtype, 10 * magnitude))
        assert bool((p.marginals >= 0).all())
        word = torch.arange(words) < p.lengths[:, None]
        close(p.marginals.sum(2), word.double(), tol)
        assert not bool(p.marginals[~word].any())
        assert not bool(p.marginals[p.unary == NEG_INF].any())

    @SCORES
    @SIZES
    def test_best(self, words: int, tags: int, forbidden: float, magnitude: float, dtype: torch.dtype) -> None:
        p, oracles = self.enumerated(words, tags, forbidden, magnitude, dtype)
        self.check_tags(p.argmax, p.lengths, tags)
        for b, o in enumerate(oracles):
            close(o.score(p.argmax[b, : int(p.lengths[b])]), o.max, 1e-13)
        assert p.max.dtype == dtype
        close(p.max, stacked([o.max for o in oracles]), tolerance(dtype))
        assert torch.equal(p.mode, p.argmax)

    @SCORES
    @pytest.mark.parametrize("ties", [False, True], ids=["real", "ties"])
    @pytest.mark.parametrize("k", [1, 3, 64])
    def test_topk(self, k: int, ties: bool, forbidden: float, magnitude: float, dtype: torch.dtype) -> None:
        unary, rows, lengths, oracles = enumerations(self.size, self.shared, 5, 3, forbidden, magnitude, dtype)
        if ties:
            unary, rows = ((x * (2 / magnitude)).round() for x in (unary, rows))
            oracles = enumerate_chains(unary, rows, lengths)
        p = self.make(unary, rows, lengths)
        tags, scores = p.topk(k)
        assert tags.shape == (k, *unary.shape[:2]) and scores.shape == (k, len(unary))
        assert (tags.dtype, scores.dtype) == (torch.int64, dtype)
        for b, o in enumerate(oracles):
            exist = min(k, int((o.scores > NEG_INF).sum()))
            assert bool((tags[exist:, b] == -1).all()) and bool((scores[exist:, b] == NEG_INF).all())
            self.check_tags(tags[:exist, b : b + 1], lengths[b : b + 1], 3)
            assert len(tags[:exist, b].unique(dim=0)) == exist
            close(scores[:exist, b], o.sorted_scores[:exist], tolerance(dtype))
            found = stacked([o.score(t) for t in tags[:exist, b, : int(lengths[b])]])
            close(found, o.sorted_scores[:exist], 1e-13)
        assert torch.equal(tags, plain.chain.topk(unary, p._pairs, lengths, p.trigrams_in_a_row, k))

    def test_topk_of_what(self) -> None:
        p, _ = self.enumerated(3, 3, 0.3, 1.0, F64)
        for k in (0, 65, -1, 2.0, True, None):
            with pytest.raises(ValueError, match=r"k must be a whole number from 1 to 64"):
                p.topk(k)  # type: ignore[arg-type]

    def test_topk_scores_and_max_have_gradients(self) -> None:
        unary, rows, lengths, _ = enumerations(self.size, self.shared, 4, 4, 0.3, 1.0, F64)
        unary, rows = unary.clone().requires_grad_(), rows.clone().requires_grad_()
        p = self.make(unary, rows, lengths)
        best = grad(p.max.sum(), (unary, rows), allow_unused=True)
        indicator = (p.argmax[..., None] == torch.arange(4)).double()
        assert torch.equal(best[0], indicator)
        assert float(best[1].sum()) == float((lengths + 1 - self.size).clamp(min=0).sum())
        tags, scores = p.topk(4)
        weight = torch.tensor([1.0, 0.5, -2.0, 3.0], dtype=F64)[:, None]
        total = torch.where(scores > NEG_INF, scores * weight, 0.0).sum()
        want = ((tags[..., None] == torch.arange(4)).double() * weight[:, :, None, None]).sum(0)
        close(grad(total, unary)[0], want, 1e-14)

    @SCORES
    @pytest.mark.parametrize(("words", "tags"), [(1, 3), (3, 2), (4, 3)])
    def test_log_prob_of_every_chain(
        self, words: int, tags: int, forbidden: float, magnitude: float, dtype: torch.dtype
    ) -> None:
        """Tags past the end are not read."""
        p, oracles = self.enumerated(words, tags, forbidden, magnitude, dtype)
        tol = tolerance(dtype, magnitude)
        index = torch.arange(tags**words)
        every = torch.full((len(index), len(oracles), words), 99)
        want = torch.empty(every.shape[:2], dtype=F64)
        for b, o in enumerate(oracles):
            n = o.chains.shape[1]
            every[:, b, :n] = o.chains[index % len(o.chains)]
            want[:, b] = (o.scores - o.log_partition)[index % len(o.chains)]
        got = p.log_prob(every)
        assert got.dtype == dtype and got.shape == want.shape
        close(got, want, tol)
        for b, o in enumerate(oracles):
            close(got[: len(o.chains), b].double().exp().sum(), torch.ones(()), 10 * tol)
        close(p.log_prob(every[-1]), want[-1], tol)
        close(p.log_prob(every[None, :, None]), want[None, :, None], tol)

    # -------------------------------------------------------------------------------------- two distributions

    @pytest.mark.parametrize("forbidden", [0.0, 0.3])
    @SIZES
    def test_kl(self, words: int, tags: int, forbidden: float, dtype: torch.dtype) -> None:
        """Finite if q forbids nothing that p allows, inf otherwise."""
        unary, rows, lengths, oracles = enumerations(self.size, self.shared, words, tags, 0.3, 1.0, dtype)
        p = self.make(unary, rows, lengths)
        others = self.rival(p, unary, rows, forbidden=forbidden, seed=words)
        rivals, q = enumerate_chains(*others, lengths), self.make(*others, lengths)
        assert kl_divergence(p, q).dtype == dtype
        for one, two, x, y in ((p, q, oracles, rivals), (q, p, rivals, oracles)):
            close(kl_divergence(one, two), stacked([s.kl(t) for s, t in zip(x, y, strict=True)]), tolerance(dtype))
        assert bool((kl_divergence(p, p) == 0).all())
        shifted = self.make(unary + 3.0, rows - 2.0, lengths)  # the same distribution
        close(kl_divergence(p, shifted), torch.zeros(len(unary)), 1e-6 if dtype == F32 else 1e-13)

    @pytest.mark.parametrize("gap", [5.0, 50.0, 300.0, 800.0, 1e5])
    def test_kl_of_a_forbidden_chain_that_is_rare(self, gap: float) -> None:
        """However small the probability of what q forbids, the divergence is infinite."""
        unary, rows, lengths = self.random(0, batch=1, words=4, tags=2, forbidden=0.0)
        unary[0, :, 0] += gap
        other = unary.clone()
        other[0, 1, 1] = NEG_INF
        p, q = self.make(unary, rows, lengths), self.make(other, rows, lengths)
        assert kl_divergence(p, q).tolist() == [INF]
        assert bool(kl_divergence(q, p).isfinite())
        if not self.shared:
            narrow = rows.clone()
            narrow[0, 1, 1, 1] = NEG_INF
            assert kl_divergence(p, self.make(unary, narrow, lengths)).tolist() == [INF]

    def test_kl_of_long_sentences(self) -> None:
        """A part of probability 2^-1000 and less still counts; one that no chain has does not."""
        unary = torch.zeros(2, 400, 3, dtype=F64)
        unary[:, :, 2] = NEG_INF
        other = unary.clone()
        other[0, 200, 1] = NEG_INF
        unary[:, :, 1] = -9.0
        other[1, 200, 2] = NEG_INF
        rows = torch.zeros(*[3] * self.size, dtype=F64) if self.shared else torch.zeros(2, 399, 3, 3, dtype=F64)
        value = kl_divergence(self.make(unary, rows), self.make(other, rows))
        assert value[0] == INF and value[1].isfinite()

    def test_kl_ignores_what_is_in_no_chain(self) -> None:
        """q forbids a pair that p allows, but whose tags no chain of p can have."""
        unary, rows, lengths = self.random(3, batch=1, words=4, tags=3, forbidden=0.0)
        unary[0, :, 2] = NEG_INF
        other = rows.clone()
        (other[2] if self.shared else other[:, :, 2]).fill_(NEG_INF)
        p, q = self.make(unary, rows, lengths), self.make(unary, other, lengths)
        close(kl_divergence(p, q), torch.zeros(1), 1e-14)

    def test_kl_gradients(self) -> None:
        unary, rows, lengths = self.random(8, batch=2, words=4, tags=2, forbidden=0.2)
        masks = unary.isfinite(), rows.isfinite()
        free = [normal(int(m.sum()), seed=s).requires_grad_() for s, m in enumerate((*masks, *masks))]

        def kl(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
            p, q = (
                self.make(unary.masked_scatter(masks[0], x), rows.masked_scatter(masks[1], y), lengths)
                for x, y in ((a, b), (c, d))
            )
            return kl_divergence(p, q)

        assert gradcheck(kl, free)
        assert gradgradcheck(kl, free)

    def test_kl_of_different_kinds(self) -> None:
        unary, rows, _ = self.random(0, batch=2, words=4, tags=3, forbidden=0.0, poison=False)
        p = self.make(unary, rows)
        longer, more, _ = self.random(0, batch=2, words=5, tags=3, forbidden=0.0, poison=False)
        other = TrigramChains(unary, torch.zeros(3, 3, 3, dtype=F64))
        if self.size == 3:
            other = TagChains(unary, torch.zeros(3, 3, dtype=F64))  # type: ignore[assignment]
        wrong = [
            (self.make(longer, more), "same shape"),
            (self.make(unary, rows, [4, 2]), "lengths of sentence 1"),
            (other, "same chains"),
        ]
        for q, why in wrong:
            for x, y in ((p, q), (q, p)):
                with pytest.raises(ValueError, match=why):
                    kl_divergence(x, y)
        with pytest.raises(NotImplementedError):
            kl_divergence(p, torch.distributions.Categorical(torch.ones(2, 3)))

    # ------------------------------------------------------------------------------------------------ samples

    @pytest.mark.parametrize("scores", ["even", "masked", "wide"])
    def test_sample_frequencies(self, scores: str, dtype: torch.dtype) -> None:
        """20,000 draws of whole chains, by chi-square; never one of probability 0."""
        unary, rows, lengths = self.random(
            11, batch=4, words=4, tags=3, forbidden=0.0 if scores == "even" else 0.3, dtype=dtype
        )
        if scores == "wide":  # a range that no double holds, and chains that are all the same good
            unary = unary + (unary > 0) * 3000.0
        p = self.make(unary, rows, lengths)
        torch.manual_seed(0)
        tags = p.sample((20_000,))
        assert tags.shape == (20_000, 4, 4)
        self.check_tags(tags, lengths, 3)
        for b, o in enumerate(enumerate_chains(unary, rows, lengths)):
            n = int(lengths[b])
            drawn = (tags[:, b, :n] * 3 ** torch.arange(n - 1, -1, -1)).sum(1)
            seen = drawn.bincount(minlength=len(o.chains))
            assert not bool(seen[o.probs == 0].any())
            statistic, bound = chi_square(seen, o.probs)
            assert statistic < bound, (b, n)

    def test_samples_of_larger_sentences(self) -> None:
        unary, rows, lengths = self.random(5, batch=3, words=14, tags=9, forbidden=0.3)
        p = self.make(unary, rows, lengths)
        torch.manual_seed(1)
        draws = 4000
        tags = p.sample((draws,))
        self.check_tags(tags, lengths, 9)
        seen, mu = (tags[..., None] == torch.arange(9)).double().mean(0), p.marginals
        sigma = (mu * (1 - mu) / draws).clamp(min=0).sqrt()
        assert bool(((seen - mu).abs() <= 5 * sigma + 5 / draws).all())
        assert bool(p.log_prob(tags).isfinite().all())

    def test_samples_are_independent(self) -> None:
        """Of the same sentence twice in a batch, and of one draw and the next."""
        unary, rows, lengths = self.random(3, batch=1, words=3, tags=2, forbidden=0.0)
        p = self.make(unary, rows, lengths).expand([2])
        torch.manual_seed(2)
        drawn = (p.sample((20_000,)) * torch.tensor([4, 2, 1])).sum(-1)
        probs = p.log_prob(all_chains(3, 2)[:, None].expand(-1, 2, -1)).exp()[:, 0]
        pairs = torch.outer(probs, probs).flatten()
        for first, second in ((drawn[:, 0], drawn[:, 1]), (drawn[0::2, 0], drawn[1::2, 0])):
            statistic, bound = chi_square((first * 8 + second).bincount(minlength=64), pairs)
            assert statistic < bound

    def test_sample_shapes_and_seeds(self) -> None:
        p, oracles = self.enumerated(5, 3, 0.3, 1.0, F64)
        for shape in ((), (2, 3), (7,), (0,), torch.Size([2])):
            tags = p.sample(shape)
            assert tags.shape == (*shape, len(oracles), 5)
            self.check_tags(tags, p.lengths, 3)
        torch.manual_seed(7)
        first, second = p.sample((50,)), p.sample((50,))
        assert not torch.equal(first, second)
        torch.manual_seed(7)
        assert torch.equal(p.sample((50,)), first)
        assert torch.equal(p.sample((50,)), second)

    # -------------------------------------------------------------------------------------------- derivatives

    @SCORES
    def test_derivatives_against_enumeration(self, forbidden: float, magnitude: float, dtype: torch.dtype) -> None:
        """Derivatives of log Z up to the third in all scores, with NaN where no score and no direction is read."""
        unary, rows, lengths, oracles = enumerations(self.size, self.shared, 5, 3, forbidden, magnitude, dtype)
        u, v = (normal(*x.shape, seed=1, dtype=dtype) for x in (unary, rows))
        unread = torch.arange(5) >= lengths[:, None]
        x, y = unary.clone().requires_grad_(), rows.clone().requires_grad_()
        along = u.masked_fill(unread[..., None], NAN), v if self.shared else v.masked_fill(rows.isnan(), NAN)
        own = [(u[b, :n], self.direction_of(v, b, n)) for b, n in enumerate(lengths.tolist())]
        p = self.make(x, y, lengths)
        tol = 1e-5 if dtype == F32 else tolerance(dtype, 10 * magnitude)
        first = grad(p.log_partition.sum(), (x, y), create_graph=True)
        second = grad(first, (x, y), along, create_graph=True)
        third = grad(second, (x, y), along)
        for order, found in enumerate((first, second, third)):
            parts = [
                o.derivative(*[d] * order) if order else (o.marginals, o.row_marginals)
                for o, d in zip(oracles, own, strict=True)
            ]
            close(found[0].detach(), padded([a for a, _ in parts], 5), tol)
            close(found[1].detach(), self.rows_like([b for _, b in parts], 5), tol)
            assert not bool(found[0].detach()[unread].any()) and not bool(found[0].detach()[unary == NEG_INF].any())
            assert not bool(found[1].detach()[rows == NEG_INF].any())

    @pytest.mark.parametrize("what", ["log_partition", "marginals", "row_marginals", "entropy", "log_prob", "max"])
    def test_gradcheck(self, what: str) -> None:
        """By finite differences over the finite scores of a masked, ragged batch."""
        unary, rows, lengths = self.random(8, batch=2, words=4, tags=2, forbidden=0.25)
        masks = unary.isfinite(), rows.isfinite()
        assert bool((unary == NEG_INF).any()) or bool((rows == NEG_INF).any())
        free = [x[m].clone().requires_grad_() for x, m in zip((unary, rows), masks, strict=True)]
        tags = self.make(unary, rows, lengths).argmax

        def f(a: Tensor, b: Tensor) -> Tensor:
            p = self.make(unary.masked_scatter(masks[0], a), rows.masked_scatter(masks[1], b), lengths)
            if what == "row_marginals":
                return self.row_marginals(p)
            if what == "log_prob":
                return p.log_prob(tags)
            return p.entropy() if what == "entropy" else getattr(p, what)  # type: ignore[no-any-return]

        assert gradcheck(f, free)
        if what != "max":  # linear in pieces
            assert gradgradcheck(f, free)

    @pytest.mark.parametrize("what", ["log_partition", "entropy"])
    def test_any_order_of_derivative(self, what: str) -> None:
        """To the fourth, by directions that depend on the scores themselves, as plain torch has them."""
        starts = self.random(2, batch=2, words=3, tags=2, forbidden=0.1, poison=False)
        lengths = starts[2]

        def derivatives() -> list[Tensor]:
            leaves = [x.clone().requires_grad_() for x in starts[:2]]
            p = self.make(*leaves, lengths)
            value = p.entropy() if what == "entropy" else p.log_partition
            g = grad(value.sum(), leaves, create_graph=True)
            out = []
            for _ in range(3):
                finite = [torch.where(x.isfinite(), x, 0.0) for x in leaves]
                total = sum((a * a * x).sum() for a, x in zip(g, finite, strict=True))
                g = grad(total, leaves, create_graph=True)  # type: ignore[arg-type]
                out.append(torch.cat([x.detach().flatten() for x in g]))
            return out

        found = derivatives()
        for order, (got, want) in enumerate(zip(found, self.plainly(derivatives), strict=True), 2):
            scale = float(want.abs().max().clamp(min=1))
            assert float((got - want).abs().max()) <= 1e-10 * scale, f"derivative {order}"

    def plainly(self, run: Callable[[], Any]) -> Any:
        """The same without kernels."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(choose, "_prepared", lambda *_: (None, "GPUPARSE_BACKEND=torch"))
            return run()

    @pytest.mark.parametrize("only", ["unary", "rows"])
    def test_gradient_in_one_of_two(self, only: str) -> None:
        unary, rows, lengths, _ = enumerations(self.size, self.shared, 5, 3, 0.3, 1.0, F64)
        outcomes = []
        for both in (True, False):
            x, y = unary.clone(), rows.clone()
            if both or only == "unary":
                x.requires_grad_()
            if both or only == "rows":
                y.requires_grad_()
            leaf = x if only == "unary" else y
            p = self.make(x, y, lengths)
            (first,) = grad(p.entropy().sum() + p.marginals.square().sum(), leaf, create_graph=True)
            (second,) = grad(first.square().sum(), leaf)
            outcomes.append((first.detach(), second))
        for a, b in zip(*outcomes, strict=True):
            close(a, b, 1e-12)

    def test_no_grad_then_grad(self) -> None:
        """What was computed without a gradient is not given out later where one is wanted."""
        unary, rows, lengths, oracles = enumerations(self.size, self.shared, 4, 4, 0.3, 1.0, F64)
        unary = unary.clone().requires_grad_()
        with torch.no_grad():
            p = self.make(unary, rows, lengths)
            q = self.make(unary.detach() * 0.5, rows, lengths)
            without = self.everything(p)
            kl_divergence(p, q)
        assert not any(x.requires_grad for x in without.values())
        (mu,) = grad(p.log_partition.sum(), unary, retain_graph=True)
        close(mu, padded([o.marginals for o in oracles], 4), 1e-12)
        fresh = self.make(unary, rows, lengths)
        for f in (
            lambda d: d.marginals.square().sum(),
            lambda d: self.row_marginals(d).square().sum(),
            lambda d: d.entropy().sum(),
            lambda d: d.max.sum(),
            lambda d: d.topk(2)[1][0].sum(),
            lambda d: d.log_prob(d.argmax).sum(),
            lambda d: kl_divergence(d, q).sum(),
            lambda d: kl_divergence(q, d).sum(),
        ):
            assert torch.equal(grad(f(p), unary, retain_graph=True)[0], grad(f(fresh), unary, retain_graph=True)[0])

    def test_scores_that_require_a_gradient(self, dtype: torch.dtype) -> None:
        """The same values with and without; backward fills .grad of leaves through what made the scores."""
        unary, rows, lengths, _ = enumerations(self.size, self.shared, 5, 3, 0.3, 1.0, dtype)
        leaves = unary.clone().requires_grad_(), rows.clone().requires_grad_()
        p = self.make(leaves[0] * 1.0, leaves[1] * 1.0, lengths)
        a, b = self.everything(p), self.everything(self.make(unary, rows, lengths))
        for name in a:
            assert torch.equal(a[name].detach(), b[name]), name
            assert not b[name].requires_grad
            assert a[name].requires_grad == a[name].is_floating_point()
        (-p.log_prob(p.argmax).sum() + p.entropy().sum()).backward()
        for leaf in leaves:
            assert leaf.grad is not None and leaf.grad.dtype == dtype
            assert bool(leaf.grad.isfinite().all())

    # ------------------------------------------------------------------------------------- larger and extreme

    def test_counts(self, dtype: torch.dtype) -> None:
        """All scores zero: Z is T^n."""
        lengths = torch.arange(1, 301, 13)
        B, T = len(lengths), 5
        rows = torch.zeros([T] * self.size if self.shared else [B, 299, T, T], dtype=dtype)
        p = self.make(torch.zeros(B, 300, T, dtype=dtype), rows, lengths)
        want = lengths.double() * math.log(T)
        close(p.log_partition, want, 1e-7 if dtype == F32 else 1e-13)
        close(p.entropy(), want, 1e-7 if dtype == F32 else 1e-13)
        word = (torch.arange(300) < lengths[:, None])[..., None]
        close(p.marginals, word.double().expand(-1, -1, T) / T, 1e-7 if dtype == F32 else 1e-12)

    @pytest.mark.parametrize("magnitude", [1.0, 10.0, 100.0, 700.0, 1e4])
    @pytest.mark.parametrize(("words", "tags"), [(2, 7), (7, 8), (12, 9), (30, 17)])
    def test_against_plain(self, words: int, tags: int, magnitude: float) -> None:
        """About where the range of doubles ends and past it, around the width of SIMD registers."""
        for forbidden in (0.0, 0.5):
            unary, rows, lengths = self.random(
                words, batch=3, words=words, tags=tags, forbidden=forbidden, magnitude=magnitude, poison=False
            )
            self.check_against_plain(unary, rows, lengths, 1e-9)

    def test_sentences_of_any_kind_after_each_other(self) -> None:
        """Short ones, ones that need the wide numbers, impossible ones: none takes over what another left."""
        unary, rows, lengths = self.random(4, batch=60, words=4, tags=3, forbidden=0.0, poison=False)
        g = torch.Generator().manual_seed(0)
        unary[torch.rand(60, generator=g) < 0.4] *= 3000.0
        unary[torch.rand(60, generator=g) < 0.2, 0] = NEG_INF
        p = self.make(unary, rows, lengths, validate_args=False)
        pairs, trigrams = p._pairs, p.trigrams_in_a_row
        close(p.log_partition, plain.chain.value(unary, pairs, lengths, trigrams), 1e-12)
        weight = torch.rand(60, generator=g, dtype=F64)
        want = plain.chain.gradient(unary, pairs, lengths, trigrams, weight)
        for got, expected in zip(chains.sums(unary, pairs, lengths, trigrams, (), weight), want, strict=True):
            close(got, expected, 1e-9)

    @pytest.mark.parametrize("gap", [10.0, 300.0, 700.0, 720.0, 5000.0])
    def test_best_tags_that_do_not_go_together(self, gap: float) -> None:
        """What leads at every word cannot be continued: all of Z is in states far below the greatest."""
        n, T = 12, 3
        unary = normal(2, n, T, seed=0)
        unary[:, :, 0] += gap
        rows = normal(*[T] * self.size, seed=1) if self.shared else normal(2, n - 1, T, T, seed=1)
        where = (Ellipsis, *[0] * self.size)
        for low in (NEG_INF, -3 * gap):
            rows[where] = low
            self.check_against_plain(unary, rows, torch.tensor([n, n - 3]), 1e-9)
        dead = rows.clone()
        dead[..., 0, 1:] = NEG_INF  # nothing follows the tag that leads
        self.check_against_plain(unary, dead, torch.tensor([n, n - 3]), 1e-9)

    @pytest.mark.parametrize("low", [-1e4, -1e9, -1e14, -1e30])
    def test_a_low_score_that_every_chain_needs(self, low: float) -> None:
        unary = torch.zeros(1, 4, 2, dtype=F64)
        rows = torch.full([2] * self.size if self.shared else [1, 3, 2, 2], low, dtype=F64)
        p = self.make(unary, rows)
        close(p.log_partition, torch.tensor([self.places(4) * low + 4 * math.log(2)], dtype=F64), 1e-12)
        close(p.marginals, torch.full((1, 4, 2), 0.5), 1e-11)
        self.check_tags(p.sample((5,)), p.lengths, 2)

    def test_one_possible_chain(self, dtype: torch.dtype) -> None:
        tags = torch.tensor([[0, 2, 1, 1, 0], [1, 1, 1, -1, -1], [2, -1, -1, -1, -1]])
        lengths = torch.tensor([5, 3, 1])
        keep = tags[..., None] == torch.arange(3)
        unary = torch.where(keep, normal(3, 5, 3, seed=0) * 1e3, NEG_INF).to(dtype).requires_grad_()
        rows = normal(*([3] * self.size if self.shared else [3, 4, 3, 3]), seed=1, dtype=dtype).requires_grad_()
        p = self.make(unary, rows, lengths)
        close(p.log_partition.detach(), p.max.detach(), tolerance(dtype))
        close(p.marginals.detach(), keep.double(), 1e-13)
        close(p.entropy().detach(), torch.zeros(3), 1e-10)
        close(p.log_prob(tags).detach(), torch.zeros(3), 1e-10 if dtype == F64 else 1e-6)
        assert torch.equal(p.argmax, tags)
        assert torch.equal(p.sample((3,)), tags.expand(3, -1, -1))
        found, scores = p.topk(3)
        assert torch.equal(found[0], tags)
        assert bool((found[1:] == -1).all()) and bool((scores[1:] == NEG_INF).all())
        for g in grad(p.entropy().sum() + p.marginals.square().sum(), (unary, rows)):
            close(g, torch.zeros_like(g), 1e-10)

    def test_offsets_cost_no_digits(self, dtype: torch.dtype) -> None:
        """A constant for all tags of a word, or for all pairs, changes log Z only."""
        unary, rows, lengths, _ = enumerations(self.size, self.shared, 5, 3, 0.3, 1.0, F64)
        unary, rows = (((x * 64).round() / 64).to(dtype) for x in (unary, rows))  # exact also with the offset
        oracles = enumerate_chains(unary, rows, lengths)
        p = self.make(unary + 1e4, rows - 3e4, lengths)
        close(p.marginals, padded([o.marginals for o in oracles], 5), tolerance(dtype))
        close(p.entropy(), stacked([o.entropy for o in oracles]), tolerance(dtype))

    def test_long_sentences(self, dtype: torch.dtype) -> None:
        """1,000 words, some peaked and some not: probabilities add up, the second derivative is finite."""
        T, n = 6, 1000
        unary = normal(2, n, T, seed=0, dtype=dtype) * torch.tensor([1.0, 20.0], dtype=dtype)[:, None, None]
        rows = normal(*([T] * self.size if self.shared else [2, n - 1, T, T]), seed=1, dtype=dtype) * 3
        unary.requires_grad_(), rows.requires_grad_()
        p = self.make(unary, rows, torch.tensor([n, 750]))
        word = torch.arange(n) < p.lengths[:, None]
        close(p.marginals.sum(2).detach(), word.double(), 1e-6 if dtype == F32 else 1e-11)
        assert bool((p.log_partition >= p.max).all()) and bool((p.entropy() > 0).all())
        assert all(bool(g.isfinite().all()) for g in grad(p.entropy().sum(), (unary, rows)))
        self.check_tags(p.sample((2,)), p.lengths, T)
        tags, scores = p.topk(2)
        self.check_tags(tags, p.lengths, T)
        assert bool((scores[0] >= scores[1]).all())

    def test_empty_batch(self, dtype: torch.dtype) -> None:
        unary = torch.empty(0, 4, 3, dtype=dtype, requires_grad=True)
        rows = torch.zeros([3] * self.size if self.shared else [0, 3, 3, 3], dtype=dtype, requires_grad=True)
        p = self.make(unary, rows, [])
        assert p.log_partition.shape == p.max.shape == p.entropy().shape == kl_divergence(p, p).shape == (0,)
        assert p.marginals.shape == (0, 4, 3)
        assert self.row_marginals(p).shape == (0, self.places(4), *[3] * self.size)
        assert p.argmax.shape == (0, 4)
        assert [x.shape for x in p.topk(3)] == [(3, 0, 4), (3, 0)]
        assert p.log_prob(p.sample((2, 3))).shape == (2, 3, 0)
        total = p.log_partition.sum() + p.marginals.sum() + p.entropy().sum() + p.max.sum()
        assert [g.shape for g in grad(total, (unary, rows))] == [unary.shape, rows.shape]

    # ------------------------------------------------------------------------------- memory, batches, threads

    def test_the_plain_path_says_the_same(self, dtype: torch.dtype) -> None:
        for words, tags in ((1, 3), (2, 2), (5, 3)):
            unary, rows, lengths, _ = enumerations(self.size, self.shared, words, tags, 0.3, 1.0, dtype)

            def run(x: Tensor = unary, y: Tensor = rows, lengths: Tensor = lengths) -> dict[str, Tensor]:
                leaves = x.clone().requires_grad_(), y.clone().requires_grad_()
                p = self.make(*leaves, lengths)
                found = self.everything(p)
                g = grad(found["marginals"].square().sum() + found["entropy"].sum(), leaves, create_graph=True)
                h = grad(sum(z.square().sum() for z in g), leaves, materialize_grads=True, allow_unused=True)
                names = ("by unary", "by rows", "by unary twice", "by rows twice")
                return {**found, **dict(zip(names, (*g, *h), strict=True))}

            got, want = run(), self.plainly(run)
            for name, value in want.items():
                close(got[name].detach(), value.detach(), 1e-5 if dtype == F32 else 1e-11)

    def test_plain_samples(self) -> None:
        p, oracles = self.enumerated(4, 3 if self.size == 3 else 4, 0.3, 1.0, F64)
        torch.manual_seed(0)
        tags = self.plainly(lambda: p.sample((20_000,)))
        T = p.unary.shape[2]
        self.check_tags(tags, p.lengths, T)
        for b, o in enumerate(oracles):
            n = int(p.lengths[b])
            drawn = (tags[:, b, :n] * T ** torch.arange(n - 1, -1, -1)).sum(1)
            statistic, bound = chi_square(drawn.bincount(minlength=len(o.chains)), o.probs)
            assert statistic < bound, (b, n)

    def test_strides_do_not_matter(self, dtype: torch.dtype) -> None:
        unary, rows, lengths, _ = enumerations(self.size, self.shared, 5, 3, 0.3, 1.0, dtype)
        want = self.everything(self.make(unary, rows, lengths))
        views = unary.mT.contiguous().mT, rows.mT.contiguous().mT
        wide = torch.full((*rows.shape[:-1], 9), NAN, dtype=dtype)
        wide[..., 1:7:2] = rows
        for x, y in (views, (unary, wide[..., 1:7:2])):
            got = self.everything(self.make(x, y, torch.stack([lengths, -lengths], 1)[:, 0]))
            for name, value in want.items():
                assert torch.equal(got[name], value), name

    @pytest.mark.parametrize("magnitude", [1.0, 1e3])
    def test_sentences_do_not_depend_on_their_batch(self, magnitude: float, dtype: torch.dtype) -> None:
        """The same alone, in the batch and with more padding."""
        unary, rows, lengths = self.random(
            13, batch=5, words=9, tags=5, forbidden=0.3, magnitude=magnitude, dtype=dtype
        )
        together = self.everything(self.make(unary, rows, lengths))
        wide = torch.full((5, 13, 5), NAN, dtype=dtype)
        wide[:, :9] = unary
        longer = rows
        if not self.shared:
            longer = torch.full((5, 12, 5, 5), NAN, dtype=dtype)
            longer[:, :8] = rows
        further = self.everything(self.make(wide, longer, lengths))
        tol = tolerance(dtype, magnitude)
        exact = 0.0 if backend_for(unary.device) else tol
        for b, n in enumerate(lengths.tolist()):
            own = rows if self.shared else rows[b : b + 1, : n - 1]
            alone = self.everything(self.make(unary[b : b + 1, :n], own, [n]))
            for batch in (together, further):
                for name in ("max", "log_prob", "entropy"):
                    close(batch[name][b], alone[name][0], tol)
                close(batch["log_partition"][b], alone["log_partition"][0], exact)
                close(batch["marginals"][b, :n], alone["marginals"][0], exact)
                assert torch.equal(batch["argmax"][b, :n], alone["argmax"][0])
                assert torch.equal(batch["topk tags"][:, b, :n], alone["topk tags"][:, 0])

    def test_neighbours_without_a_chain(self) -> None:
        """Sentences that are impossible or NaN (unchecked) leave the others as they are."""
        unary, rows, lengths, _ = enumerations(self.size, self.shared, 4, 4, 0.3, 1.0, F64)
        broken = unary.clone()
        broken[1, 0, 1] = NAN
        broken[3, 0] = NEG_INF
        fine = [0, 2, 4]
        outcomes = []
        for x in (unary, broken):
            x = x.clone().requires_grad_()
            p = self.make(x, rows, lengths, validate_args=False)
            (first,) = grad(p.marginals[fine].square().sum() + p.entropy()[fine].sum(), x)
            outcomes.append([p.log_partition, p.marginals, p.argmax, p.entropy(), first])
        for a, b in zip(*outcomes, strict=True):
            assert torch.equal(a[fine], b[fine])
        log_z, mu, tags = outcomes[1][:3]
        assert bool(log_z[1].isnan()) and bool(mu[1].isnan().all()) and bool((tags[[1, 3]] == -1).all())
        assert log_z[3] == NEG_INF and not bool(mu[3].any()) and not bool(outcomes[1][-1][3].any())

    def test_bad_rows_are_only_read_by_longer_sentences(self) -> None:
        unary, rows, lengths = self.random(0, batch=3, words=4, tags=2, forbidden=0.0, poison=False)
        rows[..., 0, 0] = NAN
        lengths = torch.tensor([4, 1, self.size - 1])
        p = self.make(unary, rows, lengths, validate_args=False)
        assert p.log_partition.isnan().tolist() == [True, False, False]
        assert (p.topk(1)[0][0] == -1).all(1).tolist() == [True, False, False]
        assert (p.sample() == -1).all(1).tolist() == [True, False, False]

    @pytest.mark.parametrize("magnitude", [1.0, 1e3])
    def test_new_memory_may_hold_anything(
        self, magnitude: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is not initialised is not read: numbers of tags around the width of a SIMD register."""

        def dirty(make: Callable[..., Tensor], value: float, whole: int) -> Callable[..., Tensor]:
            def make_dirty(*args: Any, **kwargs: Any) -> Tensor:
                new = make(*args, **kwargs)
                return new.fill_(value if new.is_floating_point() else whole)

            return make_dirty

        for tags in (1, 2, 3, 7, 8, 9, 15, 17):
            for words in (1, 2, 5):
                unary, rows, lengths = self.random(
                    tags, batch=2, words=words, tags=tags, magnitude=magnitude, dtype=dtype
                )
                outcomes = []
                for value, whole in ((NAN, 2**30), (1e30, -1)):
                    with monkeypatch.context() as patch:
                        for name in ("empty", "empty_like"):
                            patch.setattr(torch, name, dirty(getattr(torch, name), value, whole))
                        torch.manual_seed(0)
                        leaves = unary.clone().requires_grad_(), rows.clone().requires_grad_()
                        p = self.make(*leaves, lengths)
                        first = grad(p.marginals.square().sum() + p.entropy().sum(), leaves, create_graph=True)
                        again = grad(sum(g.sum() for g in first), leaves, materialize_grads=True, allow_unused=True)
                        more = {f"derivative {i}": g for i, g in enumerate((*first, *again))}
                        outcomes.append({**self.everything(p), **more, "sample": p.sample((3,))})
                for name, result in outcomes[0].items():
                    assert not bool(result.isnan().any()), (name, tags, words)
                    assert torch.equal(result, outcomes[1][name]), (name, tags, words)

    def test_threads_do_not_matter(self, dtype: torch.dtype) -> None:
        unary, rows, lengths = self.random(17, batch=70, words=12, tags=9, forbidden=0.3, dtype=dtype)
        outcomes = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            leaves = unary.clone().requires_grad_(), rows.clone().requires_grad_()
            p = self.make(*leaves, lengths)
            first = grad(p.log_partition.sum() + p.marginals.square().sum(), leaves)
            outcomes.append({**self.everything(p), "by unary": first[0], "by rows": first[1], "draw": p.sample((5,))})
        for name, value in outcomes[0].items():
            assert torch.equal(value, outcomes[1][name]), name

    # ---------------------------------------------------------------------- what torch.distributions asks for

    def test_is_a_distribution(self) -> None:
        unary, rows, _ = self.random(0, batch=2, words=4, tags=3, forbidden=0.0, poison=False)
        p = self.make(unary, rows, [4, 2])
        assert isinstance(p, Distribution)
        assert p.batch_shape == (2,) and p.event_shape == (4,)
        assert repr(p) == f"{self.distribution.__name__}(sentences: 2, words: 4, tags: 3)"
        assert bool(p.support.check(p.sample((3,))).all())
        assert not bool(p.support.check(torch.full((2, 4), 3)).any())
        with pytest.raises(TypeError):
            self.distribution(unary, rows, None, True)  # type: ignore[call-arg,arg-type,misc]

    def test_expand(self) -> None:
        unary, rows, lengths = self.random(1, batch=1, words=4, tags=3)
        unary, rows = unary.requires_grad_(), rows.requires_grad_()
        p = self.make(unary, rows, lengths)
        wide = p.expand(torch.Size([5]))
        assert type(wide) is type(p) and wide.batch_shape == (5,)
        for name, value in self.everything(wide).items():
            axis = 1 if name.startswith("topk") else 0
            assert torch.equal(value, self.everything(p)[name].repeat_interleave(5, axis)), name
        many, one = (grad(x.log_partition.sum(), (unary, rows)) for x in (wide, p))
        for a, b in zip(many, one, strict=True):
            close(a, 5 * b, 1e-13)
        assert wide.sample((3,)).shape == (3, 5, 4)
        assert p.expand([0]).log_partition.shape == (0,)
        for wrong in ([3], [4, 2], []):
            with pytest.raises(ValueError, match="batch_shape"):
                wide.expand(wrong)

    def test_copies(self) -> None:
        unary, rows, lengths = self.random(1, batch=2, words=4, tags=3)
        p = self.make(unary.requires_grad_(), rows.requires_grad_(), lengths)
        results = p.log_partition, p.entropy(), p.argmax
        for q in (copy.copy(p), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
            assert torch.equal(q.log_partition, results[0]) and torch.equal(q.entropy(), results[1])
            assert torch.equal(q.argmax, results[2])

    def test_inference_mode_then_grad(self) -> None:
        unary, rows, lengths = self.random(1, batch=2, words=4, tags=3)
        p = self.make(unary.requires_grad_(), rows, lengths)
        with torch.inference_mode():
            inside = p.marginals, p.log_partition, p.entropy()
        loss = p.marginals.square().sum() + p.log_partition.sum() + p.entropy().sum()
        for a, b in zip(inside, (p.marginals, p.log_partition, p.entropy()), strict=True):
            assert torch.equal(a, b)
        assert bool(grad(loss, unary)[0].any())

    def test_what_is_given_out_is_the_callers(self) -> None:
        unary, rows, lengths = self.random(1, batch=2, words=4, tags=3)
        p = self.make(unary, rows, lengths)
        before = p.max
        p.argmax.fill_(0)
        assert torch.equal(p.max, before)

    def test_other_kinds_of_derivatives_are_refused(self) -> None:
        unary, rows, _ = self.random(1, batch=1, words=4, tags=3)

        def log_z(x: Tensor) -> Tensor:
            return self.make(x, rows).log_partition.sum()

        with pytest.raises(ValueError, match=r"unary must not be under torch\.func or forward-mode"):
            torch.func.grad(log_z)(unary)
        with forward_ad.dual_level(), pytest.raises(ValueError, match="forward-mode"):
            log_z(forward_ad.make_dual(unary, unary))

    # -------------------------------------------------------------------------------------------- bad input

    def test_bad_input(self) -> None:
        unary, rows, lengths = self.random(1, batch=2, words=4, tags=3, forbidden=0.0, poison=False)
        name = "trigrams" if self.size == 3 else "transitions"
        for value in (NAN, INF):
            wrong = unary.clone()
            wrong[1, 0, 2] = value
            with pytest.raises(ValueError, match=r"unary\[1, 0, 2\] is .* \(sentence 1, word 0, tag 2\)"):
                self.make(wrong, rows, lengths)
            bad = rows.clone()
            (bad if self.shared else bad[0, 0]).flatten()[1] = value
            with pytest.raises(ValueError, match=rf"{name}\["):
                self.make(unary, bad, lengths)
        wrong = unary.clone()
        wrong[1, 0] = NEG_INF
        with pytest.raises(ValueError, match=r"sentence 1 allows no chain of tags: every tag of word 0 scores -inf"):
            self.make(wrong, rows, lengths)
        with pytest.raises(ValueError, match=rf"{name} must have shape"):
            self.make(unary, rows[..., :2], lengths)
        with pytest.raises(ValueError, match=rf"{name} must have the dtype and device of unary"):
            self.make(unary, rows.float(), lengths)
        with pytest.raises(ValueError, match=r"unary must have shape \[B, n, T\]"):
            self.make(unary[0], rows, lengths)
        with pytest.raises(ValueError, match=r"lengths\[1\] is 5"):
            self.make(unary, rows, [4, 5])
        p = self.make(unary, rows, [4, 2])
        with pytest.raises(ValueError, match=r"tags of sentence 0: word 0 has tag 9"):
            p.log_prob(torch.full((2, 4), 9))
        with pytest.raises(ValueError, match=r"tags must have shape"):
            p.log_prob(torch.zeros(2, 3, dtype=torch.int64))
        unchecked = self.make(unary, rows, [4, 2], validate_args=False)
        outside = torch.zeros(2, 4, dtype=torch.int64)
        outside[0, 0] = 9
        assert unchecked.log_prob(outside).isneginf().tolist() == [True, False]

    # ------------------------------------------------------------------------------------------- any instance

    @LEAN
    @given(
        seed=st.integers(0, 10**6),
        batch=st.integers(1, 4),
        words=st.integers(1, 5),
        tags=st.integers(1, 4),
        forbidden=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
        magnitude=st.sampled_from([0.0, 1.0, 100.0, 1e4]),
        dtype=st.sampled_from([F32, F64]),
    )
    def test_any_small_instance(
        self, seed: int, batch: int, words: int, tags: int, forbidden: float, magnitude: float, dtype: torch.dtype
    ) -> None:
        unary, rows, lengths = self.random(
            seed, batch=batch, words=words, tags=tags, forbidden=forbidden, magnitude=magnitude, dtype=dtype
        )
        p, oracles = self.make(unary, rows, lengths), enumerate_chains(unary, rows, lengths)
        tol = tolerance(dtype, 10 * magnitude)
        close(p.log_partition, stacked([o.log_partition for o in oracles]), tolerance(dtype))
        close(p.marginals, padded([o.marginals for o in oracles], words), tol)
        close(self.row_marginals(p), padded([o.row_marginals for o in oracles], self.places(words)), tol)
        close(p.entropy(), stacked([o.entropy for o in oracles]), tol)
        close(p.max, stacked([o.max for o in oracles]), tolerance(dtype))
        found, scores = p.topk(4)
        for b, o in enumerate(oracles):
            exist = min(4, int((o.scores > NEG_INF).sum()))
            close(scores[:exist, b], o.sorted_scores[:exist], tolerance(dtype))
            assert bool((found[exist:, b] == -1).all())
        self.check_tags(p.argmax, lengths, tags)
        drawn = p.sample((2,))
        self.check_tags(drawn, lengths, tags)
        assert bool(p.log_prob(drawn).isfinite().all())

    @LEAN
    @given(
        seed=st.integers(0, 10**6),
        words=st.integers(1, 12),
        tags=st.integers(1, 10),
        forbidden=st.sampled_from([0.0, 0.5, 0.9]),
        low=st.floats(-1e4, 1e4),
        high=st.floats(-1e4, 1e4),
    )
    def test_any_range(self, seed: int, words: int, tags: int, forbidden: float, low: float, high: float) -> None:
        """Scores uniform between two bounds: log-space says the same, also of the derivatives."""
        unary, rows, lengths = self.random(seed, batch=2, words=words, tags=tags, forbidden=forbidden, poison=False)
        g = torch.Generator().manual_seed(seed)
        unary, rows = (
            torch.where(x.isfinite(), low + (high - low) * torch.rand(x.shape, generator=g, dtype=F64), x)
            for x in (unary, rows)
        )
        self.check_against_plain(unary, rows, lengths, 1e-9)


class TestTagChains(ChainDistributionTests):
    distribution = TagChains
    size = 2

    @pytest.mark.filterwarnings("ignore:.*does not define `arg_constraints`:UserWarning")
    def test_against_torch_struct(self) -> None:
        """Its potentials are [B, n - 1, to, from], the first word's scores added to the first place's."""
        torch_struct = pytest.importorskip("torch_struct")
        unary, transitions, lengths = normal(4, 9, 5, seed=0), normal(5, 5, seed=1), torch.tensor([9, 7, 2, 5])
        potentials = transitions.t()[None, None] + unary[:, 1:, :, None]
        potentials = torch.cat([potentials[:, :1] + unary[:, :1, None, :], potentials[:, 1:]], 1).requires_grad_()
        theirs: Any = torch_struct.LinearChainCRF(potentials, lengths=lengths)
        p = TagChains(unary, transitions, lengths)
        close(p.log_partition, theirs.partition.detach(), 1e-12)
        close(p.transition_marginals, theirs.marginals.detach().mT, 1e-12)
        close(p.entropy(), theirs.entropy.detach(), 1e-11)
        close(p.max, theirs.max.detach(), 1e-12)

    def test_the_same_transitions_everywhere_or_at_every_place(self) -> None:
        unary, transitions, lengths = self.random(4, batch=3, words=6, tags=4)
        a = self.everything(TagChains(unary, transitions, lengths))
        b = self.everything(TagChains(unary, transitions.expand(3, 5, 4, 4).contiguous(), lengths))
        for name, value in a.items():
            close(value, b[name], 1e-12)
        p = TagChains(unary, transitions, lengths)
        assert torch.equal(p.transitions, transitions)


class TestTagChainsOfManyTransitions(ChainDistributionTests):
    distribution = TagChains
    size = 2
    shared = False


class TestTrigramChains(ChainDistributionTests):
    distribution = TrigramChains
    size = 3

    def test_scores_of_pairs_as_trigrams(self) -> None:
        """A trigram that does not look at its first tag is a transition, but for the first two words."""
        unary, transitions = normal(2, 5, 3, seed=0), normal(3, 3, seed=1)
        everywhere = transitions.expand(2, 4, 3, 3).clone()
        everywhere[:, 0] = 0.0
        a = TrigramChains(unary, transitions.expand(3, 3, 3), [5, 4])
        b = TagChains(unary, everywhere, [5, 4])
        close(a.log_partition, b.log_partition, 1e-13)
        close(a.marginals, b.marginals, 1e-13)
        close(a.entropy(), b.entropy(), 1e-12)
        assert torch.equal(a.argmax, b.argmax)
