"""The self-test on this machine."""

from __future__ import annotations

import pytest

from gpuparse.cli import selftest
from gpuparse.ops.backend.base import SOURCES


@pytest.mark.slow
def test_every_kernel_is_compared_and_agrees() -> None:
    checks = selftest.run(["cpu"])
    assert [check for check in checks if not check.ok] == []
    assert {check.kernel.split()[0] for check in checks} == set(SOURCES)
    assert {check.seconds for check in checks} == {None}


def test_times_are_taken_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    some = next(iter(selftest._comparisons(selftest.torch.empty(0))))
    monkeypatch.setattr(selftest, "_comparisons", lambda like: [some])
    for check in selftest.run(["cpu"], times=True):
        assert check.ok and check.seconds and check.plain_seconds and check.seconds < check.plain_seconds
