"""Data-parallel training under ``torchrun``: each process takes its part of every batch, gradients are summed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from gpuparse.system.devices import as_device


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
            with _together():
                dist.all_reduce(flat)
            start = 0
            for tensor in same:
                tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
                start += tensor.numel()

    def same(self, *numbers: int) -> bool:
        """Whether all the processes have the same numbers (below 2^53)."""
        if self.world == 1:
            return True
        mine = torch.tensor(numbers, dtype=torch.float64)
        if torch.cuda.is_available() and dist.get_backend() == "nccl":
            mine = mine.cuda()
        least, most = mine.clone(), mine
        with _together():
            dist.all_reduce(least, dist.ReduceOp.MIN)
            dist.all_reduce(most, dist.ReduceOp.MAX)
        return bool((least == most).all())

    def wait(self) -> None:
        """Until all the processes are here."""
        if self.world > 1:
            with _together():
                dist.barrier()


@contextmanager
def _together() -> Iterator[None]:
    """Within it the processes talk to each other: what goes wrong there is that one of them is gone."""
    try:
        yield
    except RuntimeError as error:
        raise ConnectionError("another process of this training has stopped; its own message says why") from error


def own_device(device: torch.device | str) -> torch.device:
    """The device of this process: ``cuda`` means another GPU for each process of a machine."""
    if str(device) == "cuda" and "LOCAL_RANK" in os.environ:
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    found = as_device(device)
    if found.type == "cuda":
        torch.cuda.set_device(found)
    return found


@contextmanager
def processes(device: torch.device) -> Iterator[Processes]:
    """The processes that ``torchrun`` started, or this one alone."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield Processes()
        return
    # Each group finds itself under a name of its own, else a second one would take the first one's addresses for its.
    store, rank, world = _rendezvous()
    store = PrefixStore(f"gpuparse {next(_groups)}", store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


_groups = itertools.count()


@cache
def _rendezvous() -> tuple[Store, int, int]:
    """Where the processes that ``torchrun`` started find each other."""
    return next(rendezvous("env://"))
