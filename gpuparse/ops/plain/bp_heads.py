"""Heads as variables of a factor graph: a word's head has one value for every node that it may be.

A message about a head is a log weight for each value, [B, h, m], up to a number for each word m: -inf forbids. All
messages together are ``totals`` as of links (``plain/links.py``). A factor of links sees H[m] through "is it h?": its
messages are log-odds of that, which weigh the value h and no other.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpuparse.ops.plain.links import Graph, damp, freeze, join, parted, ratio
from gpuparse.ops.plain.semiring import NEG_INF

LEAST_SHARE = 2.0**-26
"""Of the trees without an arc, at least so many are taken to have heads that go with it: what is left of a difference
has half of its bits then."""


def head_weights(totals: Float[Tensor, "3 B N N"], graph: Graph) -> tuple[Float[Tensor, "3 B N N"], Tensor]:
    """Log probabilities of heads, with counts of -inf (none of +inf: what is demanded forbids all else); and the logs
    of what they were divided by [B, N], 0 where there is nothing."""
    finite, minus, plus = totals.unbind()
    minus = minus + plus.sum(1, keepdim=True) - plus
    norm = graph.sum(finite.masked_fill(minus > 0, NEG_INF), 1)
    norm = torch.where(norm == NEG_INF, 0.0, norm)
    return torch.stack([finite - norm[:, None], minus, torch.zeros_like(plus)]), norm


def head_odds(totals: Float[Tensor, "3 B N N"], graph: Graph) -> Float[Tensor, "3 B N N"]:
    """The same as all messages to each link: log-odds of a head against the word's others."""
    finite, minus, plus = totals.unbind()
    others = graph.others(finite.masked_fill(minus > 0, NEG_INF), 1)
    none = others == NEG_INF
    elsewhere = plus.sum(1, keepdim=True) - plus
    only = (none & graph.links).to(plus.dtype)
    return torch.stack([finite - torch.where(none, 0.0, others), minus + elsewhere, plus + only])


def excluded(graph: Graph) -> Bool[Tensor, "N N N"] | None:
    """Which g -> p and p -> c no tree has together, by the graph's TREE; None without one. (Max-product does without:
    of what is best nothing can be taken off.)"""
    if not graph.tree or graph.maximise:
        return None
    node = torch.arange(graph.nodes, device=graph.lengths.device)
    g, p, c = node[:, None, None], node[:, None], node
    if graph.projective:  # what is below p -> c comes under p
        return ((p < g) & (g <= c)) | ((c <= g) & (g < p))
    return (g == c).expand(graph.nodes, graph.nodes, graph.nodes)


def said_above(
    odds: Float[Tensor, "B N N"], lower: Float[Tensor, "B N N"], scores: Float[Tensor, "B N N N"], graph: Graph
) -> Float[Tensor, "B N N N"]:
    """Messages of GRAND to H[p] = g, [B, g, p, c]: (1 + F q) / (1 + q r), with q the odds of p -> c against what else
    goes with such g, and r (``lower``) what is said of p -> c; 0 where g and p -> c exclude each other."""
    certain = odds == torch.inf
    q = torch.where(certain, 0.0, odds)[:, None]
    found = graph.plus_one(q + scores) - graph.plus_one(q + lower[:, None])
    found = torch.where(certain[:, None], ratio(scores, lower[:, None].expand_as(scores)), found)
    found = torch.where((lower == NEG_INF)[:, None] & certain[:, None], 0.0, found)
    return torch.where(_says(graph), found, 0.0)


def _pairs(graph: Graph) -> Bool[Tensor, "B N N"]:
    """Where p -> c is a link and p a word."""
    return graph.links & graph.words[:, :, None]


def _says(graph: Graph) -> Bool[Tensor, "B N N N"]:
    """Where g -> p and p -> c may go together."""
    both = graph.links[..., None] & _pairs(graph)[:, None]
    out = excluded(graph)
    return both if out is None else both & ~out


def hear(
    weights: Float[Tensor, "3 B N N"],
    odds: Float[Tensor, "B N N"],
    lower: Float[Tensor, "B N N"],
    made_of: Float[Tensor, "B N N N"],
    graph: Graph,
) -> tuple[Float[Tensor, "B N N N"], Float[Tensor, "B N N"]]:
    """Messages (3) to GRAND's factors: log weights of g as the head of p, [B, g, p, c], and log-odds of p -> c, given
    that p's head goes with it; both without what the factor said itself."""
    finite, minus, _ = weights.unbind()
    up = parted(said_above(odds, lower, made_of, graph))
    above = join(finite[..., None] - up[0], minus[..., None] - up[1], torch.zeros_like(up[2]))
    low = parted(lower)
    likely = join(finite, minus, torch.zeros_like(minus))
    link = join(finite - low[0], minus - low[1], torch.zeros_like(minus))
    rest = graph.others(likely, 1)
    out = excluded(graph)
    if out is not None:
        # P(not p -> c, and a head that goes with p -> c) = P(not p -> c) - P(a head that does not)
        not_so = graph.sum(torch.where(out, likely[..., None], NEG_INF), 1)
        share = 1 - torch.exp(ratio(not_so, rest).clamp(max=0.0))
        share = torch.where((not_so == NEG_INF) | (rest == NEG_INF), 1.0, share.clamp(min=LEAST_SHARE))
        rest = rest + torch.log(share)
    return above, torch.where(_pairs(graph), ratio(link, rest), NEG_INF)


def say_below(
    above: Float[Tensor, "B N N N"], scores: Float[Tensor, "B N N N"], graph: Graph
) -> Float[Tensor, "B N N"]:
    """Messages of GRAND to p -> c: the mean of F over the heads of p that go with it; 0 without any."""
    x = torch.where(_says(graph), above, NEG_INF)
    every = graph.sum(x, 1)
    some = _pairs(graph) & (every > NEG_INF)
    return torch.where(some, graph.sum(x + scores, 1) - torch.where(some, every, 0.0), 0.0)


def log_z(
    above: Float[Tensor, "B N N N"],
    odds: Float[Tensor, "B N N"],
    lower: Float[Tensor, "B N N"],
    scores: Float[Tensor, "B N N N"],
    graph: Graph,
) -> Float[Tensor, " B"]:
    """Log of the mean of F over what was said of it, all factors together: 0 once messages do not change, if they were
    not mixed with old ones."""
    x = torch.where(graph.links[..., None], above + said_above(odds, lower, scores, graph), NEG_INF)
    return torch.where(_pairs(graph), graph.sum(x, 1), 0.0).flatten(1).sum(1)


def collect(
    odds: Float[Tensor, "B N N"],
    lower: Float[Tensor, "B N N"],
    scores: Float[Tensor, "B N N N"],
    counted: float,
    graph: Graph,
) -> Float[Tensor, "3 B N N"]:
    """All that GRAND says of each head, so much of it as is counted."""
    up, low = parted(said_above(odds, lower, scores, graph)), parted(lower)
    finite, minus, plus = (a.sum(3) + b for a, b in zip(up, low, strict=True))
    return torch.stack([finite if counted == 1 else counted * finite, minus, plus])


def grand(
    weights: Float[Tensor, "3 B N N"],
    odds: Float[Tensor, "B N N"],
    lower: Float[Tensor, "B N N"],
    made_of: Float[Tensor, "B N N N"],
    scores: Float[Tensor, "B N N N"],
    frozen: Bool[Tensor, " B"] | None,
    share: float,
    counted: float,
    graph: Graph,
) -> tuple[Float[Tensor, "B N N"], Float[Tensor, "B N N"], Float[Tensor, "3 B N N"]]:
    """New messages of GRAND, the numbers that they are made of, and all it says of each head."""
    above, now = hear(weights, odds, lower, made_of, graph)
    below = say_below(above, scores, graph)
    now, below = (freeze(a, damp(a, b, share), frozen) for a, b in ((odds, now), (lower, below)))
    return now, below, collect(now, below, scores, counted, graph)
