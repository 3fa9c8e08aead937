"""Tensors that cross together; from a device that is far they are tested by test_far_decoding."""

from __future__ import annotations

import numpy as np
import torch

from gpuparse.system.transfer import begin_to_host, to_device, to_host

TENSORS = [
    torch.tensor([[2**62, -1], [0, 7]]),
    torch.tensor([0.1, -torch.inf]),
    torch.tensor([1e-300, torch.nan], dtype=torch.float64),
    torch.tensor([True, False, True]),
    torch.zeros(0, 3),
]


def test_what_is_here_is_shared() -> None:
    for found in (to_host(*TENSORS), begin_to_host(*TENSORS)()):
        for x, y in zip(found, TENSORS, strict=True):
            assert x.dtype == y.numpy().dtype and np.array_equal(x, y.numpy(), equal_nan=y.is_floating_point())
        TENSORS[0][1, 0] += 1
        assert found[0][1, 0] == TENSORS[0][1, 0]
    assert to_host() == []


def test_there_and_back() -> None:
    moved = to_device([x.numpy() for x in TENSORS], torch.device("cpu"))
    for x, y in zip(moved, TENSORS, strict=True):
        assert x.dtype == y.dtype and torch.equal(x.nan_to_num(5.0), y.nan_to_num(5.0))
