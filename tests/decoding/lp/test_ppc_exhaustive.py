"""Parse, price and cut against all trees: 1 to 5 words, both root modes, forbidden arcs and parts, no tree at all."""

from __future__ import annotations

import math

import pytest
import torch

import gpuparse as gp
from tests.oracle import MAX_WORDS, all_trees

pytestmark = pytest.mark.exhaustive

BATCHES, BATCH = 200, 50
CLOSE = 1e-7  # of certified scores: the solver's tolerance, for scores of a few units
SLACK = 1e-9  # of bounds


@pytest.mark.parametrize("kinds", [("grandparents",), ("siblings",), ("grandparents", "siblings")], ids="+".join)
@pytest.mark.parametrize("proven", [True, False])
def test_against_all_trees(proven: bool, kinds: tuple[str, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    for batch in range(BATCHES):
        n, single = int(torch.randint(1, MAX_WORDS + 1, (1,), generator=generator)), bool(batch % 2)
        shape = (BATCH, n + 1, n + 1)
        arcs = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
        pairs = {kind: torch.randn(*shape, n + 1, generator=generator, dtype=torch.float64) for kind in kinds}
        for x in pairs.values():
            x *= 4 * torch.rand(BATCH, 1, 1, 1, generator=generator)
        for x, share in ((arcs, 0.15), *((x, 0.3) for x in pairs.values())):
            x[torch.rand(x.shape, generator=generator) < share * torch.rand((), generator=generator)] = -math.inf
        scores = gp.Scores(arcs, **pairs, validate_args=False)
        best = scores.total(all_trees(n, single_root=single, projective=False)[:, None].expand(-1, BATCH, -1)).amax(0)
        there = best > -math.inf
        found = gp.decode(scores, "ppc", single_root=single, exact=proven)
        wrong = {
            "a certificate": found.certified & ((found.score - best).abs() > CLOSE),
            "a bound below the best": there & (found.bound < best - SLACK),
            "a tree where there is none": ~there & (found.certified | (found.heads[:, 1] >= 0)),
            "no tree where there is one": there & (found.heads[:, 1] < 0),
            "not certified": there & ~found.certified & proven,
        }
        for what, those in wrong.items():
            assert not bool(those.any()), f"batch {batch}, sentences {those.nonzero()[:, 0].tolist()}: {what}"
