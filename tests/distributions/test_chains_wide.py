"""Chains of longer sentences and of scores in any range, and memory that holds anything."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import grad

from gpuparse import plain
from gpuparse.ops import chains
from tests.chain_oracle import enumerate_chains
from tests.distributions.chain_cases import (
    LEAN,
    ChainCases,
    OwnTransitions,
    Tags,
    Trigrams,
    enumerations,
    padded,
    stacked,
)
from tests.distributions.families import F32, F64, NAN, NEG_INF, chi_square, close, normal, tolerance


class ChainTests(ChainCases):
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


class TestTagChains(ChainTests, Tags):
    pass


class TestTagChainsOfManyTransitions(ChainTests, OwnTransitions):
    pass


class TestTrigramChains(ChainTests, Trigrams):
    pass
