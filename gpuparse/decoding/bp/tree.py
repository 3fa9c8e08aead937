"""TREE and PTREE: the links are a dependency tree, crossing or not (3.3)."""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor

from gpuparse import ops
from gpuparse.decoding.bp.graph import Factors, Given, Graph, Messages, Sent
from gpuparse.ops import EISNER, MATRIX_TREE, Family
from gpuparse.ops.plain import bp_eisner, bp_tree
from gpuparse.ops.plain.links import one_of, to_one_of
from gpuparse.ops.plain.semiring import NEG_INF
from gpuparse.structures.trees import tree_scores


class Tree(Factors):
    """TREE: every word has one head, and comes to the root by its heads; with one word under the root, or any number.

    Where there are no kernels and values cannot be looked at, nothing is added up as logs, and a second word under the
    root counts exp(-200) times rather than not at all. That is enough if messages to the heads of each word are up to
    160 apart (600 for any number under the root); if some links are forbidden, it is surely enough if that holds for
    the sum over all words, and N log N more. Beyond that, beliefs may be wrong, or a sentence be called impossible.

    Example:
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.Tree()]).run([3], nodes=4)
        >>> round(beliefs.log_partition.exp().item(), 6)  # all trees of three words
        9.0
    """

    trees: Family = MATRIX_TREE
    projective = False

    def __init__(self, *, single_root: bool = True) -> None:
        self.single_root = bool(single_root)

    def of_heads(self) -> Tree:
        made = copy.copy(self)
        made.knows_heads = True
        return made

    def send(self, given: Given, graph: Graph) -> Sent | None:
        totals, (own,), frozen, damping = given
        if not ops.bp.takes_tree(totals, self.projective, graph.maximise):
            return None
        how = self.projective, self.single_root, self.knows_heads, graph.maximise
        message, part = ops.bp.tree(totals, own, frozen, graph.lengths, *how, damping)
        return (message,), part

    def propagate(self, incoming: Messages, graph: Graph) -> Messages:
        q = incoming[0]
        sent = self.send(Given(ops.bp.as_totals(q), (torch.zeros_like(q),)), graph)
        if sent is not None:
            return sent[0]
        if self.projective:
            rest = bp_eisner.outside(one_of(q, 1), graph, self.single_root)
        elif graph.maximise:
            rest = self._best_rest(q, graph)
        else:
            rest = bp_tree.escape(q, graph, self.single_root)
        return (bp_tree.to_heads(rest, q, graph) if self.knows_heads else to_one_of(rest, q, graph.links, graph),)

    def log_z(self, incoming: Messages, graph: Graph) -> Float[Tensor, " B"]:
        q = one_of(incoming[0], 1)
        if not graph.maximise:
            return self.trees.marginals((q,), graph.lengths, self.single_root)[0]
        heads = self.trees.argmax((q.detach(),), graph.lengths, self.single_root)
        return torch.where((heads < 0).all(1), NEG_INF, tree_scores(q, heads, graph.lengths))

    def _best_rest(self, q: Float[Tensor, "B N N"], graph: Graph) -> Float[Tensor, "B N N"]:
        """The best tree with h -> m for all h, m, without the weight of that arc: a best tree each (footnote 25)."""
        w = one_of(q, 1)
        B, N = w.shape[:2]
        lengths = graph.lengths.repeat_interleave(N)
        node = torch.arange(N, device=w.device)
        columns = [torch.full_like(w[:, 0], NEG_INF)]
        for m in range(1, N):
            alone = torch.where(node == node[:, None], 0.0, NEG_INF)  # [choice, head]
            at_m = (node == m)[None, None, None, :]
            arcs = torch.where(at_m, alone[None, :, :, None], w[:, None]).flatten(0, 1)
            heads = self.trees.argmax((arcs.detach(),), lengths, self.single_root)
            best = torch.where((heads < 0).all(1), NEG_INF, tree_scores(arcs, heads, lengths)).view(B, N)
            columns.append(torch.where(graph.lengths[:, None] >= m, best, NEG_INF))
        return torch.stack(columns, 2)


class ProjectiveTree(Tree):
    """PTREE: the links are a tree without crossing arcs (3.3): Eisner's algorithm, inside and outside, O(n^3).

    Example:
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.ProjectiveTree()]).run([3], nodes=4)
        >>> round(beliefs.log_partition.exp().item(), 6)  # two of the nine trees have crossing arcs
        7.0
    """

    trees = EISNER
    projective = True
