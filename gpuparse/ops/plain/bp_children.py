"""CHILDSEQ in plain torch: messages of the sequences of children of a head (Smith and Eisner 2008, 3.4)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gpuparse.ops.plain.links import Graph, ratio, safe_log, weights
from gpuparse.ops.plain.semiring import NEG_INF
from gpuparse.structures.trees import can_validate

_MODERATE = 100.0


def propagate(odds: Float[Tensor, "B N N"], scores: Float[Tensor, "B N N N"], graph: Graph) -> Float[Tensor, "B N N"]:
    """The message about each link."""
    if not graph.maximise and can_validate(scores, None) and not bool((scores.detach().abs() > _MODERATE).any()):
        return _propagate_moderate(odds, torch.exp(scores), graph)
    false, true, scores, last = _sides(odds, scores)
    before, reach = _forward(false, true, scores, graph)
    N = graph.nodes
    after = last  # [2B, h, c]: what can come after place j if c is the last child up to there
    found = []
    for j in range(N - 1, 0, -1):
        f, t, here = false[:, :, j, None], true[:, :, j, None], after[:, :, j]
        after = after[:, :, :j]
        found.append(ratio(reach[j] + here, graph.sum(before[j] + after, 2)))
        after = graph.add(after + f, scores[:, :, :j, j] + t + here[..., None])
    return _joined(found, graph)


def _propagate_moderate(
    odds: Float[Tensor, "B N N"], F: Float[Tensor, "B N N N"], graph: Graph
) -> Float[Tensor, "B N N"]:
    """The same sums without logs; each place's are divided by their total."""
    N = graph.nodes
    q = torch.cat([odds, odds.flip(1, 2)]).transpose(1, 2)  # [2B, m, h]
    node = torch.arange(N, device=q.device)
    q = torch.where(node[:, None] > node, q, NEG_INF)
    false, true = torch.sigmoid(-q), torch.sigmoid(q)
    factor = torch.cat([F, F.flip(1, 2, 3)]).permute(0, 3, 1, 2).contiguous()  # [2B, m, h, s]
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
    return _joined(odds_out, graph)


def _joined(odds: list[Float[Tensor, "B2 N"]], graph: Graph) -> Float[Tensor, "B N N"]:
    """The messages of both sides, given those to places N - 1, ..., 1 of ``_sides``."""
    right, left = torch.stack([*odds, torch.zeros_like(odds[0])][::-1], 2).chunk(2)
    node = torch.arange(graph.nodes, device=right.device)
    found = torch.where(node > node[:, None], right, left.flip(1, 2))
    return torch.where(graph.links, found, 0.0)


def log_z(odds: Float[Tensor, "B N N"], scores: Float[Tensor, "B N N N"], graph: Graph) -> Float[Tensor, " B"]:
    """Log of the sum over all children."""
    false, true, scores, last = _sides(odds, scores)
    before, _ = _forward(false, true, scores, graph)
    right, left = graph.sum(before[-1] + last, 2).sum(1).chunk(2)
    return right + left


def _sides(odds: Float[Tensor, "B N N"], s: Float[Tensor, "B N N N"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Right sides, then left sides as in a mirror: weights of false and true [2B, h, m], scores and ``last``."""
    q, scores = torch.cat([odds, odds.flip(1, 2)]), torch.cat([s, s.flip(1, 2, 3)])
    node = torch.arange(q.shape[1], device=q.device)
    q = torch.where(node > node[:, None], q, NEG_INF)
    return *weights(q), scores, scores.diagonal(0, 1, 3).transpose(1, 2)


def _forward(
    false: Tensor, true: Tensor, scores: Tensor, graph: Graph
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
