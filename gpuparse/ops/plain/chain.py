"""Chains of tags: the forward algorithm, over any sum, for scores of two tags in a row or of three.

A chain passes through states. With scores of pairs a state is a word's tag y (M = 1), with scores of triples the tags
x, y of a word and of the one before (M = T). States lie as [T, M]: the tag that is forgotten first, then what is kept.
`pairs [1 or B, 1 or P, T * M, T]` score the next tag; P is the number of places where they are, n - 1 or n - 2.

Scores past a sentence's length are never read: they may hold NaN, and their gradients are exactly 0. A sentence without
a chain has log Z = -inf with zero gradients, and tags of -1. All is computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from gpuparse.ops.plain.generic import _draw
from gpuparse.ops.plain.semiring import NEG_INF, logsumexp, maximum

Unary = Float[Tensor, "B n T"]
Pairs = Float[Tensor, "b p S T"]
Direction = tuple[Tensor, Tensor]
"""A tensor like unary and one like pairs."""


def places(words: int, trigrams: bool) -> int:
    """How many scores of tags in a row a sentence has."""
    return max(0, words - (2 if trigrams else 1))


def _read(unary: Unary, pairs: Pairs, lengths: Int64[Tensor, " B"], trigrams: bool) -> tuple[Tensor, Tensor]:
    """Masks of the unary and the pair scores that are read."""
    n, P = unary.shape[1], places(unary.shape[1], trigrams)
    word = torch.arange(n, device=lengths.device) < lengths[:, None]
    if pairs.shape[1] != P or pairs.shape[0] != lengths.shape[0]:
        place = torch.ones(pairs.shape[:2], dtype=torch.bool, device=lengths.device)
    else:
        place = torch.arange(P, device=lengths.device) < (lengths - (n - P))[:, None]
    return word[:, :, None], place[:, :, None, None]


def is_bad(unary: Unary, pairs: Pairs, lengths: Int64[Tensor, " B"], trigrams: bool) -> Bool[Tensor, " B"]:
    """Which sentences have a NaN or +inf among the scores that they read."""
    words, seen = _read(unary, pairs, lengths, trigrams)
    wrong = [(x.isnan() | x.isposinf()) & mask for x, mask in ((unary, words), (pairs, seen))]
    reads = lengths > (2 if trigrams else 1)
    return wrong[0].flatten(1).any(1) | (wrong[1].flatten(1).any(1) & reads)


def _clean(unary: Unary, pairs: Pairs, lengths: Int64[Tensor, " B"], trigrams: bool) -> tuple[Tensor, Tensor]:
    """The scores in float64, 0 where they are not read or are no scores."""
    masks = _read(unary, pairs, lengths, trigrams)
    good = [torch.where(mask & (x < torch.inf), x.double(), 0.0) for x, mask in zip((unary, pairs), masks, strict=True)]
    return good[0], good[1]


def _steps(unary: Tensor, pairs: Tensor, trigrams: bool) -> Iterator[tuple[Tensor | None, Tensor]]:
    """For every word the scores of getting there, [b, T, M, T] (None where there are none), and its unary scores."""
    n, T = unary.shape[1:]
    first = n - places(n, trigrams)
    for i in range(n):
        at = i - first if pairs.shape[1] > 1 else 0
        yield (None if i < first else pairs[:, at].unflatten(1, (T, -1))), unary[:, i]


def _forward(
    unary: Tensor, pairs: Tensor, trigrams: bool, add: Callable[[Tensor, int], Tensor]
) -> list[Float64[Tensor, "B T M"]]:
    """For every word the sum of all ways to each of its states, products being + and sums `add(x, dim)`."""
    alphas: list[Tensor] = []
    for psi, score in _steps(unary, pairs, trigrams):
        before = score.new_zeros(()) if not alphas else alphas[-1]
        ways = before if psi is None else add(before[..., None] + psi, 1)  # [B, T, 1], or [B, M, T]
        ways = ways + score[:, None, :]
        alphas.append(ways.reshape(*score.shape, ways.shape[1]))
    return alphas


def _total(
    unary: Tensor, pairs: Tensor, lengths: Tensor, trigrams: bool, add: Callable[[Tensor, int], Tensor]
) -> Tensor:
    ends = [add(alpha.flatten(1), 1) for alpha in _forward(unary, pairs, trigrams, add)]
    return torch.stack([torch.zeros_like(ends[0]), *ends], 1).gather(1, lengths[:, None]).squeeze(1)


def log_partition(unary: Unary, pairs: Pairs, lengths: Int64[Tensor, " B"], trigrams: bool) -> Float64[Tensor, " B"]:
    """log Z, [B]; -inf where there is no chain."""
    x, y = _clean(unary, pairs, lengths, trigrams)
    # a constant for each word, and for each place, changes log Z only: sums near 0 keep their digits
    c, d = x.detach().amax(2, keepdim=True), y.detach().amax((2, 3), keepdim=True) if y.numel() else y[:, :, :1, :1]
    c, d = (torch.where(m == NEG_INF, 0.0, m) for m in (c, d))
    word = torch.arange(unary.shape[1], device=lengths.device) < lengths[:, None]
    place = word[:, unary.shape[1] - places(unary.shape[1], trigrams) :]
    shift = torch.where(word, c[:, :, 0], 0.0).sum(1)
    if y.shape[1] and place.shape[1]:
        shift = shift + torch.where(place, d[:, :, 0, 0], 0.0).sum(1)
    return _total(x - c, y - d, lengths, trigrams, logsumexp) + shift


def value(
    unary: Unary, pairs: Pairs, lengths: Int64[Tensor, " B"], trigrams: bool, directions: Sequence[Direction] = ()
) -> Float64[Tensor, " B"]:
    """Derivative of each sentence's log Z along all the `directions`; differentiable if an input is."""
    inputs = (unary, pairs, *(x for direction in directions for x in direction))
    keep = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    with torch.inference_mode(False), torch.enable_grad():
        lengths, B = lengths.clone(), unary.shape[0]
        # nodes of their own in the graph, one for each sentence: directions may depend on the scores
        x, y = unary.double().clone(), pairs.double().expand(B, -1, -1, -1).clone()
        if not (keep and (x.requires_grad or y.requires_grad)):
            x, y = x.detach(), y.detach()
        if directions:
            x, y = (z if z.requires_grad else z.requires_grad_() for z in (x, y))
        read = [mask & (z > NEG_INF) for z, mask in zip((x, y), _read(x, y, lengths, trigrams), strict=True)]
        result = log_partition(x, y, lengths, trigrams)
        for step, direction in enumerate(directions, start=1):
            again = keep or step < len(directions)
            result = sum(
                (gradient * torch.where(mask, d.double(), 0.0)).flatten(1).sum(1)
                for gradient, mask, d in zip(_gradient(result, (x, y), again), read, direction, strict=True)
            )  # type: ignore[assignment]
    return result if keep else result.detach()


def _gradient(result: Tensor, inputs: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    if not result.requires_grad:
        return tuple(torch.zeros_like(x) for x in inputs)
    return torch.autograd.grad(result.sum(), inputs, create_graph=create_graph, materialize_grads=True)


def gradient(
    unary: Unary,
    pairs: Pairs,
    lengths: Int64[Tensor, " B"],
    trigrams: bool,
    weight: Float64[Tensor, " B"],
    directions: Sequence[Direction] = (),
) -> tuple[Float[Tensor, "B n T"], Float[Tensor, "b p S T"]]:
    """Gradient of the sum of `weight * value`: without directions and with weights of 1, the marginals."""
    inputs = (unary, pairs, weight, *(x for direction in directions for x in direction))
    keep = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    with torch.inference_mode(False), torch.enable_grad():
        x, y = unary.double().clone(), pairs.double().clone()
        x, y = (z if keep and z.requires_grad else z.detach().requires_grad_() for z in (x, y))
        result = value(x, y, lengths, trigrams, [(u.double().clone(), v.double().clone()) for u, v in directions])
        g = _gradient(result * weight.double(), (x, y), keep)
        found = tuple(z.to(unary.dtype) for z in g)
    return (found[0], found[1]) if keep else (found[0].detach(), found[1].detach())


def argmax(unary: Unary, pairs: Pairs, lengths: Int64[Tensor, " B"], trigrams: bool) -> Int64[Tensor, "B n"]:
    """Tags [B, n] of a best chain: -1 past the end, and everywhere if there is none.

    The derivative of the best score is the indicator of the best chain's tags.
    """
    with torch.inference_mode(False), torch.enable_grad():
        lengths = lengths.clone()
        x, y = _clean(unary.detach(), pairs.detach(), lengths, trigrams)
        x = x.requires_grad_()
        best = _total(x, y, lengths, trigrams, maximum)
        (used,) = _gradient(best, (x,), False)
    word = torch.arange(unary.shape[1], device=lengths.device) < lengths[:, None]
    return torch.where(word & (best.detach() > NEG_INF)[:, None], used.argmax(2), -1)


@torch.no_grad()
def topk(unary: Unary, pairs: Pairs, lengths: Int64[Tensor, " B"], trigrams: bool, k: int) -> Int64[Tensor, "k B n"]:
    """The k best chains, best first; -1 for ranks that do not exist. Every state keeps the k best ways to it."""
    (B, n, T), (x, y) = unary.shape, _clean(unary, pairs, lengths, trigrams)
    lists = torch.full((B, 1, 1, k), NEG_INF, dtype=torch.float64, device=unary.device)  # [B, T, M, k]
    lists[..., 0] = 0.0
    ends, origins = [], []
    for psi, score in _steps(x, y, trigrams):
        if psi is None:
            best, origin = lists, torch.arange(k, device=lists.device)
        else:
            best, origin = _first((lists[..., None, :] + psi[..., None]).movedim(1, -2).flatten(-2), k)
        lists = best + score[:, None, :, None]  # [B, M, T, k]
        origins.append(origin.expand(lists.shape).flatten(1))
        lists = lists.reshape(B, T, lists.shape[1], k)
        ends.append(_first(lists.flatten(1), k))
    state = rank = torch.zeros(B, k, dtype=torch.int64, device=unary.device)
    tags: list[Tensor] = []
    for i in reversed(range(n)):
        score, place = ends[i]
        last = (lengths == i + 1)[:, None]
        state, rank = torch.where(last, place // k, state), torch.where(last, place % k, rank)
        exists = torch.where(last, score > NEG_INF, (lengths > i + 1)[:, None] & (tags[-1] >= 0 if tags else last))
        tags.append(torch.where(exists, state % T, -1))
        origin = origins[i].gather(1, state * k + rank)
        state, rank = origin // k * (T if trigrams else 1) + state // T, origin % k
    return torch.stack(tags[::-1], -1).movedim(1, 0)


def _first(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest of the last dimension and where they are, the first of equals first; -inf for what is missing."""
    x = torch.nn.functional.pad(x, (0, max(0, k - x.shape[-1])), value=NEG_INF)
    found = x.sort(dim=-1, descending=True, stable=True)
    return found.values[..., :k], found.indices[..., :k]


@torch.no_grad()
def sample(
    unary: Unary, pairs: Pairs, lengths: Int64[Tensor, " B"], trigrams: bool, num: int
) -> Int64[Tensor, "num B n"]:
    """Exact samples, from torch's generator: the last word's state first, then each one before given the one after."""
    (B, n, T), (x, y) = unary.shape, _clean(unary, pairs, lengths, trigrams)
    alphas = _forward(x, y, trigrams, logsumexp)
    psis = [psi for psi, _ in _steps(x, y, trigrams)]
    sentence = torch.arange(B, device=unary.device)[:, None]
    state = torch.zeros(B, num, dtype=torch.int64, device=unary.device)
    tags = []
    for i in reversed(range(n)):
        alpha = alphas[i]
        ending = alpha.flatten(1)[:, None].expand(-1, num, -1)  # [B, num, T * M]
        chosen = _pick(ending)
        if i + 1 < n:
            following, tag = psis[i + 1], state % T
            if following is None:  # the second of three: its state says which tag the first word has
                chosen = torch.where((lengths == i + 1)[:, None], chosen, state // T)
            else:
                kept = state // T  # [B, num], the y of x, y, tag
                b = sentence if following.shape[0] > 1 else torch.zeros_like(sentence)
                ways = alpha[sentence, :, kept] + following[b, :, kept, tag]  # [B, num, T]
                before = _pick(ways) * alpha.shape[2] + kept
                chosen = torch.where((lengths == i + 1)[:, None], chosen, before)
        state = chosen
        tags.append(state % T)
    possible = _total(x, y, lengths, trigrams, maximum) > NEG_INF
    word = torch.arange(n, device=lengths.device) < lengths[:, None]
    found = torch.stack(tags[::-1], -1).movedim(1, 0)
    return torch.where(word & possible[:, None], found, -1)


def _pick(logs: Float64[Tensor, "B num S"]) -> Int64[Tensor, "B num"]:
    """An index for each row by the weights whose logarithms are given."""
    top = logs.amax(-1, keepdim=True)
    weights = torch.exp(logs - torch.where(top == NEG_INF, 0.0, top))
    return _draw(weights.flatten(0, 1)).view(logs.shape[:2])


@torch.no_grad()
def leaves(
    scores: tuple[Unary, Pairs], other: tuple[Unary, Pairs], lengths: Int64[Tensor, " B"], trigrams: bool
) -> Bool[Tensor, " B"]:
    """Whether `scores` allow a chain, however rare it is, that `other` forbids."""
    words, seen = _read(*scores, lengths, trigrams)
    masks = []
    for a, b, read in ((scores[0], other[0], words), (scores[1], other[1], seen)):
        allowed = ~(a.isneginf() & read)
        masks.append((allowed, allowed & b.isneginf() & read))
    (u_all, u_left), (p_all, p_left) = ((a.double(), b.double()) for a, b in masks)
    (B, _, T), ends = scores[0].shape, [torch.zeros_like(lengths, dtype=torch.bool)]
    within = left = None  # states that some chain comes to; the same for chains that `other` forbids: [B, T, M]
    for (psi, score), (psi_left, score_left) in zip(
        _steps(u_all, p_all, trigrams), _steps(u_left, p_left, trigrams), strict=True
    ):
        if within is None or left is None:
            within, left = torch.ones_like(score[:, None, :1]), torch.zeros_like(score[:, None, :1])
        elif psi is not None and psi_left is not None:
            left = _spread(left, psi) + _spread(within, psi_left)
            within = _spread(within, psi)
        left = (left * score[:, None, :] + within * score_left[:, None, :]).sign()
        within = (within * score[:, None, :]).sign()
        left, within = (x.reshape(B, T, x.shape[1]) for x in (left, within))
        ends.append(left.flatten(1).any(1))
    return torch.stack(ends, 1).gather(1, lengths[:, None]).squeeze(1)


def _spread(states: Float64[Tensor, "B T M"], steps: Float64[Tensor, "b T M T"]) -> Float64[Tensor, "B M T"]:
    return torch.einsum("bxy,bxyc->byc", states, steps.expand(states.shape[0], -1, -1, -1))


def score(
    unary: Unary, pairs: Pairs, tags: Int64[Tensor, "B n"], lengths: Int64[Tensor, " B"], trigrams: bool
) -> Float64[Tensor, " B"]:
    """The score of each sentence's chain; tags past the end are not read."""
    B, n, T = unary.shape
    x, y = _clean(unary, pairs, lengths, trigrams)
    known = tags.clamp(min=0)
    total = x.gather(2, known[..., None]).sum((1, 2))
    P, order = places(n, trigrams), 2 if trigrams else 1
    if P:
        state = known[:, :P] * T + known[:, 1 : P + 1] if trigrams else known[:, :P]
        rows = y.expand(B, P, -1, -1).gather(2, state[..., None, None].expand(B, P, 1, T)).squeeze(2)
        picked = rows.gather(2, known[:, order:, None]).squeeze(2)
        total = total + torch.where(
            torch.arange(P, device=lengths.device) < (lengths - order)[:, None], picked, 0.0
        ).sum(1)
    return total
