"""Adding up messages at the variables, and taking one out again, with infinities among them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpuparse.decoding.bp.graph import Factors, Given, Graph, Messages, Values
from gpuparse.ops import bp as ops
from gpuparse.ops.plain.links import damp, freeze, join, parted
from gpuparse.structures.trees import can_validate


@dataclass(frozen=True)
class Total:
    """The sum of all messages to each variable: of the finite ones, and how many are -inf and +inf."""

    links: Float[Tensor, "3 B N N"]
    tags: Float[Tensor, "3 B n T"] | None = None
    is_finite: bool = False
    """Whether no message is infinite, for sure."""
    graph: Graph | None = None
    """Where heads are variables: ``links`` are log weights of their values then."""

    @staticmethod
    def part(family: Factors, messages: Messages, graph: Graph) -> Total:
        """The messages of one family."""
        if can_validate(messages[0], None):
            found = family.collect(messages, graph)
            if bool(found.links.isfinite().all()) and (found.tags is None or bool(found.tags.isfinite().all())):
                return Total.of([found, graph.zeros(), graph.zeros()], is_finite=True)
        each = zip(*(parted(message) for message in messages), strict=True)
        return Total.of([family.collect(x, graph) for x in each])

    @staticmethod
    def of(parts: Sequence[Values], *, is_finite: bool = False) -> Total:
        """The finite ones, and how many are -inf and +inf."""
        tags = [x.tags for x in parts if x.tags is not None]
        return Total(torch.stack([x.links for x in parts]), torch.stack(tags) if len(tags) == 3 else None, is_finite)

    @staticmethod
    def add(parts: Sequence[Total], graph: Graph) -> Total:
        """The sum of the families' parts. What is no variable is false."""
        tags = [part.tags for part in parts if part.tags is not None]
        none = graph.zeros().tags
        if none is not None and not tags:
            tags = [torch.stack([none] * 3)]
        return Total(
            _sum([graph.outside, *(part.links for part in parts)]),
            _sum(tags) if tags else None,
            graph=graph if graph.heads else None,
        )

    @cached_property
    def odds(self) -> Total:
        """The same about links, whatever the variables are."""
        return self if self.graph is None else Total(ops.head_odds(self.links, self.graph), self.tags)

    @cached_property
    def _normal(self) -> tuple[Tensor, Tensor]:
        assert self.graph is not None
        return ops.head_weights(self.links, self.graph)

    @property
    def heads(self) -> Total:
        """The same of heads as variables, as log probabilities."""
        return Total(self._normal[0])

    @property
    def norms(self) -> Float[Tensor, "B N"]:
        """Log of the sum over the values of each head."""
        return self._normal[1]

    def told(self, family: Factors) -> Total:
        """As the family sees it."""
        return self.heads if family.knows_heads else self.odds

    @cached_property
    def each(self) -> list[Values]:
        """The finite sums and both counts."""
        return [Values(self.links[k], None if self.tags is None else self.tags[k]) for k in range(3)]

    @cached_property
    def values(self) -> Values:
        """The beliefs of (5): log-odds of links, log weights of tags."""
        return Values(join(*self.links.unbind()), None if self.tags is None else join(*self.tags.unbind()))

    @property
    def impossible(self) -> Tensor:
        """Sentences [B] with a variable that has no value left."""
        links = self.odds.links
        found = ((links[1] > 0) & (links[2] > 0)).flatten(1).any(1)
        if self.tags is not None:
            found = found | (self.tags[1] > 0).all(2).any(1)
        return found

    def without(self, family: Factors, own: Messages, graph: Graph, *, finite: bool = False) -> Messages:
        """The messages (3) to a family: everything but what its own edge said (``finite``: nothing infinite)."""
        seen = self.told(family)
        if finite and seen is self:
            return tuple(x - r for x, r in zip(family.spread(self.values), own, strict=True))
        return family.hear(seen.each, own, graph)

    def select(self, at: Tensor) -> Total:
        """Some of the sentences."""
        tags = None if self.tags is None else self.tags[:, at]
        return Total(self.links[:, at], tags, self.is_finite, self.graph and self.graph.select(at))

    def demanded(self, family: Factors, own: Messages) -> Tensor:
        """Sum over a family's edges [B] of the finite part of messages that are +inf, which these cannot hold."""
        found = [
            torch.where((plus > 0) & (minus <= 0), finite, 0.0).flatten(1).sum(1)
            for finite, minus, plus in family.left(self.odds.each, own)
        ]
        return torch.stack(found).sum(0)


def are_same(some: Sequence[Total], others: Sequence[Total]) -> bool:
    """Whether these are the same objects."""
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


@dataclass(frozen=True, eq=False)
class Heard:
    """What a family has made its messages of: a temperature, and what the other families had said."""

    beta: float
    others: list[Total]

    def is_like(self, other: Heard | None) -> bool:
        """Whether nothing has changed."""
        return other is not None and self.beta == other.beta and are_same(self.others, other.others)

    def of(self, said: Sequence[Total], some: Sequence[Total]) -> Heard | None:
        """The same of some sentences, if it is among what families have ``said``."""
        now = {id(a): b for a, b in zip(said, some, strict=True)}
        each = [now.get(id(x)) for x in self.others]
        return Heard(self.beta, [x for x in each if x is not None]) if None not in each else None


def _sum(each: Sequence[Tensor]) -> Tensor:
    """Their sum: in two launches on a GPU; on a CPU one by one, for stacking them would take longer than that."""
    if len(each) == 1 or not can_validate(each[0], None):
        return each[0] if len(each) == 1 else torch.stack(list(each)).sum(0)
    return functools.reduce(Tensor.add_, each[2:], each[0] + each[1])


def send(
    family: Factors,
    total: Total,
    own: Messages,
    part: Total,
    frozen: Bool[Tensor, " B"] | None,
    damping: float,
    graph: Graph,
) -> tuple[Messages, Total]:
    """A family's new messages and their sums, given all messages, its own ones and their sums."""
    seen = total if family.knows_heads or not family.listens else total.odds
    sent = family.send(Given(seen.links, own, frozen, damping), graph)
    if sent is not None:
        return sent[0], Total(sent[1])
    incoming = total.without(family, own, graph, finite=part.is_finite) if family.listens else own
    new = family.propagate(incoming, graph)
    messages = tuple(freeze(a, damp(a, b, damping), frozen) for a, b in zip(own, new, strict=True))
    return messages, Total.part(family, messages, graph)
