"""Cases of the targets in fuzz/, some of them, in one process."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def outcomes_of(target: Any, numbers: Iterable[int], directory: Path) -> Counter[str]:
    """How often each outcome; a failure names its case, which `fuzz/run.py` can run again."""
    outcomes: Counter[str] = Counter()
    for number in numbers:
        try:
            outcomes[target.one(random.Random(f"{target.NAME}:{number}"), directory)] += 1
        except Exception as error:
            raise AssertionError(f"case {number}: {type(error).__name__}: {error}") from error
    return outcomes
