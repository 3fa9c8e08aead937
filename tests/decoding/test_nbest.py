"""The k best trees against all of them, whatever has scores."""

from __future__ import annotations

import pytest
import torch

import gpuparse as gp
from gpuparse.decoding.nbest import k_best
from tests.oracle import all_trees


def instance(seed, kinds, masks):
    generator = torch.Generator().manual_seed(seed)
    arcs = torch.randn(3, 5, 5, generator=generator, dtype=torch.float64)
    pairs = {kind: torch.randn(3, 5, 5, 5, generator=generator, dtype=torch.float64) for kind in kinds}
    if masks:
        chance = torch.rand(3, 5, 5, generator=generator)
        low = torch.where(chance < 0.1, -1e30 if seed % 2 else -torch.inf, 0.0).double()
        low[:, 0] = 0.0
        low[:, 1] = 0.0
        arcs = arcs + low
    return gp.Scores(arcs, [4, 3, 1], **pairs)


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("kinds", [(), ("grandparents",), ("siblings",), ("grandparents", "siblings")])
@pytest.mark.parametrize(("projective", "single_root"), [(False, True), (True, True), (False, False)])
def test_best_first_and_distinct(kinds, masks, projective, single_root):
    for seed in range(3):
        scores = instance(seed, kinds, masks)
        heads, found = k_best(scores, 6, projective=projective, single_root=single_root)
        for b, n in enumerate(scores.lengths.tolist()):
            trees = all_trees(n, single_root=single_root, projective=projective)
            padded = torch.nn.functional.pad(trees, (0, 4 - n), value=-1)
            some = scores.take(torch.tensor([b]))
            each = some.total(padded[:, None])[:, 0]
            best = each[each > -torch.inf].sort(descending=True).values[:6]
            wanted = torch.cat([best, torch.full((6 - len(best),), -torch.inf, dtype=torch.float64)])
            torch.testing.assert_close(found[:, b], wanted, atol=1e-9, rtol=1e-12)
            there = heads[: len(best), b]
            assert len({tuple(tree) for tree in there.tolist()}) == len(best)
            torch.testing.assert_close(some.total(there[:, None])[:, 0], best, atol=1e-9, rtol=1e-12)
            assert bool((heads[len(best) :, b] == -1).all())
