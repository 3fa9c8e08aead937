"""The PTX of the head automata, run through the project's own launch code, equals the CPU build to the last bit."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from gpuparse.ops.automata import automata
from tests.stars_oracle import DTYPES, KINDS, equal, some_change, some_scores

from .emulator import SCHEDULED, on_both

pytestmark = pytest.mark.emulated


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("longest", "whole", "less"), [(7, True, 0.5), (5, False, -0.5), (17, False, 1.5)])
def test_automata(
    longest: int, whole: bool, less: float, kind: tuple[bool, ...], dtype: torch.dtype, schedule: str
) -> None:
    given = some_scores(kind, [longest, 4, 1, 3, 5], dtype, longest, whole=whole, less=less)
    given.lengths[3] = 0
    for single_root in (True, False):
        run = partial(automata, *given, single_root=single_root)
        expected, found = on_both(lambda backend, run=run: run(backend=backend), schedule)
        equal(found, expected)
        assert expected.children.any()


@SCHEDULED
@pytest.mark.parametrize("kind", KINDS)
def test_automata_that_were_asked_before(kind: tuple[bool, ...], schedule: str) -> None:
    given, before, changed = some_change(kind, 4)
    expected, found = on_both(lambda backend: automata(*given, before=before, backend=backend), schedule)
    equal(found, expected)
    equal(expected, automata(*given))
    assert changed.any()
