"""Operators over binary trees of a grammar.

Scores are a bundle (tags [B, n, T], rules [B, R], roots [B, S], spans [B, n, n, S] or None); ``grammar`` is the array
of ``plain.cky.index_rules``. Derivatives of log Z by all of them, each an operator whose backward is the next one:
marginals (with log Z) -> hvp (along a bundle u) -> third (along u and v) -> the plain torch path from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float64, Int, Int32, Int64
from torch import Tensor

from gpuparse.backend import Backend, Kernel, Long
from gpuparse.ops.launch import NUMBERS, kernels_for, launch
from gpuparse.ops.library import define, differentiable, takes_kernels
from gpuparse.plain import cky as plain
from gpuparse.plain.cky import Scores

Grammar = Int32[Tensor, " size"]
Lengths = Int[Tensor, " B"]
Bundle = Sequence[Tensor | None]
Trees = Int64[Tensor, "*S B rows 4"]

NOTHING: Bundle = (None, None, None, None)  # a direction that is not there


# ------------------------------------------------------------------------------------------------ launching the kernels


def _rounded(numbers: int) -> int:
    return (numbers + 7) // 8 * 8


def _room(n: int, S: int, R: int, both_ways: bool) -> int:
    """Numbers that CkyInside of cky.cuh and CkyOutside of cky.cu take."""
    cells = _rounded(8 + S * n * (_rounded(n) + 8))
    return _rounded(R) + _rounded(S) + (2 if both_ways else 1) * cells


def _sizes(scores: Bundle) -> tuple[int, int, int, int, int]:
    """B, n, S, T, R."""
    tags, rules, roots = scores[:3]
    assert tags is not None and rules is not None and roots is not None
    return tags.shape[0], tags.shape[1], roots.shape[1], tags.shape[2], rules.shape[1]


def _dense(scores: Bundle, bundle: Bundle) -> list[Tensor | None]:
    """In the dtype of the tags, one after the other in memory."""
    tags = scores[0]
    assert tags is not None
    return [None if x is None else x.to(tags.dtype).contiguous() for x in bundle]


def sums(
    scores: Bundle,
    grammar: Grammar,
    lengths: Tensor,
    directions: Sequence[Bundle],
    logz: Tensor | None,
    out: Bundle,
    backend: Backend | None = None,
) -> None:
    """Write log Z, or the derivatives of log Z by the scores, all but one of them along the directions."""
    dense = _dense(scores, scores)
    assert dense[0] is not None
    B, n, S, T, R = _sizes(scores)
    order = len(directions)
    doubles = (2**order + 1) * _room(n, S, R, out[0] is not None)
    along = [x for bundle in (*directions, NOTHING, NOTHING)[:2] for x in _dense(scores, bundle)]
    launch(
        backend or kernels_for(dense[0]),
        Kernel("cky", NUMBERS[dense[0].dtype], order),
        [*dense, *along, grammar.contiguous(), lengths.contiguous(), logz, *out],
        sentences=B,
        nodes=n * S,
        work=(1 if out[0] is None else 4) * 3**order * n**3 * R // 12,
        doubles=doubles,
        tail=[Long(doubles), B, n, S, T, R],
    )


def _decode(
    kernel: str,
    scores: Bundle,
    grammar: Grammar,
    lengths: Tensor,
    trees: Tensor,
    *,
    given: Sequence[Tensor] = (),
    planes: int,
    lanes: int,
    scalars: Sequence[int] = (),
    backend: Backend,
) -> Tensor:
    """Run an argmax or sample kernel, which fills ``trees``."""
    dense = _dense(scores, scores)
    assert dense[0] is not None
    B, n, S, T, R = _sizes(scores)
    doubles, stack = planes * _room(n, S, R, False), lanes * 3 * (n + 2)
    launch(
        backend,
        Kernel(kernel, NUMBERS[dense[0].dtype]),
        [*dense, grammar.contiguous(), lengths.contiguous(), *given, trees],
        sentences=B,
        nodes=n * S,
        work=n**3 * R // 12,
        doubles=doubles,
        ints=(stack,),
        tail=[Long(doubles), Long(stack), *scalars, B, n, S, T, R],
    )
    return trees


def _empty_trees(tags: Tensor, *leading: int) -> Tensor:
    B, n = tags.shape[:2]
    return tags.new_empty((*leading, B, 2 * n - 1, 4), dtype=torch.int64)


def best(scores: Bundle, grammar: Grammar, lengths: Tensor, backend: Backend | None = None) -> Tensor:
    """cky_argmax.cu: trees [B, 2n - 1, 4]."""
    tags = scores[0]
    assert tags is not None
    backend, trees = backend or kernels_for(tags), _empty_trees(tags)
    return _decode("cky_argmax", scores, grammar, lengths, trees, planes=1, lanes=1, backend=backend)


def draw(
    scores: Bundle, grammar: Grammar, lengths: Tensor, seed: Tensor, num: int, backend: Backend | None = None
) -> Tensor:
    """cky_sample.cu: trees [num, B, 2n - 1, 4]."""
    tags = scores[0]
    assert tags is not None
    backend, trees = backend or kernels_for(tags), _empty_trees(tags, num)
    return _decode(
        "cky_sample",
        scores,
        grammar,
        lengths,
        trees,
        given=[seed],
        planes=2,
        lanes=backend.lanes,
        scalars=[num],
        backend=backend,
    )


# -------------------------------------------------------------------------------------------------------- the operators


def _empty(scores: Bundle) -> list[Tensor]:
    """What results are written to; one that nobody has scores for is empty."""
    tags = scores[0]
    assert tags is not None
    return [tags.new_empty(0 if x is None else x.shape) for x in scores]


def _wanted(scores: Bundle, out: Sequence[Tensor]) -> list[Tensor | None]:
    return [None if x is None else y for x, y in zip(scores, out, strict=True)]


def _operators() -> tuple[Callable[..., Any], Callable[..., Any]]:
    def log_partition(*inputs: Any) -> Tensor:
        *scores, grammar, lengths = inputs
        logz = scores[0].new_empty(scores[0].shape[0], dtype=torch.float64)
        sums(scores, grammar, lengths, (), logz, NOTHING)
        return logz

    def marginals(*inputs: Any) -> tuple[Tensor, ...]:
        *scores, grammar, lengths = inputs
        logz, out = scores[0].new_empty(scores[0].shape[0], dtype=torch.float64), _empty(scores)
        sums(scores, grammar, lengths, (), logz, _wanted(scores, out))
        return logz, *out

    def derivative(*inputs: Any) -> tuple[Tensor, ...]:
        scores, grammar, lengths, along = inputs[:4], inputs[4], inputs[5], inputs[6:]
        out = _empty(scores)
        directions = [along[k : k + 4] for k in range(0, len(along), 4)]
        sums(scores, grammar, lengths, directions, None, _wanted(scores, out))
        return tuple(out)

    def like_logz(tags: Tensor, *_: Any) -> Tensor:
        return tags.new_empty(tags.shape[0], dtype=torch.float64)

    def like_scores(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple(_empty(inputs[:4]))

    given = "Tensor tags, Tensor rules, Tensor roots, Tensor? spans, Tensor grammar, Tensor lengths"
    four = "(Tensor, Tensor, Tensor, Tensor)"
    u, v = (f"Tensor? {d}, Tensor? {d}_rules, Tensor? {d}_roots, Tensor? {d}_spans" for d in "uv")
    log_partition_op = define(f"cky_log_partition({given}) -> Tensor", log_partition, like_logz)
    marginals_op = define(
        f"cky_marginals({given}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        marginals,
        lambda *a: (like_logz(*a), *like_scores(*a)),
    )
    hvp_op = define(f"cky_hvp({given}, {u}) -> {four}", derivative, like_scores)
    third_op = define(f"cky_third({given}, {u}, {v}) -> {four}", derivative, like_scores)

    def there(scores: Bundle, found: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Of the parts that there are scores for."""
        return [None if x is None else y for x, y in zip(scores, found, strict=True)]

    def needed(ctx: Any, first: int, found: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Gradients of the four inputs from ``first`` on, where they are wanted."""
        return [x if need else None for x, need in zip(found, ctx.needs_input_grad[first : first + 4], strict=True)]

    def keep_marginals(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs, *output[1:])
        ctx.set_materialize_grads(False)

    def back_marginals(ctx: Any, by_logz: Tensor | None, *by_mu: Tensor | None) -> tuple[Any, ...]:
        scores, indices, mu = ctx.saved_tensors[:4], ctx.saved_tensors[4:6], ctx.saved_tensors[6:]
        by: list[Tensor | None] = [None] * 4
        if by_logz is not None:
            by = [m * by_logz.to(m.dtype).view(-1, *[1] * (m.dim() - 1)) if m.numel() else None for m in mu]
        along = there(scores, by_mu)
        if any(x is not None for x in along):
            second = hvp_op(*scores, *indices, *along)
            by = [b if a is None else a + b for a, b in zip(by, second, strict=True)]
        return *needed(ctx, 0, by), None, None

    differentiable(marginals_op, keep_marginals, back_marginals)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)

    def back_hvp(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        scores, indices, u = ctx.saved_tensors[:4], ctx.saved_tensors[4:6], ctx.saved_tensors[6:]
        along = there(scores, grads)
        by: Bundle = NOTHING
        by_u: Bundle = NOTHING
        if any(ctx.needs_input_grad[:4]):
            by = needed(ctx, 0, third_op(*scores, *indices, *u, *along))
        if any(ctx.needs_input_grad[6:]):
            by_u = needed(ctx, 6, hvp_op(*scores, *indices, *along))
        return *by, None, None, *by_u

    differentiable(hvp_op, keep, back_hvp)

    def back_third(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        saved, again = ctx.saved_tensors, torch.is_grad_enabled()  # whether someone will differentiate this too
        with torch.enable_grad():
            # views: u and v may depend on the scores, and here they are inputs of their own
            x = [
                y if y is None or k in (4, 5) else y.view_as(y) if y.requires_grad else y.detach().requires_grad_()
                for k, y in enumerate(saved)
            ]
            lengths = saved[5].clamp(0, saved[0].shape[1])
            found = iter(plain.derivative((x[0], x[1], x[2], x[3]), saved[4], lengths, (x[6:10], x[10:14])))
            pairs = [(next(found), g) for s, g in zip(x[:4], grads, strict=True) if s is not None]
            wanted = [(y, g) for y, g in pairs if g is not None]
            leaves = [y for k, y in enumerate(x) if y is not None and k not in (4, 5)]
            by = iter(
                torch.autograd.grad(
                    [y for y, _ in wanted], leaves, [g for _, g in wanted], create_graph=again, allow_unused=True
                )
            )
        return tuple(None if y is None or k in (4, 5) else next(by) for k, y in enumerate(x))

    differentiable(third_op, keep, back_third)
    return log_partition_op, marginals_op


_log_partition, _marginals = _operators()


# ---------------------------------------------------------------------------------------- the operators, or plain torch


def _plain_check(scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """What kernels do with input that nobody checked: lengths within the tensor, and which sentences are bad."""
    lengths = lengths.clamp(0, scores[0].shape[1])
    return lengths, plain.is_bad(scores, lengths)


def log_partition(scores: Scores, grammar: Grammar, lengths: Lengths) -> Float64[Tensor, " B"]:
    """log Z in float64, without a gradient; -inf where there is no tree, NaN where a score read is NaN or +inf."""
    tags, rules, roots, spans = (None if x is None else x.detach() for x in scores)
    assert tags is not None and rules is not None and roots is not None
    if takes_kernels(tags, "cky"):
        return _log_partition(tags, rules, roots, spans, grammar, lengths)
    lengths, bad = _plain_check(scores, lengths)
    return torch.where(bad, torch.nan, plain.log_partition((tags, rules, roots, spans), grammar, lengths))


def marginals(
    scores: Scores, grammar: Grammar, lengths: Lengths
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """log Z in float64, and the expected numbers of tags, rules, roots and spans, all differentiable."""
    if takes_kernels(scores[0], "cky"):
        logz, tags, rules, roots, spans = _marginals(*scores, grammar, lengths)
        return logz, tags, rules, roots, None if scores[3] is None else spans
    lengths, bad = _plain_check(scores, lengths)
    logz = torch.where(bad, torch.nan, plain.log_partition(scores, grammar, lengths))
    found = [
        torch.where(bad.view(-1, *[1] * (x.dim() - 1)), torch.nan, x)
        for x in plain.derivative(scores, grammar, lengths)
    ]
    return logz, found[0], found[1], found[2], found[3] if len(found) > 3 else None


_SCORES = "Tensor tags, Tensor rules, Tensor roots, Tensor? spans, Tensor grammar, Tensor lengths"
_argmax = define(
    f"cky_argmax({_SCORES}) -> Tensor", lambda *x: best(x[:4], x[4], x[5]), lambda tags, *_: _empty_trees(tags)
)
_sample = define(
    f"cky_sample({_SCORES}, Tensor seed, int num) -> Tensor",
    lambda *x: draw(x[:4], *x[4:]),
    lambda tags, *rest: _empty_trees(tags, rest[-1]),
)


def argmax(scores: Scores, grammar: Grammar, lengths: Lengths) -> Trees:
    """A best tree; all -1 where there is none or a score read is NaN or +inf."""
    if takes_kernels(scores[0], "cky_argmax"):
        return _argmax(*scores, grammar, lengths)
    lengths, bad = _plain_check(scores, lengths)
    return torch.where(bad[:, None, None], -1, plain.argmax(scores, grammar, lengths))


def sample(scores: Scores, grammar: Grammar, lengths: Lengths, num: int) -> Trees:
    """``num`` trees drawn from each sentence's distribution, by torch's random numbers."""
    if takes_kernels(scores[0], "cky_sample"):
        seed = torch.randint(2**62, (1,), device=scores[0].device)
        return _sample(*scores, grammar, lengths, seed, num)
    lengths, bad = _plain_check(scores, lengths)
    return torch.where(bad[:, None, None], -1, plain.sample(scores, grammar, lengths, num))
