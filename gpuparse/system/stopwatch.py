"""Seconds on a device, without waiting for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from typing_extensions import Self


class Stopwatch:
    """Seconds from when it was made to ``stop``. On a GPU by events, so that nothing waits: they can be read when the
    work before ``stop`` is done."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._begin = self._end = self._mark()

    def _mark(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def stop(self) -> Self:
        self._end = self._mark()
        return self

    def __float__(self) -> float:
        if self.device.type != "cuda":
            return float(self._end - self._begin)
        return float(self._begin.elapsed_time(self._end)) / 1000
