"""The variables of a batch of factor graphs, and what families of factors are.

Variables: links L[b, h, m], true or false, wherever an arc may be; with tags also T[b, i], the tag of word i (from 0).
A message about a link is its log-odds, log q(true) / q(false): -inf forbids it, +inf demands it. A message about a tag
is a log weight for each tag. What is no link (column 0, the diagonal, past the end) is a variable that is certainly
false, so that factors need no masks for it. All is computed in float64.

"Sum" is what sums over assignments are made of: log-sum-exp, or the maximum for max-product (footnote 14).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gpuparse.ops.plain.semiring import NEG_INF, logsumexp, maximum
from gpuparse.structures.masks import arc_mask, word_mask
from gpuparse.structures.trees import can_validate

if TYPE_CHECKING:
    from typing_extensions import Self

_MODERATE = 100.0
_NEAR = 600.0  # numbers whose logs are so near to each other are in a double's range, with digits to spare

Messages = tuple[Tensor, ...]
"""One tensor for each kind of edge that a family has; the batch comes first."""


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

    @cached_property
    def links(self) -> Bool[Tensor, "B N N"]:
        """Where a link is a variable."""
        return arc_mask(self.lengths, self.nodes)

    @cached_property
    def words(self) -> Bool[Tensor, "B N"]:
        """Which nodes are words."""
        return word_mask(self.lengths, self.nodes)

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


class Factors(ABC):
    """A family of factors: F(A) = exp(score of A), or 0 where a hard constraint is broken.

    A new family is a small class with ``propagate`` and ``log_z``. A family with one edge to each link needs no more;
    others say which variables their edges lead to (``spread``) and add up what the edges hold (``collect``). If scores
    that have a batch are kept in ``scores``, choosing sentences, temperatures and beliefs come by themselves. Then

    - ``size`` takes the first two dimensions of ``scores`` to be B and N: override it for scores of other shapes;
    - ``prepare`` is called once before all else: override it (``masked``) where some scores are never read, or where
      something is to be computed from the graph;
    - ``select`` and ``temper`` know ``scores`` alone: override them for other tensors that have a batch, and for other
      numbers that a temperature divides.

    Incoming messages are -inf where there is no link, and may be -inf or +inf anywhere else. What is sent to no link
    has no effect.

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> class Distance(bp.Factors):  # scores[b, d] of every link between nodes that are d apart, [B, N]
        ...     def __init__(self, scores):
        ...         self.scores = scores
        ...
        ...     def propagate(self, incoming, graph):  # what to say of each link: its log-odds
        ...         node = torch.arange(graph.nodes)
        ...         return (self.scores[:, (node - node[:, None]).abs()],)
        ...
        ...     def log_z(self, incoming, graph):  # every link is true or false
        ...         false, true = bp.weights(incoming[0])
        ...         return graph.add(false, true + self.propagate(incoming, graph)[0]).flatten(1).sum(1)
        >>> beliefs = bp.BeliefPropagation([bp.Tree(), Distance(torch.tensor([[0.0, 0.0, -9.0, -9.0]]))]).run()
        >>> beliefs.links[0, 0].argmax().item()  # the root's
        1
    """

    scores: Tensor | None = None
    """What is scored, [B, ...], or None for hard constraints; -inf forbids."""
    read: Tensor | None = None
    """Which of the scores are ever read, once ``prepare`` was called."""
    _moderate: tuple[Tensor | None, Tensor | None] = (None, None)
    shared = False
    """Whether all sentences have the same scores, without a batch."""

    @property
    def size(self) -> tuple[int | None, int | None, int | None]:
        """Sentences, nodes and tags, as far as this family knows; by default the first two dimensions of ``scores``."""
        return (None, None, None) if self.scores is None else (self.scores.shape[0], self.scores.shape[1], None)

    def prepare(self, graph: Graph) -> Factors:
        """The same family as the other methods want it: scores in float64, 0 where they are never read (by default all
        are read), without NaN and +inf."""
        return self if self.scores is None else self.masked(torch.ones_like(self.scores, dtype=torch.bool))

    def masked(self, read: Bool[Tensor, "*shape"]) -> Self:
        """The same with scores in float64, 0 where they are never ``read``."""
        made = copy.copy(self)
        assert self.scores is not None
        made.scores, made.read = torch.where(read, self.scores.double(), 0.0), read
        if can_validate(made.scores, None) and not float(made.scores.detach().sum()) < torch.inf:  # NaN or +inf
            wrong = (made.scores.isnan() | made.scores.isposinf()).nonzero()
            if len(wrong):
                place = wrong[0].tolist()
                value, where = float(made.scores[tuple(place)]), "" if self.shared else f" (sentence {place[0]})"
                raise ValueError(
                    f"scores{place} of {type(self).__name__} is {value}{where}; scores must be finite, or -inf"
                )
        return made

    def moderate(self) -> Tensor | None:
        """F = exp(scores), if values can be looked at and no score is far from 0 (-inf is): sums of products of a few
        F and probabilities are then in a double's range. Kept until the scores change."""
        if self.scores is None:
            return None
        of, found = self._moderate
        if of is not self.scores:
            near = can_validate(self.scores, None) and not bool((self.scores.detach().abs() > _MODERATE).any())
            found = torch.exp(self.scores) if near else None
            self._moderate = self.scores, found
        return found

    def spread(self, values: Values) -> Messages:
        """The value of the variable at the end of each edge (a view)."""
        return (values.links,)

    def collect(self, messages: Messages, graph: Graph) -> Values:
        """For each variable the sum over its edges: the transpose of ``spread``."""
        return Values(messages[0])

    @abstractmethod
    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        """Messages r of (4) to the variables, given the messages q of (3) from them, on every edge; 0 on an edge
        without a factor. The message on an edge does not depend on what came in by it."""

    @abstractmethod
    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        """Log of the sum over all assignments of (6), all factors of a sentence together; ``weights`` says what a
        message weighs. Every edge that ``spread`` gives is weighed, also one without a factor: by the sum over the
        values of its variable, log (1 + q) for a link, ``graph.add(*weights(q))`` (0 where there is no link)."""

    def beliefs(self, incoming: Messages, graph: Graph) -> Tensor:
        """Beliefs (6) about what the scores are of, like ``scores``: the derivative of ``log_z``. For families without
        scores, their beliefs about the link at each edge."""
        scores = self.scores
        if scores is None:
            return torch.sigmoid(ratio(incoming[0], -self.propagate(incoming, graph)[0]))
        again = torch.is_grad_enabled() and (scores.requires_grad or any(q.requires_grad for q in incoming))
        with torch.inference_mode(False), torch.enable_grad():
            if not again:  # (in inference mode nothing that is there already can have a derivative)
                scores, incoming = scores.detach().clone(), tuple(q.detach().clone() for q in incoming)
                graph = replace(graph, lengths=graph.lengths.clone())
            other = copy.copy(self)
            other.scores = scores.view_as(scores) if scores.requires_grad else scores.detach().requires_grad_()
            total = other.log_z(incoming, graph)
            if not total.requires_grad:  # no factor has room in so short sentences
                return torch.zeros_like(scores)
            given = other.scores
            by = torch.autograd.grad(total.sum(), given, create_graph=again, allow_unused=True, materialize_grads=True)[
                0
            ]
        return by if self.read is None else torch.where(self.read, by, 0.0)

    def select(self, sentences: Int[Tensor, " S"]) -> Self:
        """The factors of some of the sentences: of ``scores`` and ``read``, unless they are shared."""
        made = copy.copy(self)
        if not self.shared:
            made.scores = None if self.scores is None else self.scores[sentences]
            made.read = None if self.read is None else self.read[sentences]
        return made

    def temper(self, beta: float) -> Self:
        """F ** beta: by ``scores`` times beta."""
        made = copy.copy(self)
        if self.scores is not None:
            made.scores = self.scores * beta
        return made


class ThirdNode(Factors):
    """Families with an edge to L[i, j] for every third node k: messages [B, i, j, k]."""

    def spread(self, values: Values) -> Messages:
        return (values.links[..., None].expand(-1, -1, -1, values.links.shape[1]),)

    def collect(self, messages: Messages, graph: Graph) -> Values:
        return Values(messages[0].sum(3))
