"""The variables of a batch of factor graphs, and what families of factors are.

Variables: links L[b, h, m], true or false, wherever an arc may be; with tags also T[b, i], the tag of word i (from 0).
A message about a link is its log-odds, log q(true) / q(false): -inf forbids it, +inf demands it. A message about a tag
is a log weight for each tag. What is no link (column 0, the diagonal, past the end) is a variable that is certainly
false, so that factors need no masks for it. All is computed in float64.

Or a word's head is one variable H[b, m] (footnote 4), with a log weight for each value in a message: then it has one
head whatever the factors are. Families that know of that (``knows_heads``) hear and send such weights; all others still
see links, which are values of the heads.

"Sum" is what sums over assignments are made of: log-sum-exp, or the maximum for max-product (footnote 14).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gpuparse.ops.plain.links import Graph, Values, join, parted, ratio, weights
from gpuparse.structures.trees import can_validate

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Factors", "Graph", "Messages", "ThirdNode", "Values", "weights"]

_MODERATE = 100.0

Messages = tuple[Tensor, ...]
"""One tensor for each kind of edge that a family has; the batch comes first."""


class Odds(tuple[Tensor, ...]):
    """Messages about links that are odds, not their logs. A family sends new ones in their place."""

    @staticmethod
    def logs(messages: Messages) -> Messages:
        """Messages as everything else takes them."""
        return tuple(x.log() for x in messages) if isinstance(messages, Odds) else messages


class Given(NamedTuple):
    """What a kernel makes new messages of: all messages to each link (``gpuparse.ops.plain.links``), those of its own
    family, which sentences are to be left alone, and the share of old messages in new ones."""

    totals: Float[Tensor, "3 B N N"]
    own: Messages
    frozen: Bool[Tensor, " B"] | None = None
    damping: float = 0.0


Sent = tuple[Messages, Tensor]
"""New messages, and their sums for each link [3, B, N, N]."""


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
    _near: tuple[Tensor | None, bool] = (None, False)
    _moderate: tuple[Tensor | None, Tensor | None] = (None, None)
    shared = False
    """Whether all sentences have the same scores, without a batch."""
    listens = True
    """Whether its messages depend on those that come in."""
    knows_heads = False
    """Whether its variables are heads: messages to H[m] and from it are log weights of its values, without +inf; those
    from it are probabilities but for what the family said itself, and so ``log_z`` is the log of a mean."""

    @property
    def hears_itself(self) -> bool:
        """Whether several edges may lead to a variable, so that what is sent by one comes back by others."""
        return type(self).spread is not Factors.spread

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
        made.scores, made.read = self.scores.to(torch.float64, copy=True).masked_fill_(~read, 0.0), read
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
            found = torch.exp(self.scores) if self.is_moderate else None
            self._moderate = self.scores, found
        return found

    @property
    def is_moderate(self) -> bool:
        """Whether values can be looked at, and no score is far from 0."""
        of, near = self._near
        if of is not self.scores and self.scores is not None:
            near = can_validate(self.scores, None) and self.scores.numel() > 0
            near = near and all(abs(float(x)) <= _MODERATE for x in self.scores.detach().aminmax())
            self._near = self.scores, near
        return near

    def of_heads(self) -> Factors:
        """What the family is where a word's head is one variable: by default itself. That is right if no factor has two
        links of the same word."""
        return self

    def first(self, graph: Graph, damping: float) -> Messages:
        """The messages to begin with, which are uniform."""
        return self.spread(graph.zeros())

    def hear(self, totals: list[Values], own: Messages, graph: Graph) -> Messages:
        """The messages (3) to it, given all messages as finite sums and counts of -inf and +inf, and its own ones."""
        return tuple(join(*parts) for parts in self.left(totals, own))

    def left(self, totals: list[Values], own: Messages) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The same as finite sums and counts."""
        found = zip(*(self.spread(v) for v in totals), own, strict=True)
        return [(finite - a, minus - b, plus - c) for finite, minus, plus, r in found for a, b, c in [parted(r)]]

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

    def send(self, given: Given, graph: Graph) -> Sent | None:
        """The new messages, and their sums for each link, by one kernel; None where there is none, and ``propagate``
        does it."""
        return None

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
            both = ratio(incoming[0], -self.propagate(incoming, graph)[0])
            return (
                torch.exp(both - graph.sum(both, 1)[:, None].nan_to_num(neginf=0.0))
                if self.knows_heads
                else both.sigmoid()
            )
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
            made.scores = None if self.scores is None else _rows(self.scores, sentences)
            made.read = None if self.read is None else _rows(self.read, sentences)
        return made

    def temper(self, beta: float) -> Self:
        """F ** beta: by ``scores`` times beta."""
        made = copy.copy(self)
        if self.scores is not None:
            made.scores = self.scores * beta
        return made


def _rows(x: Tensor, at: Int[Tensor, " S"]) -> Tensor:
    """Some rows, from the first to the last; a view where none is left out and values can be looked at."""
    if len(at) and can_validate(at, None) and int(at[-1]) - int(at[0]) == len(at) - 1:
        return x.narrow(0, int(at[0]), len(at))
    return x[at]


class SaysNothing(Factors):
    """A constraint that heads keep by being variables: that no word has two."""

    knows_heads = True
    listens = False

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        return (graph.zeros().links,)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        return torch.zeros_like(incoming[0][:, 0, 0])


class ThirdNode(Factors):
    """Families with an edge to L[i, j] for every third node k: messages [B, i, j, k]."""

    def spread(self, values: Values) -> Messages:
        return (values.links[..., None].expand(-1, -1, -1, values.links.shape[1]),)

    def collect(self, messages: Messages, graph: Graph) -> Values:
        return Values(messages[0].sum(3))
