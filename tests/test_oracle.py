"""The oracle itself: how many trees it lists, and that their probabilities sum to 1."""

from __future__ import annotations

import pytest
import torch

from tests.oracle import Enumeration, all_trees, count, random_instance


@pytest.mark.parametrize(
    ("single_root", "projective", "known"),
    [
        (False, True, [1, 3, 12, 55, 273]),
        (True, True, [1, 2, 7, 30, 143]),
        (False, False, [1, 3, 16, 125, 1296]),
        (True, False, [1, 2, 9, 64, 625]),
    ],
)
def test_counts(single_root: bool, projective: bool, known: list[int]) -> None:
    kind = {"single_root": single_root, "projective": projective}
    for n, number in enumerate(known, 1):
        trees = all_trees(n, **kind)
        assert len(trees) == len(trees.unique(dim=0)) == count(n, **kind) == number
    arcs, _ = random_instance(0, batch=1, poison=False)
    one = Enumeration(arcs[0], **kind)
    total = sum(one.log_prob(tree).exp() for tree in one.trees)
    torch.testing.assert_close(total, torch.ones((), dtype=torch.float64))
