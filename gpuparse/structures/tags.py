"""The conventions on chains of tags, and the checks of them.

``unary[b, i, t]`` scores tag t at word i (from 0: a chain has no root). ``transitions[x, y]`` scores tag y right after
tag x, everywhere alike, or ``transitions[b, i, x, y]`` tag x at word i and y at word i + 1. ``trigrams[x, y, z]``
scores three tags in a row. ``tags[b, i]`` is -1 past the sentence's end, where no score is read.

Values are looked at only where that needs no waiting (see ``trees``). Where they are not, a sentence with NaN
or +inf gets NaN results and tags of -1, one without any possible chain log Z = -inf and tags of -1.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from gpuparse.structures.masks import is_position
from gpuparse.structures.trees import Lengths, as_integers, as_lengths_up_to, as_scores, can_validate

Unary = Float[Tensor, "B n T"]
Chains = Int[Tensor, "*S B n"]

__all__ = [
    "Lengths",
    "as_lengths",
    "as_scores",
    "as_tags",
    "as_transitions",
    "as_trigrams",
    "as_unary",
    "can_validate",
    "chain_scores",
    "check_scores",
    "is_position",
    "no_chain_error",
    "trigram_scores",
]


def as_unary(unary: Tensor) -> Float[Tensor, "B n T"]:
    """``unary`` if its type and shape are right."""
    unary = as_scores(unary, "unary")
    if unary.dim() != 3 or unary.shape[1] < 1 or unary.shape[2] < 1:
        raise ValueError(f"unary must have shape [B, n, T] with a word and a tag at least, got {list(unary.shape)}")
    return unary


def as_transitions(transitions: Tensor, unary: Float[Tensor, "B n T"]) -> Float[Tensor, "b p T T"]:
    """Transitions as a view [1 or B, 1 or n - 1, T, T]: [T, T] is the same everywhere."""
    B, n, T = unary.shape
    transitions = as_scores(transitions, "transitions")
    _same_kind(transitions, "transitions", unary)
    if transitions.shape == (T, T):
        return transitions[None, None]
    if transitions.shape == (B, n - 1, T, T):
        return transitions
    raise ValueError(
        f"transitions must have shape [T, T] = [{T}, {T}] or [B, n - 1, T, T] = [{B}, {n - 1}, {T}, {T}] like unary, "
        f"got {list(transitions.shape)}"
    )


def as_trigrams(trigrams: Tensor, unary: Float[Tensor, "B n T"]) -> Float[Tensor, "T T T"]:
    """``trigrams`` if its type and shape are right."""
    T = unary.shape[2]
    trigrams = as_scores(trigrams, "trigrams")
    _same_kind(trigrams, "trigrams", unary)
    if trigrams.shape != (T, T, T):
        raise ValueError(f"trigrams must have shape [T, T, T] = [{T}, {T}, {T}], got {list(trigrams.shape)}")
    return trigrams


def _same_kind(scores: Tensor, name: str, unary: Tensor) -> None:
    if scores.dtype != unary.dtype or scores.device != unary.device:
        raise ValueError(
            f"{name} must have the dtype and device of unary ({unary.dtype}, {unary.device}), "
            f"got {scores.dtype} on {scores.device}"
        )


def as_lengths(lengths: Lengths, unary: Tensor, validate_args: bool | None = None) -> Int[Tensor, " B"]:
    """Words of each sentence as int64 on the device of ``unary``; None means that all are full."""
    return as_lengths_up_to(unary.shape[1], lengths, unary, "unary", validate_args)


def as_tags(
    tags: Tensor, unary: Float[Tensor, "B n T"], lengths: Int[Tensor, " B"], validate_args: bool | None = None
) -> Int[Tensor, "*S B n"]:
    """Tags with any leading sample dimensions, checked for shape, type and range."""
    B, n, T = unary.shape
    as_integers(tags, "tags", "[..., B, n]", unary.device)
    if tags.dim() < 2 or tags.shape[-2:] != (B, n):
        raise ValueError(f"tags must have shape [..., B, n] = [..., {B}, {n}] like unary, got {list(tags.shape)}")
    tags = tags.to(torch.int64)
    if can_validate(tags, validate_args) and tags.numel():
        outside = (is_position(lengths, n) & ((tags < 0) | (tags >= T))).nonzero()
        if len(outside):
            *_, b, i = outside[0].tolist()
            value = int(tags[tuple(outside[0].tolist())])
            raise ValueError(f"tags of sentence {b}: word {i} has tag {value}, not in 0..{T - 1}")
    return tags


def check_scores(
    unary: Float[Tensor, "B n T"], pairs: Float[Tensor, "*shape"], lengths: Int[Tensor, " B"], name: str = "transitions"
) -> None:
    """Raise ValueError at a NaN or +inf among the scores that are read; ``pairs`` are as ``name`` was given or a view
    of it [1 or B, 1 or n - 1, T, T]."""
    n = unary.shape[1]
    wrong = _wrong(unary) & is_position(lengths, n)[:, :, None]
    if bool(wrong.any()):
        b, i, t = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"unary[{b}, {i}, {t}] is {float(unary[b, i, t].detach())} (sentence {b}, word {i}, tag {t}); "
            "scores must be finite, or -inf for what is forbidden"
        )
    wrong = _wrong(pairs)
    if pairs.dim() == 4 and pairs.shape[:2] == (unary.shape[0], n - 1):
        wrong = wrong & is_position(lengths - 1, n - 1)[:, :, None, None]
    if not bool(wrong.any()):
        return
    where = wrong.nonzero()[0].tolist()
    value = float(pairs[tuple(where)].detach())
    if pairs.dim() == 4:
        where = where if pairs.shape[:2] == (unary.shape[0], n - 1) and pairs.shape[:2] != (1, 1) else where[2:]
    raise ValueError(f"{name}{where} is {value}; scores must be finite, or -inf for what is forbidden")


def _wrong(scores: Tensor) -> Bool[Tensor, "*shape"]:
    return scores.isnan() | scores.isposinf()


def no_chain_error(unary: Float[Tensor, "B n T"], lengths: Int[Tensor, " B"], sentence: int) -> ValueError:
    """Says that no chain is possible for a sentence, and which word is to blame if one alone is."""
    tagless = (unary[sentence].isneginf().all(-1) & is_position(lengths, unary.shape[1])[sentence]).nonzero()
    why = f": every tag of word {int(tagless[0])} scores -inf" if len(tagless) else " under the -inf scores"
    return ValueError(f"sentence {sentence} allows no chain of tags{why}")


def _unary_scores(unary: Tensor, tags: Int[Tensor, "*S B n"], lengths: Tensor) -> Float64[Tensor, "*S B n"]:
    B, n, T = unary.shape
    index = _by_sentence(tags + T * torch.arange(n, device=tags.device))
    picked = unary.reshape(B, n * T).gather(1, index)
    return torch.where(is_position(lengths, n), _by_sample(picked, tags), 0.0).double()


def _by_sentence(index: Int[Tensor, "*S B m"]) -> Int[Tensor, "B Sm"]:
    """So that a gather needs no copy of the scores for each sample."""
    return index.movedim(-2, 0).flatten(1)


def _by_sample(picked: Tensor, like: Int[Tensor, "*S B m"]) -> Tensor:
    return picked.reshape(like.shape[-2], *like.shape[:-2], like.shape[-1]).movedim(0, -2)


def _scores_in_rows(
    unary: Tensor, tags: Int[Tensor, "*S B n"], lengths: Tensor, size: int, pick: Callable[[Tensor], Tensor]
) -> Float64[Tensor, "*S B"]:
    """``pick`` gives the scores of so many tags in a row, by the numbers that these are the digits of."""
    n, T = unary.shape[1:]
    tags = tags.clamp(0, T - 1)
    score = _unary_scores(unary, tags, lengths).sum(-1)
    rows = n + 1 - size
    if rows < 1:
        return score
    number = tags[..., :rows]
    for k in range(1, size):
        number = number * T + tags[..., k : k + rows]
    picked = pick(number)
    return score + torch.where(is_position(lengths + 1 - size, rows), picked, 0.0).sum(-1, dtype=torch.float64)


def chain_scores(
    unary: Unary, transitions: Float[Tensor, "b p T T"], tags: Chains, lengths: Int[Tensor, " B"]
) -> Float64[Tensor, "*S B"]:
    """Score of each chain, in float64; a gather, so that it has a gradient. Tags past the end are not read."""

    def pick(pair: Tensor) -> Tensor:
        if transitions.shape[1] == transitions.shape[0] == 1:
            return transitions.reshape(-1)[pair]
        pair = pair + unary.shape[2] ** 2 * torch.arange(pair.shape[-1], device=pair.device)
        return _by_sample(transitions.flatten(1).gather(1, _by_sentence(pair)), pair)

    return _scores_in_rows(unary, tags, lengths, 2, pick)


def trigram_scores(
    unary: Unary, trigrams: Float[Tensor, "T T T"], tags: Chains, lengths: Int[Tensor, " B"]
) -> Float64[Tensor, "*S B"]:
    """The same for scores of three tags in a row."""
    return _scores_in_rows(unary, tags, lengths, 3, lambda triple: trigrams.reshape(-1)[triple])
