"""The conventions on conditions: what a structure must have (``required``) and may not have (``forbidden``).

Of trees, ``required[b, m]`` is the head of word m, and ``forbidden[b, h, m]`` is true of arcs h -> m. Of chains,
``required[b, i]`` is the tag of word i, ``forbidden[b, i, t]`` true of tags. Of binary trees of a grammar,
``required[b, i, j]`` is the symbol over the words i..j, ``SOME`` for one of any symbol, and ``forbidden[b, i, j, s]``
true of symbols; a single word has a tag, what is longer another symbol. ``OPEN`` is where nothing is required. What is
not read of scores is not read of conditions.

Masks of what is allowed are made without waiting. Values are looked at where that needs no waiting (see ``trees``);
where they are not, a condition that nothing meets leaves no structure.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from gpuparse.structures.masks import arc_mask, is_position, word_mask
from gpuparse.structures.trees import as_booleans, as_integers, can_validate, crossings, tops

OPEN, SOME = -1, -2
MOST = 8  # words of a cycle that a message names


def _as_condition(
    required: Tensor | None, forbidden: Tensor | None, dims: str, shape: Sequence[int], axis: int, device: torch.device
) -> tuple[Int64[Tensor, " B *places"] | None, Bool[Tensor, "*shape"] | None]:
    """Both, if their types and shapes are right. ``dims``: names of those of ``forbidden``, which ``required`` has but
    for one."""
    names = dims.split()

    def fits(x: Tensor, name: str, names: list[str], shape: list[int]) -> None:
        if list(x.shape) != shape:
            raise ValueError(f"{name} must have shape [{', '.join(names)}] = {shape}, got {list(x.shape)}")

    if required is not None:
        own = [x for k, x in enumerate(names) if k != axis]
        as_integers(required, "required", f"[{', '.join(own)}]", device)
        fits(required, "required", own, [x for k, x in enumerate(shape) if k != axis])
        required = required.to(torch.int64)
    if forbidden is not None:
        as_booleans(forbidden, "forbidden", f"[{', '.join(names)}]", device)
        fits(forbidden, "forbidden", names, list(shape))
    return required, forbidden


def _first(wrong: Bool[Tensor, "*dims"]) -> list[int] | None:
    """The first place where something is wrong, if there is one; waits for the device."""
    places = wrong.nonzero()
    return [int(x) for x in places[0]] if len(places) else None


def _error(name: str, sentence: int, why: str) -> ValueError:
    return ValueError(f"{name}: sentence {sentence}: {why}")


def only(allowed: Bool[Tensor, "*dims"], scores: Float[Tensor, "*dims"]) -> Float[Tensor, "*dims"]:
    """Scores, -inf where they are not allowed. An addition keeps nothing for its derivative: so whatever follows from
    these scores can be backed through by itself, as if they were nobody's."""
    return scores + torch.where(allowed, 0.0, -torch.inf).to(scores.dtype)


# ---------------------------------------------------------------------------------------------------------------- arcs


def allowed_arcs(
    required: Int[Tensor, "B N"] | None,
    forbidden: Bool[Tensor, "B N N"] | None,
    arcs: Float[Tensor, "B N N"],
    lengths: Int[Tensor, " B"],
    validate_args: bool | None = None,
) -> Bool[Tensor, "B N N"]:
    """Arcs that are read and that a condition allows, given the scores that it is on.

    Raises ValueError for a wrong type, shape or device; and where values are looked at, for a required head that cannot
    be or that is forbidden, too. Whether a tree can be made of them is another question: ``check_start``.
    """
    N = arcs.shape[1]
    heads, barred = _as_condition(required, forbidden, "B N N", arcs.shape, 1, arcs.device)
    allowed = arc_mask(lengths, N)
    if heads is not None:
        node = torch.arange(N, device=arcs.device)
        chosen = heads[:, None, :] == node[:, None]
        if can_validate(arcs, validate_args):
            _check_heads(heads, lengths)
            if barred is not None and (place := _first(allowed & chosen & barred)):
                b, h, m = place
                raise _error("required", b, f"the arc {h} -> {m} is also forbidden")
        allowed = allowed & (chosen | (heads == OPEN)[:, None, :])
    return allowed if barred is None else allowed & ~barred


def _check_heads(heads: Int[Tensor, "B N"], lengths: Int[Tensor, " B"]) -> None:
    word, node = word_mask(lengths, heads.shape[1]), torch.arange(heads.shape[1], device=heads.device)
    if place := _first(word & ((heads < OPEN) | (heads > lengths[:, None]) | (heads == node))):
        b, m = place
        value, most = int(heads[b, m]), int(lengths[b])
        why = f"word {m} has itself as its head" if value == m else f"word {m} has head {value}, not in -1..{most}"
        raise _error("required", b, why)


def check_start(
    allowed: Bool[Tensor, "B N N"],
    lengths: Int[Tensor, " B"],
    *,
    projective: bool,
    single_root: bool,
    required: Int[Tensor, "B N"] | None = None,
) -> None:
    """Raise ValueError where it shows before any inference that the allowed arcs make no tree (``impossible_start``).

    What is not allowed is said to be forbidden; if just these heads are ``required``, that is. Waits for the device.
    """
    found = impossible_start(allowed, lengths, projective=projective, single_root=single_root)
    if found is not None:
        b, words, why = found
        given = [required is not None and int(required[b, m]) != OPEN for m in words]
        raise _error("required" if all(given) else "required and forbidden" if any(given) else "forbidden", b, why)


def impossible_start(
    allowed: Bool[Tensor, "B N N"], lengths: Int[Tensor, " B"], *, projective: bool, single_root: bool
) -> tuple[int, Sequence[int], str] | None:
    """A sentence whose allowed arcs show before any inference that they make no tree, the words that show it, and
    why: a word has no head, or words with one head left have arcs that make a cycle, cross in a projective tree, or
    give a single root two words. Waits for the device."""
    allowed = allowed & arc_mask(lengths, allowed.shape[1])
    word, heads = word_mask(lengths, allowed.shape[1]), allowed.sum(1)
    if place := _first(word & (heads == 0)):
        return place[0], place[1:], f"every head of word {place[1]} is forbidden"
    sure = word & (heads == 1)
    up = torch.where(sure, allowed.int().argmax(1), 0)
    if place := _first(tops(up) != 0):
        b, m = place
        cycle = _cycle(up[b].tolist(), m)
        shown = [str(x) for x in (*cycle, cycle[0])]
        shown = shown if len(cycle) <= MOST else [*shown[:MOST], "..."]
        return b, cycle, f"heads of words {_and(sorted(cycle))} make a cycle: {' -> '.join(shown)}"
    if single_root:
        below = sure & (up == 0)
        if place := _first(below.sum(1) > 1):
            (b,) = place
            words = below[b].nonzero().flatten().tolist()
            return b, words[:2], f"words {words[0]} and {words[1]} both hang on the root, which has one word"
    if projective and (place := _first(sure[:, :, None] & sure[:, None, :] & crossings(up))):
        b, m, k = place
        arcs = f"{int(up[b, m])} -> {m} and {int(up[b, k])} -> {k}"
        return b, (m, k), f"the arcs {arcs} cross, as those of projective trees do not"
    return None


def _cycle(up: list[int], node: int) -> list[int]:
    """The cycle that going up from a node ends in, from its first word on, heads before their modifiers."""
    for _ in up:
        node = up[node]
    found = [node]
    while (node := up[node]) != found[0]:
        found.append(node)
    first = found.index(min(found))
    found = found[first:] + found[:first]
    return [found[0], *reversed(found[1:])]


def _and(words: list[int]) -> str:
    shown = [str(x) for x in words]
    if len(shown) > MOST:
        return f"{', '.join(shown[:MOST])} and {len(shown) - MOST} more"
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def conditioned_arcs(
    required: Int[Tensor, "B N"] | None,
    forbidden: Bool[Tensor, "B N N"] | None,
    arcs: Float[Tensor, "B N N"],
    lengths: Int[Tensor, " B"],
    *,
    projective: bool,
    single_root: bool,
    validate_args: bool | None = None,
) -> Float[Tensor, "B N N"]:
    """Scores of arcs, -inf where a condition does not allow them; both checks where values are looked at."""
    allowed = allowed_arcs(required, forbidden, arcs, lengths, validate_args)
    if can_validate(arcs, validate_args):
        check_start(allowed, lengths, projective=projective, single_root=single_root, required=required)
    return only(allowed, arcs)


# ---------------------------------------------------------------------------------------------------------------- tags


def allowed_tags(
    required: Int[Tensor, "B n"] | None,
    forbidden: Bool[Tensor, "B n T"] | None,
    unary: Float[Tensor, "B n T"],
    lengths: Int[Tensor, " B"],
    validate_args: bool | None = None,
) -> Bool[Tensor, "B n T"]:
    """Tags that are read and that a condition allows, given the scores that it is on.

    Raises ValueError for a wrong type, shape or device; and where values are looked at, for a required tag that is none
    or is forbidden, too, and for a word all of whose tags are forbidden.
    """
    _, n, T = unary.shape
    tags, barred = _as_condition(required, forbidden, "B n T", unary.shape, 2, unary.device)
    word, validates = is_position(lengths, n), can_validate(unary, validate_args)
    allowed = word[:, :, None].expand_as(unary)
    if tags is not None:
        chosen = tags[:, :, None] == torch.arange(T, device=unary.device)
        if validates and (place := _first(word & ((tags < OPEN) | (tags >= T)))):
            b, i = place
            raise _error("required", b, f"word {i} has tag {int(tags[b, i])}, not in -1..{T - 1}")
        if validates and barred is not None and (place := _first(allowed & chosen & barred)):
            b, i, t = place
            raise _error("required", b, f"tag {t} of word {i} is also forbidden")
        allowed = allowed & (chosen | (tags == OPEN)[:, :, None])
    allowed = allowed if barred is None else allowed & ~barred
    if validates:
        _check_words(allowed, word)
    return allowed


def _check_words(allowed: Bool[Tensor, "B n T"], word: Bool[Tensor, "B n"]) -> None:
    """Raise ValueError for a word that has no tag; those required are allowed."""
    if place := _first(word & ~allowed.any(2)):
        raise _error("forbidden", place[0], f"every tag of word {place[1]} is forbidden")


# --------------------------------------------------------------------------------------------------------------- spans


def allowed_spans(
    required: Int[Tensor, "B n n"] | None,
    forbidden: Bool[Tensor, "B n n S"] | None,
    tags: Float[Tensor, "B n T"],
    symbols: int,
    lengths: Int[Tensor, " B"],
    validate_args: bool | None = None,
) -> Bool[Tensor, "B n n S"]:
    """Symbols of spans, and tags of single words, that a tree can have and that a condition allows.

    In a binary tree a span is there just if no span is that crosses it: those are not allowed.

    Raises ValueError for a wrong type, shape or device; and where values are looked at, for a required symbol that
    cannot be there or is forbidden, too, for required spans that cross, and for a word all of whose tags are forbidden.
    """
    B, n, T = tags.shape
    chosen, barred = _as_condition(required, forbidden, "B n n S", (B, n, n, symbols), 3, tags.device)
    word, symbol = torch.arange(n, device=tags.device), torch.arange(symbols, device=tags.device)
    inside = (word[:, None] <= word) & (word < lengths[:, None, None])
    single = word[:, None] == word
    allowed = inside[..., None] & (single[..., None] == (symbol < T))
    validates = can_validate(tags, validate_args)
    if chosen is not None:
        here = inside & (chosen != OPEN)
        if validates:
            _check_symbols(here, chosen, allowed)
        allowed = allowed & ((chosen[..., None] == symbol) | ((chosen == OPEN) | (chosen == SOME))[..., None])
    if barred is not None:
        allowed = allowed & ~barred
    if chosen is not None:
        if validates and (place := _first(here & ~allowed.any(3))):
            b, i, j = place
            kind = "every symbol" if int(chosen[b, i, j]) == SOME else f"symbol {int(chosen[b, i, j])}"
            raise _error("required", b, f"{_words(i, j)}: {kind} is also forbidden")
        crossed = _crossed(here & ~single)
        if validates and (place := _first(here & ~single & crossed)):
            raise _error("required", place[0], _crossing(here[place[0]].nonzero().tolist(), place[1], place[2]))
        allowed = allowed & ~crossed[..., None]
    if validates:
        _check_words(allowed.diagonal(dim1=1, dim2=2).transpose(1, 2), inside.diagonal(dim1=1, dim2=2))
    return allowed


def _words(i: int, j: int) -> str:
    return f"word {i}" if i == j else f"words {i}..{j}"


def _check_symbols(here: Bool[Tensor, "B n n"], chosen: Int[Tensor, "B n n"], able: Bool[Tensor, "B n n S"]) -> None:
    S = able.shape[3]
    there = able.gather(3, chosen.clamp(0, S - 1)[..., None]).squeeze(3)
    if place := _first(here & (chosen != SOME) & ~(there & (chosen >= 0) & (chosen < S))):
        b, i, j = place
        T = int(able[b, i, i].sum())
        wanted = f"a tag, 0..{T - 1}" if i == j else f"a symbol above tags, {T}..{S - 1}"
        raise _error("required", b, f"{_words(i, j)}: {int(chosen[b, i, j])} is not -1, -2 or {wanted}")


def _crossed(spans: Bool[Tensor, "B n n"]) -> Bool[Tensor, "B n n"]:
    """Which spans k..l are crossed by one of ``spans``, in memory of n^2."""
    n = spans.shape[1]
    word = torch.arange(n, device=spans.device)
    last = torch.where(spans, word, -1).amax(2)  # of those that begin with a word, the furthest end
    first = torch.where(spans, word[:, None], n).amin(1)  # of those that end with a word, the furthest beginning
    # i..j with k < i <= l < j: of all i from k + 1 on to l, the furthest end
    after = torch.where(word > word[:, None], last[:, None, :], -1).cummax(2).values > word
    # i..j with i < k <= j < l: of all j from l - 1 back to k, the furthest beginning
    ends = torch.where(word[:, None] < word, first[:, :, None], n)  # [B, j, l]
    before = ends.flip(1).cummin(1).values.flip(1) < word[:, None]
    return after | before


def _crossing(spans: list[list[int]], i: int, j: int) -> str:
    k, m = next((k, m) for k, m in spans if k < i <= m < j or i < k <= j < m)
    (i, j), (k, m) = sorted([(i, j), (k, m)])
    return f"{_words(i, j)} and {_words(k, m)} cross"
