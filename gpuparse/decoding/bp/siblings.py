"""SIB: a binary factor for every two children of a head; CHILDSEQ: the sequences of children of a head (3.4)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gpuparse.decoding.bp.grand import dense
from gpuparse.decoding.bp.graph import (
    Factors,
    Graph,
    Messages,
    ThirdNode,
    pair_log_z,
    pair_message,
    ratio,
    safe_log,
    weights,
)
from gpuparse.decoding.parts import Parts, legal_triples
from gpuparse.ops.plain.semiring import NEG_INF
from gpuparse.structures.trees import as_arcs


class Sib(ThirdNode):
    """SIB: ``scores[b, h, j, k]``, j < k, for the links h -> j and h -> k, next to each other or not. [B, N, N, N].

    Messages [B, h, j, k]: to h -> j from the factor that it shares with h -> k.

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.Sib(torch.full((1, 3, 3, 3), 2.0).log())]).run()
        >>> round(beliefs.log_partition.exp().item(), 6)  # 0 -> 1 and 0 -> 2 together count twice
        20.0
    """

    def __init__(self, scores: Float[Tensor, "B N N N"]) -> None:
        self.scores: Tensor = dense(scores, "siblings")

    def prepare(self, graph: Graph) -> Sib:
        both = graph.links[:, :, :, None] & graph.links[:, :, None, :]
        node = torch.arange(graph.nodes, device=both.device)
        return self.masked(both & (node[:, None] < node))

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        return (pair_message(incoming[0].transpose(2, 3), self.scores + self.scores.transpose(2, 3), graph),)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        q = incoming[0]
        node = torch.arange(graph.nodes, device=q.device)
        order = node[:, None] - node
        both = pair_log_z(q, q.transpose(2, 3), self.scores, graph)
        alone = graph.add(*weights(q))  # j = k: an edge without a factor
        return torch.where(order < 0, both, torch.where(order == 0, alone, 0.0)).flatten(1).sum(1)


class ChildSequence(Factors):
    """CHILDSEQ: scores of the children of a head one after the other, going outward on each side of it.

    Args:
        siblings: ``siblings[b, h, s, m]``: s is the previous child of h on m's side, s = h for the first: a tensor
            [B, N, N, N] or ``Parts``.
        last: ``last[b, h, m]``, [B, N, N]: m is the last child of h on its side. A side without children scores 0.

    Inside, ``last`` stands where the next child is the head again: [b, h, m, h]; so it does in the beliefs.

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.ChildSequence(torch.zeros(1, 3, 3, 3))]).run()
        >>> round(beliefs.log_partition.exp().item(), 6)  # every link or not
        16.0
    """

    def __init__(self, siblings: Tensor | Parts, last: Float[Tensor, "B N N"] | None = None) -> None:
        scores = dense(siblings, "siblings")
        last = None if last is None else as_arcs(last, "last")
        if last is not None and last.shape != scores.shape[:3]:
            raise ValueError(f"last must have shape {list(scores.shape[:3])} to fit siblings, got {list(last.shape)}")
        again = torch.eye(scores.shape[1], dtype=torch.bool, device=scores.device)[:, None, :]
        self._mirrored: tuple[Tensor, Tensor] = (scores, scores)  # the last F that came, and what was made of it
        self.scores: Tensor = torch.where(again, 0.0 if last is None else last[..., None].to(scores.dtype), scores)

    def prepare(self, graph: Graph) -> ChildSequence:
        again = torch.eye(graph.nodes, dtype=torch.bool, device=self.scores.device)[:, None, :]
        read = legal_triples("siblings", graph.lengths, graph.nodes) | (again & graph.links[..., None])
        return self.masked(read)

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        factor = None if graph.maximise else self.moderate()
        if factor is not None:
            return self._propagate_moderate(incoming[0], factor, graph)
        false, true, scores, last = self._sides(incoming[0])
        before, reach = self._forward(false, true, scores, graph)
        N = graph.nodes
        after = last  # [2B, h, c]: what can come after place j if c is the last child up to there
        odds = []
        for j in range(N - 1, 0, -1):
            f, t, here = false[:, :, j, None], true[:, :, j, None], after[:, :, j]
            after = after[:, :, :j]
            odds.append(ratio(reach[j] + here, graph.sum(before[j] + after, 2)))
            after = graph.add(after + f, scores[:, :, :j, j] + t + here[..., None])
        return self._joined(odds, graph)

    def _propagate_moderate(self, odds: Float[Tensor, "B N N"], F: Float[Tensor, "B N N N"], graph: Graph) -> Messages:
        """The same sums without logs; each place's are divided by their total."""
        N = graph.nodes
        q = torch.cat([odds, odds.flip(1, 2)]).transpose(1, 2)  # [2B, m, h]
        node = torch.arange(N, device=q.device)
        q = torch.where(node[:, None] > node, q, NEG_INF)
        false, true = torch.sigmoid(-q), torch.sigmoid(q)
        if self._mirrored[0] is not F:
            self._mirrored = F, torch.cat([F, F.flip(1, 2, 3)]).permute(0, 3, 1, 2).contiguous()
        factor = self._mirrored[1]  # [2B, m, h, s]
        after = factor.diagonal(0, 1, 2).transpose(1, 2)  # ``last``, [2B, h, c]
        start = (node == 0).to(q.dtype).expand(q.shape[0], N)
        sums, reach = [start[..., :0], start[..., None]], [start]
        for j in range(1, N):
            way = (sums[j] * factor[:, j, :, :j]).sum(2)
            new = torch.where(node == j, 1.0, way * true[:, j])
            both = torch.cat([sums[j] * false[:, j, :, None], new[..., None]], 2)
            total = both.detach().sum(2, keepdim=True)
            reach.append(way)
            sums.append(both / torch.where(total > 0, total, 1.0))
        odds_out = []
        for j in range(N - 1, 0, -1):
            here, after = after[:, :, j], after[:, :, :j]
            odds_out.append(ratio(safe_log(reach[j] * here), safe_log((sums[j] * after).sum(2))))
            after = after * false[:, j, :, None] + factor[:, j, :, :j] * (true[:, j] * here)[..., None]
            total = after.detach().sum(2, keepdim=True)
            after = after / torch.where(total > 0, total, 1.0)
        return self._joined(odds_out, graph)

    def _joined(self, odds: list[Float[Tensor, "B2 N"]], graph: Graph) -> Messages:
        """The messages of both sides, given those to places N - 1, ..., 1 of ``_sides``."""
        right, left = torch.stack([*odds, torch.zeros_like(odds[0])][::-1], 2).chunk(2)
        node = torch.arange(graph.nodes, device=right.device)
        found = torch.where(node > node[:, None], right, left.flip(1, 2))
        return (torch.where(graph.links, found, 0.0),)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        false, true, scores, last = self._sides(incoming[0])
        before, _ = self._forward(false, true, scores, graph)
        right, left = graph.sum(before[-1] + last, 2).sum(1).chunk(2)
        return right + left

    def _sides(self, odds: Float[Tensor, "B N N"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Right sides, then left sides as in a mirror: weights of false and true [2B, h, m], scores and ``last``."""
        s = self.scores
        q, scores = torch.cat([odds, odds.flip(1, 2)]), torch.cat([s, s.flip(1, 2, 3)])
        node = torch.arange(q.shape[1], device=q.device)
        q = torch.where(node > node[:, None], q, NEG_INF)
        return *weights(q), scores, scores.diagonal(0, 1, 3).transpose(1, 2)

    def _forward(
        self, false: Tensor, true: Tensor, scores: Tensor, graph: Graph
    ) -> tuple[list[Float[Tensor, "B2 N j"]], list[Float[Tensor, "B2 N"]]]:
        """For each place j: the sums over all children before it by the last of them, c < j (c = h: none so far); and
        the sum over these of going on to j."""
        N = graph.nodes
        node = torch.arange(N, device=false.device)
        start = torch.where(node == 0, 0.0, torch.full_like(false[:, :, 0], NEG_INF))
        sums, reach = [start[..., :0], start[..., None]], [start]
        for j in range(1, N):
            way = graph.sum(sums[j] + scores[:, :, :j, j], 2)
            new = torch.where(node == j, 0.0, way + true[:, :, j])
            reach.append(way)
            sums.append(torch.cat([sums[j] + false[:, :, j, None], new[..., None]], 2))
        return sums, reach
