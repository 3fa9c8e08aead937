"""Trees that are scored by their arcs: projective (Eisner) and non-projective (matrix-tree, MST)."""

from __future__ import annotations

from gpuparse.ops import plain
from gpuparse.ops.family import Family, Kernels, KernelTask, Plain, Room
from gpuparse.ops.launch import square
from gpuparse.ops.plain.generic import Argmax, LogPartition
from gpuparse.structures.masks import arc_mask


def _trees(name: str, kernels: Kernels, log_partition: LogPartition, argmax: Argmax) -> Family:
    return Family(
        name=name,
        scores={"arcs": "B N N"},
        inputs="Tensor lengths, bool single_root",
        sizes="B N",
        structure=lambda B, N: (B, N),
        plain=Plain(
            masks=lambda scores, lengths: [arc_mask(lengths, scores[0].shape[-1])],
            log_partition=lambda scores, *inputs: log_partition(scores[0].double(), *inputs),
            argmax=lambda scores, *inputs: argmax(scores[0], *inputs),
            topk=lambda scores, *inputs: plain.generic.topk(argmax, scores[0], *inputs),
            sample=lambda scores, *inputs: plain.generic.sample(log_partition, scores[0], *inputs),
        ),
        kernels=[kernels],
    )


def _eisner_room(task: KernelTask) -> Room:
    """What eisner.cuh and eisner*.cu take."""
    (_, N), k = task.sizes, task.many
    if task.kind == "topk":
        cells, stack = N * (N + 1) // 2 * k, k * 4 * (2 * N + 4)
        return Room(N, k * N**3, 3 * cells, ints=(3 * cells, stack), strides=(cells, stack))
    doubles = (5 if task.both_ways else 3) * task.planes * square(N)
    if task.kind == "sums" and task.order == 0:
        tiles = (N + 6) // 8 + 1  # tiles_of of eisner_tiles.cuh
        doubles = max(doubles, 13 * 64 * tiles * (tiles + 1) // 2)
    stacks = () if task.kind == "sums" else (task.lanes * 3 * (2 * N + 4),)
    return Room(N, N**3 + k * N**2, doubles, ints=stacks)


def _matrix_tree_room(task: KernelTask) -> Room:
    """What matrix_tree*.cu and mst*.cu take."""
    (_, N), k = task.sizes, task.many
    if task.kind == "argmax":
        return Room(N, N**2, N * N, ints=(N * N + 12 * N,))
    if task.kind == "topk":
        ints = N * N + 12 * N + 2 * k + (k + 1) * ((N + 31) // 32)
        return Room(N, k * N**3, 2 * N * N + 2 * N + k, ints=(ints,), longs=(k + 1) * N)
    row = (N + 7) // 8 * 8  # row_size of matrix_tree.cuh
    doubles = task.planes * ((4 if task.both_ways else 2) * N + 5) * row
    stacks = () if task.kind == "sums" else (task.lanes * 3 * N,)
    return Room(N, N**3 + k * N**2, doubles, ints=(N, *stacks), strides=(doubles, *stacks))


EISNER = _trees(
    "eisner",
    Kernels(_eisner_room, "eisner", argmax="eisner_argmax", topk="eisner_topk", sample="eisner_sample"),
    plain.eisner.log_partition,
    plain.eisner.argmax,
)
MATRIX_TREE = _trees(
    "matrix_tree",
    Kernels(_matrix_tree_room, "matrix_tree", argmax="mst", topk="mst_topk", sample="matrix_tree_sample"),
    plain.matrix_tree.log_partition,
    plain.mst.mst,
)
