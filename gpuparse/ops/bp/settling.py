"""Which sentences have converged: bp_settle.cu."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from gpuparse.ops.backend import Backend
from gpuparse.ops.bp.propagators import Totals, like, run_kernel, takes
from gpuparse.ops.library import define
from gpuparse.ops.plain.links import join


def launch_settle(*given: Any, backend: Backend | None = None) -> tuple[Tensor, ...]:
    """Run bp_settle.cu."""
    *state, tolerance, may_stop = given
    found = like(3, 4, 5)(*given)
    run_kernel("bp_settle", None, [*state, *found], [float(tolerance), int(may_stop)], work=1, backend=backend)
    return found


_op = define(
    "bp_settle(Tensor before, Tensor after, Tensor? others, Tensor residuals, Tensor converged, Tensor iterations, "
    "float tolerance, bool may_stop) -> (Tensor, Tensor, Tensor)",
    launch_settle,
    like(3, 4, 5),
)


def settle(
    before: Totals,
    after: Totals,
    others: Float64[Tensor, " B"] | None,
    residuals: Float64[Tensor, " B"],
    converged: Bool[Tensor, " B"],
    iterations: Int64[Tensor, " B"],
    tolerance: float,
    may_stop: bool,
) -> tuple[Float64[Tensor, " B"], Bool[Tensor, " B"], Int64[Tensor, " B"]]:
    """Residuals, whether sentences have converged, and their iterations, after one more; ``others``: how much the
    beliefs about other variables than links have changed."""
    if takes(before, "bp_settle"):
        return _op(before, after, others, residuals, converged, iterations, tolerance, may_stop)
    change = (join(*after.unbind()).sigmoid() - join(*before.unbind()).sigmoid()).abs().flatten(1).amax(1)
    change = change if others is None else torch.maximum(change, others)
    settled = converged | (change <= tolerance) if may_stop else converged
    return torch.where(converged, residuals, change), settled, iterations + (~converged).long()
