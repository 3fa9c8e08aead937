"""What is special about chains of tags: the k best, rare ones, samples, derivatives, other code."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import Distribution, kl_divergence

from gpuparse import plain
from gpuparse.distributions import TagChains, TrigramChains
from tests.chain_oracle import all_chains, enumerate_chains
from tests.distributions.chain_cases import (
    SCORES,
    ChainCases,
    OwnTransitions,
    Tags,
    Trigrams,
    enumerations,
    padded,
    stacked,
)
from tests.distributions.families import F32, F64, INF, NAN, NEG_INF, chi_square, close, normal, tolerance


class ChainTests(ChainCases):
    # ------------------------------------------------------------------------------------ against enumeration

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

    # -------------------------------------------------------------------------------------- two distributions

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


class TestTagChains(ChainTests, Tags):
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


class TestTagChainsOfManyTransitions(ChainTests, OwnTransitions):
    pass


class TestTrigramChains(ChainTests, Trigrams):
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
