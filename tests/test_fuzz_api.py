"""A small part of the fuzzing of calls: ``make fuzz`` runs more of the same cases."""

from __future__ import annotations

import random
import sys
import warnings
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # of nested and quantised tensors, which torch warns of
    import api


@pytest.mark.parametrize("part", range(5))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_cases(part: int, tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(300 * part, 300 * (part + 1)):
        try:
            outcomes[api.one(random.Random(f"{api.NAME}:{number}"), tmp_path)] += 1
        except Exception as error:
            raise AssertionError(f"case {number}: {type(error).__name__}: {error}") from error
    assert outcomes["ok"] > 100 and outcomes["refused"] > 50, outcomes
