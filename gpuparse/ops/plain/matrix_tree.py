"""Non-projective trees: the matrix-tree theorem by elimination without a subtraction, in log-space."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gpuparse.ops.plain.semiring import NEG_INF, centre, clean, logaddexp, logsumexp


def _swap_ends(
    w: Float[Tensor, "B k k"], root: Float[Tensor, "B k"], swap: Bool[Tensor, " B"]
) -> tuple[Float[Tensor, "B k k"], Float[Tensor, "B k"]]:
    """Exchange the first and the last word of w [B, k, k] and root [B, k] where `swap` [B] says so."""
    k = root.shape[1]
    word = torch.arange(k, device=root.device)
    other = torch.where((word == 0) | (word == k - 1), k - 1 - word, word)
    order = torch.where(swap[:, None], other, word)
    rows, columns = order[:, :, None].expand(-1, -1, k), order[:, None, :].expand(-1, k, -1)
    return w.gather(1, rows).gather(2, columns), root.gather(1, order)


def log_partition(arcs: Float[Tensor, "B N N"], lengths: Int64[Tensor, " B"], single_root: bool) -> Float[Tensor, " B"]:
    """log Z over all trees, [B]; -inf where there is no tree.

    Words are eliminated from the last to the first; w [B, k, k] and root [B, k] are the log weights among
    those left and from the root. A word past the sentence's end has no arcs, so it only must not count.
    """
    w, log_z = centre(clean(arcs, lengths))
    root, w = w[:, 0, 1:], w[:, 1:, 1:]
    dead = torch.zeros_like(lengths, dtype=torch.bool)
    swapped = torch.zeros_like(dead)
    for k in range(arcs.shape[-1] - 1, 0, -1):
        inside = lengths >= k
        if single_root and k > 1:
            # a word with no head but the root goes last, where the root counts
            swap = inside & (w[:, :-1, -1] == NEG_INF).all(1) & ~swapped
            swapped = swapped | swap
            w, root = _swap_ends(w, root, swap)
        into, from_k, root_k = w[:, :-1, -1], w[:, -1, :-1], root[:, -1:]

        # out_k = [root_k +] sum over i < k of w_ik; with a single root, root_k counts in the last only
        if single_root:
            out = logsumexp(into, 1) if k > 1 else root_k[:, 0]
        else:
            out = logsumexp(torch.cat([root_k, into], 1), 1)
        stuck = out == NEG_INF
        dead = dead | (inside & stuck)
        out = torch.where(stuck, 0.0, out)
        log_z = log_z + torch.where(inside, out, 0.0)

        # w_ij += w_ik w_kj / out_k (what that leaves at i = j is never read),  root_j += root_k w_kj / out_k
        flow = from_k - out[:, None]
        w = logaddexp(w[:, :-1, :-1], into[:, :, None] + flow[:, None, :])
        root = logaddexp(root[:, :-1], root_k + flow)
    return torch.where(dead, NEG_INF, log_z).to(arcs.dtype)
