"""What the tests of training share."""

from __future__ import annotations

import math

import pytest

from gpuparse.train import loop
from tests.train.ends import Moments, Stop
from tests.train.small import run


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


@pytest.fixture
def stopped_at(moments):
    """Train in a directory, and end the run suddenly after so many moments; what comes then may go on."""

    def stopped(directory, last=20, *overrides, **options):
        moments.count, moments.last = 0, last
        with pytest.raises(Stop):
            run(directory, *overrides, **options)
        moments.last = math.inf

    return stopped
