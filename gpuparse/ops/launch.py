"""Outputs, workspaces and arguments of every kernel. What is computed here in sizes is what the .cu files expect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpuparse.backend import Argument, Backend, Kernel, Long, backend_for

NUMBERS = {torch.float32: "float", torch.float64: "double"}


def kernels_for(arcs: Tensor) -> Backend:
    backend = backend_for(arcs.device)
    if backend is None:
        raise RuntimeError(f"gpuparse has no kernels for {arcs.device}; its functions take the torch path there")
    return backend


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
) -> None:
    """Run a kernel on ``sentences`` of about ``work`` steps each, the first of ``args`` being a tensor on its device.

    Kernel arguments: ``args``, workspaces a slot (doubles, each of ints, longs), ``tail``. ``nodes`` is how many lanes
    find work at once.
    """
    if sentences == 0:
        return
    assert isinstance(args[0], Tensor)
    slots = backend.slots(sentences, 8 * (doubles + longs) + 4 * sum(ints), work)
    rooms: list[Argument] = [args[0].new_empty(slots * doubles, dtype=torch.float64)] if doubles else []
    rooms += [args[0].new_empty(slots * n, dtype=torch.int32) for n in ints]
    if longs:
        rooms.append(args[0].new_empty(slots * longs, dtype=torch.int64))
    backend.launch(kernel, [*args, *rooms, *tail], slots=slots, nodes=nodes)


@dataclass(frozen=True)
class Batch:
    """Sentences for a kernel: arcs [B, N, N] and lengths [B], contiguous."""

    arcs: Tensor
    lengths: Tensor
    single_root: bool
    backend: Backend

    @classmethod
    def of(cls, arcs: Tensor, lengths: Tensor, single_root: bool, backend: Backend | None = None) -> Batch:
        if lengths.dtype != torch.int64 or lengths.shape != arcs.shape[:1]:
            raise ValueError(f"lengths must be int64 of shape [B], got {lengths.dtype} of {list(lengths.shape)}")
        return cls(arcs.contiguous(), lengths.contiguous(), single_root, backend or kernels_for(arcs))

    @property
    def B(self) -> int:
        return self.arcs.shape[0]

    @property
    def N(self) -> int:
        return self.arcs.shape[1]

    def launch(
        self,
        name: str,
        args: Sequence[Argument],
        *,
        order: int | None = None,
        work: int,
        doubles: int,
        ints: tuple[int, ...] = (),
        longs: int = 0,
        sizes: tuple[int, ...],
        scalars: tuple[int, ...] = (),
    ) -> None:
        """Kernel arguments: ``args``, workspaces a slot (doubles, each of ints, longs), sizes, scalars, B, N, root.

        ``work`` is about the number of steps for one sentence.
        """
        launch(
            self.backend,
            Kernel(name, NUMBERS[self.arcs.dtype], order),
            args,
            sentences=self.B,
            nodes=self.N,
            work=work,
            doubles=doubles,
            ints=ints,
            longs=longs,
            tail=[*map(Long, sizes), *scalars, self.B, self.N, int(self.single_root)],
        )

    def heads(self, *leading: int) -> Tensor:
        return torch.empty(*leading, self.B, self.N, dtype=torch.int64, device=self.arcs.device)


_PAD = 8  # PAD of lanes.cuh on a CPU; a GPU needs less


def _square(N: int) -> int:
    """square_size of eisner.cuh."""
    return (N + 1) * ((N + 2 * _PAD + 7) // 8 | 1) * 8 + 2 * _PAD


def _row(N: int) -> int:
    """row_size of matrix_tree.cuh."""
    return (N + 7) // 8 * 8


def _planes(order: int) -> int:
    """Doubles in a number of the wide type with ``order`` derivatives."""
    return 2**order + 1


def eisner(
    batch: Batch, order: int, u: Tensor | None, v: Tensor | None, logz: Tensor | None, out: Tensor | None
) -> None:
    doubles = (3 if out is None else 5) * _planes(order) * _square(batch.N)
    args = [batch.arcs, u, v, batch.lengths, logz, out]
    batch.launch("eisner", args, order=order, work=batch.N**3, doubles=doubles, sizes=(doubles,))


def matrix_tree(
    batch: Batch, order: int, u: Tensor | None, v: Tensor | None, logz: Tensor | None, out: Tensor | None
) -> None:
    N = batch.N
    doubles = _planes(order) * ((2 if out is None else 4) * N + 4) * _row(N)
    args = [batch.arcs, u, v, batch.lengths, logz, out]
    batch.launch("matrix_tree", args, order=order, work=N**3, doubles=doubles, ints=(N,), sizes=(doubles,))


def eisner_argmax(batch: Batch) -> Tensor:
    heads, doubles, stack = batch.heads(), 3 * _square(batch.N), 3 * (2 * batch.N + 4)
    batch.launch(
        "eisner_argmax",
        [batch.arcs, batch.lengths, heads],
        work=batch.N**3,
        doubles=doubles,
        ints=(stack,),
        sizes=(doubles, stack),
    )
    return heads


def eisner_sample(batch: Batch, seed: Tensor, num: int) -> Tensor:
    heads, doubles = batch.heads(num), 3 * _planes(0) * _square(batch.N)
    stack = batch.backend.lanes * 3 * (2 * batch.N + 4)
    args = [batch.arcs, batch.lengths, seed, heads]
    batch.launch(
        "eisner_sample",
        args,
        work=batch.N**3 + num * batch.N**2,
        doubles=doubles,
        ints=(stack,),
        sizes=(doubles, stack),
        scalars=(num,),
    )
    return heads


def matrix_tree_sample(batch: Batch, seed: Tensor, num: int) -> Tensor:
    N = batch.N
    heads, doubles = batch.heads(num), _planes(0) * (2 * N + 4) * _row(N)
    stack = batch.backend.lanes * 3 * N
    args = [batch.arcs, batch.lengths, seed, heads]
    batch.launch(
        "matrix_tree_sample",
        args,
        work=N**3 + num * N**2,
        doubles=doubles,
        ints=(N, stack),
        sizes=(doubles, stack),
        scalars=(num,),
    )
    return heads


def eisner_topk(batch: Batch, k: int) -> Tensor:
    N = batch.N
    heads, cells, stack = batch.heads(k), N * (N + 1) // 2 * k, k * 4 * (2 * N + 4)
    args = [batch.arcs, batch.lengths, heads]
    batch.launch(
        "eisner_topk",
        args,
        work=k * N**3,
        doubles=3 * cells,
        ints=(3 * cells, stack),
        sizes=(cells, stack),
        scalars=(k,),
    )
    return heads


def mst(batch: Batch) -> Tensor:
    N = batch.N
    heads, doubles, ints = batch.heads(), N * N, N * N + 12 * N
    batch.launch(
        "mst", [batch.arcs, batch.lengths, heads], work=N**2, doubles=doubles, ints=(ints,), sizes=(doubles, ints)
    )
    return heads


def mst_topk(batch: Batch, k: int) -> Tensor:
    N = batch.N
    heads, doubles = batch.heads(k), 2 * N * N + 2 * N + k
    ints = N * N + 12 * N + 2 * k + (k + 1) * ((N + 31) // 32)
    args = [batch.arcs, batch.lengths, heads]
    batch.launch(
        "mst_topk",
        args,
        work=k * N**3,
        doubles=doubles,
        ints=(ints,),
        longs=(k + 1) * N,
        sizes=(doubles, ints),
        scalars=(k,),
    )
    return heads


def check(arcs: Tensor, lengths: Tensor, backend: Backend | None = None) -> Tensor:
    """Flags [B] of check.cu."""
    backend = backend or kernels_for(arcs)
    flags = torch.empty(arcs.shape[0], dtype=torch.int32, device=arcs.device)
    if arcs.shape[0]:
        kernel = Kernel("check", NUMBERS[arcs.dtype])
        args: list[Argument] = [arcs.contiguous(), lengths.contiguous(), flags, arcs.shape[0], arcs.shape[1]]
        backend.launch(kernel, args, slots=backend.slots(arcs.shape[0], 1, arcs.shape[1] ** 2), nodes=arcs.shape[1])
    return flags
