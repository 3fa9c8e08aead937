"""A step of dual decomposition (Rush et al. 2010), and what trees and stars say of arcs (Koo et al. 2010)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from gpuparse.ops import plain
from gpuparse.ops.automata import Stars
from gpuparse.ops.backend import Backend, Kernel
from gpuparse.ops.launch import NUMBERS, kernels_for, launch
from gpuparse.ops.library import define, takes_kernels
from gpuparse.ops.plain.multipliers import Each

Outputs = tuple[Tensor, Tensor, Tensor]


class StepRule(Protocol):
    """How long steps are; the kernel knows those that have a kind and a state [B, 7] (``plain.multipliers``)."""

    def size(self, dual: Each, bound: Each, primal: Each, norm: Each) -> Each: ...


def _side_by_side(x: Tensor | None) -> Tensor | None:
    return x if x is None else x.contiguous()


def _launch_multipliers(*given: Any, backend: Backend | None = None) -> None:
    """Run multipliers.cu."""
    *tensors, kind, last = given
    y, values, _, total, _, parts = tensors[:6]
    (B, T), N = y.shape, 0 if total is None else total.shape[1]
    launch(
        backend or kernels_for(y),
        Kernel("multipliers", NUMBERS[y.dtype]),
        [*map(_side_by_side, tensors[:5]), *tensors[5:]],
        sentences=B,
        nodes=T,
        work=2 * T,
        tail=[kind, int(last), B, T, values.shape[1], parts.shape[0], N],
    )


_multipliers_op = define(
    "multipliers(Tensor y, Tensor values, Tensor? score, Tensor? total, Tensor? moved, Tensor parts, Tensor(a!) u, "
    "Tensor(b!) sums, Tensor(c!)? least, Tensor(d!) known, Tensor(e!) rules, Tensor(f!) better, Tensor(g!) trace, "
    "int kind, bool last) -> ()",
    _launch_multipliers,
    lambda *_: None,
)


def multipliers(
    y: Float[Tensor, "B T"],
    values: Float64[Tensor, "B O"],
    score: Each | None,
    total: Float64[Tensor, "B N N"] | None,
    moved: Float64[Tensor, "B N N"] | None,
    parts: tuple[Sequence[tuple[int, int]], Int64[Tensor, "P 2"]],
    u: Float64[Tensor, "B T"],
    sums: Float64[Tensor, "B T"],
    least: Float64[Tensor, "B T"] | None,
    known: Float64[Tensor, "B 15"],
    better: Bool[Tensor, " B"],
    trace: Float64[Tensor, "3 B"],
    rule: StepRule,
    last: bool,
    backend: Backend | None = None,
) -> None:
    """One step: the dual, what is known by it, and the multipliers of the next one. What changes is contiguous.

    Args:
        y: what each oracle says of indicators: of every part, one oracle's after the other's.
        values: of the oracles' structures, multipliers included.
        score: of structures of the whole problem; None: that of the oracles' where all agree.
        total, moved: of each arc, what rounding is known by (``gpuparse.decoding.dual.agreement.Rounding``), or None.
        parts: how many oracles share how many indicators, here and on the device.
        u, sums, least: changed: the multipliers, sums of y, the multipliers of the least dual (None: not kept).
        known: changed: what is known of each sentence, and its numbers (columns: ``plain.multipliers``).
        better: made: whether ``score`` is better than any before.
        trace: made: the dual, the best score, the size of the step; NaN where a sentence was done, and is left alone.
        rule: of the size of steps; what it knows is changed.
        last: the multipliers stay.
        backend: None: that of the device.
    """
    kind, given = getattr(rule, "kind", None), (u, sums, least, known)
    if kind is not None and (backend is not None or takes_kernels(y, "multipliers")):
        state: Tensor = rule.state  # type: ignore[attr-defined]
        args = (y, values, score, total, moved, parts[1], *given, state, better, trace, kind, last)
        _multipliers_op(*args) if backend is None else _launch_multipliers(*args, backend=backend)
    else:
        tensors = (y, values, score, total, moved, parts[0], *given, better, trace)
        plain.multipliers.multipliers(tensors, rule.size, last)


def _launch_readings(*given: Any, backend: Backend | None = None) -> Outputs:
    """Run readings.cu."""
    scores, _, siblings, grandparents, _, heads = given[:6]
    (B, N), outputs = heads.shape, _like_readings(*given)
    pairs = siblings if siblings is not None else grandparents
    launch(
        backend or kernels_for(scores),
        Kernel("readings", NUMBERS[torch.float64 if pairs is None else pairs.dtype]),
        [*map(_side_by_side, given), *outputs],
        sentences=B,
        nodes=N * N,
        work=4 * N**2,
        tail=[1 if grandparents is None else 2, B, N],
    )
    return outputs


def _like_readings(
    scores: Tensor, arcs: Tensor, siblings: Tensor | None, grandparents: Tensor | None, *_: object
) -> Outputs:
    B, N = scores.shape[:2]
    says = scores.new_empty((B, (2 if grandparents is None else 4) * N * N), dtype=torch.float64)
    return says, says.new_empty((B, 2)), says.new_empty(B)


_readings_op = define(
    "readings(Tensor scores, Tensor arcs, Tensor? siblings, Tensor? grandparents, Tensor lengths, Tensor heads, "
    "Tensor children, Tensor chosen, Tensor worth) -> (Tensor, Tensor, Tensor)",
    _launch_readings,
    _like_readings,
)


def readings(
    scores: Float64[Tensor, "B N N"],
    arcs: Float64[Tensor, "B N N"],
    siblings: Float[Tensor, "B N N N"] | None,
    grandparents: Float[Tensor, "B N N N"] | None,
    lengths: Int64[Tensor, " B"],
    heads: Int64[Tensor, "B N"],
    stars: Stars,
    backend: Backend | None = None,
) -> tuple[Float64[Tensor, "B T"], Float64[Tensor, "B 2"], Each]:
    """What trees and stars say of arcs; the values of both; the scores of the trees by arcs and pairs.

    Args:
        scores: that the trees were found by; arcs, siblings, grandparents: of the whole problem; pairs of one dtype.
        heads: of the trees; -1 where a sentence has none, whose value and score are -inf.
        stars: what ``automata`` found.

    They say [names, 2, N, N] of each sentence: of arcs the tree and the children; with grandparents also of heads the
    tree and the heads that were chosen.
    """
    args = scores, arcs, siblings, grandparents, lengths, heads, *stars
    if backend is not None:
        return _launch_readings(*args, backend=backend)
    pairs = siblings if siblings is not None else grandparents
    kernels = takes_kernels(arcs if pairs is None else pairs, "readings")
    made: Outputs = (_readings_op if kernels else plain.multipliers.readings)(*args)
    return made
