"""SIB: a binary factor for every two children of a head; CHILDSEQ: the sequences of children of a head (3.4)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gpuparse import ops
from gpuparse.decoding.bp.grand import dense
from gpuparse.decoding.bp.graph import Factors, Given, Graph, Messages, Sent, ThirdNode
from gpuparse.decoding.parts import Parts, legal_triples
from gpuparse.ops.plain import bp_children
from gpuparse.ops.plain.links import pair_log_z, pair_message, weights
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
        self.scores: Tensor = torch.where(again, 0.0 if last is None else last[..., None].to(scores.dtype), scores)

    def prepare(self, graph: Graph) -> ChildSequence:
        again = torch.eye(graph.nodes, dtype=torch.bool, device=self.scores.device)[:, None, :]
        read = legal_triples("siblings", graph.lengths, graph.nodes) | (again & graph.links[..., None])
        return self.masked(read)

    def send(self, given: Given, graph: Graph) -> Sent | None:
        totals, (own,), frozen, damping = given
        if not ops.bp.takes(totals, "bp_children"):
            return None
        message, part = ops.bp.children(totals, own, self.scores, frozen, graph.lengths, graph.maximise, damping)
        return (message,), part

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        q = incoming[0]
        sent = self.send(Given(ops.bp.as_totals(q), (torch.zeros_like(q),)), graph)
        return (bp_children.propagate(q, self.scores, graph),) if sent is None else sent[0]

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        if graph.maximise or not ops.bp.takes(incoming[0], "bp_children"):
            return bp_children.log_z(incoming[0], self.scores, graph)
        return ops.bp.children_sum(incoming[0], self.scores, graph.lengths)
