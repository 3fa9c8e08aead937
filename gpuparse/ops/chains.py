"""Operators over chains of tags, for scores of pairs of tags in a row and of triples alike.

``pairs`` are a view [1 or B, 1 or P, S, T]: the same for all sentences or not, the same at all P places of a sentence
or not. They score tag T after state S: one tag (S = T, P = n - 1) or, for ``trigrams``, two (S = T * T, P = n - 2).

Two families, each other's gradients. chain_value_k is the derivative of every sentence's log Z along k directions (one
like unary and one like pairs each), chain_gradient_k the gradient of the sum of weight * chain_value_k. So scores that
sentences share get a gradient of their own size, not one for each sentence. Kernels go to k = 2, then the plain torch
path takes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from gpuparse.ops import plain
from gpuparse.ops.backend import Backend, Kernel, Long
from gpuparse.ops.launch import NUMBERS, check_lengths, kernels_for, launch
from gpuparse.ops.library import Operator, define, differentiable, takes_kernels
from gpuparse.ops.operators import plain_gradients
from gpuparse.ops.plain.chain import Direction, places

Unary = Float[Tensor, "B n T"]
Pairs = Float[Tensor, "b p S T"]
Lengths = Int[Tensor, " B"]

ORDERS = 3  # derivatives that the kernels are compiled for: 0, 1, 2
_GROUP_CELLS = (
    2**25
)  # sums of shared pairs are kept for so many groups of sentences that they are about this many numbers


# ------------------------------------------------------------------------------------------------ launching the kernels


def _row(T: int) -> int:
    """tags_row of chain.cuh."""
    return (T + 7) // 8 * 8


def _room(n: int, T: int, trigrams: bool, planes: int, both_ways: bool) -> int:
    """Doubles that Forward of chain.cuh and run_back of chain.cu take."""
    row, word = _row(T), _row(T) * (T if trigrams else 1)
    doubles = planes * (T * word + n * row + n * word) + 3 * n + 2
    return doubles + (planes * (T * word + n * word + word) if both_ways else 0)


def _inner(pairs: Tensor) -> Tensor:
    """Pairs whose last two dimensions lie densely, whatever the others do."""
    T = pairs.shape[3]
    return pairs if pairs.numel() == 0 or pairs.stride()[2:] == (T, 1) else pairs.contiguous()


def _strides(pairs: Tensor | None) -> tuple[Long, Long]:
    """From one sentence to the next and from one place to the next."""
    if pairs is None:
        return Long(0), Long(0)
    steps = [Long(step if size > 1 else 0) for size, step in zip(pairs.shape[:2], pairs.stride()[:2], strict=True)]
    return steps[0], steps[1]


def sums(
    unary: Tensor,
    pairs: Tensor,
    lengths: Tensor,
    trigrams: bool,
    directions: Sequence[Direction] = (),
    weight: Tensor | None = None,
    want: tuple[bool, bool] = (True, True),
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor]:
    """chain.cu: without a weight the values [B], else the gradients like unary and like pairs (of what is wanted)."""
    check_lengths(lengths, unary)
    backend = backend or kernels_for(unary)
    (B, n, T), order, dtype = unary.shape, len(directions), unary.dtype
    unary, pairs, lengths = unary.contiguous(), _inner(pairs), lengths.contiguous()
    moves = [(u.to(dtype).contiguous(), _inner(v.to(dtype))) for u, v in directions]
    u, v = (*moves, (None, None), (None, None))[:2]
    value, mu, counts = None, None, None
    groups, shape = B, list(pairs.shape)
    if weight is None:
        value = unary.new_empty(B, dtype=torch.float64)
    else:
        weight = weight.double().contiguous()
        if shape[0] == 1 and shape[1] > 1:
            shape[0] = B
        if shape[0] == 1:
            groups = min(B, max(32, _GROUP_CELLS // max(1, pairs[0].numel())))
        mu = torch.empty_like(unary) if want[0] else None
        counts = torch.empty([groups, *shape[1:]], dtype=dtype, device=unary.device) if want[1] else None
    P, cells = places(n, trigrams), shape[2] * T
    doubles = _room(n, T, trigrams, 2**order + 1, weight is not None)
    # one place alone is all places together
    count_place = cells if shape[1] > 1 else 0
    launch(
        backend,
        Kernel("chain", NUMBERS[dtype], order),
        [unary, pairs, lengths, weight, *u, *v, value, mu, counts],
        sentences=groups,
        nodes=T * (T if trigrams else 1),
        work=-(-B // max(1, groups)) * (P + 1) * cells * (1 if weight is None else 3) * 3**order // 4,
        doubles=doubles,
        tail=[
            Long(doubles),
            *_strides(pairs),
            *_strides(u[1]),
            *_strides(v[1]),
            Long(shape[1] * cells),
            Long(count_place),
            groups,
            B,
            n,
            T,
            int(trigrams),
        ],
    )
    if value is not None:
        return value, value
    nothing = unary.new_empty(0)
    if counts is not None and pairs.shape[0] == 1 and B != 1:
        counts = counts.sum(0, keepdim=True)
    elif counts is not None:
        counts = counts.view(pairs.shape)
    return nothing if mu is None else mu, nothing if counts is None else counts


def _tags(unary: Tensor, *leading: int) -> Tensor:
    return unary.new_empty((*leading, *unary.shape[:2]), dtype=torch.int64)


def chain_topk(
    unary: Tensor, pairs: Tensor, lengths: Tensor, trigrams: bool, k: int, backend: Backend | None = None
) -> Tensor:
    check_lengths(lengths, unary)
    (B, n, T), found, pairs = unary.shape, _tags(unary, k), _inner(pairs)
    states = T * (T if trigrams else 1)
    launch(
        backend or kernels_for(unary),
        Kernel("chain_topk", NUMBERS[unary.dtype]),
        [unary.contiguous(), pairs, lengths.contiguous(), found],
        sentences=B,
        nodes=states,
        work=n * states * (T + k * k),
        doubles=2 * states * k,
        ints=(n * states * k + k,),
        tail=[Long(states * k), *_strides(pairs), k, B, n, T, int(trigrams)],
    )
    return found


def chain_sample(
    unary: Tensor,
    pairs: Tensor,
    lengths: Tensor,
    seed: Tensor,
    trigrams: bool,
    num: int,
    backend: Backend | None = None,
) -> Tensor:
    check_lengths(lengths, unary)
    (B, n, T), found, pairs = unary.shape, _tags(unary, num), _inner(pairs)
    states, doubles = T * (T if trigrams else 1), _room(n, T, trigrams, 2, False)
    launch(
        backend or kernels_for(unary),
        Kernel("chain_sample", NUMBERS[unary.dtype]),
        [unary.contiguous(), pairs, lengths.contiguous(), seed, found],
        sentences=B,
        nodes=states,
        work=n * (states + num) * T,
        doubles=doubles,
        tail=[Long(doubles), *_strides(pairs), num, B, n, T, int(trigrams)],
    )
    return found


# ----------------------------------------------------------------------------------------------------------- operators


def _split(directions: Sequence[Tensor]) -> list[Direction]:
    return [(directions[i], directions[i + 1]) for i in range(0, len(directions), 2)]


def _zeros(given: Sequence[Tensor | None], unary: Tensor, pairs: Tensor) -> list[Tensor]:
    """A direction, with zeros for what is None (views: they take hardly any memory)."""
    u, v = given
    u = unary.new_zeros(()).expand(unary.shape) if u is None else u
    return [u, pairs.new_zeros((1, 1, *pairs.shape[2:])).expand(pairs.shape) if v is None else v]


def _operators() -> tuple[list[Operator], list[Operator]]:
    """value [order] and gradient [order], called with (unary, pairs, lengths, directions..., trigrams) and with
    (unary, pairs, lengths, weight, directions..., trigrams, want_unary, want_pairs)."""
    values: list[Operator] = []
    gradients: list[Operator] = []
    scores = "Tensor unary, Tensor pairs, Tensor lengths"

    def value(unary: Tensor, pairs: Tensor, lengths: Tensor, *rest: Any) -> Tensor:
        return sums(unary, pairs, lengths, rest[-1], _split(rest[:-1]))[0]

    def gradient(unary: Tensor, pairs: Tensor, lengths: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        *directions, trigrams, want_unary, want_pairs = rest
        return sums(unary, pairs, lengths, trigrams, _split(directions), weight, (want_unary, want_pairs))

    def fake_value(unary: Tensor, *_: Any) -> Tensor:
        return unary.new_empty(unary.shape[0], dtype=torch.float64)

    def fake_gradient(unary: Tensor, pairs: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        shapes = [x.shape if wanted else (0,) for x, wanted in zip((unary, pairs), rest[-2:], strict=True)]
        return unary.new_empty(shapes[0]), unary.new_empty(shapes[1])

    for order in range(ORDERS):
        along = "".join(f", Tensor {d}, Tensor {d}_pairs" for d in "uv"[:order])
        values.append(define(f"chain_value_{order}({scores}{along}, bool trigrams) -> Tensor", value, fake_value))
        weighted = f"{scores}, Tensor weight{along}, bool trigrams, bool want_unary, bool want_pairs"
        gradients.append(define(f"chain_gradient_{order}({weighted}) -> (Tensor, Tensor)", gradient, fake_gradient))

    def keep_value(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.trigrams = inputs
        ctx.save_for_backward(*tensors)

    def wanted(op: Operator, ctx: Any, needs: Sequence[bool], *tensors: Tensor) -> list[Tensor | None]:
        """A gradient, where any of it is needed."""
        if not any(needs):
            return [None, None]
        found = op(*tensors, ctx.trigrams, *needs)
        return [x if need else None for x, need in zip(found, needs, strict=True)]

    def back_value(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        unary, pairs, lengths, *directions = ctx.saved_tensors
        needs, order = ctx.needs_input_grad, len(directions) // 2
        by = wanted(gradients[order], ctx, needs[:2], unary, pairs, lengths, grad, *directions)
        for d in range(order):
            others = directions[: 2 * d] + directions[2 * d + 2 :]
            at = 3 + 2 * d
            by += wanted(gradients[order - 1], ctx, needs[at : at + 2], unary, pairs, lengths, grad, *others)
        return by[0], by[1], None, *by[2:], None

    def keep_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.trigrams, ctx.want_unary, ctx.want_pairs = inputs
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)

    def incoming(ctx: Any, grads: Sequence[Tensor | None], unary: Tensor, pairs: Tensor) -> list[Tensor]:
        wants = (ctx.want_unary, ctx.want_pairs)
        return _zeros([g if want else None for g, want in zip(grads, wants, strict=True)], unary, pairs)

    def back_gradient(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        unary, pairs, lengths, weight, *directions = ctx.saved_tensors
        needs, order = ctx.needs_input_grad, len(directions) // 2
        along = incoming(ctx, grads, unary, pairs)
        if order == ORDERS - 1:
            return _back_plainly(ctx, along)
        by = wanted(gradients[order + 1], ctx, needs[:2], unary, pairs, lengths, weight, *directions, *along)
        by_weight = values[order + 1](unary, pairs, lengths, *directions, *along, ctx.trigrams) if needs[3] else None
        more: list[Tensor | None] = []
        for d in range(order):
            others = directions[: 2 * d] + along + directions[2 * d + 2 :]
            at = 4 + 2 * d
            more += wanted(gradients[order], ctx, needs[at : at + 2], unary, pairs, lengths, weight, *others)
        return by[0], by[1], None, by_weight, *more, None, None, None

    for order in range(ORDERS):
        differentiable(values[order], keep_value, back_value)
        differentiable(gradients[order], keep_gradient, back_gradient)
    return values, gradients


def _back_plainly(ctx: Any, grads: Sequence[Tensor]) -> tuple[Any, ...]:
    """Backward of the gradient of the highest order, by plain torch."""
    unary, pairs, lengths, *rest = ctx.saved_tensors

    def gradient(own: Sequence[Tensor]) -> Sequence[Tensor]:
        unary, pairs, weight, *directions = own
        return plain.chain.gradient(unary, pairs, lengths, ctx.trigrams, weight, _split(directions))

    by = plain_gradients(gradient, [unary, pairs, *rest], grads)
    return by[0], by[1], None, *by[2:], None, None, None


VALUES, GRADIENTS = _operators()


def _fake_tags(unary: Tensor, *rest: Any) -> Tensor:
    return _tags(unary, rest[-1])


_topk = define(
    "chain_topk(Tensor unary, Tensor pairs, Tensor lengths, bool trigrams, int k) -> Tensor", chain_topk, _fake_tags
)
_sample = define(
    "chain_sample(Tensor unary, Tensor pairs, Tensor lengths, Tensor seed, bool trigrams, int num) -> Tensor",
    chain_sample,
    _fake_tags,
)


# ---------------------------------------------------------------------------------------- the operators, or plain torch


def value(
    unary: Unary, pairs: Pairs, lengths: Lengths, trigrams: bool, directions: Sequence[Direction] = ()
) -> Float64[Tensor, " B"]:
    """log Z of each sentence, or its derivative along up to two directions; in float64, differentiable.

    -inf (derivatives: 0) where there is no chain, NaN where a score that is read is NaN or +inf.
    """
    if takes_kernels(unary, "chain"):
        along = [x for direction in directions for x in direction]
        return VALUES[len(directions)](unary, pairs, lengths, *along, trigrams)
    lengths, bad = checked(unary, pairs, lengths, trigrams)
    return torch.where(bad, torch.nan, plain.chain.value(unary, pairs, lengths, trigrams, directions))


def marginals(
    unary: Unary, pairs: Pairs, lengths: Lengths, trigrams: bool, *, of_pairs: bool
) -> Float[Tensor, "*shape"]:
    """Probabilities like ``unary``, or expected numbers like ``pairs``; differentiable."""
    weight = torch.ones_like(lengths, dtype=torch.float64)
    if takes_kernels(unary, "chain"):
        return GRADIENTS[0](unary, pairs, lengths, weight, trigrams, not of_pairs, of_pairs)[of_pairs]
    lengths, bad = checked(unary, pairs, lengths, trigrams)
    found = plain.chain.gradient(unary, pairs, lengths, trigrams, weight)
    if not of_pairs:
        return torch.where(bad[:, None, None], torch.nan, found[0])
    wrong = bad if pairs.shape[0] == len(bad) else bad.any()[None]
    return torch.where(wrong[:, None, None, None], torch.nan, found[1])


def topk(unary: Unary, pairs: Pairs, lengths: Lengths, trigrams: bool, k: int) -> Int[Tensor, "k B n"]:
    """Tags of the k best chains, best first; -1 for ranks that do not exist."""
    if takes_kernels(unary, "chain_topk"):
        return _topk(unary, pairs, lengths, trigrams, k)
    lengths, bad = checked(unary, pairs, lengths, trigrams)
    return torch.where(bad[:, None], -1, plain.chain.topk(unary, pairs, lengths, trigrams, k))


def sample(unary: Unary, pairs: Pairs, lengths: Lengths, trigrams: bool, num: int) -> Int[Tensor, "num B n"]:
    """Tags of ``num`` chains drawn from each sentence's distribution, by torch's random numbers."""
    if takes_kernels(unary, "chain_sample"):
        seed = torch.randint(2**62, (1,), device=unary.device)
        return _sample(unary, pairs, lengths, seed, trigrams, num)
    lengths, bad = checked(unary, pairs, lengths, trigrams)
    return torch.where(bad[:, None], -1, plain.chain.sample(unary, pairs, lengths, trigrams, num))


def checked(unary: Tensor, pairs: Tensor, lengths: Tensor, trigrams: bool) -> tuple[Tensor, Tensor]:
    """What kernels do with input that nobody checked: lengths within the tensor, and which sentences are bad."""
    lengths = lengths.clamp(0, unary.shape[1])
    return lengths, plain.chain.is_bad(unary.detach(), pairs.detach(), lengths, trigrams)
