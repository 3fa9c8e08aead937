"""How kernels are launched: their workspaces and their arguments."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gpuparse.ops.backend import Argument, Backend, Kernel, backend_for

SPARE_BYTES = 2**30  # of workspaces that hardly any sentence needs
NUMBERS = {torch.float32: "float", torch.float64: "double"}


def kernels_for(arcs: Tensor) -> Backend:
    backend = backend_for(arcs.device)
    if backend is None:
        raise RuntimeError(f"gpuparse has no kernels for {arcs.device}; its functions take the torch path there")
    return backend


def check_like(name: str, x: Tensor, dtype: torch.dtype, shape: Sequence[int], device: torch.device) -> None:
    """Raise ValueError if a tensor is not of that type and shape, and there."""
    if x.dtype != dtype or x.shape != torch.Size(shape) or x.device != device:
        found = f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)} on {x.device}"
        wanted = f"{str(dtype).removeprefix('torch.')} {list(shape)} on {device}"
        raise ValueError(f"{name} must be {wanted}, got {found}")


def check_lengths(lengths: Tensor, scores: Tensor) -> None:
    """Kernels take them as they are."""
    if lengths.dtype != torch.int64 or lengths.shape != scores.shape[:1]:
        raise ValueError(f"lengths must be int64 of shape [B], got {lengths.dtype} of {list(lengths.shape)}")


def launch(
    backend: Backend,
    kernel: Kernel,
    args: Sequence[Argument],
    *,
    sentences: int,
    nodes: int,
    work: int,
    doubles: int = 0,
    ints: tuple[int, ...] = (),
    longs: int = 0,
    tail: Sequence[Argument],
    rarely: bool = False,
) -> None:
    """Run a kernel on ``sentences`` of about ``work`` steps each, the first of ``args`` being a tensor on its device.

    Kernel arguments: ``args``, workspaces a slot (doubles, each of ints, longs), ``tail``. ``nodes`` is how many lanes
    find work at once. If sentences ``rarely`` need it, there is no more than ``SPARE_BYTES`` of workspace, if a single
    one fits. Where memory runs out there are half as many slots.
    """
    if sentences == 0:
        return
    assert isinstance(args[0], Tensor)
    slot_bytes = 8 * (doubles + longs) + 4 * sum(ints)
    most = max(1, SPARE_BYTES // max(1, slot_bytes)) if rarely else sentences
    slots = backend.slots(min(sentences, most), slot_bytes, work)
    while True:
        try:
            rooms: list[Argument] = [args[0].new_empty(slots * doubles, dtype=torch.float64)] if doubles else []
            rooms += [args[0].new_empty(slots * n, dtype=torch.int32) for n in ints]
            if longs:
                rooms.append(args[0].new_empty(slots * longs, dtype=torch.int64))
            break
        except torch.OutOfMemoryError:
            if slots == 1:
                raise
            rooms, slots = [], slots // 2
    backend.launch(kernel, [*args, *rooms, *tail], slots=slots, nodes=nodes)


PAD = 8  # PAD of lanes.cuh on a CPU; a GPU needs less


def square(N: int) -> int:
    """square_size of eisner.cuh."""
    return (N + 1) * ((N + 2 * PAD + 7) // 8 | 1) * 8 + 2 * PAD


def check(arcs: Tensor, lengths: Tensor, backend: Backend | None = None) -> Tensor:
    """Flags [B] of check.cu."""
    backend = backend or kernels_for(arcs)
    flags = torch.empty(arcs.shape[0], dtype=torch.int32, device=arcs.device)
    if arcs.shape[0]:
        kernel = Kernel("check", NUMBERS[arcs.dtype])
        args: list[Argument] = [arcs.contiguous(), lengths.contiguous(), flags, arcs.shape[0], arcs.shape[1]]
        backend.launch(kernel, args, slots=backend.slots(arcs.shape[0], 1, arcs.shape[1] ** 2), nodes=arcs.shape[1])
    return flags
