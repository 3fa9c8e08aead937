"""The PTX of the pricing kernel, run through the project's own launch code, equals the CPU build to the last bit."""

from __future__ import annotations

import pytest
import torch

from gpuparse.decoding.parts import Kind
from gpuparse.ops.backend import Backend
from gpuparse.ops.pricing import Priced, price, price_listed
from tests.pricing_oracle import ALL, DTYPES, copied, equal, score_of, scorer_of, some_duals, some_parts

from .emulator import SCHEDULED, on_both

pytestmark = pytest.mark.emulated


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kind", "pairs"), (*ALL, ("listed", "grandparents"), ("listed", "siblings")))
@pytest.mark.parametrize(("longest", "known", "room"), [(7, 0.0, 400), (6, 0.4, 9), (34, 0.9, 50)])
def test_pricing(
    longest: int, known: float, room: int, kind: str, pairs: Kind, dtype: torch.dtype, schedule: str
) -> None:
    seed = longest
    parts = some_parts("dense" if kind == "listed" else kind, [longest, 4, 1, 3, 5], dtype, seed, pairs)
    lengths = parts.lengths.clone()
    lengths[3] = 0
    duals = some_duals(parts, seed, known)

    def run(backend: Backend) -> tuple[Priced, torch.Tensor]:
        mine = copied(duals)
        how = {"tolerance": 1e-6, "room": room, "siblings": pairs == "siblings", "backend": backend}
        if kind == "listed":
            found = price_listed(score_of(parts), lengths, **mine, **how)
        else:
            found = price(scorer_of(parts), lengths, **mine, **how)
        return found, mine["known"]

    (expected, ours), (found, theirs) = on_both(run, schedule)
    equal(found, expected)
    assert torch.equal(ours.nan_to_num(nan=7.0), theirs.nan_to_num(nan=7.0))
    assert expected.count[0] > 0 and expected.count[3] == 0
