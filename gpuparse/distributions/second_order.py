"""Projective trees with scores of pairs of arcs, exactly: siblings in O(n^3), grandparents (and siblings) in O(n^4);
and of three arcs: grandsiblings in O(n^4)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from gpuparse.distributions.trees import TreeDistribution
from gpuparse.ops import second_order
from gpuparse.ops.plain.second_order import Kinds, tree_scores
from gpuparse.ops.shifts import arcs_less_greatest, bounded
from gpuparse.structures.masks import arc_mask, grandparent_mask, grandsibling_mask, sibling_mask
from gpuparse.structures.trees import Lengths, as_arcs, as_flag, as_lengths, as_scores, can_validate

if TYPE_CHECKING:
    from typing_extensions import Self


class Dense(Protocol):
    """What can give the scores of all triples, as ``decoding.parts.Parts`` do; its ``kind`` and ``lengths``, if it has
    them, must be those wanted."""

    def dense(self) -> Tensor: ...


MASKS = {"siblings": sibling_mask, "grandparents": grandparent_mask, "grandsiblings": grandsibling_mask}


class SecondOrderTrees(TreeDistribution):
    """p(tree) = exp(sum of the scores of its arcs and of its pairs of arcs) / Z, over projective trees.

    Args:
        arcs, lengths, single_root, validate_args: as for ``ProjectiveTrees``.
        siblings: scores [B, N, N, N] of (h, s, m): the arc h -> m and s, the previous child of h on m's side, going
            outward; s = h for the first. A tensor, or anything with ``dense()`` (``gpuparse.decoding.parts.Parts``).
        grandparents: scores [B, N, N, N] of (g, p, c), the arcs g -> p and p -> c.
        grandsiblings: scores [B, N, N, N, N] of (g, h, s, m): (h, s, m) as of siblings, and g the head of h; children
            of the root have none (Koo & Collins 2010, model 1). A sentence of 40 words has 22 MB of them in float64,
            and sums need about as much again.

    Pairs are taken in the dtype of ``arcs``; -inf forbids one. All that is differentiable is so in all scores.

    Attributes:
        siblings, grandparents, grandsiblings: scores as tensors, or None.
        sibling_marginals, grandparent_marginals: probabilities [B, N, N, N] of the pairs, scored or not.
        grandsibling_marginals: those of grandsiblings [B, N, N, N, N], scored or not.

    The others, and the methods, are those of ``ProjectiveTrees``.

    Example:
        >>> import torch, gpuparse as gp
        >>> siblings = torch.zeros(1, 4, 4, 4)
        >>> siblings[0, 2, 2, 1] = siblings[0, 2, 2, 3] = 5.0  # children of word 2, the first on their sides
        >>> trees = gp.SecondOrderTrees(torch.zeros(1, 4, 4), siblings=siblings)
        >>> trees.argmax
        tensor([[-1,  2,  0,  2]])
        >>> trees.sibling_marginals[0, 2, 2, 1] > 0.9
        tensor(True)
    """

    parts: ClassVar[dict[str, int]] = {"arcs": 3, "siblings": 4, "grandparents": 4, "grandsiblings": 5}
    algorithms: ClassVar[Any] = second_order
    projective = True
    siblings: Float[Tensor, "B N N N"] | None
    grandparents: Float[Tensor, "B N N N"] | None
    grandsiblings: Float[Tensor, "B N N N N"] | None

    def __init__(
        self,
        arcs: Tensor,
        lengths: Lengths = None,
        *,
        siblings: Tensor | Dense | None = None,
        grandparents: Tensor | Dense | None = None,
        grandsiblings: Tensor | Dense | None = None,
        single_root: bool = True,
        validate_args: bool | None = None,
    ) -> None:
        arcs = as_arcs(arcs)
        counts = as_lengths(lengths, arcs, validate_args)
        validates = can_validate(arcs, validate_args)
        given = {"siblings": siblings, "grandparents": grandparents, "grandsiblings": grandsiblings}
        pairs = [_as_pairs(x, name, arcs, counts, validates) for name, x in given.items()]
        self.single_root = as_flag(single_root, "single_root")
        self._start((arcs, *pairs), counts, arcs.shape[1:2], validate_args)

    def _look(self) -> tuple[bool, bool]:
        forbidden, large = self._look_at(MASKS)
        of_arcs = super()._look()
        return forbidden or of_arcs[0], large or of_arcs[1]

    def no_tree_error(self, sentence: int, best: Sequence[str] = ()) -> ValueError:
        """As of the first order; names the fewest kinds of scores that allow no tree together."""
        self._look_at(MASKS)  # a NaN that was not looked for until now
        for kinds in (some for count in range(len(MASKS) + 1) for some in combinations(MASKS, count)):
            there = [name in ("arcs", *kinds) for name in self.parts]
            only = self._like([x if keep else None for x, keep in zip(self._parts(), there, strict=True)])
            if only._sums("log_partition")[sentence].isneginf():
                break
        return only._no_tree_under(only._split()[0], sentence, (*best, *kinds))

    @property
    def scores(self) -> Kinds:
        """arcs, siblings, grandparents, grandsiblings."""
        return self.arcs, self.siblings, self.grandparents, self.grandsiblings

    def _sizes(self) -> str:
        return super()._sizes() + "".join(f", {name}" for name in MASKS if getattr(self, name) is not None)

    def _shape(self, name: str) -> tuple[int, ...]:
        B, N = self.arcs.shape[:2]
        return (B, *[N] * (self.parts[name] - 1))

    def _read(self, name: str) -> Bool[Tensor, "*shape"] | None:
        return MASKS.get(name, arc_mask)(self.lengths, self.arcs.shape[1])

    def _without_shared(self) -> tuple[Self, Float64[Tensor, "B K"]]:
        arcs, pairs, shared = self._split()
        return self._like([arcs, *pairs]), shared

    def _wide(self) -> Self:
        # With several roots a large constant on all grandparents is not shared, for it weighs how many there are: it
        # costs its share of digits.
        return self._without_shared()[0]

    def _score(self, value: Int[Tensor, "*S B N"], found: bool = True) -> Float64[Tensor, "*S B"]:
        score = tree_scores(self.scores, value, self.lengths)  # -inf where a word has no head
        return score if found else torch.where(self._is_tree(value), score, -torch.inf)

    @property
    def sibling_marginals(self) -> Float[Tensor, "B N N N"]:
        """Probability that m is the next child of h after s, or its first (s = h): [b, h, s, m]."""
        return self._with(["siblings"])._sums("siblings")

    @property
    def grandparent_marginals(self) -> Float[Tensor, "B N N N"]:
        """Probability of the arcs g -> p and p -> c together: [b, g, p, c]."""
        return self._with(["grandparents"])._sums("grandparents")

    @property
    def grandsibling_marginals(self) -> Float[Tensor, "B N N N N"]:
        """Probability of the arc g -> h with m the next child of h after s, or its first (s = h): [b, g, h, s, m]."""
        return self._with(["grandsiblings"])._sums("grandsiblings")

    def _split(self) -> tuple[Tensor, list[Tensor | None], Float64[Tensor, "B K"]]:
        """Scores in float64 of the same distribution, those of pairs relative to the best of their arc, which the arc
        takes over: all less what trees share, which comes after them. What no tree can have is -inf."""
        N = self.arcs.shape[1]
        arcs, common = arcs_less_greatest(bounded(self.arcs, arc_mask(self.lengths, N)), self.single_root)
        shared = [common]
        allowed, node = ~arcs.detach().isneginf(), torch.arange(N, device=arcs.device)
        pairs: list[Tensor | None] = []
        # the other arc: h -> s if s is not h, and a single root has no second child; g -> h
        inner = (allowed & (node[:, None] > 0) if self.single_root else allowed) | (node[:, None] == node)
        for name in MASKS:
            x = getattr(self, name)
            if x is None:
                pairs.append(None)
                continue
            # places of h and m among all nodes of a part
            place = {"siblings": (0, 2), "grandparents": (1, 2), "grandsiblings": (1, 3)}[name]
            axes = tuple(k + 1 for k in range(x.dim() - 1) if k not in place)
            possible = _placed(allowed, x.dim(), *place)
            if name != "grandparents":
                possible = possible & _placed(inner, x.dim(), place[0], place[0] + 1)
            if name != "siblings":
                possible = possible & _placed(allowed, x.dim(), 0, 1)
            alone = allowed & (node[:, None] == 0) if name != "siblings" else torch.zeros_like(allowed)
            bad = ~(x.detach() < torch.inf)  # shows, wherever it is
            x = torch.where(MASKS[name](self.lengths, N) & (possible | bad), bounded(x), -torch.inf)
            top = torch.where(alone, 0.0, x.detach().amax(axes))
            pairs.append(x - _placed(torch.where(top.isneginf(), 0.0, top), x.dim(), *place))
            top, common = arcs_less_greatest(top, self.single_root)
            arcs = arcs + top
            shared.append(common)
        return arcs, pairs, torch.cat(shared, 1)


def _placed(x: Tensor, dims: int, first: int, second: int) -> Tensor:
    """x [B, N, N] of two nodes as it stands beside scores of so many dimensions, given the nodes' places in these."""
    shape = [1] * (dims - 1)
    shape[first], shape[second] = x.shape[1:]
    return x.reshape(len(x), *shape)


def _as_pairs(
    pairs: Tensor | Dense | None, name: str, arcs: Float[Tensor, "B N N"], lengths: Int[Tensor, " B"], validates: bool
) -> Float[Tensor, " B *nodes"] | None:
    """Scores of pairs as a tensor that fits the arcs."""
    if pairs is None:
        return None
    kind = name if isinstance(pairs, Tensor) else getattr(pairs, "kind", name)
    if kind != name:
        raise ValueError(f"{name} must be parts of kind {name!r}, got {kind!r}")
    found = as_scores(pairs.dense() if hasattr(pairs, "dense") else pairs, name)
    B, N = arcs.shape[:2]
    wanted = [B, *[N] * (SecondOrderTrees.parts[name] - 1)]
    if list(found.shape) != wanted:
        raise ValueError(f"{name} must have shape {wanted} to fit arcs, got {list(found.shape)}")
    if found.device != arcs.device:
        raise ValueError(f"{name} must be on {arcs.device} like arcs, got {found.device}")
    given = lengths if isinstance(pairs, Tensor) else getattr(pairs, "lengths", lengths)
    if validates and not torch.equal(given, lengths):
        b = int((given != lengths).nonzero()[0])
        raise ValueError(f"{name} of sentence {b} have {int(given[b])} words, but lengths[{b}] is {int(lengths[b])}")
    return found.to(arcs.dtype)
