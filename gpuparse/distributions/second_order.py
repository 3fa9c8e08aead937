"""Projective trees with scores of pairs of arcs, exactly: siblings in O(n^3), grandparents (and siblings) in O(n^4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from gpuparse.distributions.trees import TreeDistribution
from gpuparse.ops import second_order
from gpuparse.ops.plain.second_order import Scores, tree_scores
from gpuparse.ops.shifts import arcs_less_greatest, bounded
from gpuparse.structures.masks import arc_mask, grandparent_mask, sibling_mask
from gpuparse.structures.trees import Lengths, as_arcs, as_flag, as_lengths, as_scores, can_validate

if TYPE_CHECKING:
    from typing_extensions import Self


class Dense(Protocol):
    """What can give the scores of all triples, as ``decoding.parts.Parts`` do; its ``kind`` and ``lengths``, if it has
    them, must be those wanted."""

    def dense(self) -> Tensor: ...


MASKS = {"siblings": sibling_mask, "grandparents": grandparent_mask}


class SecondOrderTrees(TreeDistribution):
    """p(tree) = exp(sum of the scores of its arcs and of its pairs of arcs) / Z, over projective trees.

    Args:
        arcs, lengths, single_root, validate_args: as for ``ProjectiveTrees``.
        siblings: scores [B, N, N, N] of (h, s, m): the arc h -> m and s, the previous child of h on m's side, going
            outward; s = h for the first. A tensor, or anything with ``dense()`` (``gpuparse.decoding.parts.Parts``).
        grandparents: scores [B, N, N, N] of (g, p, c), the arcs g -> p and p -> c.

    Pairs are taken in the dtype of ``arcs``; -inf forbids one. All that is differentiable is so in all scores.

    Attributes:
        siblings, grandparents: scores as tensors, or None.
        sibling_marginals, grandparent_marginals: probabilities [B, N, N, N] of the pairs, scored or not.

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

    parts: ClassVar[dict[str, int]] = {"arcs": 3, "siblings": 4, "grandparents": 4}
    projective = True
    siblings: Float[Tensor, "B N N N"] | None
    grandparents: Float[Tensor, "B N N N"] | None

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
        validates = can_validate(arcs, validate_args)
        given = {"siblings": siblings, "grandparents": grandparents}
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
        choices: tuple[tuple[str, ...], ...] = ((), ("siblings",), ("grandparents",), tuple(MASKS))
        for kinds in choices:
            there = [name in ("arcs", *kinds) for name in self.parts]
            only = self._like([x if keep else None for x, keep in zip(self._parts(), there, strict=True)])
            if only._sums("log_partition")[sentence].isneginf():
                break
        return only._no_tree_under(only._split()[0], sentence, (*best, *kinds))

    @property
    def scores(self) -> Scores:
        """arcs, siblings, grandparents."""
        return self.arcs, self.siblings, self.grandparents

    def _sizes(self) -> str:
        return super()._sizes() + "".join(f", {name}" for name in MASKS if getattr(self, name) is not None)

    def _shape(self, name: str) -> tuple[int, ...]:
        B, N = self.arcs.shape[:2]
        return B, N, N, N

    def _read(self, name: str) -> Bool[Tensor, "*shape"] | None:
        return MASKS.get(name, arc_mask)(self.lengths, self.arcs.shape[1])

    def _without_shared(self) -> tuple[Self, Float64[Tensor, "B K"]]:
        arcs, pairs, shared = self._split()
        return self._like([arcs, *pairs]), shared

    def _wide(self) -> Self:
        # With several roots a large constant on all grandparents is not shared, for it weighs how many there are: it
        # costs its share of digits.
        return self._without_shared()[0]

    def _log_partition(self) -> Float64[Tensor, " B"]:
        return second_order.log_partition(self.scores, self.lengths, self.single_root)

    def _expectations(self, name: str) -> dict[str, Tensor]:
        return self._named(*second_order.marginals(self.scores, self.lengths, self.single_root))

    def _detached(self) -> Scores:
        arcs, siblings, grandparents = self._parts()
        assert arcs is not None
        return arcs, siblings, grandparents

    def _best(self) -> Int[Tensor, "B N"]:
        return second_order.argmax(self._detached(), self.lengths, self.single_root)

    def _best_k(self, k: int) -> Int[Tensor, "k B N"]:
        return second_order.topk(self._detached(), self.lengths, self.single_root, k)  # about n searches for each

    def _draw(self, num: int) -> Int[Tensor, "num B N"]:
        return second_order.sample(self._detached(), self.lengths, self.single_root, num)

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


def _as_pairs(
    pairs: Tensor | Dense | None, name: str, arcs: Float[Tensor, "B N N"], lengths: Int[Tensor, " B"], validates: bool
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
    if validates and not torch.equal(given, lengths):
        b = int((given != lengths).nonzero()[0])
        raise ValueError(f"{name} of sentence {b} have {int(given[b])} words, but lengths[{b}] is {int(lengths[b])}")
    return found.to(arcs.dtype)
