"""Operators over lexicalised trees.

Scores are a bundle: tags [B, n, T], arcs [B, N, N], rules [1 or B, R], roots [S]; the grammar's rules come as the table
of ``gpuparse.plain.lexical.Rules``. The gradient of log Z is the expected numbers, by kernels; theirs is the plain
torch path's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from gpuparse.backend import Backend, Kernel, Long
from gpuparse.ops.launch import NUMBERS, kernels_for, launch
from gpuparse.ops.library import define, differentiable, takes_kernels
from gpuparse.plain import lexical as plain
from gpuparse.plain.lexical import Rules, Scores

Lengths = Int[Tensor, " B"]
Expected = tuple[Tensor, Tensor, Tensor, Tensor]
"""tags [B, n, T], arcs [B, N, N], rules [B, R], roots [B, S]: how many of each a tree has."""

# ------------------------------------------------------------------------------------------------ launching the kernels

_PAD = 8  # PAD of lanes.cuh on a CPU; a GPU needs less


def _room(N: int, T: int, S: int, R: int, both_ways: bool) -> int:
    """Numbers that LexicalInside of lexical.cuh and LexicalOutside of lexical.cu take."""
    n, row = N - 1, N - 1 + _PAD
    chart = n * N // 2 * max(T, S - T) * row
    room = chart + 2 * N * row + R + S
    return room + (chart + (N + R) * row if both_ways else 0)


def _run(
    kernel: str,
    scores: Scores,
    table: Tensor,
    lengths: Tensor,
    out: Sequence[Tensor | None],
    *,
    planes: int,
    stack: int = 0,
    both_ways: bool = False,
    scalars: Sequence[int] = (),
    backend: Backend,
) -> None:
    tags, arcs, rules, roots = (x.contiguous() for x in scores)
    (B, N), T, S, R = arcs.shape[:2], tags.shape[2], roots.shape[0], rules.shape[1]
    if lengths.dtype != torch.int64 or lengths.shape != (B,):
        raise ValueError(f"lengths must be int64 of shape [B], got {lengths.dtype} of {list(lengths.shape)}")
    doubles = planes * _room(N, T, S, R, both_ways)
    bits = 2 * (N + 1) * S * ((N - 1) // 64 + 1)
    sizes = [doubles, *([stack] if stack else []), bits, R if rules.shape[0] > 1 else 0]
    launch(
        backend,
        Kernel(kernel, NUMBERS[tags.dtype]),
        [tags, arcs, rules, roots, table.contiguous(), lengths.contiguous(), *out],
        sentences=B,
        nodes=N * max(T, S - T),
        work=N**4 * R // 24 + N**2 * S,
        doubles=doubles,
        ints=(stack,) if stack else (),
        longs=bits,
        tail=[*map(Long, sizes), *scalars, B, N, T, S, R],
    )


def sums(
    scores: Scores, table: Tensor, lengths: Tensor, expected: bool, backend: Backend | None = None
) -> tuple[Tensor, ...]:
    """lexical.cu: log Z, and the expected numbers if they are wanted."""
    tags, arcs, rules, roots = scores
    logz = tags.new_empty(tags.shape[0], dtype=torch.float64)
    out = _empty(tags, arcs, rules, roots) if expected else ()
    _run(
        "lexical",
        scores,
        table,
        lengths,
        [logz, *(out or [None] * 4)],
        planes=2,
        both_ways=expected,
        backend=backend or kernels_for(tags),
    )
    return logz, *out


def _rows(tags: Tensor, *leading: int) -> Tensor:
    B, n, _ = tags.shape
    return tags.new_empty((*leading, B, 2 * n - 1, 5), dtype=torch.int64)


def best(scores: Scores, table: Tensor, lengths: Tensor, backend: Backend | None = None) -> Tensor:
    """lexical_argmax.cu: trees [B, 2n - 1, 5]."""
    trees, backend = _rows(scores[0]), backend or kernels_for(scores[0])
    stack = 4 * (scores[1].shape[1] + 2)
    _run("lexical_argmax", scores, table, lengths, [trees], planes=1, stack=stack, backend=backend)
    return trees


def draw(
    scores: Scores, table: Tensor, lengths: Tensor, seed: Tensor, num: int, backend: Backend | None = None
) -> Tensor:
    """lexical_sample.cu: trees [num, B, 2n - 1, 5]."""
    trees, backend = _rows(scores[0], num), backend or kernels_for(scores[0])
    stack = backend.lanes * 4 * (scores[1].shape[1] + 2)
    out = [seed, trees]
    _run("lexical_sample", scores, table, lengths, out, planes=2, stack=stack, scalars=[num], backend=backend)
    return trees


# -------------------------------------------------------------------------------------------------------- the operators


def _empty(tags: Tensor, arcs: Tensor, rules: Tensor, roots: Tensor, *_: Any) -> tuple[Tensor, ...]:
    B = tags.shape[0]
    shapes = tags.shape, arcs.shape, (B, rules.shape[1]), (B, roots.shape[0])
    return tuple(tags.new_empty(shape) for shape in shapes)


def _like_scores(grads: Sequence[Tensor | None], scores: Sequence[Tensor]) -> list[Tensor | None]:
    """Gradients for each sentence as those of the scores, which sentences may share."""
    found = list(grads)
    for k in (2, 3):
        g = found[k]
        if g is not None and k == 3:
            found[k] = g.sum(0)
        elif g is not None and scores[k].shape[0] != g.shape[0]:
            found[k] = g.sum(0, keepdim=True)
    return found


def _operators() -> tuple[Callable[..., Any], Callable[..., Any]]:
    given = "Tensor tags, Tensor arcs, Tensor rules, Tensor roots, Tensor table, Tensor lengths"

    def like_logz(tags: Tensor, *_: Any) -> Tensor:
        return tags.new_empty(tags.shape[0], dtype=torch.float64)

    log_partition_op = define(
        f"lexical_log_partition({given}) -> Tensor",
        lambda *a: sums(a[:4], a[4], a[5], False)[0],
        like_logz,
    )
    marginals_op = define(
        f"lexical_marginals({given}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        lambda *a: sums(a[:4], a[4], a[5], True),
        lambda *a: (like_logz(*a), *_empty(*a)),
    )

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, *output[1:])
        ctx.set_materialize_grads(False)

    def back(ctx: Any, by_logz: Tensor | None, *by_mu: Tensor | None) -> tuple[Any, ...]:
        scores, (table, lengths), mu = ctx.saved_tensors[:4], ctx.saved_tensors[4:6], ctx.saved_tensors[6:]
        by: list[Tensor | None] = [None] * 4
        if by_logz is not None:
            by = [m * by_logz.to(m.dtype).view(-1, *[1] * (m.dim() - 1)) for m in mu]
        if any(x is not None for x in by_mu):
            rules = Rules.from_table(table, scores[3].shape[0])
            second = plain.derivative(scores, rules, lengths.clamp(0, scores[1].shape[1] - 1), by_mu)
            by = [y if x is None else x + y for x, y in zip(by, second, strict=True)]
        return *_like_scores(by, scores), None, None

    differentiable(marginals_op, keep, back)
    return log_partition_op, marginals_op


_log_partition, _marginals = _operators()

# ---------------------------------------------------------------------------------------- the operators, or plain torch


def is_bad(scores: Scores, lengths: Lengths) -> Tensor:
    """Which sentences have a NaN or +inf among the scores that are read, [B]."""
    tags, arcs, rules, roots = (x.detach() for x in scores)
    bad = torch.zeros_like(lengths, dtype=torch.bool)
    for x, read in zip((tags, arcs, rules, roots[None]), plain.masks(scores, lengths), strict=True):
        bad = bad | ((x.isnan() | x.isposinf()) & read).flatten(1).any(1)
    return bad


def _plain_check(scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """What kernels do with input that nobody checked: lengths within the tensor, and which sentences are bad."""
    lengths = lengths.clamp(0, scores[1].shape[1] - 1)
    return lengths, is_bad(scores, lengths)


def log_partition(scores: Scores, rules: Rules, lengths: Lengths) -> Float64[Tensor, " B"]:
    """log Z in float64, without a gradient; -inf where there is no tree, NaN where a score read is NaN or +inf."""
    tags, arcs, by_rule, roots = (x.detach() for x in scores)
    if takes_kernels(tags, "lexical"):
        return _log_partition(tags, arcs, by_rule, roots, rules.table, lengths)
    lengths, bad = _plain_check(scores, lengths)
    return torch.where(bad, torch.nan, plain.log_partition((tags, arcs, by_rule, roots), rules, lengths))


def marginals(scores: Scores, rules: Rules, lengths: Lengths) -> tuple[Float64[Tensor, " B"], Expected]:
    """log Z in float64 and the expected numbers of tags, arcs, rules and roots, all differentiable."""
    if takes_kernels(scores[0], "lexical"):
        logz, *mu = _marginals(*scores, rules.table, lengths)
        return logz, tuple(mu)
    lengths, bad = _plain_check(scores, lengths)
    logz = torch.where(bad, torch.nan, plain.log_partition(scores, rules, lengths))
    found = plain.derivative(scores, rules, lengths)
    parts = [torch.where(bad.view(-1, *[1] * (x.dim() - 1)), torch.nan, x) for x in found]
    return logz, tuple(parts)  # type: ignore[return-value]


_argmax = define(
    "lexical_argmax(Tensor tags, Tensor arcs, Tensor rules, Tensor roots, Tensor table, Tensor lengths) -> Tensor",
    lambda *a: best(a[:4], a[4], a[5]),
    lambda tags, *_: _rows(tags),
)
_sample = define(
    "lexical_sample(Tensor tags, Tensor arcs, Tensor rules, Tensor roots, Tensor table, Tensor lengths, Tensor seed, "
    "int num) -> Tensor",
    lambda *a: draw(a[:4], a[4], a[5], a[6], a[7]),
    lambda tags, *rest: _rows(tags, rest[-1]),
)


def argmax(scores: Scores, rules: Rules, lengths: Lengths) -> Int[Tensor, "B M 5"]:
    """A best tree; all -1 where there is none or a score read is NaN or +inf."""
    if takes_kernels(scores[0], "lexical_argmax"):
        return _argmax(*scores, rules.table, lengths)
    lengths, bad = _plain_check(scores, lengths)
    return torch.where(bad[:, None, None], -1, plain.argmax(scores, rules, lengths))


def sample(scores: Scores, rules: Rules, lengths: Lengths, num: int) -> Int[Tensor, "num B M 5"]:
    """``num`` trees drawn from each sentence's distribution, by torch's random numbers."""
    if takes_kernels(scores[0], "lexical_sample"):
        seed = torch.randint(2**62, (1,), device=scores[0].device)
        return _sample(*scores, rules.table, lengths, seed, num)
    lengths, bad = _plain_check(scores, lengths)
    return torch.where(bad[:, None, None], -1, plain.sample(scores, rules, lengths, num))
