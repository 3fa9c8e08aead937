"""A step of dual decomposition, and what trees and stars say of arcs: ``gpuparse.ops.multipliers`` in plain torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from gpuparse.structures.masks import previous_sibling, word_mask
from gpuparse.structures.trees import tree_scores

Each = Float64[Tensor, " B"]
Size = Callable[[Each, Each, Each, Each], Each]

# What is known of a sentence; its numbers that stay: first those of any run, then what rounding may do.
SCORE, BOUND, SIZE, ITERATIONS, CERTIFIED, DONE = range(6)
ENOUGH, STOP_AT, TOLERANCE = range(6, 9)
OF_DUAL, OF_SIZE, OF_DISTANCE, MOST, SHARED, COARSE = range(9, 15)
KNOWN = 15
# What a rule of steps knows of a sentence, and its numbers: Polyak's; that of the others: how often the dual rose.
FACTOR, WAITED, LEAST, START, PATIENCE, SHRINK, GUESS = range(7)
RISES, LAST, FIRST = range(3)
RULE = 7
POLYAK, HALVING, DECREASING = range(3)


def step_size(kind: int, rule: Float64[Tensor, "B 7"], dual: Each, bound: Each, primal: Each, norm: Each) -> Each:
    """The next step of each sentence by a rule, which is changed."""
    known = rule.unbind(1)
    if kind != POLYAK:
        known[RISES].add_((dual > known[LAST]).double())
        known[LAST].copy_(dual)
        shrink = 2.0 ** -known[RISES] if kind == HALVING else 1 / (1 + known[RISES])
        return 2 * known[FIRST] * shrink  # of two oracles each goes half of the way
    known[START].copy_(torch.where(known[START] == torch.inf, dual, known[START]))
    known[WAITED].copy_(torch.where(bound < known[LEAST], 0.0, known[WAITED] + 1))
    known[LEAST].copy_(torch.minimum(known[LEAST], bound))
    cut = (known[WAITED] >= known[PATIENCE]) | (dual > known[START])
    known[FACTOR].mul_(torch.where(cut, known[SHRINK], 1.0))
    known[WAITED].mul_((~cut).double())
    gap = torch.where(primal > -torch.inf, dual - primal, known[GUESS] * torch.where(dual == 0, 1.0, dual.abs()))
    moves = (norm > 0) & gap.isfinite()  # else there is nowhere to go, or nothing to find
    return torch.where(moves, known[FACTOR] * gap.clamp(min=0) / norm, 0.0)


def off_by(score: Each, numbers: Float64[Tensor, "B 6"], total: Tensor, moved: Tensor) -> Each:
    """What scores may be off, and bounds beside them: see ``gpuparse.decoding.dual.agreement.Rounding``."""
    _, of_size, of_distance, most, shared, coarse = numbers.unbind(1)
    distance = torch.where(score.isfinite(), (most - score).abs(), 0.0)
    near = total >= -distance[:, None, None]
    size = shared + torch.where(near, moved, 0.0).amax(1).sum(1)
    return torch.where((distance < 2.0**-900) & (coarse != 0), -torch.inf, of_size * size + of_distance * distance)


def is_best(
    score: Each, bound: Each, size: Each, tolerance: Tensor, numbers: Tensor, total: Tensor | None, moved: Tensor | None
) -> Bool[Tensor, " B"]:
    """Whether scores are proven best by bounds, where so much was added up."""
    best = (score > -torch.inf) & _is_proven(score, bound, tolerance * torch.maximum(size, score.abs()))
    if total is None or moved is None:
        return best
    return best & _is_proven(score, bound, off_by(score, numbers, total, moved))


def _is_proven(score: Each, bound: Each, off: Each) -> Bool[Tensor, " B"]:
    return (off < torch.inf) & (bound <= score + off)


def multipliers(given: Sequence[Any], size: Size, last: bool) -> None:
    """``gpuparse.ops.multipliers.multipliers`` with any rule for the size of steps; ``given``: its tensors in order."""
    y, values, score, total, moved, parts, u, sums, least, known, better, trace = given
    y = y.double()
    live, dual = known[:, DONE] == 0, values.sum(1)
    groups = [x.unflatten(1, part) for x, part in zip(y.split([o * s for o, s in parts], 1), parts, strict=True)]
    direction = torch.cat([(x - x.sum(1, keepdim=True) / x.shape[1]).flatten(1) for x in groups], 1)
    agree = torch.stack([(x == x[:, :1]).flatten(1).all(1) for x in groups]).all(0)
    found = torch.where(agree, dual, -torch.inf) if score is None else score
    more = live & (found > known[:, SCORE]) & (dual > -torch.inf)
    best = torch.where(more, found, known[:, SCORE])
    own = torch.where(dual.isfinite(), values.abs().sum(1) + (u.abs() * y).sum(1), 0.0)
    off = known[:, OF_DUAL]
    sure = torch.where(off != 0, dual + off * own, dual)
    lower = live & (sure < known[:, BOUND])
    bound = torch.where(lower, sure, known[:, BOUND])
    added = torch.where(live, torch.minimum(known[:, SIZE], own), known[:, SIZE])
    rounding = known[:, TOLERANCE], known[:, OF_DUAL:], total, moved
    certified = is_best(best, bound, added, *rounding)
    done = certified | is_best(known[:, ENOUGH], bound, added, *rounding) | (bound == -torch.inf)
    done = done | (best > known[:, STOP_AT])
    length = size(dual, bound, best, direction.square().sum(1))
    now = torch.stack([best, bound, added, known[:, ITERATIONS] + 1, certified.double(), done.double()], 1)
    known[:, : DONE + 1] = torch.where(live[:, None], now, known[:, : DONE + 1])
    better.copy_(more)
    trace.copy_(torch.where(live, torch.stack([dual, best, length]), torch.nan))
    sums.add_(torch.where(live[:, None], y, 0.0))
    if least is not None:
        least.copy_(torch.where(lower[:, None], u, least))
    if not last:
        u.copy_(torch.where(live[:, None], u - length[:, None] * direction, u))


def readings(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """``gpuparse.ops.multipliers.readings``."""
    scores, arcs, siblings, grandparents, lengths, heads, children, chosen, worth = given
    (B, N), node = heads.shape, torch.arange(heads.shape[1], device=heads.device)
    word = word_mask(lengths, N)
    tree = heads[:, None] == node[:, None]
    says = [tree, children]
    if grandparents is not None:
        says += [tree, chosen[:, None] == node[:, None]]
    head, sentence = torch.where(word, heads, 0).clamp(min=0), torch.arange(B, device=heads.device)[:, None]
    total = tree_scores(arcs, heads, lengths)
    if siblings is not None:
        one = siblings[sentence, head, previous_sibling(head, word), node]
        total = total + torch.where(word, one, 0.0).sum(1, dtype=torch.float64)
    if grandparents is not None:
        one = grandparents[sentence, head.gather(1, head), head, node]
        total = total + torch.where(word & (head > 0), one, 0.0).sum(1, dtype=torch.float64)
    values = torch.stack(
        [tree_scores(scores, heads, lengths), torch.where(node <= lengths[:, None], worth, 0.0).sum(1)], 1
    )
    none = (word & (heads < 0)).any(1)
    values[:, 0].masked_fill_(none, -torch.inf)
    return torch.stack(says, 1).double().flatten(1), values, torch.where(none, -torch.inf, total)
