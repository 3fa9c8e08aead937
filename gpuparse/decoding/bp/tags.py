"""TAG, TAGLINK and TRIGRAM: factors on the tags of words (3.4)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gpuparse.decoding.bp.graph import Factors, Graph, Messages, Values
from gpuparse.ops.plain.links import ratio, weights
from gpuparse.ops.plain.semiring import NEG_INF
from gpuparse.structures.tags import as_unary
from gpuparse.structures.trees import as_scores


def _normal(log_weights: Float[Tensor, "*dims T"], graph: Graph) -> Float[Tensor, "*dims T"]:
    """Message about a tag whose weights sum to 1; 0 where no tag is possible (log Z says so)."""
    total = graph.sum(log_weights, -1)[..., None]
    none = total == NEG_INF
    return torch.where(none, 0.0, log_weights - torch.where(none, 0.0, total))


class _EachTag(Factors):
    """Families with one edge to each tag and none to links: messages [B, n, T]."""

    hears_itself = False

    def spread(self, values: Values) -> Messages:
        assert values.tags is not None
        return (values.tags,)

    def collect(self, messages: Messages, graph: Graph) -> Values:
        return Values(graph.zeros().links, messages[0])


class Tag(_EachTag):
    """TAG: ``unary[b, i, t]`` scores tag t at word i (from 0). [B, n, T].

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.Tag(torch.zeros(1, 2, 3))]).run()
        >>> round(beliefs.log_partition.exp().item(), 6)  # three tags of two words
        9.0
    """

    def __init__(self, unary: Float[Tensor, "B n T"]) -> None:
        self.scores: Tensor = as_unary(unary)

    @property
    def size(self) -> tuple[int, int, int]:
        B, n, T = self.scores.shape
        return B, n + 1, T

    def prepare(self, graph: Graph) -> Tag:
        return self.masked(graph.words[:, 1:, None].expand_as(self.scores))

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        return (torch.where(graph.words[:, 1:, None], _normal(self.scores, graph), 0.0),)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        return graph.sum(incoming[0] + self.scores, 2).sum(1)


class TagLink(Factors):
    """TAGLINK: ``scores[b, h, m, s, t]`` of the link h -> m with tag s at h and tag t at m. [B, N, N, T, T].

    The root has no tag: its links are scored by s = 0. Messages: to the link, to the head's tag, to the modifier's.

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.TagLink(torch.zeros(1, 2, 2, 2, 2))]).run()
        >>> round(beliefs.log_partition.exp().item(), 6)  # two tags of a word, and its link
        4.0
    """

    def __init__(self, scores: Float[Tensor, "B N N T T"]) -> None:
        self.scores: Tensor = as_scores(scores, "scores")
        shape = scores.shape
        square = scores.dim() == 5 and shape[1] == shape[2] and shape[3] == shape[4]
        if not square or shape[1] < 2 or shape[3] < 1:
            raise ValueError(
                f"scores must have shape [B, N, N, T, T] with N = words + 1 >= 2 and T >= 1, got {list(shape)}"
            )

    @property
    def size(self) -> tuple[int, int, int]:
        B, N, _, T, _ = self.scores.shape
        return B, N, T

    def prepare(self, graph: Graph) -> TagLink:
        tag = torch.arange(graph.tags, device=self.scores.device)
        node = torch.arange(graph.nodes, device=self.scores.device)
        read = (node >= 1)[:, None] | (tag == 0)  # [h, s]
        both = graph.links[..., None, None] & read[:, None, :, None]
        return self.masked(both.expand_as(self.scores))

    def spread(self, values: Values) -> Messages:
        assert values.tags is not None
        N = values.links.shape[1]
        tags = torch.nn.functional.pad(values.tags, (0, 0, 1, 0))
        return values.links, tags[:, :, None].expand(-1, -1, N, -1), tags[:, None].expand(-1, N, -1, -1)

    def collect(self, messages: Messages, graph: Graph) -> Values:
        link, head, modifier = messages
        return Values(link, head[:, 1:].sum(2) + modifier[:, :, 1:].sum(1))

    def _incoming(self, incoming: Messages, graph: Graph) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weights of false and true, and of the tags of both: node 0 has tag 0."""
        link, head, modifier = incoming
        tag = torch.arange(graph.tags, device=link.device)
        node = torch.arange(graph.nodes, device=link.device)
        only = torch.where(tag == 0, 0.0, torch.full_like(head[:1, :1, :1], NEG_INF))
        head = torch.where((node == 0)[:, None, None], only, head)
        modifier = torch.where((node == 0)[:, None], only, modifier)
        return *weights(link), head, modifier

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        false, true, head, modifier = self._incoming(incoming, graph)
        down = graph.sum(self.scores + modifier[..., None, :], 4)  # [B, h, m, s]
        up = graph.sum(self.scores + head[..., :, None], 3)  # [B, h, m, t]
        of_head, of_modifier = graph.sum(head, 3), graph.sum(modifier, 3)
        link = ratio(graph.sum(head + down, 3), of_head + of_modifier)
        to_head = graph.add((false + of_modifier)[..., None], true[..., None] + down)
        to_modifier = graph.add((false + of_head)[..., None], true[..., None] + up)
        there = graph.links[..., None]
        return (
            torch.where(graph.links, link, 0.0),
            torch.where(there, _normal(to_head, graph), 0.0),
            torch.where(there, _normal(to_modifier, graph), 0.0),
        )

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        false, true, head, modifier = self._incoming(incoming, graph)
        down = graph.sum(self.scores + modifier[..., None, :], 4)
        of_true = true + graph.sum(head + down, 3)
        of_false = false + graph.sum(head, 3) + graph.sum(modifier, 3)
        return graph.add(of_true, of_false).flatten(1).sum(1)


class Trigram(_EachTag):
    """TRIGRAM: scores of the tags of three words in a row: [T, T, T], the same everywhere, or [B, n - 2, T, T, T].

    Forward and backward over pairs of tags, O(n T^3). The beliefs are like the scores: expected numbers.

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.Trigram(torch.zeros(2, 2, 2))]).run([3], nodes=4)
        >>> round(beliefs.log_partition.exp().item(), 6)  # two tags of three words
        8.0
    """

    def __init__(self, scores: Tensor) -> None:
        scores = as_scores(scores, "scores")
        if scores.dim() not in (3, 5) or len(set(scores.shape[-3:])) != 1 or scores.shape[-1] < 1:
            raise ValueError(
                f"scores must have shape [T, T, T] or [B, n - 2, T, T, T] with T >= 1, got {list(scores.shape)}"
            )
        self.scores: Tensor = scores
        self.shared = scores.dim() == 3

    @property
    def size(self) -> tuple[int | None, int | None, int]:
        if self.scores.dim() == 3:
            return None, None, self.scores.shape[0]
        B, places, T = self.scores.shape[:3]
        return B, places + 3, T

    def prepare(self, graph: Graph) -> Trigram:
        if self.scores.dim() == 3:
            return self.masked(torch.ones_like(self.scores, dtype=torch.bool))
        return self.masked(graph.words[:, 3:, None, None, None].expand_as(self.scores))

    def _at(self, i: int) -> Float[Tensor, "#B T T T"]:
        """Scores of the tags of words i - 2, i - 1, i."""
        return self.scores[None] if self.scores.dim() == 3 else self.scores[:, i - 2]

    def _forward(self, q: Float[Tensor, "B n T"], graph: Graph) -> tuple[list[Tensor], list[Tensor]]:
        """For each word i from the second on the sums [B, y, z] over what comes before the tags y, z of i - 1, i:
        without and with the message about i."""
        B, n, T = q.shape
        ways = [q[:, 0, :, None].expand(B, T, T)]
        sums = [ways[0] + q[:, 1, None, :]]
        for i in range(2, n):
            ways.append(graph.sum(sums[-1][..., None] + self._at(i), 1))
            sums.append(ways[-1] + q[:, i, None, :])
        return ways, sums

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        q = incoming[0]
        n = q.shape[1]
        if n == 1:
            return (torch.zeros_like(q),)
        ways, _ = self._forward(q, graph)
        after = torch.zeros_like(ways[0])  # [B, y, z]: what comes after the tags y, z of i - 1, i
        found = []
        for i in range(n - 1, 0, -1):
            found.append(graph.sum(ways[i - 1] + after, 1))
            if i > 1:
                on = graph.sum(self._at(i) + (q[:, i, None, :] + after)[:, None], 3)
                after = torch.where((graph.lengths > i)[:, None, None], on, 0.0)
        second = torch.where((graph.lengths > 1)[:, None, None], q[:, 1, None, :] + after, NEG_INF)
        alone = (graph.lengths == 1)[:, None]
        found.append(torch.where(alone, 0.0, graph.sum(second, 2)))
        return (torch.where(graph.words[:, 1:, None], _normal(torch.stack(found[::-1], 1), graph), 0.0),)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        q = incoming[0]
        each = graph.sum(q, 2)
        ends = [each[:, 0]]
        if q.shape[1] > 1:
            ends += [graph.sum(x.flatten(1), 1) for x in self._forward(q, graph)[1]]
        total = torch.stack(ends, 1).gather(1, graph.lengths[:, None] - 1).squeeze(1)
        past = torch.where(graph.words[:, 1:], 0.0, each)  # edges without a factor
        return total + past.sum(1)
