"""Projective trees with scores of pairs of arcs, exactly: siblings in O(n^3), grandparents (and siblings) in O(n^4)."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributions.kl import register_kl

from gpuparse.distributions.common import as_k, may_keep, not_negative
from gpuparse.distributions.trees import TreeDistribution, _expected
from gpuparse.ops import second_order
from gpuparse.plain.second_order import Scores, grandparent_mask, sibling_mask, tree_scores
from gpuparse.plain.semiring import arc_mask
from gpuparse.trees import Lengths, as_arcs, as_heads, as_lengths, as_scores, can_look, is_tree, no_tree_error


class Dense(Protocol):
    """What can give the scores of all triples, as ``gpuparse.parts.Parts`` do."""

    def dense(self) -> Tensor: ...


NAMES = ("log_partition", "marginals", "siblings", "grandparents")
MASKS = {"siblings": sibling_mask, "grandparents": grandparent_mask}


class SecondOrderTrees(TreeDistribution):
    """p(tree) = exp(sum of the scores of its arcs and of its pairs of arcs) / Z, over projective trees.

    Args:
        arcs, lengths, single_root, validate_args: as for ``ProjectiveTrees``.
        siblings: scores [B, N, N, N] of (h, s, m): the arc h -> m and s, the previous child of h on m's side, going
            outward; s = h for the first. A tensor, or anything with ``dense()`` (``gpuparse.parts.Parts``).
        grandparents: scores [B, N, N, N] of (g, p, c), the arcs g -> p and p -> c.

    Pairs are taken in the dtype of ``arcs``; -inf forbids one. All that is differentiable is so in all scores.
    """

    projective = True

    def __init__(
        self,
        arcs: Tensor,
        lengths: Lengths = None,
        *,
        siblings: Tensor | Dense | None = None,
        grandparents: Tensor | Dense | None = None,
        single_root: bool = True,
        validate_args: bool | None = None,
    ) -> None:
        as_arcs(arcs)
        counts = as_lengths(lengths, arcs, validate_args)
        self.siblings = _as_pairs(siblings, "siblings", arcs)
        self.grandparents = _as_pairs(grandparents, "grandparents", arcs)
        looks = can_look(arcs, validate_args)
        forbidden = looks and any([_check_pairs(self, name, counts) for name in MASKS])
        super().__init__(arcs, counts, single_root=single_root, validate_args=validate_args)
        if forbidden:
            without = self._sums("log_partition").detach().isneginf().nonzero()
            if len(without):
                raise no_tree_error(
                    arcs, counts, int(without[0]), projective=True, single_root=self.single_root, name="scores"
                )

    @property
    def scores(self) -> Scores:
        """arcs, siblings, grandparents."""
        return self.arcs, self.siblings, self.grandparents

    def __repr__(self) -> str:
        pairs = "".join(f", {name}" for name in MASKS if getattr(self, name) is not None)
        return f"{super().__repr__()[:-1]}{pairs})"

    def _like(self, scores: Scores, lengths: Tensor, looks: bool | None = False) -> SecondOrderTrees:
        """Of the same kind, with other scores."""
        return type(self)(
            scores[0],
            lengths,
            siblings=scores[1],
            grandparents=scores[2],
            single_root=self.single_root,
            validate_args=looks,
        )

    def expand(self, batch_shape: Any, _instance: Any = None) -> SecondOrderTrees:
        first_order = super().expand(batch_shape)  # checks the shape
        B = first_order.arcs.shape[0]
        siblings, grandparents = (None if x is None else x.expand(B, -1, -1, -1) for x in self.scores[1:])
        return self._like((first_order.arcs, siblings, grandparents), first_order.lengths, self._looks)

    def _sums(self, name: str) -> Tensor:
        if name in self._known:
            return self._known[name]
        differentiable = any(x is not None and x.requires_grad for x in self.scores)
        wanted = torch.is_grad_enabled() and differentiable
        if name == "log_partition" and not wanted:
            value = second_order.log_partition(self.scores, self.lengths, self.single_root)
        else:
            all_of = second_order.marginals(self.scores, self.lengths, self.single_root)
            found = {key: x for key, x in zip(NAMES, all_of, strict=True) if x is not None}
            value = found[name]
            if not differentiable and may_keep():
                self._known.update(found)
        if (wanted or not differentiable) and may_keep():
            self._known[name] = value
        return value

    @property
    def sibling_marginals(self) -> Float[Tensor, "B N N N"]:
        """Probability that m is the next child of h after s, or its first (s = h): [b, h, s, m]."""
        return self._with_pairs(siblings=True)._sums("siblings")

    @property
    def grandparent_marginals(self) -> Float[Tensor, "B N N N"]:
        """Probability of the arcs g -> p and p -> c together: [b, g, p, c]."""
        return self._with_pairs(grandparents=True)._sums("grandparents")

    def _with_pairs(self, *, siblings: bool = False, grandparents: bool = False) -> SecondOrderTrees:
        """The same, with scores of 0 for pairs that have none and are asked for."""
        B, N = self.arcs.shape[:2]
        wanted = (siblings, grandparents)
        pairs = [
            self.arcs.new_zeros(B, N, N, N) if x is None and want else x
            for x, want in zip(self.scores[1:], wanted, strict=True)
        ]
        same = all(x is y for x, y in zip(pairs, self.scores[1:], strict=True))
        return self if same else self._like((self.arcs, pairs[0], pairs[1]), self.lengths)

    def _detached(self) -> Scores:
        arcs, siblings, grandparents = (None if x is None else x.detach() for x in self.scores)
        assert arcs is not None
        return arcs, siblings, grandparents

    @property
    def argmax(self) -> Int[Tensor, "B N"]:
        """Heads of a best tree; among equals the same one every time."""
        if "argmax" not in self._known:
            self._known["argmax"] = second_order.argmax(self._detached(), self.lengths, self.single_root)
        return self._known["argmax"].clone()  # the caller may write to it

    def _score(self, heads: Int[Tensor, "*S B N"]) -> Float[Tensor, "*S B"]:
        return tree_scores(self.scores, heads, self.lengths).to(self.arcs.dtype)

    def topk(self, k: int) -> tuple[Int[Tensor, "k B N"], Float[Tensor, "k B"]]:
        """The k best trees (1 to 64), best first, and their scores; ranks that do not exist: heads -1, score -inf.

        Each tree after the first costs about n searches for a best one.
        """
        heads = second_order.topk(self._detached(), self.lengths, self.single_root, as_k(k))
        return heads, self._score(heads)

    def sample(self, sample_shape: Any = ()) -> Int[Tensor, "*S B N"]:
        """Independent exact draws; follows ``torch.manual_seed``."""
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            heads = second_order.sample(self._detached(), self.lengths, self.single_root, shape.numel())
        return heads.reshape(*shape, *self.arcs.shape[:2])

    def log_prob(self, value: Int[Tensor, "*S B N"]) -> Float[Tensor, "*S B"]:
        """log p of each tree; -inf for heads that are no tree of this kind. Node 0 and the padding are not read."""
        heads = as_heads(value, self.arcs, self.lengths, self._looks)
        tree = is_tree(heads, self.lengths, projective=True, single_root=self.single_root)
        value = tree_scores(self.scores, heads, self.lengths) - self._sums("log_partition")
        value = value - value.detach().clamp(min=0)  # rounding above 0
        return torch.where(tree, value, -torch.inf).to(self.arcs.dtype)

    def _centred(self) -> SecondOrderTrees:
        """The same distribution in float64, scores of pairs relative to the best of their arc, those of arcs to the
        best total of their word: nothing large cancels. What is not read is -inf."""
        if "centred" not in self.__dict__:
            N = self.arcs.shape[1]
            arcs = torch.where(arc_mask(self.lengths, N), self.arcs.double(), -torch.inf)
            pairs: list[Tensor | None] = []
            for x, mask, axis in zip(self.scores[1:], MASKS.values(), (2, 1), strict=True):
                if x is None:
                    pairs.append(None)
                    continue
                x = torch.where(mask(self.lengths, N), x.double(), -torch.inf)
                top = x.detach().amax(axis)
                top = torch.where(top.isfinite(), top, 0.0)
                pairs.append(x - top.unsqueeze(axis))
                arcs = arcs + top
            top = arcs.detach().amax(1, keepdim=True)
            arcs = arcs - torch.where(top.isfinite(), top, 0.0)
            wide = self._like((arcs, pairs[0], pairs[1]), self.lengths)
            differentiable = any(x is not None and x.requires_grad for x in self.scores)
            if (differentiable and not torch.is_grad_enabled()) or not may_keep():
                return wide
            self.centred: SecondOrderTrees = wide
        return self.centred

    def _expected_score(self, of: SecondOrderTrees) -> Float[Tensor, " B"]:
        """Expected score of a tree from here under ``of``, whose forbidden parts count 0."""
        p = self._with_pairs(siblings=of.siblings is not None, grandparents=of.grandparents is not None)
        total = _expected(p._sums("marginals"), of.arcs)
        for name, x in zip(MASKS, of.scores[1:], strict=True):
            if x is not None:
                total = total + _expected(p._sums(name), x)
        return total

    def entropy(self) -> Float[Tensor, " B"]:
        """-sum p log p, exactly: log Z minus the expected score."""
        p = self._centred()
        return not_negative(p._sums("log_partition") - p._expected_score(p)).to(self.arcs.dtype)

    def _has_tree_outside(self, q: SecondOrderTrees) -> Bool[Tensor, " B"]:
        """Whether some tree that is possible here, however rare it is, is forbidden in q; both are centred."""
        p = self._with_pairs(siblings=q.siblings is not None, grandparents=q.grandparents is not None)
        found = torch.zeros_like(p.lengths, dtype=torch.bool)
        pairs = [(x, y) for x, y in zip(p.scores, q.scores, strict=True) if x is not None and y is not None]
        if can_look(p.arcs, None) and not any(bool((y.isneginf() & ~x.isneginf()).any()) for x, y in pairs):
            return found
        alike = [None if x is None else torch.where(x.detach().isneginf(), -torch.inf, 0.0).double() for x in p.scores]
        assert alike[0] is not None
        uniform = p._like((alike[0], alike[1], alike[2]), p.lengths)
        for name, x in zip(NAMES[1:], q.scores, strict=True):
            if x is not None:
                found = found | ((uniform._sums(name) > 0) & x.isneginf()).flatten(1).any(1)
        return found


def _as_pairs(pairs: Tensor | Dense | None, name: str, arcs: Float[Tensor, "B N N"]) -> Float[Tensor, "B N N N"] | None:
    """Scores of pairs as a tensor that fits the arcs."""
    if pairs is None:
        return None
    found = as_scores(pairs.dense() if hasattr(pairs, "dense") else pairs, name)
    B, N = arcs.shape[:2]
    if found.shape != (B, N, N, N):
        raise ValueError(f"{name} must have shape {[B, N, N, N]} to fit arcs, got {list(found.shape)}")
    if found.device != arcs.device:
        raise ValueError(f"{name} must be on {arcs.device} like arcs, got {found.device}")
    return found.to(arcs.dtype)


def _check_pairs(trees: SecondOrderTrees, name: str, lengths: Tensor) -> bool:
    """Raise ValueError at a NaN or +inf among the scores of pairs that are read; return whether any may be -inf."""
    values = getattr(trees, name)
    if values is None or not values.numel():
        return False
    values = values.detach()
    low, high = values.aminmax()  # NaN comes through it
    if bool(low > -torch.inf) and bool(high < torch.inf):
        return False
    wrong = (MASKS[name](lengths, values.shape[1]) & (values.isnan() | values.isposinf())).nonzero()
    if len(wrong):
        place = wrong[0].tolist()
        raise ValueError(
            f"{name}{place} is {float(values[tuple(place)])} (sentence {place[0]}); "
            "scores must be finite, or -inf for a forbidden part"
        )
    return True


@register_kl(SecondOrderTrees, SecondOrderTrees)
def _kl(p: SecondOrderTrees, q: SecondOrderTrees) -> Float[Tensor, " B"]:
    """sum p log(p / q), exactly; inf where p has a tree that q forbids."""
    if p.single_root != q.single_root:
        raise ValueError(f"KL needs two distributions over the same trees, got {p} and {q}")
    if p.arcs.shape != q.arcs.shape:
        raise ValueError(f"arcs of p and q must have the same shape, got {list(p.arcs.shape)} and {list(q.arcs.shape)}")
    if can_look(p.lengths, p._looks) and not torch.equal(p.lengths, q.lengths):
        i = int((p.lengths != q.lengths).nonzero()[0])
        raise ValueError(f"lengths of sentence {i} must be the same in p and q, got {p.lengths[i]} and {q.lengths[i]}")
    a, b = p._centred(), q._centred()
    value = b._sums("log_partition") - a._sums("log_partition") + a._expected_score(a) - a._expected_score(b)
    return torch.where(a._has_tree_outside(b), torch.inf, not_negative(value)).to(p.arcs.dtype)
