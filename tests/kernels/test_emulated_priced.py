"""The PTX of the program that leaves pairs unscored, run through the project's own launch code, finds the trees of the
CPU build in as many rounds, with as many pairs scored."""

from __future__ import annotations

import pytest
import torch

from gpuparse.decoding.parts import Kind
from gpuparse.ops.backend import Backend
from gpuparse.ops.priced import PricedTrees, argmax
from tests.priced_oracle import FORMS, KINDS, as_pairs, some_scores

from .emulator import DTYPES, SCHEDULED, on_both

pytestmark = pytest.mark.emulated


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kinds", KINDS, ids="+".join)
@pytest.mark.parametrize(("longest", "peak", "single_root"), [(7, 2.0, True), (9, 4.0, False)])
def test_priced(
    longest: int, peak: float, single_root: bool, kinds: tuple[Kind, ...], form: str, dtype: torch.dtype, schedule: str
) -> None:
    scores = some_scores(form, kinds, [longest, 4, 1, 3, 5], dtype, longest, peak=peak, masked=0.1)
    lengths = scores.lengths.clone()
    lengths[3] = 0
    siblings, grandparents = as_pairs(scores)

    def run(backend: Backend) -> PricedTrees:
        arcs = scores.arcs.double()
        return argmax(arcs, lengths, siblings, grandparents, single_root=single_root, backend=backend)

    expected, found = on_both(run, schedule)
    for name, one, other in zip(PricedTrees._fields, found, expected, strict=True):
        assert torch.equal(one, other), name
    assert (expected.heads[[0, 1, 2, 4], 1] >= 0).all() and (expected.heads[3] == -1).all()
    assert expected.rounds[3] == 0 and (expected.rounds[[0, 1, 2, 4]] > 0).all()
