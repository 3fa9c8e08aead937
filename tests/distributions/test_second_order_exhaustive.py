"""Exact second-order trees against all trees of short sentences.

Instances have 1 to 5 words, scores in float64 of magnitude 1 to 100, and up to 30 % of all parts forbidden. Differences
are absolute below 1 and relative above.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.plain.second_order import Scores
from tests.oracle import all_trees

pytestmark = pytest.mark.exhaustive

INSTANCES, BATCH = 10_000, 250
LIMIT = 1e-9  # sums of up to 1296 doubles of magnitude 300, logarithms of their ratios


@cache
def parts(n: int, single_root: bool) -> tuple[Tensor, Tensor, Tensor]:
    """All projective trees [T, n+1], and for each word (h, s, m) and (g, h, m) [T, n, 3], read off one by one."""
    trees = all_trees(n, single_root=single_root, projective=True)
    beside, under = [], []
    for heads in trees.tolist():
        rows, ups = [], []
        for m in range(1, n + 1):
            h = heads[m]
            inner = range(h + 1, m) if h < m else range(h - 1, m, -1)
            children = [s for s in inner if s >= 1 and heads[s] == h]
            rows.append((h, children[-1] if children else h, m))
            ups.append((max(heads[h], 0), h, m))
        beside.append(rows)
        under.append(ups)
    return trees, torch.tensor(beside), torch.tensor(under)


def random_scores(family: str, B: int, n: int, generator: torch.Generator) -> Scores:
    found: list[Tensor | None] = []
    for kind, shape in (("", (n + 1,) * 2), ("siblings", (n + 1,) * 3), ("grandparents", (n + 1,) * 3)):
        if kind and family not in (kind, "both"):
            found.append(None)
            continue
        size = (B, *[1] * len(shape))
        x = torch.randn(B, *shape, generator=generator, dtype=torch.float64)
        x *= 100 ** torch.rand(size, generator=generator, dtype=torch.float64)
        share = 0.3 * torch.rand(size, generator=generator)
        found.append(x.masked_fill(torch.rand(x.shape, generator=generator) < share, -torch.inf))
    assert found[0] is not None
    return found[0], found[1], found[2]


def difference(found: Tensor, expected: Tensor) -> float:
    apart = (found - expected).abs() / expected.abs().clamp(min=1.0)
    apart = torch.where(found == expected, 0.0, apart)
    return float(torch.where(apart.isnan(), torch.inf, apart).max())


def compare(family: str, B: int, n: int, single_root: bool, generator: torch.Generator) -> float:
    """The greatest difference from the sum over all trees."""
    scores = random_scores(family, B, n, generator)
    arcs, siblings, grandparents = scores
    p = gp.SecondOrderTrees(
        arcs, siblings=siblings, grandparents=grandparents, single_root=single_root, validate_args=False
    )
    trees, beside, under = parts(n, single_root)
    everywhere = torch.ones_like(beside[..., 0], dtype=torch.bool)
    kinds = [(arcs, beside[..., [0, 2]].unbind(-1), everywhere, p.marginals)]
    if siblings is not None:
        kinds.append((siblings, beside.unbind(-1), everywhere, p.sibling_marginals))
    if grandparents is not None:
        kinds.append((grandparents, under.unbind(-1), under[..., 1] > 0, p.grandparent_marginals))
    total = torch.stack([torch.where(used, x[(slice(None), *at)], 0.0).sum(-1) for x, at, used, _ in kinds]).sum(
        0
    )  # [B, T]
    log_z = total.logsumexp(1)
    possible = log_z > -torch.inf
    prob = torch.where(possible[:, None], (total - torch.where(possible, log_z, 0.0)[:, None]).exp(), 0.0)
    worst = [difference(p.log_partition, log_z), difference(p.max, total.amax(1))]
    for x, at, used, found in kinds:
        expected = torch.zeros_like(x)
        where = (torch.arange(B)[:, None, None].expand(B, *used.shape), *(i.expand(B, *i.shape) for i in at))
        expected.index_put_(where, torch.where(used, prob[..., None], 0.0), accumulate=True)
        worst.append(difference(found, expected))
    entropy = -torch.special.xlogy(prob, prob).sum(1)
    worst.append(difference(p.entropy()[possible], entropy[possible]))
    _, best = p.topk(3)
    ordered = torch.cat([total.sort(1, descending=True).values, torch.full((B, 3), -torch.inf)], 1)[:, :3].T
    worst.append(difference(best, ordered))
    heads = trees[:8, None].expand(-1, B, -1)
    worst.append(difference(p.log_prob(heads)[:, possible], (total - log_z[:, None])[possible, :8].T))
    return max(worst)


@pytest.mark.parametrize("family", ["siblings", "grandparents", "both"])
def test_against_all_trees(family: str) -> None:
    generator = torch.Generator().manual_seed(0)
    worst = [compare(family, BATCH, 1 + number % 5, number % 2 == 0, generator) for number in range(INSTANCES // BATCH)]
    assert max(worst) <= LIMIT
