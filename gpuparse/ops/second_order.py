"""Operators over projective trees with scores of siblings, of grandparents, or of both.

Scores are a bundle (arcs [B, N, N], siblings or None, grandparents or None [B, N, N, N]). Derivatives of log Z by all
of them, each an operator whose backward is the next one: marginals (with log Z) -> hvp (along a bundle u) -> third
(along u and v) -> the plain torch path from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from gpuparse import plain
from gpuparse.backend import Backend, Kernel, Long
from gpuparse.ops.launch import NUMBERS, kernels_for, launch
from gpuparse.ops.library import define, differentiable, takes_kernels
from gpuparse.plain import second_order as plain_trees
from gpuparse.plain.second_order import Scores, grandparent_mask, sibling_mask

Lengths = Int[Tensor, " B"]
Bundle = Sequence[Tensor | None]

NOTHING: Scores = (None, None, None)  # type: ignore[assignment]  # a direction that is not there


def kernel_for(scores: Bundle) -> str:
    """The kernel that sums over trees with such scores."""
    return "siblings" if scores[2] is None else "grandsiblings"


# ------------------------------------------------------------------------------------------------ launching the kernels

_PAD = 8  # PAD of lanes.cuh on a CPU; a GPU needs less


def _square(N: int) -> int:
    """square_size of eisner.cuh."""
    return (N + 1) * ((N + 2 * _PAD + 7) // 8 | 1) * 8 + 2 * _PAD


def _triples(N: int) -> int:
    """triples_size of siblings.cuh."""
    return (N - 1) * N * (N + 1) // 6 + 2 * _PAD


def _sibling_room(N: int, both_ways: bool) -> int:
    """Numbers that SiblingInside of siblings.cuh and SiblingOutside of siblings.cu take."""
    return (6 if both_ways else 3) * _square(N) + 2 * _triples(N) + N + 3 * _PAD + 8


def _grand_room(N: int, both_ways: bool) -> int:
    """Numbers that GrandInside of grandsiblings.cuh and GrandOutside of grandsiblings.cu take."""
    row = (N + 7) // 8 * 8
    grid = N * (N + 1) // 2 * row
    return (12 if both_ways else 7) * grid + 2 * _triples(N) + (3 if both_ways else 1) * N * row


def sums(
    scores: Bundle,
    lengths: Tensor,
    single_root: bool,
    directions: Sequence[Bundle],
    logz: Tensor | None,
    out: Bundle,
    backend: Backend | None = None,
) -> None:
    """Write log Z, or the derivatives of log Z by the scores, all but one of them along the directions."""
    arcs = scores[0]
    assert arcs is not None
    if lengths.dtype != torch.int64 or lengths.shape != arcs.shape[:1]:
        raise ValueError(f"lengths must be int64 of shape [B], got {lengths.dtype} of {list(lengths.shape)}")
    backend = backend or kernels_for(arcs)
    (B, N), order, name = arcs.shape[:2], len(directions), kernel_for(scores)
    kinds = 2 if name == "siblings" else 3
    dense = [
        None if x is None else x.to(arcs.dtype).contiguous()
        for bundle in (scores, *directions, NOTHING, NOTHING)
        for x in bundle[:kinds]
    ]
    room = (_sibling_room if kinds == 2 else _grand_room)(N, out[0] is not None)
    doubles = (2**order + 1) * room
    launch(
        backend,
        Kernel(name, NUMBERS[arcs.dtype], order),
        [*dense[: 3 * kinds], lengths.contiguous(), logz, *out[:kinds]],
        sentences=B,
        nodes=N if kinds == 2 else N * N,
        work=2 * N ** (kinds + 1),
        doubles=doubles,
        tail=[Long(doubles), B, N, int(single_root)],
    )


def _decode(
    kernel: str,
    scores: Bundle,
    lengths: Tensor,
    single_root: bool,
    heads: Tensor,
    *,
    given: Sequence[Tensor] = (),
    planes: int,
    lanes: int,
    scalars: Sequence[int] = (),
    backend: Backend,
) -> Tensor:
    """Run an argmax or sample kernel, which fills ``heads``."""
    kinds = 2 if kernel_for(scores) == "siblings" else 3
    arcs = scores[0]
    assert arcs is not None
    B, N = arcs.shape[:2]
    doubles = planes * (_sibling_room if kinds == 2 else _grand_room)(N, False)
    stack = lanes * 4 * (N + 4)
    dense = [None if x is None else x.to(arcs.dtype).contiguous() for x in scores[:kinds]]
    launch(
        backend,
        Kernel(f"{kernel_for(scores)}_{kernel}", NUMBERS[arcs.dtype]),
        [*dense, lengths.contiguous(), *given, heads],
        sentences=B,
        nodes=N if kinds == 2 else N * N,
        work=N ** (kinds + 1),
        doubles=doubles,
        ints=(stack,),
        tail=[Long(doubles), Long(stack), *scalars, B, N, int(single_root)],
    )
    return heads


def best(scores: Bundle, lengths: Tensor, single_root: bool, backend: Backend | None = None) -> Tensor:
    """siblings_argmax.cu or grandsiblings_argmax.cu: heads [B, N]."""
    arcs = scores[0]
    assert arcs is not None
    backend = backend or kernels_for(arcs)
    heads = torch.empty(arcs.shape[:2], dtype=torch.int64, device=arcs.device)
    return _decode("argmax", scores, lengths, single_root, heads, planes=1, lanes=1, backend=backend)


def draw(
    scores: Bundle, lengths: Tensor, seed: Tensor, single_root: bool, num: int, backend: Backend | None = None
) -> Tensor:
    """siblings_sample.cu or grandsiblings_sample.cu: heads [num, B, N]."""
    arcs = scores[0]
    assert arcs is not None
    backend = backend or kernels_for(arcs)
    heads = torch.empty(num, *arcs.shape[:2], dtype=torch.int64, device=arcs.device)
    return _decode(
        "sample",
        scores,
        lengths,
        single_root,
        heads,
        given=[seed],
        planes=2,
        lanes=backend.lanes,
        scalars=[num],
        backend=backend,
    )


# -------------------------------------------------------------------------------------------------------- the operators


def _empty(scores: Bundle) -> list[Tensor]:
    """What results are written to; one that nobody has scores for is empty."""
    arcs = scores[0]
    assert arcs is not None
    return [arcs.new_empty(0 if x is None else x.shape) for x in scores]


def _some(bundle: Bundle) -> list[Tensor | None]:
    return [x if x is not None and x.numel() else None for x in bundle]


def _operators() -> tuple[Callable[..., Any], Callable[..., Any]]:
    def log_partition(
        arcs: Tensor, siblings: Tensor | None, grandparents: Tensor | None, lengths: Tensor, root: bool
    ) -> Tensor:
        logz = arcs.new_empty(arcs.shape[0], dtype=torch.float64)
        sums((arcs, siblings, grandparents), lengths, root, (), logz, NOTHING)
        return logz

    def marginals(
        arcs: Tensor, siblings: Tensor | None, grandparents: Tensor | None, lengths: Tensor, root: bool
    ) -> tuple[Tensor, ...]:
        scores = (arcs, siblings, grandparents)
        logz, out = arcs.new_empty(arcs.shape[0], dtype=torch.float64), _empty(scores)
        sums(scores, lengths, root, (), logz, _some(out))
        return logz, *out

    def derivative(
        arcs: Tensor,
        siblings: Tensor | None,
        grandparents: Tensor | None,
        lengths: Tensor,
        root: bool,
        *along: Tensor | None,
    ) -> tuple[Tensor, ...]:
        scores = (arcs, siblings, grandparents)
        out = _empty(scores)
        sums(scores, lengths, root, [along[k : k + 3] for k in range(0, len(along), 3)], None, _some(out))
        return tuple(out)

    def like_logz(arcs: Tensor, *_: Any) -> Tensor:
        return arcs.new_empty(arcs.shape[0], dtype=torch.float64)

    def like_scores(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple(_empty(inputs[:3]))

    given = "Tensor arcs, Tensor? siblings, Tensor? grandparents, Tensor lengths, bool single_root"
    three = "(Tensor, Tensor, Tensor)"
    u, v = (f"Tensor? {d}, Tensor? {d}_siblings, Tensor? {d}_grandparents" for d in "uv")
    log_partition_op = define(f"second_order_log_partition({given}) -> Tensor", log_partition, like_logz)
    marginals_op = define(
        f"second_order_marginals({given}) -> (Tensor, Tensor, Tensor, Tensor)",
        marginals,
        lambda *a: (like_logz(*a), *like_scores(*a)),
    )
    hvp_op = define(f"second_order_hvp({given}, {u}) -> {three}", derivative, like_scores)
    third_op = define(f"second_order_third({given}, {u}, {v}) -> {three}", derivative, like_scores)

    def read(scores: Bundle, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Incoming gradients, of the parts that there are."""
        return [None if x is None else g for x, g in zip(scores, grads, strict=True)]

    def there(scores: Bundle, found: Sequence[Tensor]) -> list[Tensor | None]:
        return [None if x is None else y for x, y in zip(scores, found, strict=True)]

    def keep_marginals(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.single_root = inputs
        ctx.save_for_backward(*tensors, *output[1:])
        ctx.set_materialize_grads(False)

    def back_marginals(ctx: Any, by_logz: Tensor | None, *by_mu: Tensor | None) -> tuple[Any, ...]:
        scores, lengths, mu = ctx.saved_tensors[:3], ctx.saved_tensors[3], ctx.saved_tensors[4:]
        by: list[Tensor | None] = [None, None, None]
        if by_logz is not None:
            by = [m * by_logz.to(m.dtype).view(-1, *[1] * (m.dim() - 1)) if m.numel() else None for m in mu]
        along = read(scores, by_mu)
        if any(x is not None for x in along):
            second = hvp_op(*scores, lengths, ctx.single_root, *along)
            by = [b if a is None else a if b is None else a + b for a, b in zip(by, second, strict=True)]
        return *there(scores, by), None, None  # type: ignore[arg-type]

    differentiable(marginals_op, keep_marginals, back_marginals)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        scores, lengths, ctx.single_root, along = inputs[:3], inputs[3], inputs[4], inputs[5:]
        ctx.save_for_backward(*scores, lengths, *along)
        ctx.set_materialize_grads(False)

    def back_hvp(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        scores, lengths, u = ctx.saved_tensors[:3], ctx.saved_tensors[3], ctx.saved_tensors[4:]
        along, root = read(scores, grads), ctx.single_root
        by: Bundle = NOTHING
        by_u: Bundle = NOTHING
        if any(ctx.needs_input_grad[:3]):
            by = there(scores, third_op(*scores, lengths, root, *u, *along))
        if any(ctx.needs_input_grad[5:]):
            by_u = there(u, hvp_op(*scores, lengths, root, *along))
        return *by, None, None, *by_u

    differentiable(hvp_op, keep, back_hvp)

    def back_third(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        saved, again = ctx.saved_tensors, torch.is_grad_enabled()  # whether someone will differentiate this too
        with torch.enable_grad():
            # views: u and v may depend on the scores, and here they are inputs of their own
            x = [
                y if y is None or k == 3 else y.view_as(y) if y.requires_grad else y.detach().requires_grad_()
                for k, y in enumerate(saved)
            ]
            lengths = saved[3].clamp(0, saved[0].shape[1] - 1)
            found = iter(
                plain_trees.derivative(
                    (x[0], x[1], x[2]), lengths, ctx.single_root, ((x[4], x[5], x[6]), (x[7], x[8], x[9]))
                )
            )
            pairs = [(next(found), g) for s, g in zip(x[:3], grads, strict=True) if s is not None]
            wanted = [(y, g) for y, g in pairs if g is not None]
            leaves = [y for k, y in enumerate(x) if y is not None and k != 3]
            by = iter(
                torch.autograd.grad(
                    [y for y, _ in wanted], leaves, [g for _, g in wanted], create_graph=again, allow_unused=True
                )
            )
        results = [None if y is None or k == 3 else next(by) for k, y in enumerate(x)]
        return *results[:3], None, None, *results[4:]

    differentiable(third_op, keep, back_third)
    return log_partition_op, marginals_op


_log_partition, _marginals = _operators()


# ---------------------------------------------------------------------------------------- the operators, or plain torch


def is_bad(scores: Scores, lengths: Lengths) -> Tensor:
    """Which sentences have a NaN or +inf among the scores that are read, [B]."""
    bad = (plain.check.flags(scores[0].detach(), lengths) & 1).bool()
    for x, mask in zip(scores[1:], (sibling_mask, grandparent_mask), strict=True):
        if x is not None:
            wrong = x.detach().isnan() | x.detach().isposinf()
            bad = bad | (wrong & mask(lengths, x.shape[-1])).flatten(1).any(1)
    return bad


def _plain_check(scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """What kernels do with input that nobody checked: lengths within the tensor, and which sentences are bad."""
    lengths = lengths.clamp(0, scores[0].shape[1] - 1)
    return lengths, is_bad(scores, lengths)


def log_partition(scores: Scores, lengths: Lengths, single_root: bool) -> Float64[Tensor, " B"]:
    """log Z in float64, without a gradient; -inf where there is no tree, NaN where a score read is NaN or +inf."""
    arcs, siblings, grandparents = (None if x is None else x.detach() for x in scores)
    if takes_kernels(scores[0], kernel_for(scores)):
        return _log_partition(arcs, siblings, grandparents, lengths, single_root)
    lengths, bad = _plain_check(scores, lengths)
    assert arcs is not None
    return torch.where(bad, torch.nan, plain_trees.log_partition((arcs, siblings, grandparents), lengths, single_root))


def marginals(
    scores: Scores, lengths: Lengths, single_root: bool
) -> tuple[Float64[Tensor, " B"], Tensor, Tensor | None, Tensor | None]:
    """log Z in float64 and the probabilities of arcs, siblings and grandparents, all differentiable."""
    if takes_kernels(scores[0], kernel_for(scores)):
        logz, *mu = _marginals(*scores, lengths, single_root)
        some = [None if x is None else y for x, y in zip(scores, mu, strict=True)]
        return logz, mu[0], some[1], some[2]
    lengths, bad = _plain_check(scores, lengths)
    logz = torch.where(bad, torch.nan, plain_trees.log_partition(scores, lengths, single_root))
    found = iter(plain_trees.derivative(scores, lengths, single_root))
    parts = [
        None if x is None else torch.where(bad.view(-1, *[1] * (x.dim() - 1)), torch.nan, next(found)) for x in scores
    ]
    assert parts[0] is not None
    return logz, parts[0], parts[1], parts[2]


_argmax = define(
    "second_order_argmax(Tensor arcs, Tensor? siblings, Tensor? grandparents, Tensor lengths, bool single_root) "
    "-> Tensor",
    lambda arcs, siblings, grandparents, lengths, root: best((arcs, siblings, grandparents), lengths, root),
    lambda arcs, *_: arcs.new_empty(arcs.shape[:2], dtype=torch.int64),
)
_sample = define(
    "second_order_sample(Tensor arcs, Tensor? siblings, Tensor? grandparents, Tensor lengths, Tensor seed, "
    "bool single_root, int num) -> Tensor",
    lambda arcs, siblings, grandparents, lengths, seed, root, num: draw(
        (arcs, siblings, grandparents), lengths, seed, root, num
    ),
    lambda arcs, *rest: arcs.new_empty((rest[-1], *arcs.shape[:2]), dtype=torch.int64),
)


def argmax(scores: Scores, lengths: Lengths, single_root: bool) -> Int[Tensor, "B N"]:
    """Heads of a best tree; all -1 where there is none or a score read is NaN or +inf."""
    if takes_kernels(scores[0], f"{kernel_for(scores)}_argmax"):
        return _argmax(*scores, lengths, single_root)
    lengths, bad = _plain_check(scores, lengths)
    return torch.where(bad[:, None], -1, plain_trees.argmax(scores, lengths, single_root))


def topk(scores: Scores, lengths: Lengths, single_root: bool, k: int) -> Int[Tensor, "k B N"]:
    """Heads of the k best trees, best first; -1 for ranks that do not exist."""
    return plain_trees.topk(argmax, scores, lengths.clamp(0, scores[0].shape[1] - 1), single_root, k)


def sample(scores: Scores, lengths: Lengths, single_root: bool, num: int) -> Int[Tensor, "num B N"]:
    """Heads of ``num`` trees drawn from each sentence's distribution, by torch's random numbers."""
    if takes_kernels(scores[0], f"{kernel_for(scores)}_sample"):
        seed = torch.randint(2**62, (1,), device=scores[0].device)
        return _sample(*scores, lengths, seed, single_root, num)
    lengths, bad = _plain_check(scores, lengths)
    return torch.where(bad[:, None], -1, plain_trees.sample(scores, lengths, single_root, num))
