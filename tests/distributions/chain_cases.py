"""Chains to test distributions with, and what is true of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor

from gpuparse import plain
from gpuparse.backend import choose
from gpuparse.distributions import ChainDistribution, TagChains, TrigramChains
from gpuparse.ops import chains
from tests.chain_oracle import ChainEnumeration, enumerate_chains, random_chains
from tests.distributions.families import F64, close

LEAN = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
# share of forbidden scores, magnitude of the scores
SCORES = pytest.mark.parametrize(
    ("forbidden", "magnitude"), [(0.0, 1.0), (0.3, 1.0), (0.6, 1.0), (0.4, 30.0), (0.3, 1e4)]
)
SIZES = pytest.mark.parametrize(
    ("words", "tags"), [(1, 1), (1, 3), (2, 1), (2, 2), (2, 4), (3, 1), (3, 3), (5, 2), (4, 4), (5, 3)]
)


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


class ChainCases:
    """What tests of chains need. A subclass says which distribution it is of, and what its scores are like."""

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

    def plainly(self, run: Callable[[], Any]) -> Any:
        """The same without kernels."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(choose, "_prepared", lambda *_: (None, "GPUPARSE_BACKEND=torch"))
            return run()

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


class Tags(ChainCases):
    distribution = TagChains
    size = 2


class OwnTransitions(ChainCases):
    distribution = TagChains
    size = 2
    shared = False


class Trigrams(ChainCases):
    distribution = TrigramChains
    size = 3
