"""A family that is declared here, to see what one takes beside its algorithms: every word has one of T tags, whatever
the others have, and a choice is the tags of all words."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from gpuparse.distributions.base import StructuredDistribution
from gpuparse.ops.family import Bundle, Family, Plain
from gpuparse.ops.plain.semiring import NEG_INF, logsumexp
from gpuparse.ops.shifts import bounded, less_greatest
from gpuparse.structures.conditions import allowed_tags, only
from gpuparse.structures.masks import is_position
from gpuparse.structures.tags import as_lengths, as_scores, as_tags
from tests.distributions.families import Facts, Parts
from tests.distributions.families import Family as Tested
from tests.oracle import all_chains

# ------------------------------------------------------------------------------------------------- its plain functions


def masks(scores: Bundle, lengths: Tensor) -> list[Tensor | None]:
    (tags,) = scores
    assert tags is not None
    return [is_position(lengths, tags.shape[1])[..., None].expand_as(tags)]


def _read(scores: Bundle, lengths: Tensor) -> Tensor:
    """In float64, 0 past the end."""
    ((tags,), (read,)) = scores, masks(scores, lengths)
    assert tags is not None and read is not None
    return torch.where(read, tags.double(), 0.0)


def log_partition(scores: Bundle, lengths: Tensor) -> Tensor:
    x = _read(scores, lengths)
    each = torch.where(is_position(lengths, x.shape[1]), logsumexp(x, 2), 0.0)
    return torch.where((each > NEG_INF).all(1, keepdim=True), each, NEG_INF).sum(1)


def _there(found: Tensor, scores: Bundle, lengths: Tensor) -> Tensor:
    """-1 past the end, and everywhere if a word has no tag."""
    x, words = _read(scores, lengths), is_position(lengths, found.shape[-1])
    return torch.where(words & (x > NEG_INF).any(2).all(1, keepdim=True), found, -1)


def argmax(scores: Bundle, lengths: Tensor) -> Tensor:
    return _there(_read(scores, lengths).argmax(2), scores, lengths)


def sample(scores: Bundle, lengths: Tensor, num: int) -> Tensor:
    x = _read(scores, lengths)
    noise = -torch.empty((num, *x.shape), dtype=x.dtype).exponential_().log()
    return _there((x + noise).argmax(3), scores, lengths)


# --------------------------------------------------------------------------------------------- and all that is declared

CHOICES = Family(
    name="choices",
    scores={"tags": "B n T"},
    inputs="Tensor lengths",
    sizes="B n T",
    structure=lambda B, n, T: (B, n),
    plain=Plain(masks, log_partition, argmax=argmax, sample=sample),
)


class Choices(StructuredDistribution):
    """p(tags) = exp(sum of their scores) / Z."""

    parts: ClassVar[dict[str, int]] = {"tags": 3}
    algorithms, what, exists = CHOICES, "chains", False
    tags: Tensor

    def __init__(self, tags: Tensor, lengths: Any = None, *, validate_args: bool | None = None) -> None:
        lengths = as_lengths(lengths, tags := as_scores(tags, "tags"), validate_args)
        self._start((tags,), lengths, tags.shape[1:2], validate_args)

    def _read(self, name: str) -> Tensor | None:
        return masks(self.scores, self.lengths)[0]

    def _without_shared(self) -> tuple[Choices, Tensor]:
        near, top = less_greatest(bounded(self.tags, masks(self.scores, self.lengths)[0]), 2)
        return self._like([near]), top[:, :, 0]

    def _as_structures(self, value: Tensor) -> Tensor:
        return as_tags(value, self.tags, self.lengths, self._validates)

    def _score(self, value: Tensor, found: bool = True) -> Tensor:
        T, words = self.tags.shape[2], is_position(self.lengths, value.shape[-1])
        each = _read(self.scores, self.lengths).expand(*value.shape, T).gather(-1, value.clamp(0, T - 1)[..., None])
        good = (value >= 0) & (value < T) | ~words
        return torch.where(good, torch.where(words, each[..., 0], 0.0), -torch.inf).sum(-1)

    def _conditioned(self, required: Tensor | None, forbidden: Tensor | None) -> dict[str, Tensor]:
        allowed = allowed_tags(required, forbidden, self.tags, self.lengths, self._validates)
        return {"tags": only(allowed, self.tags)}

    def _sizes(self) -> str:
        return f"words: {self.tags.shape[1]}, tags: {self.tags.shape[2]}"

    def _greatest(self) -> int:
        return self.tags.shape[2] - 1

    @property
    def marginals(self) -> Tensor:
        return self._sums("tags")


def _listed(n: int) -> list[tuple[Any, Parts]]:
    return [(tags, {"tags": list(enumerate(tags))}) for tags in all_chains(n, 3).tolist()]


MADE_UP = Tested(
    make=lambda scores, lengths=None, **options: Choices(scores["tags"], lengths, **options),
    shapes=lambda batch, words: {"tags": (batch, words, 3)},
    listed=_listed,
    read={"tags": lambda lengths, x: is_position(lengths, x.shape[1])[..., None].expand_as(x)},
    facts=Facts(lambda n: (n, 3), lambda _, parts: parts["tags"], 1),
)
