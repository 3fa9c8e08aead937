"""Factors on one link, on the heads of a word, and on listed pairs of links: LINK, EXACTLY1, ATMOST1, NAND, NOT2,
NO2CYCLE, PAIR (3.3, 3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpuparse.decoding.bp.graph import Factors, Given, Graph, Messages, SaysNothing, Sent, ThirdNode, Values
from gpuparse.ops.plain.links import one_of, pair_log_z, pair_message, parted, weights
from gpuparse.ops.plain.semiring import NEG_INF
from gpuparse.structures.trees import as_arcs, as_integers, as_scores, can_validate

if TYPE_CHECKING:
    from typing_extensions import Self


class Link(Factors):
    """LINK: a score for each link [B, N, N], as ``arcs`` everywhere else.

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.Link(torch.zeros(1, 3, 3))]).run()
        >>> round(beliefs.log_partition.exp().item(), 6)  # every link or not
        16.0
    """

    def __init__(self, arcs: Float[Tensor, "B N N"]) -> None:
        self.scores: Tensor = as_arcs(arcs)

    listens = False

    def prepare(self, graph: Graph) -> Link:
        return self.masked(graph.links)

    def send(self, given: Given, graph: Graph) -> Sent | None:
        if given.damping > 0:
            return None
        return (self.scores,), torch.stack(parted(self.scores))  # also of sentences that are frozen

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        return (self.scores,)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        false, true = weights(incoming[0])
        return graph.add(false, true + self.scores).flatten(1).sum(1)


class ExactlyOne(Factors):
    """EXACTLY1: every word has one head.

    Example:
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.ExactlyOne()]).run([2], nodes=3)
        >>> round(beliefs.log_partition.exp().item(), 6)  # two heads of two words
        4.0
    """

    def of_heads(self) -> Factors:
        return SaysNothing()

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        return (torch.where(graph.links, -graph.others(incoming[0], 1), 0.0),)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        return torch.where(graph.words, graph.sum(one_of(incoming[0], 1), 1), 0.0).sum(1)


class AtMostOne(Factors):
    """ATMOST1: no word has two heads.

    Example:
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.AtMostOne()]).run([2], nodes=3)
        >>> round(beliefs.log_partition.exp().item(), 6)  # two heads or none of two words
        9.0
    """

    def of_heads(self) -> Factors:
        return SaysNothing()

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        return (-graph.plus_one(graph.others(incoming[0], 1)),)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        forced = (incoming[0] == torch.inf).any(1)
        none = torch.where(forced, NEG_INF, torch.zeros_like(incoming[0][:, 0]))
        return graph.add(graph.sum(one_of(incoming[0], 1), 1), none).sum(1)


class NotTwo(ThirdNode):
    """NOT2: a NAND for every two heads i, k of a word j. Messages [B, i, j, k].

    Example:
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.NotTwo()]).run([2], nodes=3)
        >>> round(beliefs.log_partition.exp().item(), 6)  # two heads or none of two words
        9.0
    """

    def of_heads(self) -> Factors:
        return SaysNothing()

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        node = torch.arange(graph.nodes, device=incoming[0].device)
        other = -graph.plus_one(incoming[0].transpose(1, 3))
        return (torch.where((node[:, None, None] == node), 0.0, other),)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        q = incoming[0]
        node = torch.arange(graph.nodes, device=q.device)
        either = pair_log_z(q, q.transpose(1, 3), torch.full_like(q, NEG_INF), graph)
        alone = graph.add(*weights(q))  # i = k: an edge without a factor
        order = node[:, None, None] - node
        return torch.where(order < 0, either, torch.where(order == 0, alone, 0.0)).flatten(1).sum(1)


class NoTwoCycle(Factors):
    """NO2CYCLE: not both i -> j and j -> i.

    Example:
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.NoTwoCycle()]).run([2], nodes=3)
        >>> round(beliefs.log_partition.exp().item(), 6)  # of four links two exclude each other
        12.0
    """

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        return (-graph.plus_one(incoming[0].transpose(1, 2)),)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        q = incoming[0]
        either = pair_log_z(q, q.transpose(1, 2), torch.full_like(q, NEG_INF), graph)
        return either.triu(1).flatten(1).sum(1)


def _as_pairs(pairs: Tensor) -> Int[Tensor, "B P 4"]:
    as_integers(pairs, "pairs", "[B, P, 4]", pairs.device if isinstance(pairs, Tensor) else torch.device("cpu"))
    if pairs.dim() != 3 or pairs.shape[2] != 4:
        raise ValueError(f"pairs must have shape [B, P, 4], got {list(pairs.shape)}")
    return pairs.long()


class Pair(Factors):
    """PAIR: scores of two links being true together.

    Args:
        pairs: [B, P, 4], the links h -> m and h' -> m' of each pair as h, m, h', m', two different ones. A row with a
            negative entry is padding, and one past its sentence's end is never read.
        scores: [B, P]; -inf forbids the pair.

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> pair = bp.Pair(torch.tensor([[[0, 1, 1, 2]]]), torch.tensor([[2.0]]).log())
        >>> beliefs = bp.BeliefPropagation([pair]).run([2], nodes=3)
        >>> round(beliefs.log_partition.exp().item(), 6)  # of two links; both together count twice
        5.0
    """

    def __init__(self, pairs: Int[Tensor, "B P 4"], scores: Float[Tensor, "B P"]) -> None:
        self.pairs = _as_pairs(pairs)
        self.scores: Tensor = as_scores(scores, "scores")
        if scores.shape != pairs.shape[:2]:
            raise ValueError(
                f"pairs must have shape [B, P, 4] and scores [B, P], got {list(pairs.shape)} and {list(scores.shape)}"
            )
        self._at: Messages = ()

    @property
    def size(self) -> tuple[int, None, None]:
        return self.scores.shape[0], None, None

    def prepare(self, graph: Graph) -> Pair:
        N = graph.nodes
        h, m, i, j = self.pairs.clamp(0, N - 1).unbind(2)
        one, other, links = h * N + m, i * N + j, graph.links.flatten(1)
        given = (self.pairs >= 0).all(2)
        inside = given & (self.pairs < N).all(2) & (m > 0) & (j > 0) & (h != m) & (i != j) & (one != other)
        if can_validate(self.scores, None) and bool((given & ~inside).any()):
            b, p = (given & ~inside).nonzero()[0].tolist()
            raise ValueError(
                f"pairs[{b}, {p}] is {self.pairs[b, p].tolist()} (sentence {b}); it must be two different links, with "
                f"heads from 0 to {N - 1} and other words from 1 to {N - 1}, or have a negative entry to be left out"
            )
        together = m != j if graph.heads else torch.ones_like(inside)  # two values of one variable never are
        made = self.masked(inside & links.gather(1, one) & links.gather(1, other) & together)
        made._at = one, other
        return made

    def select(self, sentences: Int[Tensor, " S"]) -> Self:
        made = super().select(sentences)
        made.pairs = self.pairs[sentences]
        made._at = tuple(at[sentences] for at in self._at)
        return made

    def spread(self, values: Values) -> Messages:
        return tuple(values.links.flatten(1).gather(1, at) for at in self._at)

    def collect(self, messages: Messages, graph: Graph) -> Values:
        links = graph.zeros().links.flatten(1)
        for at, message in zip(self._at, messages, strict=True):
            links = links.scatter_add(1, at, message)
        return Values(links.unflatten(1, (graph.nodes, graph.nodes)))

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        one, other = incoming
        return pair_message(other, self.scores, graph), pair_message(one, self.scores, graph)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        one, other = incoming
        return pair_log_z(one, other, self.scores, graph).sum(1)


class Nand(Pair):
    """NAND: listed pairs of links that may not be true together; ``pairs`` as in PAIR. So are the beliefs [B, P], that
    both are true: 0.

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.Nand(torch.tensor([[[0, 1, 0, 2]]]))]).run([2], nodes=3)
        >>> round(beliefs.log_partition.exp().item(), 6)  # of two links not both
        3.0
    """

    def __init__(self, pairs: Int[Tensor, "B P 4"]) -> None:
        _as_pairs(pairs)
        super().__init__(pairs, torch.full(pairs.shape[:2], NEG_INF, dtype=torch.float64, device=pairs.device))
