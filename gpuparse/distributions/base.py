"""What every distribution over structures has, given its named scores and the algorithms of its family.

A family says what is its own: the names of its scores (``parts``) and which of them are read, its operators and what
they take beside the scores, what its structures look like and score, and what all of them share. The rest is here.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor
from torch.distributions import Distribution, constraints

from gpuparse.distributions.common import as_batch_shape, as_sample_shape, expected, may_keep, not_negative
from gpuparse.ops.shifts import LARGE, add_up, check_sums, is_large, span
from gpuparse.structures.trees import can_validate

if TYPE_CHECKING:
    from typing_extensions import Self

Scores = Sequence[Tensor | None]
LOG_Z = "log_partition"


class StructuredDistribution(Distribution):
    """p(structure) = exp(sum of the scores of its parts) / Z, for each sentence of a batch.

    Attributes:
        lengths: words of each sentence, int64 [B].
        scores: those of all parts, in the order of ``parts``; None where they were not given.

    ``log_partition``, all marginals, ``max``, ``score()``, ``log_prob()``, ``entropy()`` and the KL divergence are
    differentiable in all scores, twice and more; results have the dtype and device of the first scores. What was
    computed once is kept, with its graph: to back through the same distribution twice, pass ``retain_graph=True`` the
    first time or make it anew.

    Where nobody looked at the values (``validate_args``), a sentence with a NaN or +inf has NaN results and -1 for
    structures. One without any structure has log Z = -inf, marginals of 0, -1 for structures, an entropy of 0 and a
    divergence of 0 from any other.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    parts: ClassVar[dict[str, int]]  # names of the scores in order; their dimensions if each sentence has its own
    what: ClassVar[str] = "trees"  # structures, in the plural
    exists: ClassVar[bool] = True  # whether a sentence has to have one
    algorithms: ClassVar[Any]  # the ``Family`` of ``gpuparse.ops``, or what has its functions
    _kept: ClassVar[tuple[str, ...]] = ()  # names of what a distribution is made of beside scores and lengths
    lengths: Int[Tensor, " B"]

    # ----------------------------------------------------------------------------------------- what a family says

    def _read(self, name: str) -> Bool[Tensor, "*shape"] | None:
        """Which of the scores of a name are read; None: all."""
        raise NotImplementedError

    def _as_structures(self, value: Tensor) -> Int[Tensor, "*S B *event"]:
        """``value`` if its type and shape are right."""
        raise NotImplementedError

    def _score(self, value: Int[Tensor, "*S B *event"], found: bool = True) -> Float64[Tensor, "*S B"]:
        """Scores in float64, -inf for what is no structure; ``found``: they were computed here, or are all -1."""
        raise NotImplementedError

    def _without_shared(self) -> tuple[Self, Float64[Tensor, "B K"]]:
        """The same distribution in float64, scores less what all structures share, and what they share
        (``gpuparse.ops.shifts``)."""
        raise NotImplementedError

    def _sizes(self) -> str:
        """What to say of it beside the number of sentences."""
        raise NotImplementedError

    def _greatest(self) -> int:
        """The greatest number in any structure."""
        raise NotImplementedError

    def _shape(self, name: str) -> tuple[int, ...]:
        """The shape of scores that may be left out."""
        raise NotImplementedError

    def _none_error(self, sentence: int) -> ValueError:
        """What to raise for a sentence without any structure, if one has to exist."""
        raise NotImplementedError

    def _conditioned(self, required: Tensor | None, forbidden: Tensor | None) -> dict[str, Tensor]:
        """Scores in place of those of the same names, -inf where a condition does not allow a part
        (``gpuparse.structures.conditions``)."""
        raise NotImplementedError

    def _is_over_the_same(self, q: Self) -> bool:
        """Whether q, of the same class, is over the same structures, sizes and lengths aside."""
        return True

    # ------------------------------------------------------------------------ its algorithms, unless it has its own way

    def _inputs(self) -> tuple[Any, ...]:
        """What the algorithms take beside the scores."""
        return (self.lengths,)

    def _weighed(self) -> Scores:
        """The scores that sums are over."""
        return self.scores

    def _log_partition(self) -> Float64[Tensor, " B"]:
        """log Z; its gradient is not asked for."""
        return self.algorithms.log_partition(self._weighed(), *self._inputs())

    def _expectations(self, name: str) -> dict[str, Tensor]:
        """log Z and the expected number of each part, by name and differentiable: all of them, or just ``name``."""
        return self._named(*self.algorithms.marginals(self._weighed(), *self._inputs()))

    def _best(self) -> Int[Tensor, " B *event"]:
        """A best structure of each sentence."""
        return self.algorithms.argmax(_detached(self.scores), *self._inputs())

    def _draw(self, num: int) -> Int[Tensor, "num B *event"]:
        """Independent structures."""
        return self.algorithms.sample(_detached(self._weighed()), *self._inputs(), num)

    # -------------------------------------------------------------------------------------------------- as an object

    def _start(self, scores: Scores, lengths: Tensor, event_shape: Sequence[int], validate_args: bool | None) -> None:
        """To be called when all of ``_kept`` is set; looks at the values if that is wanted."""
        self._set(scores, lengths, event_shape, validate_args)
        if can_validate(lengths, validate_args):
            self._check()

    def _set(self, scores: Scores, lengths: Tensor, event_shape: Sequence[int], validates: bool | None) -> None:
        first = scores[0]
        assert first is not None
        for name, x in zip(self.parts, scores, strict=True):
            setattr(self, name, x)
        self.lengths = lengths
        self._dtype = first.dtype
        self._validates = validates
        self._large = False
        self._known: dict[str, Tensor] = {}
        self._centre: Self | None = None
        super().__init__(first.shape[:1], torch.Size(event_shape), validate_args=False)

    def _like(self, scores: Scores, lengths: Tensor | None = None) -> Self:
        """Of the same kind, with other scores, at which nobody looks."""
        made: Self = object.__new__(type(self))
        for name in self._kept:
            setattr(made, name, getattr(self, name))
        made._set(scores, self.lengths if lengths is None else lengths, self._event_shape, False)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """For copy and pickle: what it is made of, not what was computed from that."""
        return {**self.__dict__, "_known": {}, "_centre": None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(sentences: {len(self.lengths)}, {self._sizes()})"

    @property
    def scores(self) -> tuple[Tensor | None, ...]:
        """The scores of all parts, in their order; None where they were not given."""
        return tuple(getattr(self, name) for name in self.parts)

    @property
    def support(self) -> Any:
        """Whole numbers from -1 (what is not there) on. Not all such tensors are structures."""
        return constraints.independent(constraints.integer_interval(-1, self._greatest()), len(self.event_shape))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """The same for more sentences: from [1] to any [B]."""
        (B,) = as_batch_shape(batch_shape, len(self.lengths))
        given = [(getattr(self, name), dims) for name, dims in self.parts.items()]
        wide = [x if x is None or x.dim() != dims else x.expand(B, *[-1] * (dims - 1)) for x, dims in given]
        made = self._like(wide, self.lengths.expand(B))
        made._validates, made._large = self._validates, self._large
        return made

    def _with(self, names: Collection[str]) -> Self:
        """The same, with scores of 0 for those of the names that have none."""
        if all(getattr(self, name) is not None for name in names):
            return self
        first = getattr(self, next(iter(self.parts)))
        found: list[Tensor | None] = []
        for name in self.parts:
            x = getattr(self, name)
            found.append(first.new_zeros(self._shape(name)) if x is None and name in names else x)
        made = self._like(found)
        made._large = self._large
        return made

    # ------------------------------------------------------------------------------------------------ looking at values

    def _check(self) -> None:
        """Raise ValueError at a NaN or +inf among the scores that are read, at large ones that cannot be answered and,
        if it has to exist, where there is no structure."""
        forbidden, self._large = self._look()
        if self._large:
            with torch.no_grad():
                near, shared = self._without_shared()
                check_sums(near._log_z_of_large(), shared, self._read_scores(), self._dtype, self.what)
        if forbidden and self.exists:
            without = self._sums(LOG_Z).detach().isneginf().nonzero()
            if len(without):
                raise self._none_error(int(without[0]))

    def _look(self) -> tuple[bool, bool]:
        """Whether any score may be -inf, and whether any is large; raises ValueError at a NaN or +inf."""
        return self._look_at(self.parts)

    def _look_at(self, names: Collection[str]) -> tuple[bool, bool]:
        forbidden = large = False
        for name in names:
            x = getattr(self, name)
            if x is None or not x.numel():
                continue
            x = x.detach()
            low, high = limits = span(x)  # NaN comes through it
            if low > -LARGE and high < LARGE:
                continue
            forbidden = forbidden or not low > -torch.inf
            if not is_large(x, limits):
                continue
            read = self._read(name)
            bad = x.isnan() | x.isposinf()
            wrong = (bad if read is None else read & bad).nonzero()
            if len(wrong):
                place = wrong[0].tolist()
                where = f" (sentence {place[0]})" if x.dim() == self.parts[name] else ""
                raise ValueError(
                    f"{name}{place} is {float(x[tuple(place)])}{where}; "
                    "scores must be finite, or -inf for what is forbidden"
                )
            large = large or is_large(x if read is None else torch.where(read, x, 0.0))
        return forbidden, large

    def _read_scores(self) -> dict[str, Tensor | None]:
        """The scores by the names of the arguments, 0 where they are not read."""
        given = zip(self.parts, self._parts(), strict=True)
        reads = {name: (x, None if x is None else self._read(name)) for name, x in given}
        return {
            name: x if x is None or read is None else torch.where(read, x, 0.0) for name, (x, read) in reads.items()
        }

    def _log_z_of_large(self) -> Float64[Tensor, " B"]:
        """log Z of scores less what is shared, -inf only where there is no structure."""
        return self._sums(LOG_Z)

    def _near(self) -> Self:
        """The same without what all structures share, where scores are large; else itself."""
        return self._without_shared()[0] if self._large else self

    # ------------------------------------------------------------------------------------------------------ conditions

    def given(
        self, required: Int[Tensor, " B *places"] | None = None, forbidden: Bool[Tensor, " B *parts"] | None = None
    ) -> Self:
        """The conditional distribution: over the structures that have all that is required and nothing forbidden.

        Args:
            required: integers, -1 where anything may be. Of dependency trees and of ``LexicalizedTrees`` heads [B, N],
                of chains tags [B, n], of ``ConstituencyTrees`` the symbol over the words i..j [B, n, n], -2 for one of
                any symbol; a single word has a tag.
            forbidden: booleans. Of dependency trees and of ``LexicalizedTrees`` arcs [B, N, N], of chains tags
                [B, n, T], of ``ConstituencyTrees`` symbols over the words i..j [B, n, n, S].

        None says nothing, and what is not read of scores is not read of these. The result has everything that this
        distribution has, with the same scores but -inf for parts that the condition rules out; gradients go on into the
        scores of this one. log p(condition) is ``p.given(...).log_partition - p.log_partition``.

        Raises ValueError for a wrong type, shape or device; and where values are looked at (``validate_args``), for a
        condition that contradicts itself or, if a sentence has to have a structure, leaves it none. Elsewhere such a
        sentence has log Z = -inf.

        Example:
            >>> import torch, gpuparse as gp
            >>> trees = gp.ProjectiveTrees(torch.zeros(1, 4, 4))
            >>> known = trees.given(required=torch.tensor([[-1, 2, -1, -1]]))  # word 2 is the head of word 1
            >>> known.marginals[0, :, 3]
            tensor([0.5000, 0.0000, 0.5000, 0.0000])
            >>> (known.log_partition - trees.log_partition).exp()  # how likely that is
            tensor([0.2857])
        """
        if required is None and forbidden is None:
            return self
        scores = self._conditioned(required, forbidden)
        made = self._like([scores.get(name, getattr(self, name)) for name in self.parts])
        made._validates, made._large = self._validates, self._large
        if can_validate(self.lengths, self._validates):
            try:
                made._check()
            except ValueError as error:
                names = [name for name, x in (("required", required), ("forbidden", forbidden)) if x is not None]
                raise ValueError(f"under {' and '.join(names)}, {error}") from None
        return made

    # ------------------------------------------------------------------------------------------------------------ sums

    def _requires_grad(self) -> bool:
        return any(x is not None and x.requires_grad for x in self.scores)

    def _named(self, log_z: Tensor, *parts: Tensor | None) -> dict[str, Tensor]:
        return {LOG_Z: log_z, **{name: x for name, x in zip(self.parts, parts, strict=True) if x is not None}}

    def _sums(self, name: str) -> Tensor:
        """log_partition (in float64) or the expected numbers of a part, by name. What was computed is kept, unless it
        lacks the gradient that a later caller may want. Each has a graph of its own, so that each can be backed through
        by itself."""
        if name in self._known:
            return self._known[name]
        differentiable = self._requires_grad()
        wanted = differentiable and torch.is_grad_enabled()
        if self._large:
            near, shared = self._without_shared()
            value = near._sums(name)
            found = {name: value + add_up(shared) if name == LOG_Z else value.to(self._dtype)}
        elif name == LOG_Z and not wanted:
            found = {name: self._log_partition()}
        else:
            found = self._expectations(name)
        if (wanted or not differentiable) and may_keep():
            self._known.update({name: found[name]} if differentiable else found)
        return found[name]

    def _all_sums(self) -> dict[str, Tensor]:
        """What ``_sums`` gives, all by one call and with one graph: for results that are made of several."""
        if LOG_Z in self._known and all(name in self._known for name in self.parts if getattr(self, name) is not None):
            return self._known
        found = self._expectations(LOG_Z)
        if (torch.is_grad_enabled() or not self._requires_grad()) and may_keep():
            self._known.update(found)
        return found

    @property
    def log_partition(self) -> Float[Tensor, " B"]:
        """log of the sum over all structures of exp(score). Where marginals are wanted too, ask for them first."""
        return self._sums(LOG_Z).to(self._dtype)

    # ------------------------------------------------------------------------------------------------------ structures

    @property
    def argmax(self) -> Int[Tensor, " B *event"]:
        """A best structure; among equals the same one every time. -1 where there is none."""
        if "argmax" not in self._known:
            self._known["argmax"] = self._near()._best()
        return self._known["argmax"].clone()  # the caller may write to it

    @property
    def mode(self) -> Int[Tensor, " B *event"]:
        """``argmax``, by its name in torch.distributions."""
        return self.argmax

    @property
    def max(self) -> Float[Tensor, " B"]:
        """Score of a best structure, -inf if there is none; its gradient is what that structure is made of."""
        return self._score(self.argmax).to(self._dtype)

    def sample(self, sample_shape: Any = ()) -> Int[Tensor, "*S B *event"]:
        """Independent exact draws; follows ``torch.manual_seed``."""
        shape = as_sample_shape(sample_shape)
        with torch.no_grad():
            drawn = self._near()._draw(shape.numel())
        return drawn.reshape(*shape, *drawn.shape[1:])

    def score(self, value: Int[Tensor, "*S B *event"]) -> Float[Tensor, "*S B"]:
        """Score of each structure; -inf for what is not of this family and sentence. Padding is not read."""
        return self._score(self._as_structures(value), False).to(self._dtype)

    def log_prob(self, value: Int[Tensor, "*S B *event"]) -> Float[Tensor, "*S B"]:
        """log p of each structure; -inf for what is not of this family and sentence. Padding is not read."""
        near = self._near()
        score = near._score(self._as_structures(value), False)
        value = score - near._sums(LOG_Z)
        value = value - value.detach().clamp(min=0)  # rounding above 0
        return torch.where(score.detach().isneginf(), -torch.inf, value).to(self._dtype)

    # --------------------------------------------------------------------------------------- entropy and KL divergence

    def _wide(self) -> Self:
        """The same distribution in float64, scores shifted: nothing large cancels that all structures have in common.
        What is not read is -inf, or 0 if nobody sums it."""
        return self._without_shared()[0]

    def _centred(self) -> Self:
        """``_wide``, made once."""
        if self._centre is not None:
            return self._centre
        wide = self._wide()
        if (torch.is_grad_enabled() or not self._requires_grad()) and may_keep():
            self._centre = wide
        return wide

    def _expected_scores(self, *of: Self) -> tuple[Float64[Tensor, " B"], list[Float64[Tensor, " B"]]]:
        """log Z, and the expected scores of a structure from here under each ``of``, whose forbidden parts count 0."""
        there = {name for q in of for name in self.parts if getattr(q, name) is not None}
        sums = self._with(there)._all_sums()
        totals = []
        for q in of:
            each = [expected(sums[name], x) for name, x in zip(self.parts, q.scores, strict=True) if x is not None]
            totals.append(reduce(operator.add, each))
        return sums[LOG_Z], totals

    def _difference(self, q: Self, large: bool) -> tuple[Float64[Tensor, " B"], Float64[Tensor, " B"]]:
        """log Z, and by how much more structures from here score here than under q, on average; ``large``: whether some
        score was, before it was centred."""
        log_z, (own, other) = self._expected_scores(self, q)
        return log_z, own - other

    def entropy(self) -> Float[Tensor, " B"]:
        """-sum p log p, exactly: log Z minus the expected score. 0 where there is no structure."""
        p = self._centred()
        log_z, (own,) = p._expected_scores(p)
        return not_negative(torch.where(log_z.detach().isneginf(), 0.0, log_z) - own).to(self._dtype)

    def _in_some(self) -> dict[str, Bool[Tensor, " B *shape"]]:
        """Which parts some structure has, however rare it is: where all structures are alike, no share is near 0."""
        alike = [None if x is None else torch.where(x.isneginf(), -torch.inf, 0.0).double() for x in self._parts()]
        sums = self._like(alike)._all_sums()
        return {name: sums[name] > 0 for name in self.parts if name in sums}

    def _parts(self) -> list[Tensor | None]:
        return _detached([getattr(self, name) for name in self.parts])

    def _leaves(self, q: Self, validates: bool | None) -> Bool[Tensor, " B"]:
        """Whether some structure that is possible here, however rare it is, is forbidden in q; both are centred."""
        p = self._with({name for name in self.parts if getattr(q, name) is not None})
        pairs = [(x, y) for x, y in zip(p.scores, q.scores, strict=True) if x is not None and y is not None]
        found = torch.zeros_like(p.lengths, dtype=torch.bool)
        if can_validate(found, validates) and not any(bool((y.isneginf() & ~x.isneginf()).any()) for x, y in pairs):
            return found
        possible = p._in_some()
        for name, y in zip(self.parts, q.scores, strict=True):
            if y is not None:
                found = found | (possible[name] & y.isneginf()).flatten(1).any(1)
        return found


def _detached(scores: Scores) -> list[Tensor | None]:
    return [None if x is None else x.detach() for x in scores]
