"""GRAND: a binary factor for every g -> p -> c (3.4)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gpuparse import ops
from gpuparse.decoding.bp.graph import Factors, Given, Graph, Messages, Odds, Sent, Values
from gpuparse.decoding.parts import DenseParts, Kind, Parts, legal_triples
from gpuparse.ops.plain.links import pair_log_z, pair_message


def dense(parts: Tensor | Parts, kind: Kind) -> Float[Tensor, "B N N N"]:
    """Scores of all triples."""
    if isinstance(parts, Parts):
        if parts.kind != kind:
            raise ValueError(f"{kind} must be parts of kind {kind!r}, got {parts.kind!r}")
        return parts.dense()
    return DenseParts(parts, kind=kind, validate_args=False).values


class Grand(Factors):
    """GRAND: ``grandparents[b, g, p, c]`` scores the links g -> p and p -> c: a tensor [B, N, N, N] or ``Parts``.

    Messages: to g -> p and to p -> c, both at [B, g, p, c].

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.Grand(torch.full((1, 3, 3, 3), 2.0).log())]).run()
        >>> round(beliefs.log_partition.exp().item(), 6)  # 0 -> 1 -> 2 counts twice, and 0 -> 2 -> 1
        25.0
    """

    def __init__(self, grandparents: Tensor | Parts) -> None:
        self.scores: Tensor = dense(grandparents, "grandparents")

    def prepare(self, graph: Graph) -> Grand:
        return self.masked(legal_triples("grandparents", graph.lengths, graph.nodes))

    def spread(self, values: Values) -> Messages:
        B, N = values.links.shape[:2]
        return values.links[:, :, :, None].expand(B, N, N, N), values.links[:, None].expand(B, N, N, N)

    def collect(self, messages: Messages, graph: Graph) -> Values:
        return Values(messages[0].sum(3) + messages[1].sum(1))

    def first(self, graph: Graph, damping: float) -> Messages:
        """Odds, which take no exp and no log, where new messages may take the place of the old ones."""
        plainly = torch.is_grad_enabled() or graph.maximise or damping != 0 or not self.is_moderate
        if plainly or not ops.bp.takes(self.scores, "bp_grand_odds"):
            return super().first(graph, damping)
        return Odds(torch.ones_like(self.scores, memory_format=torch.contiguous_format) for _ in range(2))

    def send(self, given: Given, graph: Graph) -> Sent | None:
        totals, own, frozen, damping = given
        if isinstance(own, Odds) and self.is_moderate:
            upper, lower = own
            return own, ops.bp.grand_odds(totals, upper, lower, self.scores, graph.lengths)
        above, below = Odds.logs(own)
        if not ops.bp.takes(totals, "bp_grand"):
            return None
        scored = self.scores, frozen, graph.lengths
        upper, lower, part = ops.bp.grand(totals, above, below, *scored, graph.maximise, damping)
        return (upper, lower), part

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        upper, lower = incoming
        factor = self.moderate()
        return pair_message(lower, self.scores, graph, factor), pair_message(upper, self.scores, graph, factor)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        upper, lower = incoming
        return pair_log_z(upper, lower, self.scores, graph).flatten(1).sum(1)
