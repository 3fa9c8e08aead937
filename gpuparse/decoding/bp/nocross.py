"""NOCROSS: a score for every two words whose links to their heads cross (3.4, 5.3)."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpuparse.decoding.bp.graph import Graph, Messages, ThirdNode
from gpuparse.ops.plain.links import one_of, ratio, safe_log, to_one_of, weights
from gpuparse.ops.plain.semiring import NEG_INF
from gpuparse.structures.trees import as_arcs


class NoCross(ThirdNode):
    """NOCROSS: ``scores[b, j, l]``, j < l, [B, N, N], if the link to j crosses that to l; both have one head (as the
    factor demands).

    Every word is in as many of these factors as there are other words, and each demands its one head once more. Where
    links are the variables, beliefs therefore run away within a few iterations, even if all scores are 0. Where heads
    are (``variables="heads"``), nothing has to be demanded: scores of 0 say nothing, nor do any beside PTREE. With
    ``exactly_one=False`` messages about links leave it to TREE or EXACTLY1: what they say of heads i -> j is only how
    these differ, given how likely each link to l is. Log Z has the mean of each factor over independent heads.

    Messages [B, i, j, l]: to i -> j from the factor of j and l. Every sum is one of terms above 0, so the partial sums
    are taken outward from j rather than as differences.

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.NoCross(torch.full((1, 3, 3), -torch.inf))]).run()
        >>> round(beliefs.log_partition.exp().item(), 6)  # two heads of two words, whose arcs cannot cross
        4.0
    """

    def __init__(self, scores: Float[Tensor, "B N N"], *, exactly_one: bool = True) -> None:
        self.scores: Tensor = as_arcs(scores, "scores")
        self.exactly_one = bool(exactly_one)

    def of_heads(self) -> NoCross:
        made = copy.copy(self)
        made.knows_heads = True
        return made

    def prepare(self, graph: Graph) -> NoCross:
        never = graph.heads and graph.projective  # PTREE has said so
        return self.masked(self._exists(graph).triu(1) & (not never))

    def _exists(self, graph: Graph) -> Bool[Tensor, "B N N"]:
        node = torch.arange(graph.nodes, device=graph.lengths.device)
        return graph.words[:, :, None] & graph.words[:, None, :] & (node[:, None] != node)

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        q = incoming[0]
        there = graph.links[..., None] & self._exists(graph)[:, None]
        if self.knows_heads:  # the mean over the heads of l
            mean = ratio(self._given(q, graph), graph.sum(q, 1).transpose(1, 2)[:, None].expand_as(q))
            return (torch.where(there, mean, 0.0),)
        if self.exactly_one:
            return (to_one_of(self._given(q, graph), q, there, graph),)
        _, given, mean = self._expected(q, graph)
        return (torch.where(there, ratio(given, mean[:, None].expand_as(given)), 0.0),)

    def _expected(self, q: Float[Tensor, "B N N N"], graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
        """Heads by their probabilities [B, i, j, l], the bracket of (9) for each of them by those of l's heads, and its
        mean over them [B, j, l]."""
        likely = one_of(-graph.plus_one(-q), 1)
        own = graph.sum(likely, 1)  # of j in the factor of j and l
        own = torch.where(own == NEG_INF, 0.0, own)
        given = self._given(likely, graph) - own.transpose(1, 2)[:, None]
        return likely - own[:, None], given, graph.sum(likely - own[:, None] + given, 1)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        q = incoming[0]
        exists = self._exists(graph)
        if self.knows_heads:
            mean = graph.sum(q + self._given(q, graph), 1)
            return torch.where(exists.triu(1), mean, 0.0).flatten(1).sum(1)
        if not self.exactly_one:
            mean = torch.where(exists.triu(1), self._expected(q, graph)[2], 0.0)
            return mean.flatten(1).sum(1) + graph.add(*weights(q)).flatten(1).sum(1)
        total = graph.sum(one_of(q, 1) + self._given(q, graph), 1)
        found = torch.where(exists.triu(1), total, 0.0)
        alone = torch.where(exists[:, None], 0.0, graph.add(*weights(q)))  # edges without a factor
        return found.flatten(1).sum(1) + alone.flatten(1).sum(1)

    def _given(self, q: Float[Tensor, "B N N N"], graph: Graph) -> Float[Tensor, "B N N N"]:
        """The bracket of (9) for i -> j and l: the sum over the heads k of l, crossing ones with their score."""
        K = one_of(q, 1).transpose(2, 3)  # [B, k, j, l]: k -> l, as it comes to the factor of j and l
        node = torch.arange(graph.nodes, device=q.device)
        i, j, l = node[:, None, None], node[:, None], node  # noqa: E741
        within = ((i < l) & (l < j)) | ((j < l) & (l < i))
        apart = ~within & (l != i)
        factor = None if graph.maximise else self.moderate()
        if factor is None:
            x = (self.scores + self.scores.transpose(1, 2))[:, None]
            outer, inner, at_j = self._ranges(K, NEG_INF, lambda y: graph.scan(y, 1), graph.add)
            terms = [outer + torch.where(within, x, 0.0), inner + torch.where(apart, x, 0.0), K, at_j.expand_as(K)]
            return graph.sum(torch.stack(terms), 0)
        # the same without logs
        F = (factor * factor.transpose(1, 2))[:, None]
        most = K.detach().amax(1, keepdim=True)
        most = torch.where(most == NEG_INF, 0.0, most)
        K = torch.exp(K - most)
        outer, inner, at_j = self._ranges(K, 0.0, _before, torch.add)
        return safe_log(outer * torch.where(within, F, 1.0) + inner * torch.where(apart, F, 1.0) + K + at_j) + most

    def _ranges(
        self,
        K: Float[Tensor, "B N N N"],
        zero: float,
        before: Callable[[Tensor], Tensor],
        add: Callable[[Tensor, Tensor], Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Sums over the k outside i..j and over those strictly between, and K where k is j, at [B, i, j, l]."""
        node = torch.arange(K.shape[1], device=K.device)
        i, j = node[:, None, None], node[:, None]

        def after(x: Tensor) -> Tensor:
            return before(x.flip(1)).flip(1)

        def at_j(x: Tensor) -> Tensor:
            return x.diagonal(0, 1, 2).transpose(1, 2)[:, None]

        low, high = before(K), after(K)
        outer = add(torch.where(i < j, low, at_j(low)), torch.where(i < j, at_j(high), high))
        inner = torch.where(i < j, after(torch.where(i < j, K, zero)), before(torch.where(i > j, K, zero)))
        return outer, inner, at_j(K)


def _before(x: Float[Tensor, "B N N N"]) -> Float[Tensor, "B N N N"]:
    """The sum of everything before each place of dimension 1."""
    return torch.nn.functional.pad(x[:, :-1], (0, 0, 0, 0, 1, 0)).cumsum(1)
