"""What every distribution over chains of tags has, given the scores of tags in a row."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.kl import register_kl

from gpuparse import plain
from gpuparse.distributions.common import as_batch_shape, as_k, as_sample_shape, may_keep, not_negative
from gpuparse.ops import chains
from gpuparse.ops.viterbi import best_chain
from gpuparse.shifts import LARGE, add_up, chains_less_shared, check_sums, is_large, read_of_chains, span
from gpuparse.tags import Lengths, as_lengths, as_tags, can_look, check_scores, is_position, no_chain_error


class ChainDistribution(Distribution):
    """p(tags) = exp(score of the chain) / Z, for each sentence of a batch.

    ``log_partition``, ``marginals``, ``max``, ``entropy()``, ``log_prob()`` and the KL divergence are differentiable in
    all scores, twice and more; results have the dtype and device of ``unary``. What was computed once is kept, with its
    graph: to back through the same distribution twice, pass ``retain_graph=True`` the first time or make it anew.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    trigrams_in_a_row: ClassVar[bool]
    name_of_pairs: ClassVar[str]

    def __init__(
        self, unary: Tensor, rows: Float[Tensor, "*shape"], lengths: Lengths, validate_args: bool | None
    ) -> None:
        """``rows``: the scores of tags in a row, as they were given."""
        self.unary: Float[Tensor, "B n T"] = unary
        self._rows = rows
        self.lengths: Int[Tensor, " B"] = as_lengths(lengths, unary, validate_args)
        self._looks = validate_args
        self._known: dict[str, Tensor] = {}
        super().__init__(unary.shape[:1], unary.shape[1:2], validate_args=False)
        self._large = False
        if can_look(unary, validate_args):
            spans = [span(x) for x in (unary, rows)]
            if not all(low > -LARGE and high < LARGE for low, high in spans):
                self._check(all(low > -torch.inf and high < torch.inf for low, high in spans))

    def _check(self, finite: bool) -> None:
        """Raise ValueError at scores that are not ``finite`` and should be, or large ones that cannot be answered."""
        if not finite:
            check_scores(self.unary, self._rows, self.lengths, self.name_of_pairs)
        self._large = any(is_large(x) for x in self._given().values())
        if self._large:
            with torch.no_grad():
                near, shared = self._without_shared()
                check_sums(near._sums("log_partition"), shared, self._given(), self.unary.dtype, "chains")
        if not finite:
            without = self._sums("log_partition").detach().isneginf().nonzero()
            if len(without):
                raise no_chain_error(self.unary, self.lengths, int(without[0]))

    def _given(self) -> dict[str, Tensor]:
        """The scores by the names of the arguments, 0 where they are not read."""
        unary, rows = read_of_chains(self.unary.detach(), self._rows.detach(), self.lengths)
        return {"unary": unary, self.name_of_pairs: rows}

    def _without_shared(self) -> tuple[ChainDistribution, Float64[Tensor, "B K"]]:
        """The same distribution in float64, scores less what all chains share, and what they share
        (``gpuparse.shifts``)."""
        unary, rows, shared = chains_less_shared(self.unary, self._rows, self.lengths, self.trigrams_in_a_row)
        return self._like(unary, rows, self.lengths, False), shared

    def _near(self) -> ChainDistribution:
        """The same without what all chains share, where scores are large; else itself."""
        return self._without_shared()[0] if self._large else self

    @property
    def _pairs(self) -> Float[Tensor, "b p S T"]:
        """The scores of tags in a row as the operators take them: a view [1 or B, 1 or P, S, T]."""
        raise TypeError(f"{type(self).__name__} does not say how its scores lie")

    def _chain_scores(self, tags: Int[Tensor, "*S B n"]) -> Float64[Tensor, "*S B"]:
        raise TypeError(f"{type(self).__name__} does not say what a chain scores")

    def _like(self, unary: Tensor, rows: Tensor, lengths: Tensor, validate_args: bool | None) -> ChainDistribution:
        """The same kind of distribution with other scores."""
        make: Any = type(self)
        return make(unary, rows, lengths, validate_args=validate_args)

    def __getstate__(self) -> dict[str, Any]:
        """For copy and pickle: what it is made of, not what was computed from that."""
        return {key: value for key, value in self.__dict__.items() if key != "centred"} | {"_known": {}}

    def __repr__(self) -> str:
        B, n, T = self.unary.shape
        return f"{type(self).__name__}(sentences: {B}, words: {n}, tags: {T})"

    @property
    def support(self) -> Any:
        """Tags: whole numbers from -1 (past the end) to T - 1."""
        return constraints.independent(constraints.integer_interval(-1, self.unary.shape[2] - 1), 1)

    def expand(self, batch_shape: Any, _instance: Any = None) -> ChainDistribution:
        """The same for more sentences: from [1] to any [B]."""
        shape = as_batch_shape(batch_shape, self.unary.shape[0])
        unary, lengths, rows = self.unary.expand(shape[0], -1, -1), self.lengths.expand(shape[0]), self._rows
        if rows.dim() == 4:
            rows = rows.expand(shape[0], -1, -1, -1)
        return self._like(unary, rows, lengths, self._looks)

    def _requires_grad(self) -> bool:
        return self.unary.requires_grad or self._rows.requires_grad

    def _sums(self, name: str) -> Tensor:
        """log_partition (in float64), marginals or pair_marginals, by name. What was computed is kept, unless it lacks
        the gradient that a later caller may want. Each has a graph of its own."""
        if name in self._known:
            return self._known[name]
        wanted = torch.is_grad_enabled() and self._requires_grad()
        unary, pairs = self.unary, self._pairs
        if self._large:
            near, shared = self._without_shared()
            value = near._sums(name)
            value = value + add_up(shared) if name == "log_partition" else value.to(unary.dtype)
        elif name == "log_partition":
            value = chains.value(unary, pairs, self.lengths, self.trigrams_in_a_row)
        else:
            if name == "pair_marginals":  # one for every sentence and place
                places = plain.chain.places(unary.shape[1], self.trigrams_in_a_row)
                pairs = pairs[:, : min(1, places)] if pairs.shape[1] == 1 else pairs
                pairs = pairs.expand(unary.shape[0], places, -1, -1)
            value = chains.marginals(
                unary, pairs, self.lengths, self.trigrams_in_a_row, of_pairs=name == "pair_marginals"
            )
        if (wanted or not self._requires_grad()) and may_keep():
            self._known[name] = value
        return value

    @property
    def log_partition(self) -> Float[Tensor, " B"]:
        """log of the sum over all chains of exp(score)."""
        return self._sums("log_partition").to(self.unary.dtype)

    @property
    def marginals(self) -> Float[Tensor, "B n T"]:
        """Probability of each tag of each word."""
        return self._sums("marginals")

    def _detached(self) -> tuple[Tensor, Tensor]:
        near = self._near()
        return near.unary.detach(), near._pairs.detach()

    @property
    def argmax(self) -> Int[Tensor, "B n"]:
        """Tags of a best chain; among equals the same one every time."""
        if "argmax" not in self._known:
            unary, pairs = self._detached()
            self._known["argmax"] = best_chain(unary, pairs, self.lengths, self.trigrams_in_a_row).tags
        return self._known["argmax"].clone()  # the caller may write to it

    @property
    def mode(self) -> Int[Tensor, "B n"]:
        """``argmax``, by its name in torch.distributions."""
        return self.argmax

    @property
    def max(self) -> Float[Tensor, " B"]:
        """Score of a best chain; its gradient is that chain."""
        return self._score(self.argmax)

    def _score(self, tags: Int[Tensor, "*S B n"]) -> Float[Tensor, "*S B"]:
        """Scores of decoded chains; -inf where none was found."""
        missing = (tags < 0).all(-1)
        return torch.where(missing, -torch.inf, self._chain_scores(tags)).to(self.unary.dtype)

    def topk(self, k: int) -> tuple[Int[Tensor, "k B n"], Float[Tensor, "k B"]]:
        """The k best chains (1 to 64), best first, and their scores; ranks that do not exist: tags -1, score -inf."""
        number = as_k(k)
        unary, pairs = self._detached()
        tags = chains.topk(unary, pairs, self.lengths, self.trigrams_in_a_row, number)
        return tags, self._score(tags)

    def sample(self, sample_shape: Any = ()) -> Int[Tensor, "*S B n"]:
        """Independent exact draws; follows ``torch.manual_seed``."""
        shape = as_sample_shape(sample_shape)
        with torch.no_grad():
            unary, pairs = self._detached()
            tags = chains.sample(unary, pairs, self.lengths, self.trigrams_in_a_row, shape.numel())
        return tags.reshape(*shape, *self.unary.shape[:2])

    def log_prob(self, value: Int[Tensor, "*S B n"]) -> Float[Tensor, "*S B"]:
        """log p of each chain. Tags past the end are not read."""
        tags = as_tags(value, self.unary, self.lengths, self._looks)
        n, T = self.unary.shape[1:]
        good = ((tags >= 0) & (tags < T) | ~is_position(self.lengths, n)).all(-1)
        near = self._near()
        value = near._chain_scores(tags) - near._sums("log_partition")
        value = value - value.detach().clamp(min=0)  # rounding above 0
        return torch.where(good, value, -torch.inf).to(self.unary.dtype)

    def _centred(self) -> ChainDistribution:
        """The same distribution in float64, scores shifted by their greatest: nothing large cancels."""
        if "centred" not in self.__dict__:
            wide = self._without_shared()[0]
            if (self._requires_grad() and not torch.is_grad_enabled()) or not may_keep():
                return wide
            self.centred = wide
        return self.centred

    def _expected(self, unary: Tensor, pairs: Tensor) -> Float64[Tensor, " B"]:
        """Expected sum of other scores along the chain: the derivative of log Z along them."""
        return chains.value(self.unary, self._pairs, self.lengths, self.trigrams_in_a_row, [(unary, pairs)])

    def entropy(self) -> Float[Tensor, " B"]:
        """-sum p log p, exactly: log Z minus the expected score."""
        p = self._centred()
        value = p._sums("log_partition") - p._expected(_finite(p.unary), _finite(p._pairs))
        return not_negative(value).to(self.unary.dtype)


def _finite(scores: Tensor) -> Tensor:
    return torch.where(scores.isfinite(), scores, 0.0)


@register_kl(ChainDistribution, ChainDistribution)
def _kl(p: ChainDistribution, q: ChainDistribution) -> Float[Tensor, " B"]:
    """sum p log(p / q), exactly; inf where p has a chain that q forbids."""
    if type(p) is not type(q):
        raise ValueError(f"KL needs two distributions over the same chains, got {p} and {q}")
    if p.unary.shape != q.unary.shape:
        raise ValueError(
            f"unary of p and q must have the same shape, got {list(p.unary.shape)} and {list(q.unary.shape)}"
        )
    if can_look(p.lengths, p._looks) and not torch.equal(p.lengths, q.lengths):
        i = int((p.lengths != q.lengths).nonzero()[0])
        raise ValueError(f"lengths of sentence {i} must be the same in p and q, got {p.lengths[i]} and {q.lengths[i]}")
    a, b = p._centred(), q._centred()
    pairs, other = (
        torch.broadcast_tensors(a._pairs, b._pairs)
        if a._pairs.shape[1] and b._pairs.shape[1]
        else (a._pairs[:, :0], b._pairs[:, :0])
    )
    only_p = [y.isneginf() & ~x.isneginf() for x, y in ((a.unary, b.unary), (pairs, other))]
    if can_look(only_p[0], p._looks) and not any(bool(x.any()) for x in only_p):
        impossible = torch.zeros_like(p.lengths, dtype=torch.bool)
    else:
        impossible = plain.chain.leaves((a.unary, pairs), (b.unary, other), p.lengths, p.trigrams_in_a_row)
    difference = [_finite(x) - _finite(y) for x, y in ((a.unary, b.unary), (pairs, other))]
    value = b._sums("log_partition") - a._sums("log_partition")
    scale = 1.0
    if p._large or q._large:  # directions that derivatives can be taken along, without what no chain of weight has
        difference[0] = torch.where(a._sums("marginals").detach() > 0, difference[0], 0.0)
        scale = 2.0 ** math.ceil(math.log2(max(1.0, *(abs(x) for d in difference for x in span(d)))))
        difference = [x / scale for x in difference]
    along = chains.value(a.unary, pairs, a.lengths, a.trigrams_in_a_row, [(difference[0], difference[1])])
    value = value + scale * along
    return torch.where(impossible, torch.inf, not_negative(value)).to(p.unary.dtype)
