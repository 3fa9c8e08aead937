"""TREE and PTREE: bp_tree.cu."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from gpuparse.ops.bp.propagators import Propagator
from gpuparse.ops.launch import PAD, square
from gpuparse.ops.library import takes_kernels
from gpuparse.ops.plain import bp_eisner, bp_tree
from gpuparse.ops.plain.links import Graph, one_of, to_one_of


def takes_tree(tensor: Tensor, projective: bool, maximise: bool) -> bool:
    """Whether the kernel of ``tree`` serves here."""
    return (projective or not maximise) and takes_kernels(tensor, "bp_tree")


def _room(order: int, N: int, gpu: bool) -> int:
    row, n = -(-N // 8) * 8, N - 1
    levels = max(0, n - 1).bit_length()
    walks = (2 * levels + 24) * row + 3 * levels + 9 if order else 13 * row + 2
    # numbers with an exponent have two doubles, and four with derivatives
    trees = max(2 * n * walks, 8 * N * row + 20 * square(N) if order else 10 * square(N))
    return 3 * N * N + 2 * N + PAD + 2 * (5 if order else 3) * N * row + trees


def _plain(graph: Graph, projective: bool, single_root: bool, heads: bool) -> Callable[[Tensor], list[Tensor]]:
    def propagate(q: Tensor) -> list[Tensor]:
        outside = bp_eisner.outside(one_of(q, 1), graph, single_root) if projective else None
        rest = bp_tree.escape(q, graph, single_root) if outside is None else outside
        return [bp_tree.to_heads(rest, q, graph) if heads else to_one_of(rest, q, graph.links, graph)]

    return propagate


tree = Propagator("bp_tree", ["own"], [], ["projective", "single_root", "heads"], _room, (8, 40), _plain)
"""TREE or PTREE. Of max-product PTREE only (``takes_tree``). ``heads``: messages are log weights of heads as variables
(``plain/bp_heads.py``)."""
