"""Every tree of up to five words, every chain, and what follows from adding them up one by one."""

from __future__ import annotations

import math
from functools import cache

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

MAX_WORDS = 5
NEG_INF = float("-inf")


@cache
def all_trees(n: int, *, single_root: bool, projective: bool) -> Int64[Tensor, "T n+1"]:
    """Heads [T, n+1] of all trees of n words, in lexicographic order; -1 at node 0."""
    if not 0 <= n <= MAX_WORDS:
        raise ValueError(f"n = {n}: only 0 to {MAX_WORDS} words are enumerated")
    if n == 0:
        return torch.full((1, 1), -1)
    choices = torch.cartesian_prod(*[torch.arange(n + 1)] * n).view(-1, n)
    heads = torch.cat([torch.full_like(choices[:, :1], -1), choices], 1)
    keep = is_tree(heads)
    if single_root:
        keep &= (heads == 0).sum(1) == 1
    if projective:
        keep &= ~has_crossing(heads)
    return heads[keep]


@cache
def all_chains(n: int, T: int) -> Int64[Tensor, "C n"]:
    """All T^n chains of n words, in lexicographic order."""
    return torch.cartesian_prod(*[torch.arange(T)] * n).view(-1, n)


def is_tree(heads: Int64[Tensor, "T N"]) -> Bool[Tensor, " T"]:
    """Does every word come to the root by its heads? heads [T, N] -> [T]."""
    parent = heads.clamp(min=0)
    at = parent
    for _ in range(heads.shape[1]):
        at = parent.gather(1, at)
    return (at == 0).all(1)


def has_crossing(heads: Int64[Tensor, "T N"]) -> Bool[Tensor, " T"]:
    """Do two arcs cross, those of the root (at the left end) among them? heads [T, N] -> [T]."""
    word = torch.arange(1, heads.shape[1])
    left, right = torch.minimum(heads[:, 1:], word), torch.maximum(heads[:, 1:], word)
    a, b, c, d = left[:, :, None], right[:, :, None], left[:, None, :], right[:, None, :]
    return ((a < c) & (c < b) & (b < d)).flatten(1).any(1)


def count(n: int, *, single_root: bool, projective: bool) -> int:
    """The number of trees of n words in closed form."""
    if projective:
        return math.comb(3 * n - 2, n - 1) // n if single_root else math.comb(3 * n, n) // (2 * n + 1)
    return n ** (n - 1) if single_root else (n + 1) ** (n - 1)


class Enumeration:
    """The distribution over the trees of one sentence; arcs [N, N], all of its N - 1 words in use."""

    def __init__(self, arcs: Float[Tensor, "N N"], *, single_root: bool, projective: bool) -> None:
        n = arcs.shape[0] - 1
        self.trees = all_trees(n, single_root=single_root, projective=projective)
        # arcs of each tree, [T, N, N]
        self.arcs = torch.zeros(len(self.trees), n + 1, n + 1, dtype=torch.float64)
        self.arcs.scatter_(1, self.trees.clamp(min=0)[:, None, :], 1.0)
        self.arcs[:, :, 0] = 0
        word = torch.arange(1, n + 1)
        self.scores = arcs.detach().double()[self.trees[:, 1:], word].sum(1)
        self.log_partition = torch.logsumexp(self.scores, 0)
        self.max = self.scores.max()
        self.has_tree = bool(self.max > NEG_INF)
        # trees with an arc of -inf, and all of them if there is no other, have probability 0
        self.probs = torch.exp(self.scores - self.log_partition) if self.has_tree else torch.zeros_like(self.scores)
        self.marginals = torch.einsum("t,thm->hm", self.probs, self.arcs)

    def index(self, heads: Int64[Tensor, " N"]) -> int:
        """Where the tree `heads` [N] stands among the trees."""
        (found,) = (self.trees == heads).all(1).nonzero(as_tuple=True)
        if len(found) != 1:
            raise ValueError(f"{heads.tolist()} is not a tree of this family")
        return int(found[0])

    def score(self, heads: Int64[Tensor, " N"]) -> Tensor:
        """Score of the tree `heads` [N]."""
        return self.scores[self.index(heads)]

    def log_prob(self, heads: Int64[Tensor, " N"]) -> Tensor:
        """Log-probability of the tree `heads` [N]."""
        return self.score(heads) - self.log_partition


def never_read(lengths: Int64[Tensor, " B"], nodes: int) -> Bool[Tensor, "B N N"]:
    """Column 0, the diagonal and everything past the end, [B, N, N], one sentence at a time."""
    out = torch.ones(len(lengths), nodes, nodes, dtype=torch.bool)
    for b, n in enumerate(lengths.tolist()):
        out[b, : n + 1, 1 : n + 1] = False
        out[b].fill_diagonal_(True)
    return out


def random_instance(
    seed: int,
    *,
    batch: int = 4,
    words: int = MAX_WORDS,
    forbidden: float = 0.3,
    magnitude: float = 1.0,
    poison: bool = True,
    dtype: torch.dtype = torch.float64,
) -> tuple[Float[Tensor, "B N N"], Int64[Tensor, " B"]]:
    """A ragged batch: arcs [B, N, N], N = words + 1, and lengths [B], the first of them `words`.

    Scores are normal times `magnitude`; each arc is -inf with probability `forbidden`, but those of one
    projective tree with a single root stay, so there is a tree in every family. What is never read is NaN
    if `poison`, else 0.
    """
    g = torch.Generator().manual_seed(seed)
    nodes = words + 1
    lengths = torch.randint(1, words + 1, (batch,), generator=g)
    lengths[0] = words
    arcs = torch.randn(batch, nodes, nodes, generator=g, dtype=torch.float64) * magnitude
    mask = torch.rand(batch, nodes, nodes, generator=g) < forbidden
    for b, n in enumerate(lengths.tolist()):
        if n <= MAX_WORDS:
            trees = all_trees(n, single_root=True, projective=True)
            heads = trees[int(torch.randint(len(trees), (), generator=g))]
        else:
            heads = torch.arange(-1, n)  # a chain
        mask[b, heads[1:], torch.arange(1, n + 1)] = False
    arcs = arcs.masked_fill(mask, NEG_INF)
    return arcs.masked_fill(never_read(lengths, nodes), math.nan if poison else 0.0).to(dtype), lengths
