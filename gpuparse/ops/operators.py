"""The torch operators of a family.

Derivatives of log Z by all scores, each an operator whose backward is the next one: marginals (with log Z) -> hvp
(along directions u, one like each of the scores) -> third (along u and v) -> the plain torch path from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gpuparse.ops.library import Operator, define, differentiable

if TYPE_CHECKING:
    from gpuparse.ops.family import Bundle, Family

DERIVATIVES = ("marginals", "hvp", "third")
"""Operators by the number of their directions."""


def there(scores: Bundle, found: Bundle) -> list[Tensor | None]:
    """Of what was found, that which there are scores for."""
    return [None if x is None else y for x, y in zip(scores, found, strict=True)]


def beside(values: Tensor, dims: int) -> Tensor:
    """One value for each sentence, as a tensor of so many dimensions."""
    return values.view(-1, *[1] * (dims - 1))


def plain_gradients(run: Callable[[Any], Bundle], given: Bundle, grads: Bundle) -> list[Tensor | None]:
    """Gradients of ``run(given)`` in all of ``given``, by plain torch: the backward of an operator that is the last."""
    again = torch.is_grad_enabled()  # whether someone will differentiate this too
    with torch.enable_grad():
        # views: some may depend on others, and here they are inputs of their own
        own = [x if x is None else x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in given]
        pairs = [(y, g) for y, g in zip(run(own), grads, strict=True) if y is not None and g is not None]
        if not pairs:
            return [None] * len(given)
        wanted, along = zip(*pairs, strict=True)
        leaves = [x for x in own if x is not None]
        by = iter(torch.autograd.grad(wanted, leaves, along, create_graph=again, allow_unused=True))
    return [None if x is None else next(by) for x in own]


def _score_arguments(family: Family) -> list[str]:
    return [f"Tensor? {name[:-1]}" if name.endswith("?") else f"Tensor {name}" for name in family.scores]


def decoding_operator(family: Family, kind: str) -> Operator:
    """argmax(scores, inputs), topk(scores, inputs, k) or sample(scores, tensors, seed, flags, num)."""
    n, at = len(family.scores), len(family.scores) + family.tensors
    given = [*_score_arguments(family), *family.inputs.split(", ")]
    if kind == "sample":
        given.insert(at, "Tensor seed")
    given += {"argmax": [], "topk": ["int k"], "sample": ["int num"]}[kind]

    def run(*args: Any) -> Tensor:
        if kind == "argmax":
            return family.decode(kind, args[:n], args[n:])
        if kind == "topk":
            return family.decode(kind, args[:n], args[n:-1], args[-1])
        return family.decode(kind, args[:n], (*args[n:at], *args[at + 1 : -1]), args[-1], args[at])

    def fake(*args: Any) -> Tensor:
        return family.empty_structures(args[:n], None if kind == "argmax" else args[-1])

    return define(f"{family.name}_{kind}({', '.join(given)}) -> Tensor", run, fake)


def sum_operators(family: Family) -> dict[str, Operator]:
    """log Z and the tower of its derivatives. Arguments are the scores, the inputs and the directions."""
    n, flags = len(family.scores), len(family.scores) + family.tensors
    after = n + len(family.inputs.split(", "))

    # what the operators compute

    def like_logz(first: Tensor, *_: Any) -> Tensor:
        return first.new_empty(first.shape[0], dtype=torch.float64)

    def like_scores(*args: Any) -> list[Tensor]:
        return family.empty_scores(args[:n])

    def results(found: list[Tensor]) -> Any:
        return tuple(found) if n > 1 else found[0]

    def bundles(flat: Bundle) -> list[Bundle]:
        return [flat[k : k + n] for k in range(0, len(flat), n)]

    def log_partition(*args: Any) -> Tensor:
        logz = like_logz(*args)
        family.sums(args[:n], args[n:], (), logz, None)
        return logz

    def marginals(*args: Any) -> tuple[Tensor, ...]:
        logz, out = like_logz(*args), like_scores(*args)
        family.sums(args[:n], args[n:], (), logz, there(args[:n], out))
        return logz, *out

    def derivative(*args: Any) -> Any:
        out = like_scores(*args)
        family.sums(args[:n], args[n:after], bundles(args[after:]), None, there(args[:n], out))
        return results(out)

    # their names and signatures

    scores = _score_arguments(family)
    others = [x.split()[-1] for x in scores[1:]]
    given = ", ".join([*scores, family.inputs])
    several = f"({', '.join(['Tensor'] * n)})" if n > 1 else "Tensor"
    tower = [
        define(
            f"{family.name}_marginals({given}) -> ({', '.join(['Tensor'] * (n + 1))})",
            marginals,
            lambda *args: (like_logz(*args), *like_scores(*args)),
        )
    ]
    for order in range(1, family.orders + 1):
        optional = "Tensor?" if n > 1 else "Tensor"
        along = [f"{optional} {x}" for d in "uv"[:order] for x in (d, *(f"{d}_{other}" for other in others))]
        schema = f"{family.name}_{DERIVATIVES[order]}({', '.join([given, *along])}) -> {several}"
        tower.append(define(schema, derivative, lambda *args: results(like_scores(*args))))

    # their gradients

    def derive(scores: Bundle, inputs: Sequence[Any], directions: Sequence[Bundle]) -> Bundle:
        """Derivatives by the scores that there are, by an operator as long as there is one."""
        if len(directions) > family.orders:
            return family.derivative(scores, family.within(scores, inputs), directions)
        found = tower[len(directions)](*scores, *inputs, *(x for bundle in directions for x in bundle))
        return there(scores, found if n > 1 else [found])

    def shared(scores: Bundle, by: Bundle) -> list[Tensor | None]:
        """Gradients for each sentence as those of the scores, which sentences may share."""
        return [
            y if x is None or y is None or y.shape == x.shape else y.sum(0).view(x.shape)
            for x, y in zip(scores, by, strict=True)
        ]

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.flags = inputs[flags:after]
        ctx.save_for_backward(*inputs[:flags], *inputs[after:], *(output[1:] if len(inputs) == after else ()))
        ctx.set_materialize_grads(False)

    def kept(ctx: Any) -> tuple[Bundle, Sequence[Any], list[Bundle]]:
        """The scores, the inputs, and the directions or, where there were none, the marginals."""
        saved = ctx.saved_tensors
        return saved[:n], (*saved[n:flags], *ctx.flags), bundles(saved[flags:])

    def back_marginals(ctx: Any, by_logz: Tensor | None, *by_mu: Tensor | None) -> tuple[Any, ...]:
        scores, rest, (mu,) = kept(ctx)
        by: Bundle = [None] * n
        if by_logz is not None:
            by = [None if m is None else m * beside(by_logz.to(m.dtype), m.dim()) for m in there(scores, mu)]
        along = there(scores, by_mu)
        if any(x is not None for x in along):
            second = derive(scores, rest, [along])
            by = [y if x is None or y is None else x + y for x, y in zip(by, second, strict=True)]
        return *shared(scores, by), *[None] * (after - n)

    def back(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        scores, rest, directions = kept(ctx)
        along, needs, nothing = there(scores, grads), ctx.needs_input_grad, [None] * n
        some = any(x is not None for x in along)
        by = derive(scores, rest, [*directions, along]) if some and any(needs[:n]) else nothing
        more: list[Tensor | None] = []
        for d, (u, needed) in enumerate(zip(directions, bundles(needs[after:]), strict=True)):
            instead = [*directions[:d], along, *directions[d + 1 :]]
            more += there(u, derive(scores, rest, instead)) if some and any(needed) else nothing
        return *shared(scores, by), *[None] * (after - n), *more

    def back_plainly(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        scores, rest, directions = kept(ctx)
        inside, along = family.within(scores, rest), there(scores, grads)
        given = [x for bundle in (scores, *directions) for x in bundle]
        by = plain_gradients(lambda x: family.derivative(x[:n], inside, bundles(x[n:])), given, along)
        return *by[:n], *[None] * (after - n), *by[n:]

    differentiable(tower[0], keep, back_marginals)
    for op in tower[1:]:
        differentiable(op, keep, back_plainly if op is tower[-1] else back)
    log_partition_op = define(f"{family.name}_log_partition({given}) -> Tensor", log_partition, like_logz)
    return {"log_partition": log_partition_op, **dict(zip(DERIVATIVES, tower, strict=False))}
