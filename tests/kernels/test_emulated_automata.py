"""The PTX of the head automata, run through the project's own launch code, equals the CPU build to the last bit."""

from __future__ import annotations

import pytest
import torch

from gpuparse.backend import backend_for
from gpuparse.ops.automata import automata
from tests.test_automata import DTYPES, KINDS, equal, some_scores

from .emulator import SCHEDULES, emulated_gpu


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("longest", "whole", "less"), [(7, True, 0.5), (5, False, -0.5), (17, False, 1.5)])
def test_automata(
    longest: int, whole: bool, less: float, kind: tuple[bool, ...], dtype: torch.dtype, schedule: str
) -> None:
    gpu, cpu = emulated_gpu(), backend_for(torch.device("cpu"))
    assert cpu is not None
    gpu.schedule = schedule
    given = some_scores(kind, [longest, 4, 1, 3, 5], dtype, longest, whole=whole, less=less)
    given.lengths[3] = 0
    for single_root in (True, False):
        expected = automata(*given, single_root=single_root, backend=cpu)
        equal(automata(*given, single_root=single_root, backend=gpu), expected)
        assert expected.children.any()
