"""Data-parallel training under ``torchrun``: each process takes its part of every batch, gradients are summed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Processes(NamedTuple):
    """Which process this is, of how many."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def part(self, batch: list[int]) -> list[int]:
        """This process' sentences of a batch."""
        return batch[self.rank :: self.world]

    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over the processes, in one message a dtype."""
        if self.world == 1:
            return
        by_type: dict[torch.dtype, list[Tensor]] = {}
        for tensor in tensors:
            by_type.setdefault(tensor.dtype, []).append(tensor)
        for same in by_type.values():
            flat = torch.cat([tensor.flatten() for tensor in same])
            dist.all_reduce(flat)
            start = 0
            for tensor in same:
                tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
                start += tensor.numel()

    def wait(self) -> None:
        """Until all the processes are here."""
        if self.world > 1:
            dist.barrier()


def own_device(device: torch.device | str) -> torch.device:
    """The device of this process: ``cuda`` means another GPU for each process of a machine."""
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


@contextmanager
def processes(device: torch.device) -> Iterator[Processes]:
    """The processes that ``torchrun`` started, or this one alone."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield Processes()
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
