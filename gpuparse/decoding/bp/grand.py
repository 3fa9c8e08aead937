"""GRAND: a binary factor for every g -> p -> c (3.4)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gpuparse import ops
from gpuparse.decoding.bp.graph import Factors, Given, Graph, Messages, Odds, Sent, Values
from gpuparse.decoding.bp.options import as_share
from gpuparse.decoding.parts import DenseParts, Kind, Parts, legal_triples
from gpuparse.ops.plain import bp_heads
from gpuparse.ops.plain.links import join, pair_log_z, pair_message
from gpuparse.ops.plain.semiring import NEG_INF


def dense(parts: Tensor | Parts, kind: Kind) -> Float[Tensor, "B N N N"]:
    """Scores of all triples."""
    if isinstance(parts, Parts):
        if parts.kind != kind:
            raise ValueError(f"{kind} must be parts of kind {kind!r}, got {parts.kind!r}")
        return parts.dense()
    return DenseParts(parts, kind=kind, validate_args=False).values


class Grand(Factors):
    """GRAND: scores of the links g -> p and p -> c.

    Args:
        grandparents: ``grandparents[b, g, p, c]``: a tensor [B, N, N, N] or ``Parts``.
        counted: where heads are variables, how much of a factor's entropy counts, above 0 and up to 1. All of it does
            in Bethe's free energy, which is right on graphs without cycles. Beside TREE, which joins the same words,
            less of it comes nearer to the truth, as in tree-reweighted propagation (Wainwright et al. 2005).

    Messages: to g -> p and to p -> c, both at [B, g, p, c]. Where heads are variables, see ``GrandOfHeads``.

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.Grand(torch.full((1, 3, 3, 3), 2.0).log())]).run()
        >>> round(beliefs.log_partition.exp().item(), 6)  # 0 -> 1 -> 2 counts twice, and 0 -> 2 -> 1
        25.0
    """

    def __init__(self, grandparents: Tensor | Parts, *, counted: float = 1.0) -> None:
        self.scores: Tensor = dense(grandparents, "grandparents")
        self.counted = as_share(counted, "counted")

    def of_heads(self) -> GrandOfHeads:
        return GrandOfHeads(self.scores, self.counted)

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


class GrandOfHeads(Factors):
    """GRAND where heads are variables: a factor for each p -> c and the head of p, O(n^2) of them.

    It says of p -> c the mean of F over the heads of p, and of a head g of p how much better p -> c is with it than on
    the whole, by how likely p -> c is. Some g exclude p -> c, by TREE: c itself, by PTREE also all that is between. A
    factor that did not know of that would take p -> c for likely with them, and one that forbade it as well would count
    it twice, for TREE has said so. So both means are over the heads that go with p -> c, and all others are told
    nothing: in the free energy a pair's entropy stands beside that of the same pair without scores, whose values
    exclude each other too, rather than of two that do not know each other.

    If a share of its entropy is ``counted``, scores and messages are those of F ** (1 / share), and the share of what
    comes of them is said.

    Messages are made of two numbers each, [B, p, c]: log-odds of p -> c as they were heard, and what was said of it.
    The third tensor are the scores that they were made with.
    """

    knows_heads = True
    hears_itself = True

    def __init__(self, grandparents: Float[Tensor, "B N N N"], counted: float) -> None:
        self.scores: Tensor = grandparents
        self.counted = counted

    def prepare(self, graph: Graph) -> GrandOfHeads:
        read = legal_triples("grandparents", graph.lengths, graph.nodes)
        out = bp_heads.excluded(graph)
        made = self.masked(read if out is None else read & ~out)
        return made if self.counted == 1 else made.temper(1 / self.counted)

    def first(self, graph: Graph, damping: float) -> Messages:
        none = graph.zeros().links
        return torch.full_like(none, NEG_INF), none, self.scores

    def spread(self, values: Values) -> Messages:
        return values.links, values.links, torch.zeros_like(self.scores)

    def collect(self, messages: Messages, graph: Graph) -> Values:
        odds, lower, scores = messages
        return Values(join(*bp_heads.collect(odds, lower, scores, self.counted, graph)))

    def hear(self, totals: list[Values], own: Messages, graph: Graph) -> Messages:
        """Weights of the heads of p at [B, g, p, c], log-odds of p -> c, and what was said of it."""
        odds, lower, scores = own
        weights = torch.stack([x.links for x in totals])
        return *bp_heads.hear(weights, odds, lower, scores, graph), lower

    def send(self, given: Given, graph: Graph) -> Sent:
        totals, (odds, lower, made_of), frozen, damping = given
        near = self.moderate() if made_of is self.scores else None
        now = made_of, self.scores, frozen, graph.lengths, graph, damping, self.counted, near
        odds, lower, part = ops.bp.grand_of_heads(totals, odds, lower, *now)
        return (odds, lower, self.scores), part

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        above, odds, _ = incoming
        return odds, bp_heads.say_below(above, self.scores, graph), self.scores

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        above, odds, lower = incoming
        return self.counted * bp_heads.log_z(above, odds, lower, self.scores, graph)

    def beliefs(self, incoming: Messages, graph: Graph) -> Tensor:
        return super().beliefs(incoming, graph) / self.counted  # (log Z is of scores / counted)
