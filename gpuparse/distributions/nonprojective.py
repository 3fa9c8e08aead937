"""All trees: the matrix-tree theorem by elimination without subtraction, O(n^3) time and O(n^2) memory."""

from __future__ import annotations

from jaxtyping import Bool
from torch import Tensor

from gpuparse.distributions.trees import TreeDistribution
from gpuparse.ops import MATRIX_TREE
from gpuparse.structures.trees import arcs_in_some_tree


class NonProjectiveTrees(TreeDistribution):
    """Distribution over all dependency trees of a sentence, crossing arcs or not.

    Arguments, attributes and methods are those of ``ProjectiveTrees``.

    Example:
        >>> import torch, gpuparse as gp
        >>> arcs = torch.zeros(1, 4, 4, requires_grad=True)
        >>> trees = gp.NonProjectiveTrees(arcs)
        >>> trees.log_partition.exp().round().int().tolist()  # n^(n-1) trees of n words
        [9]
        >>> trees.entropy()
        tensor([2.1972], grad_fn=<ToCopyBackward0>)
        >>> trees.log_prob(torch.tensor([[-1, 0, 1, 2]])).sum().backward()
        >>> arcs.grad.shape
        torch.Size([1, 4, 4])
    """

    algorithms = first_order = MATRIX_TREE
    projective = False

    def _in_some(self) -> dict[str, Bool[Tensor, "B N N"]]:
        # By the graph alone: the marginals' rounding is absolute, so a rare arc and an impossible one look the same.
        return {"arcs": arcs_in_some_tree(~self.arcs.isneginf(), self.lengths, single_root=self.single_root)}
