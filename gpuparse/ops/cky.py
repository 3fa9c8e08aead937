"""Binary trees of a grammar: a structure is rows [B, 2n - 1, 4], ``grammar`` the array of ``plain.cky.index_rules``."""

from __future__ import annotations

from gpuparse.ops.family import Family, Kernels, KernelTask, Plain, Room
from gpuparse.ops.library import takes_kernels
from gpuparse.ops.plain import cky as plain


def _rounded(numbers: int) -> int:
    return (numbers + 7) // 8 * 8


def _room(task: KernelTask) -> Room:
    """What CkyInside of cky.cuh and CkyOutside of cky.cu take."""
    _, n, S, _, R = task.sizes
    cells = _rounded(8 + S * n * (_rounded(n) + 8))
    doubles = task.planes * (_rounded(R) + _rounded(S) + (2 if task.both_ways else 1) * cells)
    work = (4 if task.both_ways else 1) * 3**task.order * n**3 * R // 12
    return Room(n * S, work, doubles, ints=() if task.kind == "sums" else (task.lanes * 3 * (n + 2),))


CKY = Family(
    name="cky",
    scores={"tags": "B n T", "rules": "B R", "roots": "B S", "spans?": "B n n S"},
    inputs="Tensor grammar, Tensor lengths",
    sizes="B n S T R",
    structure=lambda B, n, *_: (B, 2 * n - 1, 4),
    plain=Plain(plain.masks, plain.log_partition, argmax=plain.argmax, sample=plain.sample),
    kernels=[Kernels(_room, "cky", argmax="cky_argmax", sample="cky_sample")],
    serves=lambda x, kernel: takes_kernels(x, kernel),  # that of this module, whatever it is by then
)
