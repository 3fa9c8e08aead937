"""What all tests of distributions share."""

from __future__ import annotations

import pytest
import torch

from tests.distributions.families import FAMILIES, Family
from tests.distributions.made_up import MADE_UP
from tests.distributions.numeric import F32, F64

EVERY = {**FAMILIES, "made up": MADE_UP}


@pytest.fixture(scope="module", params=EVERY.values(), ids=EVERY)
def family(request: pytest.FixtureRequest) -> Family:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module", params=[F64, F32], ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Tensors this small only lose by threads."""
