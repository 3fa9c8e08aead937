"""What is special about trees: what is none, the k best, rare ones, samples, derivatives, other code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import Distribution, kl_divergence

import gpuparse as gp
from tests.distributions.families import F32, F64, INF, NAN, NEG_INF, chi_square, close, normal, tolerance
from tests.distributions.tree_cases import (
    SCORES,
    NonProjective,
    Projective,
    TreeCases,
    arcs_of,
    codes,
    enumerate_batch,
    enumerations,
    padded,
)
from tests.oracle import Enumeration, all_trees, never_read, random_instance


class TreeTests(TreeCases):
    # ------------------------------------------------------------------------------------ against enumeration

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

    def test_expanded_still_checks_its_input(self, single_root: bool) -> None:
        p = self.distribution(normal(1, 4, 4, seed=0), single_root=single_root).expand([2])
        with pytest.raises(ValueError, match=r"heads of sentence 0: word 1 has head 9"):
            p.log_prob(torch.full((2, 4), 9))
        q = self.distribution(normal(2, 4, 4, seed=1), [3, 2], single_root=single_root)
        with pytest.raises(ValueError, match="lengths"):
            kl_divergence(p, q)

    # ------------------------------------------------------------------------------------ as an object


class TestProjectiveTrees(TreeTests, Projective):
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


class TestNonProjectiveTrees(TreeTests, NonProjective):
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
