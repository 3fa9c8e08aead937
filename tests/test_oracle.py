"""The oracle itself: how many trees it lists, and what they say of each other."""

from __future__ import annotations

import math

import pytest
import torch

from tests.oracle import Enumeration, all_trees, count, random_instance


@pytest.mark.parametrize("single_root", (True, False))
@pytest.mark.parametrize("projective", (True, False))
@pytest.mark.parametrize("n", range(1, 6))
def test_oracle_counts(n: int, single_root: bool, projective: bool) -> None:
    trees = all_trees(n, single_root=single_root, projective=projective)
    assert len(trees) == count(n, single_root=single_root, projective=projective)
    assert len(trees.unique(dim=0)) == len(trees)


def test_oracle_known_counts() -> None:
    def counts(*, single_root: bool, projective: bool) -> list[int]:
        return [len(all_trees(n, single_root=single_root, projective=projective)) for n in range(1, 6)]

    assert counts(single_root=False, projective=True) == [1, 3, 12, 55, 273]
    assert counts(single_root=True, projective=True) == [1, 2, 7, 30, 143]
    assert counts(single_root=False, projective=False) == [1, 3, 16, 125, 1296]
    assert counts(single_root=True, projective=False) == [1, 2, 9, 64, 625]


def test_oracle_is_consistent() -> None:
    """Entropy = log Z - E[score], KL(p, p) = 0, KL = cross-entropy - entropy, log-probabilities sum to 1."""
    p, q = (
        Enumeration(random_instance(s, batch=1, forbidden=f, poison=False)[0][0], single_root=True, projective=False)
        for s, f in ((0, 0.3), (1, 0.0))
    )
    scores = torch.where(p.probs > 0, p.scores, 0.0)
    torch.testing.assert_close(p.entropy, p.log_partition - (p.probs * scores).sum())
    torch.testing.assert_close(p.kl(p), torch.zeros((), dtype=torch.float64))
    torch.testing.assert_close(p.kl(q), -(p.probs * (q.scores - q.log_partition)).sum() - p.entropy)
    assert q.kl(p) == math.inf
    total = sum(p.log_prob(t).exp() for t in p.trees)
    torch.testing.assert_close(total, torch.ones((), dtype=torch.float64))
