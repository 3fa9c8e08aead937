"""What the tests of training share."""

from __future__ import annotations

import pytest

from gpuparse.train import loop
from tests.train.ends import Moments


@pytest.fixture
def no_curve(monkeypatch):
    """The picture takes longer than the rest of a small run."""
    monkeypatch.setattr(loop, "draw_curve", lambda *_: True)


@pytest.fixture
def every_step(monkeypatch):
    """Every step has its line in the log."""
    monkeypatch.setattr(loop, "LOG_EVERY", 1)


@pytest.fixture
def moments(monkeypatch):
    return Moments(monkeypatch)
