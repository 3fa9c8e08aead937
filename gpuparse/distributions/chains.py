"""What every distribution over chains of tags has, given the scores of tags in a row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from gpuparse.distributions.base import LOG_Z, StructuredDistribution
from gpuparse.distributions.common import as_k
from gpuparse.ops import chains, plain
from gpuparse.ops.shifts import LARGE, chains_less_shared, is_large, read_of_chains, span
from gpuparse.ops.viterbi import best_chain
from gpuparse.structures.conditions import allowed_tags, only
from gpuparse.structures.masks import is_position
from gpuparse.structures.tags import Lengths, as_lengths, as_tags, can_validate, check_scores, no_chain_error

if TYPE_CHECKING:
    from typing_extensions import Self


class ChainDistribution(StructuredDistribution):
    """p(tags) = exp(score of the chain) / Z, for each sentence of a batch: what ``TagChains`` and ``TrigramChains``
    have in common. A chain is its tags [n], -1 past the end.

    Attributes:
        unary: scores [B, n, T] of tag t at word i.
        trigrams_in_a_row: whether scores of three tags in a row come with them, or of two.
    """

    what = "chains"
    trigrams_in_a_row: ClassVar[bool]
    unary: Float[Tensor, "B n T"]

    def _begin(self, unary: Tensor, rows: Tensor, lengths: Lengths, validate_args: bool | None) -> None:
        """``rows``: the scores of tags in a row, as they were given."""
        counts = as_lengths(lengths, unary, validate_args)
        self._start((unary, rows), counts, unary.shape[1:2], validate_args)

    @property
    def _name(self) -> str:
        """What the scores of tags in a row are called."""
        return list(self.parts)[1]

    @property
    def _rows(self) -> Float[Tensor, "*shape"]:
        rows: Tensor = getattr(self, self._name)
        return rows

    @property
    def _pairs(self) -> Float[Tensor, "b p S T"]:
        """The scores of tags in a row as the operators take them: a view [1 or B, 1 or P, S, T]."""
        raise NotImplementedError

    def _chain_scores(self, tags: Int[Tensor, "*S B n"]) -> Float64[Tensor, "*S B"]:
        raise NotImplementedError

    def _sizes(self) -> str:
        return f"words: {self.unary.shape[1]}, tags: {self.unary.shape[2]}"

    def _greatest(self) -> int:
        return self.unary.shape[2] - 1

    def _none_error(self, sentence: int) -> ValueError:
        return no_chain_error(self.unary, self.lengths, sentence)

    def _conditioned(self, required: Tensor | None, forbidden: Tensor | None) -> dict[str, Tensor]:
        allowed = allowed_tags(required, forbidden, self.unary, self.lengths, self._validates)
        return {"unary": only(allowed, self.unary)}

    def _look(self) -> tuple[bool, bool]:
        spans = [span(x) for x in (self.unary, self._rows)]
        if all(low > -LARGE and high < LARGE for low, high in spans):
            return False, False
        finite = all(low > -torch.inf and high < torch.inf for low, high in spans)
        if not finite:
            check_scores(self.unary, self._rows, self.lengths, self._name)
        return not finite, any(is_large(x) for x in self._read_scores().values())

    def _read_scores(self) -> dict[str, Tensor | None]:
        unary, rows = read_of_chains(self.unary.detach(), self._rows.detach(), self.lengths)
        return {"unary": unary, self._name: rows}

    def _without_shared(self) -> tuple[Self, Float64[Tensor, "B K"]]:
        unary, rows, shared = chains_less_shared(self.unary, self._rows, self.lengths, self.trigrams_in_a_row)
        return self._like([unary, rows]), shared

    def _log_partition(self) -> Float64[Tensor, " B"]:
        return chains.value(self.unary, self._pairs, self.lengths, self.trigrams_in_a_row)

    def _expectations(self, name: str) -> dict[str, Tensor]:
        if name == LOG_Z:
            return {name: self._log_partition()}
        unary, pairs, of_pairs = self.unary, self._pairs, name != "unary"
        if of_pairs:  # one for every sentence and place
            places = plain.chain.places(unary.shape[1], self.trigrams_in_a_row)
            pairs = pairs[:, : min(1, places)] if pairs.shape[1] == 1 else pairs
            pairs = pairs.expand(unary.shape[0], places, -1, -1)
        return {name: chains.marginals(unary, pairs, self.lengths, self.trigrams_in_a_row, of_pairs=of_pairs)}

    def _best(self) -> Int[Tensor, "B n"]:
        return best_chain(self.unary.detach(), self._pairs.detach(), self.lengths, self.trigrams_in_a_row).tags

    def _draw(self, num: int) -> Int[Tensor, "num B n"]:
        return chains.sample(self.unary.detach(), self._pairs.detach(), self.lengths, self.trigrams_in_a_row, num)

    def _as_structures(self, value: Tensor) -> Int[Tensor, "*S B n"]:
        return as_tags(value, self.unary, self.lengths, self._validates)

    def _score(self, value: Int[Tensor, "*S B n"], found: bool = True) -> Float64[Tensor, "*S B"]:
        there = value >= 0
        if found:
            good = there.any(-1)
        else:
            n, T = self.unary.shape[1:]
            good = (there & (value < T) | ~is_position(self.lengths, n)).all(-1)
        return torch.where(good, self._chain_scores(value), -torch.inf)

    @property
    def marginals(self) -> Float[Tensor, "B n T"]:
        """Probability of each tag of each word."""
        return self._sums("unary")

    def topk(self, k: int) -> tuple[Int[Tensor, "k B n"], Float[Tensor, "k B"]]:
        """The k best chains (1 to 64), best first, and their scores; ranks that do not exist: tags -1, score -inf."""
        number = as_k(k)
        near = self._near()
        tags = chains.topk(near.unary.detach(), near._pairs.detach(), self.lengths, self.trigrams_in_a_row, number)
        return tags, self._score(tags).to(self._dtype)

    # Expected scores are derivatives of log Z along them, for which no marginals of pairs are needed.

    def _along(self, unary: Tensor, pairs: Tensor, own: Tensor | None = None) -> Float64[Tensor, " B"]:
        """Expected sum of other scores along the chain; ``own``: the pairs from here in the shape of the others."""
        own = self._pairs if own is None else own
        return chains.value(self.unary, own, self.lengths, self.trigrams_in_a_row, [(unary, pairs)])

    def _expected_scores(self, *of: Self) -> tuple[Float64[Tensor, " B"], list[Float64[Tensor, " B"]]]:
        return self._sums(LOG_Z), [self._along(_finite(q.unary), _finite(q._pairs)) for q in of]

    def _both_pairs(self, q: Self) -> tuple[Tensor, Tensor]:
        """Those of tags in a row from here and from q, in one shape."""
        mine, other = self._pairs, q._pairs
        if not (mine.shape[1] and other.shape[1]):
            return mine[:, :0], other[:, :0]
        mine, other = torch.broadcast_tensors(mine, other)
        return mine, other

    def _difference(self, q: Self, large: bool) -> tuple[Float64[Tensor, " B"], Float64[Tensor, " B"]]:
        mine, other = self._both_pairs(q)
        by = [_finite(x) - _finite(y) for x, y in ((self.unary, q.unary), (mine, other))]
        scale = 1.0
        if large:  # directions that derivatives can be taken along, without what no chain of weight has
            by[0] = torch.where(self.marginals.detach() > 0, by[0], 0.0)
            scale = 2.0 ** math.ceil(math.log2(max(1.0, *(abs(x) for d in by for x in span(d)))))
            by = [x / scale for x in by]
        return self._sums(LOG_Z), scale * self._along(by[0], by[1], mine)

    def _leaves(self, q: Self, validates: bool | None) -> Bool[Tensor, " B"]:
        mine, other = self._both_pairs(q)
        only = [y.isneginf() & ~x.isneginf() for x, y in ((self.unary, q.unary), (mine, other))]
        if can_validate(only[0], validates) and not any(bool(x.any()) for x in only):
            return torch.zeros_like(self.lengths, dtype=torch.bool)
        return plain.chain.leaves((self.unary, mine), (q.unary, other), self.lengths, self.trigrams_in_a_row)


def _finite(scores: Tensor) -> Tensor:
    return torch.where(scores.isfinite(), scores, 0.0)
