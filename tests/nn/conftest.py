"""What the tests of scorers share."""

from __future__ import annotations

import pytest
import torch

from gpuparse.data.artificial import artificial_treebank


@pytest.fixture
def seeded():
    torch.manual_seed(11)


@pytest.fixture(scope="module")
def treebank():
    return list(artificial_treebank(40, seed=3))
