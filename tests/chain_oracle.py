"""Every chain of tags of a short sentence, and what follows from adding them up one by one."""

from __future__ import annotations

import math
from functools import cache

import torch
from jaxtyping import Float, Int64
from torch import Tensor

NEG_INF = float("-inf")


@cache
def all_chains(n: int, T: int) -> Int64[Tensor, "C n"]:
    """All T^n chains of n words, in lexicographic order."""
    return torch.cartesian_prod(*[torch.arange(T)] * n).view(-1, n)


class ChainEnumeration:
    """The distribution over the chains of one sentence: unary [n, T], pairs [P, T, T] or triples [P, T, T, T] of it."""

    def __init__(self, unary: Float[Tensor, "n T"], rows: Float[Tensor, "P T *more"]) -> None:
        n, T = unary.shape
        self.size = rows.dim() - 1  # tags in a row that are scored together
        self.chains = all_chains(n, T)
        count = len(self.chains)
        # which scores each chain adds up: [C, n, T] and [C, P, T, T(, T)]
        self.tags = torch.nn.functional.one_hot(self.chains, T).double()
        places = max(0, n + 1 - self.size)
        assert len(rows) == places
        windows = torch.stack([self.chains[:, i : i + self.size] for i in range(places)], 1) if places else None
        self.rows = torch.zeros(count, places, *[T] * self.size, dtype=torch.float64)
        self.scores = unary.detach().double()[torch.arange(n), self.chains].sum(1)
        if windows is not None:
            at = (torch.arange(places), *windows.unbind(2))
            self.rows[(torch.arange(count)[:, None], *at)] = 1.0
            self.scores = self.scores + rows.detach().double()[at].sum(1)
        self.log_partition = torch.logsumexp(self.scores, 0)
        self.max = self.scores.max()
        self.sorted_scores = self.scores.sort(descending=True).values
        self.has_chain = bool(self.max > NEG_INF)
        self.probs = torch.exp(self.scores - self.log_partition) if self.has_chain else torch.zeros_like(self.scores)
        self.marginals = self._sum(self.probs, self.tags)
        self.row_marginals = self._sum(self.probs, self.rows)

    @staticmethod
    def _sum(weights: Tensor, parts: Tensor) -> Tensor:
        return torch.einsum("c,c...->...", weights, parts)

    def index(self, tags: Int64[Tensor, " n"]) -> int:
        n, T = self.tags.shape[1:]
        return int((tags * T ** torch.arange(n - 1, -1, -1)).sum())

    def score(self, tags: Int64[Tensor, " n"]) -> Tensor:
        return self.scores[self.index(tags)]

    @property
    def entropy(self) -> Tensor:
        return -torch.special.xlogy(self.probs, self.probs).sum()

    def kl(self, other: ChainEnumeration) -> Tensor:
        """KL(self || other), inf where the other forbids what this allows."""
        difference = (self.scores - self.log_partition) - (other.scores - other.log_partition)
        return torch.where(self.scores > NEG_INF, torch.where(self.probs > 0, self.probs * difference, 0.0), 0.0).sum()

    def _deviation(self, u: Tensor, v: Tensor) -> Tensor:
        """How far each chain's sum of other scores is from its expectation."""
        value = torch.einsum("cit,it->c", self.tags, u.double()) + (self.rows * v.double()).flatten(1).sum(1)
        return value - (self.probs * value).sum()

    def derivative(self, *directions: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Derivative of the marginals along one or two directions: central moments."""
        weight = self.probs
        for u, v in directions:
            weight = weight * self._deviation(u, v)
        return self._sum(weight, self.tags - self.marginals), self._sum(weight, self.rows - self.row_marginals)


def random_chains(
    seed: int,
    *,
    size: int,
    shared: bool = True,
    batch: int = 4,
    words: int = 5,
    tags: int = 3,
    forbidden: float = 0.3,
    magnitude: float = 1.0,
    poison: bool = True,
    dtype: torch.dtype = torch.float64,
) -> tuple[Float[Tensor, "B n T"], Float[Tensor, "*rows"], Int64[Tensor, " B"]]:
    """A ragged batch: unary [B, n, T], scores of `size` tags in a row ([T, T], [T, T, T], or [B, n - 1, T, T] if not
    shared) and lengths [B], the first of them `words`. Some scores are -inf, but those of one chain of each sentence
    stay. What is never read is NaN if `poison`, else 0."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, words + 1, (batch,), generator=g)
    lengths[0] = words
    shape = [tags] * size if shared else [batch, words - 1, tags, tags]
    unary, rows = (torch.randn(s, generator=g, dtype=torch.float64) * magnitude for s in ([batch, words, tags], shape))
    masks = [torch.rand(x.shape, generator=g) < forbidden for x in (unary, rows)]
    for b, n in enumerate(lengths.tolist()):
        chain = torch.randint(tags, (n,), generator=g)
        masks[0][b, torch.arange(n), chain] = False
        for i in range(n + 1 - size):
            masks[1][tuple(chain[i : i + size].tolist()) if shared else (b, i, *chain[i : i + size].tolist())] = False
    unary, rows = unary.masked_fill(masks[0], NEG_INF), rows.masked_fill(masks[1], NEG_INF)
    unread = math.nan if poison else 0.0
    for b, n in enumerate(lengths.tolist()):
        unary[b, n:] = unread
        if not shared:
            rows[b, n - 1 :] = unread
    return unary.to(dtype), rows.to(dtype), lengths


def enumerate_chains(unary: Tensor, rows: Tensor, lengths: Tensor) -> list[ChainEnumeration]:
    """The truth about each sentence of a batch."""
    per_place = rows.dim() == 4
    size = 2 if per_place else rows.dim()
    found = []
    for b, n in enumerate(lengths.tolist()):
        places = max(0, n + 1 - size)
        found.append(
            ChainEnumeration(unary[b, :n], rows[b, :places] if per_place else rows.expand(places, *rows.shape))
        )
    return found
