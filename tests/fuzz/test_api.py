"""A small part of the fuzzing of calls: ``make fuzz`` runs more of the same cases."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.fuzz_cases import outcomes_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # of nested and quantised tensors, which torch warns of
    import api


@pytest.mark.parametrize("part", range(5))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_cases(part: int, tmp_path: Path) -> None:
    outcomes = outcomes_of(api, range(300 * part, 300 * (part + 1)), tmp_path)
    assert outcomes["ok"] > 100 and outcomes["refused"] > 50, outcomes
