"""The PTX of the steps of dual decomposition, run through the project's own launch code, equals the CPU build."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from gpuparse.ops.automata import automata
from gpuparse.ops.multipliers import readings
from gpuparse.ops.trees import MATRIX_TREE
from tests.multipliers_oracle import equal, some_step
from tests.stars_oracle import DTYPES, some_scores

from .emulator import SCHEDULED, on_both

pytestmark = pytest.mark.emulated


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
def test_multipliers(dtype: torch.dtype, schedule: str) -> None:
    for seed in range(18):
        expected, found = on_both(some_step(seed, dtype).answer, schedule)
        equal(found, expected)


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [(True, True), (True, False), (False, True)])
def test_readings(kind: tuple[bool, bool], dtype: torch.dtype, schedule: str) -> None:
    for longest in (5, 17, 66):
        given = some_scores((True, *kind), [longest, 4, 1], dtype, longest)
        arcs, pairs, counts = given.down.double(), given[2:4], given.lengths
        heads = MATRIX_TREE.argmax((arcs,), counts, True)
        stars = automata(arcs, given.up, *pairs, counts, single_root=True)
        run = partial(readings, arcs / 2, arcs, *pairs, counts, heads, stars)
        expected, found = on_both(lambda backend, run=run: run(backend=backend), schedule)
        for x, y in zip(found, expected, strict=True):
            assert torch.equal(x, y)
