"""Projective trees with scores of pairs of arcs, exactly: siblings in O(n^3), grandparents (and siblings) in O(n^4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor
from torch.distributions.kl import register_kl

from gpuparse.distributions.common import as_k, may_keep, not_negative
from gpuparse.distributions.trees import TreeDistribution, _expected, check_same_trees
from gpuparse.ops import second_order
from gpuparse.plain.second_order import Scores, grandparent_mask, sibling_mask, tree_scores
from gpuparse.plain.semiring import arc_mask
from gpuparse.shifts import LARGE, arcs_less_greatest, bounded, is_large, span
from gpuparse.trees import Lengths, as_arcs, as_heads, as_lengths, as_scores, can_look, is_tree


class Dense(Protocol):
    """What can give the scores of all triples, as ``gpuparse.parts.Parts`` do; its ``kind`` and ``lengths``, if it has
    them, must be those wanted."""

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
        arcs = as_arcs(arcs)
        counts = as_lengths(lengths, arcs, validate_args)
        looks = can_look(arcs, validate_args)
        self.siblings = _as_pairs(siblings, "siblings", arcs, counts, looks)
        self.grandparents = _as_pairs(grandparents, "grandparents", arcs, counts, looks)
        found = [_check_pairs(self, name, counts) for name in MASKS] if looks else []
        forbidden, self._large_pairs = any(x for x, _ in found), any(x for _, x in found)
        super().__init__(arcs, counts, single_root=single_root, validate_args=validate_args)
        if forbidden:
            without = self._sums("log_partition").detach().isneginf().nonzero()
            if len(without):
                raise self.no_tree_error(int(without[0]))

    def no_tree_error(self, sentence: int, best: Sequence[str] = ()) -> ValueError:
        """As of the first order; names the fewest kinds of scores that allow no tree together."""
        for name in MASKS:
            _check_pairs(self, name, self.lengths)  # a NaN that was not looked for until now
        arcs, *pairs = (None if x is None else x.detach() for x in self.scores)
        assert arcs is not None
        choices: tuple[tuple[str, ...], ...] = ((), ("siblings",), ("grandparents",), tuple(MASKS))
        for kinds in choices:
            beside, under = (x if name in kinds else None for name, x in zip(MASKS, pairs, strict=True))
            only = self._like((arcs, beside, under), self.lengths)
            if only._sums("log_partition")[sentence].isneginf():
                break
        return only._no_tree_under(only._split()[0], sentence, (*best, *kinds))

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

    def _without_shared(self) -> tuple[SecondOrderTrees, Float64[Tensor, "B K"]]:
        arcs, pairs, shared = self._split()
        return self._like((arcs, pairs[0], pairs[1]), self.lengths), shared

    def _log_partition_of_all(self) -> Float64[Tensor, " B"]:
        return self._sums("log_partition")

    def _near(self) -> SecondOrderTrees:
        return self._without_shared()[0] if self._large else self

    def _given(self) -> dict[str, Tensor | None]:
        N = self.arcs.shape[1]
        pairs = {
            name: None if x is None else torch.where(MASKS[name](self.lengths, N), x.detach(), 0.0)
            for name, x in zip(MASKS, self.scores[1:], strict=True)
        }
        return {**super()._given(), **pairs}

    def _sums(self, name: str) -> Tensor:
        if name in self._known:
            return self._known[name]
        differentiable = any(x is not None and x.requires_grad for x in self.scores)
        wanted = torch.is_grad_enabled() and differentiable
        if self._large:
            value = self._large_sums(name)
        elif name == "log_partition" and not wanted:
            value = second_order.log_partition(self.scores, self.lengths, self.single_root)
        else:
            found = self._marginals()
            value = found[name]
            if not differentiable and may_keep():
                self._known.update(found)
        if (wanted or not differentiable) and may_keep():
            self._known[name] = value
        return value

    def _marginals(self) -> dict[str, Tensor]:
        all_of = second_order.marginals(self.scores, self.lengths, self.single_root)
        return {name: x for name, x in zip(NAMES, all_of, strict=True) if x is not None}

    def _all_sums(self) -> dict[str, Tensor]:
        """What ``_sums`` gives, all by one call and with one graph: for results that are made of several."""
        there = [*NAMES[:2], *(name for name in MASKS if getattr(self, name) is not None)]
        if all(name in self._known for name in there):
            return self._known
        found = self._marginals()
        differentiable = any(x is not None and x.requires_grad for x in self.scores)
        if (torch.is_grad_enabled() or not differentiable) and may_keep():
            self._known.update(found)
        return found

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
        if same:
            return self
        made = self._like((self.arcs, pairs[0], pairs[1]), self.lengths)
        made._large = self._large
        return made

    def _detached(self) -> Scores:
        arcs, siblings, grandparents = (None if x is None else x.detach() for x in self._near().scores)
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

    def _draw(self, num: int) -> Int[Tensor, "num B N"]:
        return second_order.sample(self._detached(), self.lengths, self.single_root, num)

    def log_prob(self, value: Int[Tensor, "*S B N"]) -> Float[Tensor, "*S B"]:
        """log p of each tree; -inf for heads that are no tree of this kind. Node 0 and the padding are not read."""
        heads = as_heads(value, self.arcs, self.lengths, self._looks)
        tree = is_tree(heads, self.lengths, projective=True, single_root=self.single_root)
        near = self._near()
        value = tree_scores(near.scores, heads, self.lengths) - near._sums("log_partition")
        value = value - value.detach().clamp(min=0)  # rounding above 0
        return torch.where(tree, value, -torch.inf).to(self.arcs.dtype)

    def _split(self) -> tuple[Tensor, list[Tensor | None], Float64[Tensor, "B K"]]:
        """Scores in float64 of the same distribution, those of pairs relative to the best of their arc, which the arc
        takes over: all less what trees share, which comes after them. What no tree can have is -inf."""
        N = self.arcs.shape[1]
        arcs, common = arcs_less_greatest(bounded(self.arcs, arc_mask(self.lengths, N)), self.single_root)
        shared = [common]
        allowed, node = ~arcs.detach().isneginf(), torch.arange(N, device=arcs.device)
        pairs: list[Tensor | None] = []
        for name, axis in (("siblings", 2), ("grandparents", 1)):
            x = getattr(self, name)
            if x is None:
                pairs.append(None)
                continue
            possible, alone = allowed.unsqueeze(axis), torch.zeros_like(allowed)
            if name == "siblings":  # the other arc, h -> s if s is not h; a single root has no second child
                other = allowed & (node[:, None] > 0) if self.single_root else allowed
                possible = possible & (other | (node[:, None] == node))[..., None]
            else:  # the other arc, g -> h; under the root there is none
                possible, alone = possible & allowed[..., None], allowed & (node[:, None] == 0)
            bad = ~(x.detach() < torch.inf)  # shows, wherever it is
            x = torch.where(MASKS[name](self.lengths, N) & (possible | bad), bounded(x), -torch.inf)
            top = torch.where(alone, 0.0, x.detach().amax(axis))
            pairs.append(x - torch.where(top.isneginf(), 0.0, top).unsqueeze(axis))
            top, common = arcs_less_greatest(top, self.single_root)
            arcs = arcs + top
            shared.append(common)
        return arcs, pairs, torch.cat(shared, 1)

    def _centred(self) -> SecondOrderTrees:
        """The same distribution by ``_split``: nothing large cancels that all trees have in common. With several roots
        a large constant on all grandparents is not in common, for it weighs how many: it costs its share of digits."""
        if "centred" not in self.__dict__:
            wide = self._without_shared()[0]
            differentiable = any(x is not None and x.requires_grad for x in self.scores)
            if (differentiable and not torch.is_grad_enabled()) or not may_keep():
                return wide
            self.centred: SecondOrderTrees = wide
        return self.centred

    def _expected_scores(self, *of: SecondOrderTrees) -> tuple[Float[Tensor, " B"], list[Float[Tensor, " B"]]]:
        """log Z, and the expected scores of a tree from here under each ``of``, whose forbidden parts count 0."""
        p = self._with_pairs(
            siblings=any(q.siblings is not None for q in of), grandparents=any(q.grandparents is not None for q in of)
        )
        sums = p._all_sums()
        totals = []
        for q in of:
            each = [_expected(sums[name], x) for name, x in zip(NAMES[1:], q.scores, strict=True) if x is not None]
            totals.append(torch.stack(each).sum(0))
        return sums["log_partition"], totals

    def entropy(self) -> Float[Tensor, " B"]:
        """-sum p log p, exactly: log Z minus the expected score."""
        p = self._centred()
        log_z, (expected,) = p._expected_scores(p)
        return not_negative(log_z - expected).to(self.arcs.dtype)

    def _has_tree_outside(self, q: SecondOrderTrees) -> Bool[Tensor, " B"]:
        """Whether some tree that is possible here, however rare it is, is forbidden in q; both are centred."""
        p = self._with_pairs(siblings=q.siblings is not None, grandparents=q.grandparents is not None)
        found = torch.zeros_like(p.lengths, dtype=torch.bool)
        pairs = [(x, y) for x, y in zip(p.scores, q.scores, strict=True) if x is not None and y is not None]
        if can_look(p.arcs, None) and not any(bool((y.isneginf() & ~x.isneginf()).any()) for x, y in pairs):
            return found
        alike = [None if x is None else torch.where(x.detach().isneginf(), -torch.inf, 0.0).double() for x in p.scores]
        assert alike[0] is not None
        share = p._like((alike[0], alike[1], alike[2]), p.lengths)._all_sums()  # all trees alike
        for name, x in zip(NAMES[1:], q.scores, strict=True):
            if x is not None:
                found = found | ((share[name] > 0) & x.isneginf()).flatten(1).any(1)
        return found


def _as_pairs(
    pairs: Tensor | Dense | None, name: str, arcs: Float[Tensor, "B N N"], lengths: Int[Tensor, " B"], looks: bool
) -> Float[Tensor, "B N N N"] | None:
    """Scores of pairs as a tensor that fits the arcs."""
    if pairs is None:
        return None
    kind = name if isinstance(pairs, Tensor) else getattr(pairs, "kind", name)
    if kind != name:
        raise ValueError(f"{name} must be parts of kind {name!r}, got {kind!r}")
    found = as_scores(pairs.dense() if hasattr(pairs, "dense") else pairs, name)
    B, N = arcs.shape[:2]
    if found.shape != (B, N, N, N):
        raise ValueError(f"{name} must have shape {[B, N, N, N]} to fit arcs, got {list(found.shape)}")
    if found.device != arcs.device:
        raise ValueError(f"{name} must be on {arcs.device} like arcs, got {found.device}")
    given = lengths if isinstance(pairs, Tensor) else getattr(pairs, "lengths", lengths)
    if looks and not torch.equal(given, lengths):
        b = int((given != lengths).nonzero()[0])
        raise ValueError(f"{name} of sentence {b} have {int(given[b])} words, but lengths[{b}] is {int(lengths[b])}")
    return found.to(arcs.dtype)


def _check_pairs(trees: SecondOrderTrees, name: str, lengths: Tensor) -> tuple[bool, bool]:
    """Raise ValueError at a NaN or +inf among the scores of pairs that are read; return whether any may be -inf, and
    whether any is large."""
    values = getattr(trees, name)
    if values is None or not values.numel():
        return False, False
    values = values.detach()
    low, high = span(values)  # NaN comes through it
    if low > -torch.inf and high < torch.inf:
        return False, low <= -LARGE or high >= LARGE
    wrong = (MASKS[name](lengths, values.shape[1]) & (values.isnan() | values.isposinf())).nonzero()
    if len(wrong):
        place = wrong[0].tolist()
        raise ValueError(
            f"{name}{place} is {float(values[tuple(place)])} (sentence {place[0]}); "
            "scores must be finite, or -inf for a forbidden part"
        )
    return True, is_large(torch.where(MASKS[name](lengths, values.shape[1]), values, 0.0))


@register_kl(SecondOrderTrees, SecondOrderTrees)
def _kl(p: SecondOrderTrees, q: SecondOrderTrees) -> Float[Tensor, " B"]:
    """sum p log(p / q), exactly; inf where p has a tree that q forbids."""
    check_same_trees(p, q)
    a, b = p._centred(), q._centred()
    log_z, (own, other) = a._expected_scores(a, b)
    value = b._sums("log_partition") - log_z + own - other
    return torch.where(a._has_tree_outside(b), torch.inf, not_negative(value)).to(p.arcs.dtype)
