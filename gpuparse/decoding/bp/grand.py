"""GRAND: a binary factor for every g -> p -> c (3.4)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from gpuparse.decoding.bp.graph import Factors, Graph, Messages, Values, pair_log_z, pair_message
from gpuparse.decoding.parts import DenseParts, Kind, Parts, legal_triples


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

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        upper, lower = incoming
        factor = self.moderate()
        return pair_message(lower, self.scores, graph, factor), pair_message(upper, self.scores, graph, factor)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        upper, lower = incoming
        return pair_log_z(upper, lower, self.scores, graph).flatten(1).sum(1)
