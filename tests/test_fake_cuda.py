"""The torch code on fake `cuda` tensors, in a process of its own (see fake_cuda.py)."""

from __future__ import annotations

from .conftest import Simulate


def test_no_device_mix_and_no_wait(simulate: Simulate) -> None:
    assert simulate("tests.fake_cuda").stdout.strip() == "43 ok"
