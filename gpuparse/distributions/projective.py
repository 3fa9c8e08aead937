"""Projective trees: Eisner's algorithm, O(n^3) time and O(n^2) memory."""

from __future__ import annotations

from gpuparse.distributions.trees import TreeDistribution
from gpuparse.ops import EISNER


class ProjectiveTrees(TreeDistribution):
    """Distribution over the trees that can be drawn above the sentence without crossing arcs (the root at the left).

    p(tree) = exp(sum of the scores of its arcs) / Z, for each sentence of a batch.

    Args:
        arcs: scores [B, N, N] of head -> modifier, N = words + 1, node 0 being the root; -inf forbids an arc. float32
            or float64; half precision is taken as float32.
        lengths: words of each sentence [B], 1 to N - 1; None if all are full.
        single_root: one word hangs on the root (default), or any number.
        validate_args: look at the values and raise ValueError at a NaN, +inf, bad length or a sentence without any
            tree. Default: on a CPU yes; on a GPU no, since looking waits for the device.

    Attributes:
        arcs, lengths, single_root: as given, lengths as int64 [B].
        log_partition: log Z [B].
        marginals: probability of each arc [B, N, N].
        argmax, max: heads [B, N] of a best tree (-1 at node 0 and past the end), and its score [B].

    ``topk(k)`` gives heads [k, B, N] and scores [k, B], ``sample((s,))`` heads [s, B, N], ``score(heads)`` and
    ``log_prob(heads)`` [..., B], ``entropy()`` and ``torch.distributions.kl_divergence(p, q)`` [B]. All but structures
    is differentiable (``StructuredDistribution``). ``given(required, forbidden)``: the same under a condition, heads
    [B, N] that are known (-1 elsewhere) and arcs [B, N, N] that may not be.

    Example:
        >>> import torch, gpuparse as gp
        >>> trees = gp.ProjectiveTrees(torch.zeros(2, 4, 4), lengths=[3, 2])
        >>> trees.log_partition.exp().round().int().tolist()  # how many trees there are
        [7, 2]
        >>> trees.sample((5,)).shape, trees.marginals.shape
        (torch.Size([5, 2, 4]), torch.Size([2, 4, 4]))
        >>> trees.log_prob(torch.tensor([[-1, 0, 1, 2], [-1, 2, 0, -1]])).exp()
        tensor([0.1429, 0.5000])
    """

    algorithms = first_order = EISNER
    projective = True
