"""TREE and PTREE: bp_tree.cu."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Int64
from torch import Tensor

from gpuparse.ops.backend import Backend
from gpuparse.ops.bp.propagators import Frozen, Links, Totals, like, plainly, run_kernel, way_back
from gpuparse.ops.launch import PAD, square
from gpuparse.ops.library import define, takes_kernels
from gpuparse.ops.plain import bp_eisner, bp_tree
from gpuparse.ops.plain.links import Graph, one_of, to_one_of


def takes_tree(tensor: Tensor, projective: bool, maximise: bool) -> bool:
    """The same of ``tree``."""
    return (projective or not maximise) and takes_kernels(tensor, "bp_tree")


def _room(order: int) -> Callable[[int, bool], int]:
    def doubles(N: int, gpu: bool) -> int:
        row, n = -(-N // 8) * 8, N - 1
        levels = max(0, n - 1).bit_length()
        walks = (2 * levels + 24) * row + 3 * levels + 9 if order else 13 * row + 2
        # numbers with an exponent have two doubles, and four with derivatives
        trees = max(2 * n * walks, 8 * N * row + 20 * square(N) if order else 10 * square(N))
        return 3 * N * N + 2 * N + PAD + 2 * (5 if order else 3) * N * row + trees

    return doubles


def launch_tree(
    totals: Tensor,
    own: Tensor,
    frozen: Tensor | None,
    lengths: Tensor,
    projective: bool,
    single_root: bool,
    heads: bool,
    maximise: bool,
    share: float,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor]:
    """Run bp_tree.cu."""
    out, part = torch.empty_like(own), torch.empty_like(totals)
    flags = float(share), int(projective), int(single_root), int(heads), int(maximise)
    args = [totals, own, frozen, lengths, out, part, None, None]
    run_kernel("bp_tree", 0, args, flags, doubles=_room(0), work=8, backend=backend)
    return out, part


def launch_tree_back(
    g: Tensor,
    g_part: Tensor,
    totals: Tensor,
    own: Tensor,
    frozen: Tensor | None,
    lengths: Tensor,
    projective: bool,
    single_root: bool,
    heads: bool,
    share: float,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients in totals and own messages."""
    found = torch.empty_like(totals), torch.empty_like(own)
    flags = float(share), int(projective), int(single_root), int(heads), 0
    args = [totals, own, frozen, lengths, g, g_part, *found]
    run_kernel("bp_tree", 1, args, flags, doubles=_room(1), work=40, backend=backend)
    return found


def _plain(
    totals: Tensor,
    own: Tensor,
    frozen: Tensor | None,
    lengths: Tensor,
    projective: bool,
    single_root: bool,
    heads: bool,
    maximise: bool,
    share: float,
) -> list[Tensor]:
    graph = Graph(lengths, own.shape[1], 0, maximise)

    def propagate(q: Tensor) -> list[Tensor]:
        outside = bp_eisner.outside(one_of(q, 1), graph, single_root) if projective else None
        rest = bp_tree.escape(q, graph, single_root) if outside is None else outside
        return [bp_tree.to_heads(rest, q, graph) if heads else to_one_of(rest, q, graph.links, graph)]

    return plainly(totals, [own], frozen, share, lambda x: [x], propagate, lambda x: x)


_ARGUMENTS = "Tensor totals, Tensor own, Tensor? frozen, Tensor lengths, bool projective, bool single_root, bool heads"
_op = define(f"bp_tree({_ARGUMENTS}, bool maximise, float share) -> (Tensor, Tensor)", launch_tree, like(1, 0))
_back_op = define(
    f"bp_tree_back(Tensor g, Tensor g_part, {_ARGUMENTS}, float share) -> (Tensor, Tensor)",
    launch_tree_back,
    like(2, 3),
)
way_back(_op, _back_op, _plain, 2, 7)


def tree(
    totals: Totals,
    own: Links,
    frozen: Frozen,
    lengths: Int64[Tensor, " B"],
    projective: bool,
    single_root: bool,
    heads: bool,
    maximise: bool,
    share: float,
) -> tuple[Links, Totals]:
    """TREE or PTREE: new messages and their part. Of max-product PTREE only (``takes_tree``). ``heads``: messages are
    log weights of heads as variables (``plain/bp_heads.py``)."""
    return _op(totals, own, frozen, lengths, projective, single_root, heads, maximise, share)
