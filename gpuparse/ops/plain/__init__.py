"""Reference implementations in plain PyTorch: no kernels, any device, differentiable to any order.

Every function on trees takes `arcs [B, N, N]`, `lengths [B]` (int64, on the device of `arcs`) and `single_root`,
computes in float64 and gives floating-point results in the dtype of `arcs`. Column 0, the diagonal and
everything past a sentence's length are never read: they may hold NaN, and their gradients are exactly 0.
A sentence without a tree has log Z = -inf with zero gradients, and heads of -1.
Loops run as often as the shapes say, so nothing here waits for a device.
"""

from __future__ import annotations

from gpuparse.ops.plain import (
    automata,
    beam,
    bp_children,
    bp_eisner,
    bp_tree,
    chain,
    check,
    cky,
    eisner,
    generic,
    links,
    matrix_tree,
    mst,
    multipliers,
    pricing,
    second_order,
    semiring,
)

__all__ = [
    "automata",
    "beam",
    "bp_children",
    "bp_eisner",
    "bp_tree",
    "chain",
    "check",
    "cky",
    "eisner",
    "generic",
    "links",
    "matrix_tree",
    "mst",
    "multipliers",
    "pricing",
    "second_order",
    "semiring",
]
