"""Tensors that cross between the host and a device together, as one block of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]
ALIGN = 8  # bytes: where each tensor of a block begins


def begin_to_host(*tensors: Tensor) -> Callable[[], list[Array]]:
    """Begin to bring tensors of one device over; what comes back waits for them, once, and gives their values. On a CPU
    they are shared."""
    given = [x.detach().contiguous() for x in tensors]
    if not given or given[0].device.type == "cpu":
        return lambda: [x.numpy() for x in given]
    bytes_ = [x.view(-1).view(torch.uint8) for x in given]
    block = torch.cat([torch.nn.functional.pad(x, (0, -len(x) % ALIGN)) for x in bytes_])
    here = torch.empty(block.shape, dtype=torch.uint8, pin_memory=block.device.type == "cuda")
    here.copy_(block, non_blocking=True)
    copied = torch.cuda.current_stream(block.device).record_event() if block.device.type == "cuda" else None
    likes = [(x.dtype, x.shape, len(y)) for x, y in zip(given, bytes_, strict=True)]

    def get() -> list[Array]:
        if copied is not None:
            copied.synchronize()
        places = zip(likes, _starts([size for *_, size in likes]), strict=False)
        return [here[at : at + size].view(dtype).view(shape).numpy() for (dtype, shape, size), at in places]

    return get


def to_host(*tensors: Tensor) -> list[Array]:
    """Values of tensors of one device. Waits for it, once; on a CPU they are shared."""
    return begin_to_host(*tensors)()


def to_device(arrays: Sequence[Array], device: torch.device) -> list[Tensor]:
    """Arrays on a device, in order with the work on its stream: from pinned memory the host does not wait for it."""
    given = [torch.from_numpy(np.ascontiguousarray(x)) for x in arrays]
    starts = _starts([x.nbytes for x in given])
    block = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    own = block.numpy()
    for x, at in zip(given, starts, strict=False):
        own[at : at + x.nbytes] = x.numpy().reshape(-1).view(np.uint8)
    moved = block.to(device, non_blocking=True)
    places = zip(given, starts, strict=False)
    return [moved[at : at + x.nbytes].view(x.dtype).view(x.shape) for x, at in places]


def _starts(sizes: Sequence[int]) -> list[int]:
    """Where each begins, and where the last ends."""
    return [0, *np.cumsum([size + -size % ALIGN for size in sizes]).tolist()]
