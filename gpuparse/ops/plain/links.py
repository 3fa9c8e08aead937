"""Links as variables of a factor graph, and sums over their values: what propagators in plain torch are made of.

A message about a link is its log-odds: -inf forbids it, +inf demands it. All messages to a link together are three
numbers: the sum of the finite ones, and how many are -inf and +inf; of a batch [3, B, N, N] (``totals``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gpuparse.ops.plain.semiring import NEG_INF, logsumexp, maximum
from gpuparse.structures.masks import arc_mask, word_mask
from gpuparse.structures.trees import can_validate

_NEAR = 600.0  # numbers whose logs are so near to each other are in a double's range, with digits to spare


@dataclass(frozen=True)
class Values:
    """Something for each variable: a tensor of links and, if there are tags, one of tags."""

    links: Float[Tensor, "B N N"]
    tags: Float[Tensor, "B n T"] | None = None

    def each(self, change: Callable[[Tensor], Tensor]) -> Values:
        """The same with every tensor changed."""
        return Values(change(self.links), None if self.tags is None else change(self.tags))

    def __add__(self, other: Values) -> Values:
        tags = other.tags if self.tags is None else self.tags if other.tags is None else self.tags + other.tags
        return Values(self.links + other.links, tags)


@dataclass(frozen=True)
class Graph:
    """The variables of a batch, and how to sum over their values."""

    lengths: Int[Tensor, " B"]
    nodes: int
    tags: int = 0
    maximise: bool = False
    heads: bool = False
    """Whether a word's head is one variable, not its links a variable each."""
    tree: bool = False
    """Whether TREE is among the factors; ``projective``: PTREE."""
    projective: bool = False

    @cached_property
    def links(self) -> Bool[Tensor, "B N N"]:
        """Where a link is a variable."""
        return arc_mask(self.lengths, self.nodes)

    @cached_property
    def words(self) -> Bool[Tensor, "B N"]:
        """Which nodes are words."""
        return word_mask(self.lengths, self.nodes)

    @cached_property
    def outside(self) -> Float[Tensor, "3 B N N"]:
        """Messages that forbid what is no variable."""
        none = torch.zeros_like(self.links, dtype=torch.float64)
        return torch.stack([none, (~self.links).to(none.dtype), none])

    def zeros(self) -> Values:
        """0 for every variable."""
        shape = (self.lengths.shape[0], self.nodes)
        links = torch.zeros(*shape, self.nodes, dtype=torch.float64, device=self.lengths.device)
        return Values(links, links.new_zeros(shape[0], self.nodes - 1, self.tags) if self.tags else None)

    def select(self, sentences: Int[Tensor, " S"]) -> Graph:
        """The graph of some of the sentences."""
        return replace(self, lengths=self.lengths[sentences])

    def sum(self, x: Float[Tensor, "*dims"], dim: int) -> Float[Tensor, "*less"]:
        """The sum over ``dim``; no +inf."""
        return maximum(x, dim) if self.maximise else logsumexp(x, dim)

    def add(self, x: Float[Tensor, "*dims"], y: Float[Tensor, "*dims"]) -> Float[Tensor, "*dims"]:
        """The sum of two; no +inf."""
        return self.sum(torch.stack(torch.broadcast_tensors(x, y)), 0)

    def plus_one(self, x: Float[Tensor, "*dims"]) -> Float[Tensor, "*dims"]:
        """log(1 + exp(x)), or max(0, x)."""
        return F.relu(x) if self.maximise else -F.logsigmoid(-x)

    def scan(self, x: Float[Tensor, "*dims"], dim: int) -> Float[Tensor, "*dims"]:
        """The sum of everything before each place along ``dim``; no +inf."""
        size = x.shape[dim]
        before = torch.cat([torch.full_like(x.narrow(dim, 0, 1), NEG_INF), x.narrow(dim, 0, size - 1)], dim)
        if self.maximise:
            return before.cummax(dim).values
        m = x.detach().amax(dim, keepdim=True)
        m = torch.where(m == NEG_INF, 0.0, m)
        if can_validate(x, None) and bool(((x.detach() >= m - _NEAR) | (x.detach() == NEG_INF)).all()):
            return safe_log(torch.exp(before - m).cumsum(dim)) + m
        # sums of 2, 4, 8, ... places, each with a maximum of its own: places may be any distance apart
        reach = 1
        while reach < size - 1:
            none = torch.full_like(x.narrow(dim, 0, reach), NEG_INF)
            before = self.add(before, torch.cat([none, before.narrow(dim, 0, size - reach)], dim))
            reach *= 2
        return before

    def others(self, x: Float[Tensor, "*dims"], dim: int) -> Float[Tensor, "*dims"]:
        """For each place the sum over all the other places of ``dim``: by subtraction, except for the largest of all,
        where digits would be lost. +inf is allowed."""
        forced = x == torch.inf
        x = torch.where(forced, NEG_INF, x)
        largest, at = x.detach().max(dim, keepdim=True)
        is_largest = torch.zeros_like(forced).scatter(dim, at, True)
        rest = self.sum(torch.where(is_largest, NEG_INF, x), dim).unsqueeze(dim)
        if self.maximise:
            most = x.gather(dim, at)
        else:
            m = torch.where(largest == NEG_INF, 0.0, largest)
            y = torch.exp(x - m)
            most = safe_log(torch.where(is_largest, 0.0, y.sum(dim, keepdim=True) - y)) + m
        found = torch.where(is_largest, rest, most)
        others_forced = forced.sum(dim, keepdim=True) - forced.long() > 0
        return torch.where(others_forced, torch.inf, found)


def safe_log(x: Float[Tensor, "*dims"]) -> Float[Tensor, "*dims"]:
    """log of what is not negative; the derivative at 0 is 0."""
    some = x > 0
    return torch.where(some, torch.log(torch.where(some, x, 1.0)), NEG_INF)


def ratio(true: Float[Tensor, "*dims"], false: Float[Tensor, "*dims"]) -> Float[Tensor, "*dims"]:
    """Log-odds of two log weights; 0 where neither value is possible (log Z says so)."""
    equal = (true == false) & torch.isinf(true)
    return torch.where(equal, 0.0, torch.where(equal, 0.0, true) - torch.where(equal, 0.0, false))


def weights(odds: Float[Tensor, "*dims"]) -> tuple[Float[Tensor, "*dims"], Float[Tensor, "*dims"]]:
    """Log weights of false and true that a message stands for: (0, q), and (-inf, 0) for a link that is demanded.

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> bp.weights(torch.tensor([0.5, torch.inf]))
        (tensor([0., -inf]), tensor([0.5000, 0.0000]))
    """
    forced = odds == torch.inf
    return torch.where(forced, NEG_INF, torch.zeros_like(odds)), torch.where(forced, 0.0, odds)


def one_of(odds: Float[Tensor, "*dims"], dim: int) -> Float[Tensor, "*dims"]:
    """Log weights of "just this one of ``dim`` is true": the log-odds, unless some are demanded."""
    forced = odds == torch.inf
    count = forced.sum(dim, keepdim=True)
    demanded = torch.where(forced & (count == 1), 0.0, torch.full_like(odds, NEG_INF))
    return torch.where(count > 0, demanded, torch.where(forced, 0.0, odds))


def to_one_of(
    rest: Float[Tensor, "*dims"], odds: Float[Tensor, "*dims"], there: Bool[Tensor, "*dims"], graph: Graph
) -> Float[Tensor, "*dims"]:
    """Messages of factors under which one of dimension 1 is true, by the sums over all assignments with each of them,
    without its own weight; 0 but where links are ``there``."""
    others = graph.others(torch.where(rest == NEG_INF, NEG_INF, rest + odds), 1)
    return torch.where(there, ratio(rest, others), 0.0)


def pair_message(
    odds: Float[Tensor, "*dims"], scores: Float[Tensor, "*dims"], graph: Graph, factor: Tensor | None = None
) -> Float[Tensor, "*dims"]:
    """Message of a binary factor that fires if both links are true to one of them, given the message from the other:
    log (1 + F q) / (1 + q). ``factor`` is F, if it is known to be moderate."""
    if factor is not None and not graph.maximise:
        if torch.is_grad_enabled() and (odds.requires_grad or factor.requires_grad):
            return torch.log(torch.sigmoid(-odds) + torch.sigmoid(odds) * factor)
        true = torch.sigmoid(odds).mul_(factor)
        return torch.neg(odds).sigmoid_().add_(true).log_()  # in place: new memory is what takes time here
    forced = odds == torch.inf
    q = torch.where(forced, 0.0, odds)
    return torch.where(forced, scores, graph.plus_one(q + scores) - graph.plus_one(q))


def pair_log_z(
    one: Float[Tensor, "*dims"], other: Float[Tensor, "*dims"], scores: Float[Tensor, "*dims"], graph: Graph
) -> Float[Tensor, "*dims"]:
    """log of the sum over the four values of two links of such a factor."""
    (f, t), (g, u) = weights(one), weights(other)
    return graph.sum(torch.stack([f + g, t + g, f + u, t + u + scores]), 0)


def join(
    finite: Float[Tensor, "*dims"], minus: Float[Tensor, "*dims"], plus: Float[Tensor, "*dims"]
) -> Float[Tensor, "*dims"]:
    """All messages together as one."""
    return finite.masked_fill(plus > 0, torch.inf).masked_fill(minus > 0, NEG_INF)


def parted(message: Float[Tensor, "*dims"]) -> tuple[Tensor, Tensor, Tensor]:
    """A message as finite part and counts of infinities."""
    finite = message.masked_fill(message.isinf(), 0.0)
    return finite, (message == NEG_INF).to(message.dtype), (message == torch.inf).to(message.dtype)


def damp(old: Float[Tensor, "*dims"], new: Float[Tensor, "*dims"], share: float) -> Float[Tensor, "*dims"]:
    """A new message with a share of the old one; infinite ones are not mixed."""
    if share == 0:
        return new
    mixed = share * torch.where(old.isinf(), 0.0, old) + (1 - share) * new
    return torch.where(old.isinf() | new.isinf(), new, mixed)


def freeze(
    old: Float[Tensor, "*dims"], new: Float[Tensor, "*dims"], frozen: Bool[Tensor, " B"] | None
) -> Float[Tensor, "*dims"]:
    """The old messages of sentences that are frozen."""
    return new if frozen is None else torch.where(frozen.view(-1, *[1] * (old.dim() - 1)), old, new)
