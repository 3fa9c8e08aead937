"""Which trees branch and bound keeps: any with a head for its words, from one word on."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpuparse.decoding.ppc.branch import offer_tree


def nothing(pairs: Any) -> Generator[Any, Any, tuple[()]]:
    """Scores of no kinds of pairs."""
    assert pairs == ()
    return ()
    yield


@pytest.mark.parametrize(
    ("heads", "score"), [([-1], None), ([-1, -1], None), ([-1, 0], 2.0), ([-1, 0, 1], 8.0), ([-1, 2, 0], 12.0)]
)
def test_trees_of_any_length(heads: list[int], score: float | None) -> None:
    seen: list[tuple[list[int], float]] = []
    arcs = np.array([[0.0, 2.0, 4.0], [0.0, 0.0, 6.0], [0.0, 8.0, 0.0]])
    offer = lambda tree, value: seen.append((tree.tolist(), value))  # noqa: E731
    sentence: Any = SimpleNamespace(program=SimpleNamespace(pairs=()), arcs=arcs, offer=offer)
    list(offer_tree(sentence, nothing, np.array(heads)))
    assert seen == ([] if score is None else [(heads, score)])
