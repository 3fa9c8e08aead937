"""Lexicalised trees: a structure is rows [B, 2n - 1, 5]. Sentences may share rules [1, R] and do share roots [S]."""

from __future__ import annotations

from torch import Tensor

from gpuparse.ops.family import Family, Kernels, KernelTask, Plain, Room
from gpuparse.ops.launch import PAD
from gpuparse.ops.library import takes_kernels
from gpuparse.ops.plain import lexical as plain
from gpuparse.ops.plain.lexical import Rules, Scores


def _room(task: KernelTask) -> Room:
    """What LexicalInside of lexical.cuh and LexicalOutside of lexical.cu take."""
    _, N, T, S, R = task.sizes
    n, row = N - 1, N - 1 + PAD
    chart = n * N // 2 * max(T, S - T) * row
    outside = chart + (N + R) * row if task.both_ways else 0
    doubles = task.planes * (chart + 2 * N * row + R + S + outside)
    stack = () if task.kind == "sums" else (task.lanes * 4 * (N + 2),)
    bits = 2 * (N + 1) * S * ((N - 1) // 64 + 1)
    by_rule = task.scores[2]
    assert by_rule is not None
    return Room(
        nodes=N * max(T, S - T),
        work=N**4 * R // 24 + N**2 * S,
        doubles=doubles,
        ints=stack,
        longs=bits,
        strides=(doubles, *stack, bits, R if by_rule.shape[0] > 1 else 0),
    )


def _rules(scores: Scores, table: Tensor) -> Rules:
    return Rules.from_table(table, scores[3].shape[-1])


LEXICAL = Family(
    name="lexical",
    scores={"tags": "B n T", "arcs": "B N N", "rules": "B R", "roots": "B S"},
    inputs="Tensor table, Tensor lengths",
    sizes="B N T S R",
    structure=lambda B, N, *_: (B, 2 * N - 3, 5),
    plain=Plain(
        plain.masks,
        lambda scores, table, lengths: plain.log_partition(scores, _rules(scores, table), lengths),
        argmax=lambda scores, table, lengths: plain.argmax(scores, _rules(scores, table), lengths),
        sample=lambda scores, table, lengths, num: plain.sample(scores, _rules(scores, table), lengths, num),
    ),
    kernels=[Kernels(_room, "lexical", argmax="lexical_argmax", sample="lexical_sample")],
    orders=0,
    serves=lambda x, kernel: takes_kernels(x, kernel),  # that of this module, whatever it is by then
)
