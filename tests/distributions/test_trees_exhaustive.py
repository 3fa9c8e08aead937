"""Every distribution over trees against the sum over all trees, one by one, of random short sentences.

They come in ragged batches with NaN wherever nothing is read, scores in float64 of magnitude 1 to 100 and up to 60 % of
the arcs forbidden. Differences are absolute below 1 and relative above.

A divergence is infinite if a tree that p allows is forbidden by q. Where all such trees together have a probability
below 1e-300, doubles may as well see none of them: there both answers count as right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.distributions import kl_divergence

import gpuparse as gp
from gpuparse.distributions import TreeDistribution
from tests.oracle import MAX_WORDS, all_trees

pytestmark = pytest.mark.exhaustive

QUANTITIES = ("log Z", "marginals", "max", "argmax score", "topk scores", "entropy", "log_prob", "KL")
INSTANCES, BATCH = 5000, 500  # of each distribution and root mode
LIMIT = 1e-9  # sums of up to 1296 doubles of magnitude 100, logarithms of their ratios
K = 5
ASKED = 8  # trees of each sentence that log_prob is asked for


def codes(heads: Tensor) -> Tensor:
    """Trees [..., n+1] as whole numbers, in lexicographic order."""
    n = heads.shape[-1] - 1
    return (heads[..., 1:] * (n + 1) ** torch.arange(n - 1, -1, -1)).sum(-1)


class Enumeration:
    """Distributions over the trees of S sentences of n words; arcs [S, n+1, n+1]."""

    def __init__(self, arcs: Tensor, single_root: bool, projective: bool) -> None:
        n = arcs.shape[1] - 1
        self.trees = all_trees(n, single_root=single_root, projective=projective)
        self.scores = arcs[:, self.trees[:, 1:], torch.arange(1, n + 1)].sum(2)  # [S, T]
        self.log_z = torch.logsumexp(self.scores, 1)
        self.log_probs = self.scores - self.log_z[:, None]
        self.probs = self.log_probs.exp()

    def marginals(self) -> Tensor:
        nodes = self.trees.shape[1]
        arcs = (self.trees[:, None, :] == torch.arange(nodes)[:, None]).double()
        arcs[:, :, 0] = 0
        return (self.probs @ arcs.flatten(1)).view(-1, nodes, nodes)

    def entropy(self) -> Tensor:
        return -torch.special.xlogy(self.probs, self.probs).sum(1)

    def score_of(self, heads: Tensor) -> Tensor:
        """Scores [..., S] of heads [..., S, n+1]: NaN for what is no tree, -inf for -1 throughout."""
        known = codes(self.trees)
        asked = codes(heads)
        at = torch.searchsorted(known, asked).clamp(max=len(known) - 1)
        found = self.scores[torch.arange(len(self.scores)), at]
        found = torch.where(known[at] == asked, found, math.nan)
        return torch.where((heads == -1).all(-1), -math.inf, found)

    def kl(self, other: Enumeration) -> Tensor:
        """KL(self || other)."""
        allowed, forbidden = self.scores > -math.inf, other.scores == -math.inf
        each = torch.where(allowed & ~forbidden, self.probs * (self.log_probs - other.log_probs), 0.0)
        return torch.where((allowed & forbidden).any(1), math.inf, each.sum(1))


@dataclass
class Differences:
    """The largest difference of a quantity, how many values were compared, how many were beyond the limit."""

    largest: float = 0.0
    compared: int = 0
    beyond: int = 0

    def add(self, got: Tensor, want: Tensor) -> None:
        difference = (got - want).abs() / want.abs().clamp(min=1)
        difference = torch.where(got == want, 0.0, difference).nan_to_num(math.inf, math.inf)
        self.compared += difference.numel()
        self.beyond += int((difference > LIMIT).sum())
        self.largest = max(self.largest, float(difference.max()))


Found = dict[str, Differences]


def random_scores(lengths: Tensor, words: int, keep: Tensor, rate: Tensor, g: torch.Generator) -> Tensor:
    """Scores [B, N, N]; -inf by a mask that spares the arcs of the trees `keep` [B, N]."""
    nodes = words + 1
    shape = (len(lengths), nodes, nodes)
    magnitude = 100 ** torch.rand(len(lengths), 1, 1, generator=g, dtype=torch.float64)
    arcs = torch.randn(shape, generator=g, dtype=torch.float64) * magnitude
    mask = torch.rand(shape, generator=g) < rate[:, None, None]
    mask &= keep[:, None, :] != torch.arange(nodes)[:, None]
    return arcs.masked_fill(mask, -math.inf)


def poisoned(arcs: Tensor, lengths: Tensor) -> Tensor:
    """NaN at column 0, the diagonal and past the end."""
    node = torch.arange(arcs.shape[1])
    head, modifier = node[:, None], node
    last = lengths[:, None, None]
    return arcs.masked_fill((modifier == 0) | (head == modifier) | (head > last) | (modifier > last), math.nan)


def compare(found: Found, kind: type[TreeDistribution], single_root: bool, batch: int, g: torch.Generator) -> None:
    """A batch of random sentences: what the library says and what is so."""
    projective = kind is gp.ProjectiveTrees
    words = MAX_WORDS
    lengths = torch.randint(1, words + 1, (batch,), generator=g)
    keep = torch.full((batch, words + 1), -1)
    asked = torch.full((ASKED, batch, words + 1), -1)
    groups = {n: (lengths == n).nonzero()[:, 0] for n in range(1, words + 1)}
    for n, rows in groups.items():
        shared = all_trees(n, single_root=True, projective=True)
        own = all_trees(n, single_root=single_root, projective=projective)
        keep[rows, : n + 1] = shared[torch.randint(len(shared), (len(rows),), generator=g)]
        asked[:, rows, : n + 1] = own[torch.randint(len(own), (ASKED, len(rows)), generator=g)]
    rate = 0.6 * torch.rand(batch, generator=g) * (torch.rand(batch, generator=g) < 0.8)
    arcs = random_scores(lengths, words, keep, rate, g)
    # q forbids nothing, or by a mask of its own; p's trees or not
    rate = rate * (torch.rand(batch, generator=g) < 0.5)
    other = random_scores(lengths, words, keep, rate, g)

    p = kind(poisoned(arcs, lengths), lengths, single_root=single_root)
    q = kind(poisoned(other, lengths), lengths, single_root=single_root)
    best, (top, top_scores), log_prob, kl = p.argmax, p.topk(K), p.log_prob(asked), kl_divergence(p, q)
    for n, rows in groups.items():
        if not len(rows):
            continue
        cut = slice(0, n + 1)
        x = Enumeration(arcs[rows, cut, cut], single_root, projective)
        y = Enumeration(other[rows, cut, cut], single_root, projective)
        ranked = x.scores.sort(1, descending=True).values[:, :K].T
        ranked = torch.cat([ranked, ranked.new_full((K - len(ranked), len(rows)), -math.inf)])
        trees = top[:, rows, cut]
        again = (trees[:, None] == trees).all(-1) & (trees[:, None, :, 1] >= 0)  # one tree at two ranks
        again &= ~torch.eye(K, dtype=torch.bool)[:, :, None]
        score = torch.where(again.any(1), math.nan, x.score_of(trees))
        pairs = {
            "log Z": [(p.log_partition[rows], x.log_z)],
            "marginals": [(p.marginals[rows, cut, cut], x.marginals())],
            "max": [(p.max[rows], ranked[0])],
            "argmax score": [(x.score_of(best[rows, cut]), ranked[0])],
            "topk scores": [(top_scores[:, rows], ranked), (score, ranked)],
            "entropy": [(p.entropy()[rows], x.entropy())],
            "log_prob": [(log_prob[:, rows], x.score_of(asked[:, rows, cut]) - x.log_z)],
            "KL": [(kl[rows], x.kl(y))],
        }
        for name, values in pairs.items():
            for got, want in values:
                found[name].add(got, want)


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("kind", [gp.ProjectiveTrees, gp.NonProjectiveTrees])
def test_against_all_trees(kind: type[TreeDistribution], single_root: bool) -> None:
    g = torch.Generator().manual_seed(0)
    found: Found = {quantity: Differences() for quantity in QUANTITIES}
    for _ in range(INSTANCES // BATCH):
        compare(found, kind, single_root, BATCH, g)
    assert all(of.compared >= INSTANCES for of in found.values())
    assert {name: (of.beyond, of.largest) for name, of in found.items() if of.beyond} == {}
