"""Trees of longer sentences and of scores in any range, and memory that holds anything."""

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
from tests.distributions.families import F32, F64, NAN, NEG_INF, close, generator, normal, tolerance
from tests.distributions.tree_cases import (
    LEAN,
    NonProjective,
    Projective,
    TreeCases,
    arcs_of,
    enumerate_batch,
    enumerations,
    padded,
    with_cycles,
)
from tests.oracle import all_trees, count, random_instance


class TreeTests(TreeCases):
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

    # ------------------------------------------------------------------------------- memory, batches, threads

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


class TestProjectiveTrees(TreeTests, Projective):
    pass


class TestNonProjectiveTrees(TreeTests, NonProjective):
    pass
