"""What every distribution over trees has, given the algorithms of its structure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.kl import register_kl

from gpuparse.distributions.common import as_batch_shape, as_k, as_sample_shape, may_keep, not_negative
from gpuparse.ops import Structure
from gpuparse.plain.semiring import arc_mask
from gpuparse.shifts import LOST, ONE_ROOT, add_up, arcs_less_shared, check_sums, that_matter
from gpuparse.trees import (
    Lengths,
    as_arcs,
    as_flag,
    as_heads,
    as_lengths,
    can_look,
    check_scores,
    is_tree,
    is_word,
    no_tree_error,
    tree_scores,
)


class TreeDistribution(Distribution):
    """p(tree) = exp(sum of the scores of its arcs) / Z, for each sentence of a batch.

    Args:
        arcs: scores [B, N, N] of head -> modifier; -inf forbids an arc. float32 or float64; half precision is
            taken as float32, here and below.
        lengths: words of each sentence [B], 1 to N - 1; None if all are full.
        single_root: one word hangs on the root (default), or any number.
        validate_args: look at the values and raise ValueError at a NaN, +inf, bad length or a sentence without any
            tree. Default: on a CPU yes; on a GPU no, since looking waits for the device.

    ``log_partition``, ``marginals``, ``max``, ``entropy()``, ``log_prob()`` and the KL divergence are differentiable,
    twice and more; results have the dtype and device of ``arcs``. What was computed once is kept, with its graph: to
    back through the same distribution twice, pass ``retain_graph=True`` the first time or make it anew.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    structure: ClassVar[Structure]
    projective: ClassVar[bool]
    _each_root: Float64[Tensor, " B"] | None = None
    """What each word under the root but the first costs beside its score (``gpuparse.shifts.arcs_less_shared``)."""
    _large_pairs = False
    """Whether scores other than those of arcs are large."""

    def __init__(
        self, arcs: Tensor, lengths: Lengths = None, *, single_root: bool = True, validate_args: bool | None = None
    ) -> None:
        arcs = as_arcs(arcs)
        self.arcs: Float[Tensor, "B N N"] = arcs
        self._weighed = arcs  # those that sums are over
        self.lengths: Int[Tensor, " B"] = as_lengths(lengths, arcs, validate_args)
        self.single_root = as_flag(single_root, "single_root")
        self._looks = validate_args
        self._known: dict[str, Tensor] = {}
        super().__init__(arcs.shape[:1], arcs.shape[1:2], validate_args=False)
        forbidden, large = check_scores(arcs, self.lengths) if can_look(arcs, validate_args) else (False, False)
        self._large = large or self._large_pairs
        if self._large:
            self._check_large()
        if forbidden:
            without = self._sums("log_partition").detach().isneginf().nonzero()
            if len(without):
                raise self.no_tree_error(int(without[0]))

    def no_tree_error(self, sentence: int, best: Sequence[str] = ()) -> ValueError:
        """What to raise for a sentence that has no tree; ``best``: whose best scores are part of ``arcs``."""
        return self._no_tree_under(self.arcs, sentence, best)

    def _no_tree_under(self, arcs: Float[Tensor, "B N N"], sentence: int, best: Sequence[str]) -> ValueError:
        """The same of other arcs, to whose scores those of ``best`` were added."""
        name = f"arcs with their best {' and '.join(best)}" if best else "arcs"
        return no_tree_error(
            arcs.detach(), self.lengths, sentence, projective=self.projective, single_root=self.single_root, name=name
        )

    def __getstate__(self) -> dict[str, Any]:
        """For copy and pickle: what it is made of, not what was computed from that."""
        return {key: value for key, value in self.__dict__.items() if key != "centred"} | {"_known": {}}

    def __repr__(self) -> str:
        B, N = self.arcs.shape[:2]
        return f"{type(self).__name__}(sentences: {B}, words: {N - 1}, single_root={self.single_root})"

    @property
    def support(self) -> Any:
        """Heads: whole numbers from -1 (node 0, and past the end) to N - 1. Not every such vector is a tree."""
        return constraints.independent(constraints.integer_interval(-1, self.arcs.shape[1] - 1), 1)

    def expand(self, batch_shape: Any, _instance: Any = None) -> TreeDistribution:
        """The same for more sentences: from [1] to any [B]."""
        shape = as_batch_shape(batch_shape, self.arcs.shape[0])
        arcs, lengths = self.arcs.expand(shape[0], -1, -1), self.lengths.expand(shape[0])
        return type(self)(arcs, lengths, single_root=self.single_root, validate_args=self._looks)

    def _without_shared(self) -> tuple[TreeDistribution, Float64[Tensor, "B K"]]:
        """The same distribution in float64, scores less what all trees share, and what they share
        (``gpuparse.shifts``)."""
        arcs, shared, each_root = arcs_less_shared(self.arcs, self.lengths, self.structure, self.single_root)
        near = type(self)(arcs, self.lengths, single_root=self.single_root, validate_args=False)
        near._each_root, near._weighed = each_root, that_matter(arcs)
        return near, shared

    def _near(self) -> TreeDistribution:
        """The same without what all trees share, where scores are large; else itself."""
        return self._without_shared()[0] if self._large else self

    def _given(self) -> dict[str, Tensor | None]:
        """The scores by the names of the arguments, 0 where they are not read."""
        return {"arcs": torch.where(arc_mask(self.lengths, self.arcs.shape[1]), self.arcs.detach(), 0.0)}

    def _check_large(self) -> None:
        """Raise ValueError where large scores cannot be answered."""
        with torch.no_grad():
            near, shared = self._without_shared()
            log_z = near._sums("log_partition")
            if bool(log_z.isneginf().any()):  # there is no tree, or none of any weight
                far = torch.where(near._log_partition_of_all().isneginf(), -torch.inf, -2 * LOST)
                log_z = torch.where(log_z.isneginf(), far, log_z)
            check_sums(log_z, shared, self._given(), self.arcs.dtype, "trees")

    def _log_partition_of_all(self) -> Float64[Tensor, " B"]:
        """log Z, whatever is far from anything else; not to be trusted beyond whether there is a tree."""
        return self.structure.log_partition(self.arcs, self.lengths, self.single_root)

    def _large_sums(self, name: str) -> Tensor:
        """What ``_sums`` gives of large scores."""
        near, shared = self._without_shared()
        value = near._sums(name)
        return value + add_up(shared) if name == "log_partition" else value.to(self.arcs.dtype)

    def _sums(self, name: str) -> Tensor:
        """log_partition (in float64) or marginals, by name. What was computed is kept, unless it lacks the gradient
        that a later caller may want. Each has a graph of its own, so that each can be backed through by itself."""
        if name in self._known:
            return self._known[name]
        wanted = torch.is_grad_enabled() and self.arcs.requires_grad
        if self._large:
            value = self._large_sums(name)
        elif name == "log_partition" and not wanted:
            value = self.structure.log_partition(self._weighed, self.lengths, self.single_root)
        else:
            logz, mu = self.structure.marginals(self._weighed, self.lengths, self.single_root)
            value = mu if name == "marginals" else logz
            if not self.arcs.requires_grad and may_keep():
                self._known["log_partition"] = logz
        if (wanted or not self.arcs.requires_grad) and may_keep():
            self._known[name] = value
        return value

    @property
    def log_partition(self) -> Float[Tensor, " B"]:
        """log of the sum over all trees of exp(score)."""
        return self._sums("log_partition").to(self.arcs.dtype)

    @property
    def marginals(self) -> Float[Tensor, "B N N"]:
        """Probability of each arc [b, head, modifier]. log Z comes along: where both are wanted, ask for this first."""
        return self._sums("marginals")

    @property
    def argmax(self) -> Int[Tensor, "B N"]:
        """Heads of a best tree; among equals the same one every time."""
        if "argmax" not in self._known:
            self._known["argmax"] = self.structure.argmax(self._near().arcs.detach(), self.lengths, self.single_root)
        return self._known["argmax"].clone()  # the caller may write to it

    @property
    def mode(self) -> Int[Tensor, "B N"]:
        """``argmax``, by its name in torch.distributions."""
        return self.argmax

    @property
    def max(self) -> Float[Tensor, " B"]:
        """Score of a best tree; its gradient is that tree's arcs."""
        return self._score(self.argmax)

    def _score(self, heads: Int[Tensor, "*S B N"]) -> Float[Tensor, "*S B"]:
        """Scores of decoded trees; -inf where none was found."""
        missing = (heads < 0).all(-1)
        return torch.where(missing, -torch.inf, tree_scores(self.arcs, heads, self.lengths)).to(self.arcs.dtype)

    def topk(self, k: int) -> tuple[Int[Tensor, "k B N"], Float[Tensor, "k B"]]:
        """The k best trees (1 to 64), best first, and their scores; ranks that do not exist: heads -1, score -inf."""
        number = as_k(k)
        near = self._near()
        heads = self.structure.topk(near.arcs.detach(), self.lengths, self.single_root, number)
        if near._each_root is not None:
            near._check_one_root(heads)
        return heads, self._score(heads)

    def _check_one_root(self, heads: Int[Tensor, "k B N"]) -> None:
        """Raise ValueError where trees were ordered by less than their scores."""
        assert self._each_root is not None
        wrong = (self._score(heads.detach()) < ONE_ROOT) & (heads >= 0).any(-1) & (self._each_root != 0)
        if bool(wrong.any()):
            k, b = wrong.nonzero()[0].tolist()
            raise ValueError(f"arcs of sentence {b} are too far apart: trees from rank {k} on cannot be told apart")

    def sample(self, sample_shape: Any = ()) -> Int[Tensor, "*S B N"]:
        """Independent exact draws; follows ``torch.manual_seed``."""
        shape = as_sample_shape(sample_shape)
        with torch.no_grad():
            heads = self._draw(shape.numel())
        return heads.reshape(*shape, *self.arcs.shape[:2])

    def _draw(self, num: int) -> Int[Tensor, "num B N"]:
        return self.structure.sample(self._near()._weighed.detach(), self.lengths, self.single_root, num)

    def log_prob(self, value: Int[Tensor, "*S B N"]) -> Float[Tensor, "*S B"]:
        """log p of each tree; -inf for heads that are no tree of this kind. Node 0 and the padding are not read."""
        heads = as_heads(value, self.arcs, self.lengths, self._looks)
        tree = is_tree(heads, self.lengths, projective=self.projective, single_root=self.single_root)
        near = self._near()
        value = tree_scores(near.arcs, heads, self.lengths) - near._sums("log_partition")
        if near._each_root is not None:
            more = (is_word(self.lengths, heads.shape[-1]) & (heads == 0)).sum(-1) - 1
            value = value + torch.where(more > 0, more * near._each_root, 0.0)
        value = value - value.detach().clamp(min=0)  # rounding above 0
        return torch.where(tree, value, -torch.inf).to(self.arcs.dtype)

    def _centred(self) -> TreeDistribution:
        """The same distribution in float64, each word's scores shifted by their greatest: nothing large cancels."""
        if "centred" not in self.__dict__:
            if self._large:
                wide = self._near()
            else:
                read = arc_mask(self.lengths, self.arcs.shape[1])
                arcs = torch.where(read, self.arcs.double(), -torch.inf)
                top = arcs.detach().amax(1, keepdim=True)
                arcs = arcs - torch.where(top.isfinite(), top, 0.0)
                wide = type(self)(arcs, self.lengths, single_root=self.single_root, validate_args=False)
            if (self.arcs.requires_grad and not torch.is_grad_enabled()) or not may_keep():
                return wide
            self.centred = wide
        return self.centred

    def _in_some_tree(self, allowed: Bool[Tensor, "B N N"]) -> Bool[Tensor, "B N N"]:
        """Which of the allowed arcs some tree has, however rare it is."""
        raise TypeError(f"{type(self).__name__} does not say which arcs its trees can have")

    def entropy(self) -> Float[Tensor, " B"]:
        """-sum p log p, exactly: log Z minus the expected score."""
        p = self._centred()
        return not_negative(p.log_partition - _expected(p.marginals, p.arcs)).to(self.arcs.dtype)


def _expected(marginals: Float[Tensor, "B N N"], scores: Float[Tensor, "B N N"]) -> Float[Tensor, " B"]:
    """Sum of marginal * score over the arcs that are possible."""
    return (marginals * torch.where(scores.isfinite(), scores, 0.0)).flatten(1).sum(1)


def check_same_trees(p: TreeDistribution, q: TreeDistribution) -> None:
    """Raise ValueError if p and q are not over the same trees of the same sentences."""
    if type(p) is not type(q) or p.single_root != q.single_root:
        raise ValueError(f"KL needs two distributions over the same trees, got {p} and {q}")
    if p.arcs.shape != q.arcs.shape:
        raise ValueError(f"arcs of p and q must have the same shape, got {list(p.arcs.shape)} and {list(q.arcs.shape)}")
    if can_look(p.lengths, p._looks) and not torch.equal(p.lengths, q.lengths):
        i = int((p.lengths != q.lengths).nonzero()[0])
        raise ValueError(f"lengths of sentence {i} must be the same in p and q, got {p.lengths[i]} and {q.lengths[i]}")


@register_kl(TreeDistribution, TreeDistribution)
def _kl(p: TreeDistribution, q: TreeDistribution) -> Float[Tensor, " B"]:
    """sum p log(p / q), exactly; inf where p has a tree that q forbids."""
    check_same_trees(p, q)
    a, b = p._centred(), q._centred()
    mu = a.marginals
    only_p = b.arcs.isneginf() & ~a.arcs.isneginf()
    if can_look(only_p, p._looks) and not bool(only_p.any()):
        impossible = torch.zeros_like(p.lengths, dtype=torch.bool)
    else:
        impossible = (only_p & p._in_some_tree(~a.arcs.isneginf())).flatten(1).any(1)
    value = b.log_partition - a.log_partition + _expected(mu, a.arcs) - _expected(mu, b.arcs)
    if b._each_root is not None:  # (where a has such costs, its trees have one word under the root)
        more = mu[:, 0].sum(1) - 1
        more = torch.where(more > mu.shape[1] * 2.0**-50, more, 0.0)  # that is rounding
        value = value - b._each_root * (more if a._each_root is None else torch.where(a._each_root < 0, 0.0, more))
    return torch.where(impossible, torch.inf, not_negative(value)).to(p.arcs.dtype)
