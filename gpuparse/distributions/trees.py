"""Distributions over dependency trees whose arcs are scored one by one, given the algorithms of a structure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from gpuparse.distributions.base import LOG_Z, Scores, StructuredDistribution, _detached
from gpuparse.distributions.common import as_k
from gpuparse.ops import Family
from gpuparse.ops.checks import check_scores
from gpuparse.ops.shifts import LOST, ONE_ROOT, arcs_less_shared, that_matter
from gpuparse.structures.conditions import conditioned_arcs
from gpuparse.structures.masks import arc_mask, word_mask
from gpuparse.structures.trees import (
    Lengths,
    as_arcs,
    as_flag,
    as_heads,
    as_lengths,
    is_tree,
    no_tree_error,
    tree_scores,
)

if TYPE_CHECKING:
    from typing_extensions import Self


class TreeDistribution(StructuredDistribution):
    """p(tree) = exp(sum of the scores of its arcs) / Z, for each sentence of a batch: what ``ProjectiveTrees``,
    ``NonProjectiveTrees`` and ``SecondOrderTrees`` have in common. A tree is its heads [N], -1 at node 0 and past the
    end.

    Attributes:
        arcs: scores [B, N, N] of head -> modifier.
        single_root: whether just one word hangs on the root.
        projective: whether arcs may not cross.
    """

    parts: ClassVar[dict[str, int]] = {"arcs": 3}
    first_order: ClassVar[Family]
    """Their algorithms where only arcs have scores."""
    projective: ClassVar[bool]
    _kept = ("single_root",)
    arcs: Float[Tensor, "B N N"]
    single_root: bool

    def __init__(
        self, arcs: Tensor, lengths: Lengths = None, *, single_root: bool = True, validate_args: bool | None = None
    ) -> None:
        arcs = as_arcs(arcs)
        counts = as_lengths(lengths, arcs, validate_args)
        self.single_root = as_flag(single_root, "single_root")
        self._start((arcs,), counts, arcs.shape[1:2], validate_args)

    def no_tree_error(self, sentence: int, best: Sequence[str] = ()) -> ValueError:
        """What to raise for a sentence that has no tree; ``best``: whose best scores are part of ``arcs``."""
        return self._no_tree_under(self.arcs, sentence, best)

    def _no_tree_under(self, arcs: Float[Tensor, "B N N"], sentence: int, best: Sequence[str]) -> ValueError:
        """The same of other arcs, to whose scores those of ``best`` were added."""
        name = f"arcs with their best {' and '.join(best)}" if best else "arcs"
        return no_tree_error(
            arcs.detach(), self.lengths, sentence, projective=self.projective, single_root=self.single_root, name=name
        )

    def _none_error(self, sentence: int) -> ValueError:
        return self.no_tree_error(sentence)

    def _conditioned(self, required: Tensor | None, forbidden: Tensor | None) -> dict[str, Tensor]:
        kind = {"projective": self.projective, "single_root": self.single_root}
        found = conditioned_arcs(required, forbidden, self.arcs, self.lengths, **kind, validate_args=self._validates)
        return {"arcs": found}

    def _sizes(self) -> str:
        return f"words: {self.arcs.shape[1] - 1}, single_root={self.single_root}"

    def _greatest(self) -> int:
        return self.arcs.shape[1] - 1

    def _is_over_the_same(self, q: Self) -> bool:
        return self.single_root == q.single_root

    def _read(self, name: str) -> Bool[Tensor, "B N N"] | None:
        return arc_mask(self.lengths, self.arcs.shape[1])

    def _look(self) -> tuple[bool, bool]:
        return check_scores(self.arcs, self.lengths)

    # Scores less what trees share may be known by two more things. ``weighed``: the arcs that sums are over.
    # ``each_root``: what each word under the root but the first costs beside its score (``arcs_less_shared``).

    def _without_shared(self) -> tuple[Self, Float64[Tensor, "B K"]]:
        arcs, shared, each_root = arcs_less_shared(self.arcs, self.lengths, self.first_order, self.single_root)
        near = self._like([arcs])
        near._known["weighed"] = that_matter(arcs)
        if each_root is not None:
            near._known["each_root"] = each_root
        return near, shared

    def _log_z_of_large(self) -> Float64[Tensor, " B"]:
        log_z = self._sums(LOG_Z)
        if "weighed" in self._known and bool(log_z.isneginf().any()):  # there is no tree, or none of any weight
            of_all = self.first_order.log_partition((self.arcs,), self.lengths, self.single_root)
            far = torch.where(of_all.isneginf(), -torch.inf, -2 * LOST)
            log_z = torch.where(log_z.isneginf(), far, log_z)
        return log_z

    def _inputs(self) -> tuple[Tensor, bool]:
        return self.lengths, self.single_root

    def _weighed(self) -> Scores:
        return (self._known["weighed"],) if "weighed" in self._known else self.scores

    def _as_structures(self, value: Tensor) -> Int[Tensor, "*S B N"]:
        return as_heads(value, self.arcs, self.lengths, self._validates)

    def _is_tree(self, heads: Int[Tensor, "*S B N"]) -> Bool[Tensor, "*S B"]:
        return is_tree(heads, self.lengths, projective=self.projective, single_root=self.single_root)

    def _score(self, value: Int[Tensor, "*S B N"], found: bool = True) -> Float64[Tensor, "*S B"]:
        score = tree_scores(self.arcs, value, self.lengths)
        if "each_root" in self._known:
            more = (word_mask(self.lengths, value.shape[-1]) & (value == 0)).sum(-1) - 1
            score = score + torch.where(more > 0, more * self._known["each_root"], 0.0)
        return torch.where((value >= 0).any(-1) if found else self._is_tree(value), score, -torch.inf)

    @property
    def marginals(self) -> Float[Tensor, "B N N"]:
        """Probability of each arc [b, head, modifier]. log Z comes along: where both are wanted, ask for this first."""
        return self._sums("arcs")

    def topk(self, k: int) -> tuple[Int[Tensor, "k B N"], Float[Tensor, "k B"]]:
        """The k best trees (1 to 64), best first, and their scores; ranks that do not exist: heads -1, score -inf."""
        number = as_k(k)
        near = self._near()
        heads = self.algorithms.topk(_detached(near.scores), *self._inputs(), number)
        if "each_root" in near._known:
            near._check_one_root(heads)
        return heads, self._score(heads).to(self._dtype)

    def _check_one_root(self, heads: Int[Tensor, "k B N"]) -> None:
        """Raise ValueError where trees were ordered by less than their scores."""
        wrong = (self._score(heads) < ONE_ROOT) & (heads >= 0).any(-1) & (self._known["each_root"] != 0)
        if bool(wrong.any()):
            k, b = wrong.nonzero()[0].tolist()
            raise ValueError(f"arcs of sentence {b} are too far apart: trees from rank {k} on cannot be told apart")

    def _wide(self) -> Self:
        if self._large:
            return self._near()
        arcs = torch.where(arc_mask(self.lengths, self.arcs.shape[1]), self.arcs.double(), -torch.inf)
        top = arcs.detach().amax(1, keepdim=True)
        return self._like([arcs - torch.where(top.isfinite(), top, 0.0)])

    def _difference(self, q: Self, large: bool) -> tuple[Float64[Tensor, " B"], Float64[Tensor, " B"]]:
        log_z, value = super()._difference(q, large)
        cost, own = q._known.get("each_root"), self._known.get("each_root")
        if cost is not None:  # (where there are such costs here, trees have one word under the root)
            mu = self._all_sums()["arcs"]
            more = mu[:, 0].sum(1) - 1
            more = torch.where(more > mu.shape[1] * 2.0**-50, more, 0.0)  # that is rounding
            value = value - cost * (more if own is None else torch.where(own < 0, 0.0, more))
        return log_z, value
