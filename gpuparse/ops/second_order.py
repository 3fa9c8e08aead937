"""Projective trees with scores of siblings, of grandparents, or of both, and of both together: a structure is heads
[B, N]."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float64, Int
from torch import Tensor

from gpuparse.ops.family import Family, Kernels, KernelTask, Plain, Room
from gpuparse.ops.launch import PAD, square
from gpuparse.ops.plain import second_order as plain
from gpuparse.ops.plain.second_order import Scores


def _triples(N: int) -> int:
    """triples_size of siblings.cuh."""
    return (N - 1) * N * (N + 1) // 6 + 2 * PAD


def _row(N: int) -> int:
    """heads_row of siblings.cuh."""
    return (N + 7) // 8 * 8


def _sibling_room(task: KernelTask) -> Room:
    """What SiblingInside of siblings.cuh and SiblingOutside of siblings.cu take."""
    _, N = task.sizes
    room = _room(task, N, (6 if task.both_ways else 3) * square(N) + 2 * _triples(N) + (N + 1) * _row(N))
    if task.kind == "sums" and task.order == 0 and not task.fast:
        room = room._replace(doubles=max(room.doubles, _sibling_rows(N)))
    return room


def _sibling_rows(N: int) -> int:
    """SiblingPlaces::doubles of siblings_places.cuh, by packs of 8."""
    packs = (N + 6) // 8
    weights = 8 * (8 * packs * (packs + 1) * (2 * packs + 1) // 3 + packs * (packs + 1)) // 4
    return (11 * (N + 1) + 26) * (packs | 1) * 8 + 16 * weights


def _grand_room(task: KernelTask) -> Room:
    """What GrandInside of grandsiblings.cuh and GrandOutside of grandsiblings.cu take."""
    _, N = task.sizes
    grid = N * (N + 1) // 2 * _row(N)
    room = _room(task, N * N, (10 if task.both_ways else 7) * grid + 2 * _triples(N) + (2 * N + 1) * _row(N))
    if task.kind == "sums" and task.order == 0 and not task.fast:
        room = room._replace(doubles=max(room.doubles, _grand_spans(N, task.both_ways)))
    return room


def _grand_spans(N: int, both_ways: bool) -> int:
    """What GrandPlaces of grandsiblings_places.cuh takes."""
    lines = (N + 7) // 8
    lines += lines % 4 == 0
    cube = N * 8 * (N * lines | 1) + 8
    return (8 if both_ways else 6) * cube + 22 * 8 * (lines + 1) + 8


def _third_room(task: KernelTask) -> Room:
    """What GrandInside and GrandOutside take with a weight for each head of siblings' head."""
    _, N = task.sizes
    grid, quads = N * (N + 1) // 2 * _row(N), (N - 1) * N * (N + 1) // 6 * _row(N)
    return _room(task, N * N, (10 if task.both_ways else 7) * grid + 2 * quads + (2 * N + 1) * _row(N))


def _room(task: KernelTask, nodes: int, numbers: int) -> Room:
    _, N = task.sizes
    doubles = task.planes * numbers
    if task.kind == "sums":
        return Room(nodes, 2 * N**2 * nodes, doubles)
    return Room(nodes, N**2 * nodes, doubles, ints=(task.lanes * 4 * (N + 4),))


SECOND_ORDER = Family(
    name="second_order",
    scores={"arcs": "B N N", "siblings?": "B N N N", "grandparents?": "B N N N"},
    inputs="Tensor lengths, bool single_root",
    sizes="B N",
    structure=lambda B, N: (B, N),
    plain=Plain(plain.masks, plain.log_partition, argmax=plain.argmax, sample=plain.sample),
    kernels=(
        Kernels(_sibling_room, "siblings", argmax="siblings_argmax", sample="siblings_sample", takes=2, apart=True),
        Kernels(_grand_room, "grandsiblings", argmax="grandsiblings_argmax", sample="grandsiblings_sample", apart=True),
    ),
)

THIRD_ORDER = Family(
    name="third_order",
    scores={"arcs": "B N N", "siblings?": "B N N N", "grandparents?": "B N N N", "grandsiblings": "B N N N N"},
    inputs=SECOND_ORDER.inputs,
    sizes=SECOND_ORDER.sizes,
    structure=SECOND_ORDER.structure,
    plain=SECOND_ORDER.plain,
    kernels=[Kernels(_third_room, "third_order", argmax="third_order_argmax", sample="third_order_sample")],
    orders=0,
)


def _family(scores: Scores) -> tuple[Family, Scores]:
    """That which takes the scores, and what it takes of them."""
    every = plain.all_kinds(scores)
    return (SECOND_ORDER, every[:3]) if every[3] is None else (THIRD_ORDER, every)


def log_partition(scores: Scores, lengths: Int[Tensor, " B"], single_root: bool) -> Float64[Tensor, " B"]:
    """As ``Family.log_partition``."""
    family, given = _family(scores)
    return family.log_partition(given, lengths, single_root)


def marginals(scores: Scores, lengths: Int[Tensor, " B"], single_root: bool) -> tuple[Any, ...]:
    """As ``Family.marginals``."""
    family, given = _family(scores)
    return *family.marginals(given, lengths, single_root), *[None] * (4 - len(given))


def argmax(scores: Scores, lengths: Int[Tensor, " B"], single_root: bool) -> Int[Tensor, "B N"]:
    """As ``Family.argmax``."""
    family, given = _family(scores)
    return family.argmax(given, lengths, single_root)


def sample(scores: Scores, lengths: Int[Tensor, " B"], single_root: bool, num: int) -> Int[Tensor, "num B N"]:
    """As ``Family.sample``."""
    family, given = _family(scores)
    return family.sample(given, lengths, single_root, num)


def topk(scores: Scores, lengths: Int[Tensor, " B"], single_root: bool, k: int) -> Int[Tensor, "k B N"]:
    """Heads of the k best trees, best first; -1 for ranks that do not exist. About n searches for each."""
    return plain.topk(argmax, scores, lengths.clamp(0, scores[0].shape[1] - 1), single_root, k)
