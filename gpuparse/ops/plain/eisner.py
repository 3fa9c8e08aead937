"""Projective trees: Eisner's algorithm by diagonals, over any sum.

Spans go from node i to node i + d. R and L are complete spans headed at their left and right end, P and Q
incomplete ones, ended by the arc i -> i+d and i+d -> i. A chart kept by start holds widths in ascending
order in its last dimension; one kept by end holds them in descending order. So the two parts of a span face
each other at the same index, and all splits of all spans of a width are one addition and one reduction.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpuparse.ops.plain.semiring import NEG_INF, centre, clean, logsumexp, maximum
from gpuparse.structures.masks import word_mask


def _inside(
    w: Float[Tensor, "B N N"],
    lengths: Int64[Tensor, " B"],
    single_root: bool,
    add: Callable[[Tensor, int], Tensor],
) -> Float[Tensor, " B"]:
    """Z = R_n[0] of each sentence, its products being + and its sums `add(x, dim)`. w [B, N, N] is clean."""
    batch, nodes, _ = w.shape
    one = w.new_zeros(batch, nodes, 1)
    r_start, r_end, l_start, l_end = one, one, one, one  # R_0[i] = L_0[i] = 1
    p_start, q_end = one[..., :0], one[..., :0]
    z = [one[:, 0, 0]]
    for d in range(1, nodes):
        # spans of width d start at 0 .. N-1-d and end at d .. N-1
        r_start, l_start, p_start = r_start[:, :-1], l_start[:, :-1], p_start[:, :-1]
        r_end, l_end, q_end = r_end[:, 1:], l_end[:, 1:], q_end[:, 1:]

        # X_d[i] = sum over t = 0 .. d-1 of R_t[i] L_{d-1-t}[i+t+1]
        x = add(r_start + l_end, -1)
        # P_d[i] = w[i -> i+d] X_d[i],  Q_d[i] = w[i+d -> i] X_d[i]
        p = w.diagonal(d, 1, 2) + x
        q = w.diagonal(-d, 1, 2) + x
        p_start = torch.cat([p_start, p[..., None]], -1)
        q_end = torch.cat([q[..., None], q_end], -1)

        # R_d[i] = sum over t = 1 .. d of P_t[i] R_{d-t}[i+t]
        r = add(p_start + r_end, -1)[..., None]
        # L_d[i] = sum over t = 0 .. d-1 of L_t[i] Q_{d-t}[i+t]
        l = add(l_start + q_end, -1)[..., None]  # noqa: E741
        z.append(r[:, 0, 0])

        r_end, l_end = torch.cat([r, r_end], -1), torch.cat([l, l_end], -1)
        if single_root:
            # X_d[0] = R_0[0] L_{d-1}[1]: a root that has a child takes no other
            r = torch.cat([torch.full_like(r[:, :1], NEG_INF), r[:, 1:]], 1)
        r_start, l_start = torch.cat([r_start, r], -1), torch.cat([l_start, l], -1)
    return torch.stack(z, 1).gather(1, lengths[:, None]).squeeze(1)


def log_partition(arcs: Float[Tensor, "B N N"], lengths: Int64[Tensor, " B"], single_root: bool) -> Float[Tensor, " B"]:
    """log Z over projective trees, [B]; -inf where there is no tree."""
    w, shift = centre(clean(arcs, lengths))
    return (_inside(w, lengths, single_root, logsumexp) + shift).to(arcs.dtype)


def argmax(arcs: Float[Tensor, "B N N"], lengths: Int64[Tensor, " B"], single_root: bool) -> Int64[Tensor, "B N"]:
    """Heads [B, N] of a best projective tree: -1 at node 0, past the end, and everywhere if there is no tree.

    The derivative of the best score is the indicator of the best tree's arcs. Equals: the first split.
    """
    with torch.inference_mode(False), torch.enable_grad():
        w = clean(arcs.detach(), lengths.clone()).requires_grad_()
        best = _inside(w, lengths.clone(), single_root, maximum)
        used = torch.autograd.grad(best.sum(), w)[0] if best.requires_grad else w.detach()
    read = word_mask(lengths, arcs.shape[-1]) & (best.detach() > NEG_INF)[:, None]
    return torch.where(read, used.argmax(1), -1)
