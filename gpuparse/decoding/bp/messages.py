"""Adding up messages at the variables, and taking one out again, with infinities among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gpuparse.decoding.bp.graph import Factors, Graph, Messages, Values
from gpuparse.ops.plain.semiring import NEG_INF
from gpuparse.structures.trees import can_validate


@dataclass(frozen=True)
class Total:
    """The sum of all messages to each variable: of the finite ones, and how many are -inf and +inf."""

    finite: Values
    minus: Values
    plus: Values | None  # None: no message is infinite

    @staticmethod
    def part(family: Factors, messages: Messages, graph: Graph) -> Total:
        """The messages of one family."""
        if can_validate(messages[0], None):
            found = family.collect(messages, graph)
            if bool(found.links.isfinite().all()) and (found.tags is None or bool(found.tags.isfinite().all())):
                return Total(found, graph.zeros(), None)
        infinite = [m.isinf() for m in messages]
        finite = tuple(torch.where(x, 0.0, m) for x, m in zip(infinite, messages, strict=True))
        minus = tuple((m == NEG_INF).to(m.dtype) for m in messages)
        plus = tuple((m == torch.inf).to(m.dtype) for m in messages)
        return Total(*(family.collect(m, graph) for m in (finite, minus, plus)))

    @staticmethod
    def add(parts: Sequence[Total], graph: Graph) -> Total:
        """The sum of the families' parts. What is no variable is false."""
        outside = (~graph.links).double()
        finite = graph.zeros()
        minus, plus = Values(outside, finite.tags), graph.zeros()
        for part in parts:
            finite = finite + part.finite
            if part.plus is not None:
                minus, plus = minus + part.minus, plus + part.plus
        return Total(finite, minus, plus)

    @property
    def is_finite(self) -> bool:
        """Whether no message is infinite, for sure."""
        return self.plus is None

    @cached_property
    def values(self) -> Values:
        """The beliefs of (5): log-odds of links, log weights of tags."""
        tags = None
        if self.finite.tags is not None and self.minus.tags is not None:
            tags = _join(self.finite.tags, self.minus.tags, torch.zeros_like(self.minus.tags))
        assert self.plus is not None
        return Values(_join(self.finite.links, self.minus.links, self.plus.links), tags)

    @property
    def impossible(self) -> Tensor:
        """Sentences [B] with a variable that has no value left."""
        assert self.plus is not None
        found = ((self.minus.links > 0) & (self.plus.links > 0)).flatten(1).any(1)
        if self.minus.tags is not None:
            found = found | (self.minus.tags > 0).all(2).any(1)
        return found

    def without(self, family: Factors, own: Messages, *, finite: bool = False) -> Messages:
        """The messages (3) to a family: everything but what its own edge said (``finite``: nothing infinite)."""
        if finite:
            return tuple(x - r for x, r in zip(family.spread(self.values), own, strict=True))
        return tuple(_join(*parts) for parts in self._parts(family, own))

    def select(self, at: Tensor) -> Total:
        """Some of the sentences."""

        def pick(x: Tensor) -> Tensor:
            return x[at]

        return Total(self.finite.each(pick), self.minus.each(pick), None if self.plus is None else self.plus.each(pick))

    def demanded(self, family: Factors, own: Messages) -> Tensor:
        """Sum over a family's edges [B] of the finite part of messages that are +inf, which these cannot hold."""
        found = [
            torch.where((plus > 0) & (minus <= 0), finite, 0.0).flatten(1).sum(1)
            for finite, minus, plus in self._parts(family, own)
        ]
        return torch.stack(found).sum(0)

    def _parts(self, family: Factors, own: Messages) -> list[tuple[Tensor, Tensor, Tensor]]:
        assert self.plus is not None
        found = zip(*(family.spread(v) for v in (self.finite, self.minus, self.plus)), own, strict=True)
        return [
            (
                finite - torch.where(r.isinf(), 0.0, r),
                minus - (r == NEG_INF).to(r.dtype),
                plus - (r == torch.inf).to(r.dtype),
            )
            for finite, minus, plus, r in found
        ]


def _join(finite: Tensor, minus: Tensor, plus: Tensor) -> Tensor:
    return torch.where(minus > 0, NEG_INF, torch.where(plus > 0, torch.inf, finite))


def damp(old: Messages, new: Messages, share: float) -> Messages:
    """New messages with a share of the old ones; infinite ones are not mixed."""
    if share == 0:
        return new
    return tuple(
        torch.where(a.isinf() | b.isinf(), b, share * torch.where(a.isinf(), 0.0, a) + (1 - share) * b)
        for a, b in zip(old, new, strict=True)
    )
