"""TREE in plain torch: the links are a dependency tree, crossing or not (Smith and Eisner 2008, 3.3).

A word is h's descendant or not whatever its own head is, so the trees with h -> m weigh q(h, m) u(h, m) Z(m), with Z(m)
the same for all h: u(h, m) is the probability that a walk from h, each word going on to a head by the weights of its
heads, comes to the root before it comes to m. So the message to L[h, m] has the odds u(h, m) / sum over h' != h of
q(h', m) u(h', m), and it needs only u, whatever the incoming message about L[h, m] itself is. Words are eliminated from
the walk without a subtraction (the last half of the words, for the targets m in the first half, and so on by halves:
O(n^3) for all m together), so that every u has all its digits, however small it is.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpuparse.ops.plain.links import Graph, one_of, safe_log
from gpuparse.ops.plain.semiring import NEG_INF, logaddexp, logsumexp
from gpuparse.structures.trees import can_validate

# With a single root every arc of the root weighs so much less that trees with two of them are lost in rounding.
_LITTLE = -200.0
_STEP = 30.0
# What a double holds, with digits to spare: log weights further apart than this are added up as logs.
_RANGE = 600.0
# When what was added up without logs is proven, and its derivatives are in range: the least log u and the widest arcs,
# which together stay above the log of the least double, -708; and how near to 1 a power is by rounding.
_LEAST_LOG, _SURE_WIDE, _SURE_POWER = -460.0, 200.0, 1e-12


def escapes(walk: Float[Tensor, "B n n"], root: Float[Tensor, "B n"], *, log: bool = False) -> Float[Tensor, "B n n"]:
    """u[b, h, m] of walks that step from word i to word j by weight walk[b, i, j], and to the root by root[b, i].

    With ``log`` all numbers are logs: slower, and for weights of any range.
    """
    n = walk.shape[1]
    halvings = max(0, n - 1).bit_length() - 3 if n > 8 else 0
    last = -(-n // 2**halvings)  # groups of so many words are taken apart at once
    size = last * 2**halvings
    more, word = size - n, torch.arange(size, device=walk.device)
    zero, one = (NEG_INF, 0.0) if log else (0.0, 1.0)

    def sum_of(x: Tensor) -> Tensor:
        return logsumexp(x, -1) if log else x.sum(-1)

    def update(x: Tensor, this: Tensor, into: Tensor, step: Tensor) -> Tensor:
        """x + into * step, and step alone in this row."""
        if log:
            return logaddexp(torch.where(this, NEG_INF, x), into + step)
        return torch.where(this, 0.0, x) + into * step

    # keep [B, G, rows, g]: steps from every word to the g words of each group, all words outside the group eliminated;
    # out [B, G, rows, 1]: steps to the root
    keep = torch.nn.functional.pad(walk, (0, more, 0, more), value=zero)[:, None]
    out = torch.nn.functional.pad(root, (0, more), value=zero)[:, None, :, None]
    for parts in [2] * halvings + [last]:
        G, g = keep.shape[1], keep.shape[3]
        # each part of a group becomes a group, for which the words of the other parts are eliminated: they come first
        part = word[:parts, None]
        order = (word[:g] + (part + 1) * (g // parts)) % g  # [parts, g]
        steps = keep[..., order].movedim(3, 2).flatten(1, 2)
        steps = torch.cat([steps, out.repeat_interleave(parts, 1)], 3)
        gone = (order + word[:G, None, None] * g).flatten(0, 1)  # [G * parts, g]
        group = word[: G * parts]
        for t in range(g - g // parts):
            k = gone[:, t]
            this = (word == k[:, None])[..., None]  # [G * parts, rows, 1]
            into, steps = torch.where(this, one, steps[..., :1]), steps[..., 1:]
            from_k = steps[:, group, k][:, :, None, :]
            total = sum_of(from_k)[..., None]
            total = torch.where(total > zero, total, one)
            steps = update(steps, this, into, from_k - total if log else from_k / total)
        keep, out = steps[..., :-1], steps[..., -1:]
    return out[..., 0].transpose(1, 2)[:, :n, :n]


def _log_escapes(w: Float[Tensor, "B N N"], little: Float[Tensor, " B"], log: bool) -> Float[Tensor, "B N N"]:
    """log u(h, m) by log weights of arcs, those of the root times exp(little); the root itself is one of the heads."""
    little = little[:, None]
    most = w.detach().amax(1, keepdim=True)
    w = w - torch.where(most == NEG_INF, 0.0, most)
    root, walk = w[:, 0, 1:] + little, w[:, 1:, 1:].transpose(1, 2)
    u = escapes(walk, root, log=True) if log else safe_log(escapes(torch.exp(walk), torch.exp(root)))
    top = little[..., None].expand_as(w[:, :1])
    return torch.cat([top, torch.nn.functional.pad(u, (1, 0), value=NEG_INF)], 1)


def escape(q: Float[Tensor, "B N N"], graph: Graph, single_root: bool) -> Float[Tensor, "B N N"]:
    """log u(h, m), up to a constant for each m. Each sentence is looked at for itself."""
    w = one_of(q, 1)
    given = w.detach()
    there = graph.links & given.isfinite()
    wide = torch.where(there, given, NEG_INF).amax(1) - torch.where(there, given, torch.inf).amin(1)
    wide = wide.clamp(min=0.0)  # [B, N]
    hard = (graph.links & ~there).flatten(1).any(1)
    # What a tree may weigh less than another. One arc that is changed leaves one word less under the root, if all
    # arcs are there; else all arcs may have to change, and N^N trees be weighed against one.
    N = (graph.lengths + 1).double()
    reach = torch.where(hard, wide.sum(1) + N * torch.log(N), wide.amax(1))
    little = -(reach + 40).clamp(min=-_LITTLE)
    if not can_validate(w, None):  # logs fit whatever there is
        return _walk(w, graph, little, hard, single_root=single_root, log=True)[0]
    fits = (reach - little if single_root else reach) <= _RANGE
    if bool(fits.all()):
        return _walk(w, graph, little, hard, single_root=single_root, log=False)[0]
    done, maybe = fits, hard & (wide.amax(1) <= _SURE_WIDE)
    if bool((maybe & ~fits).any()):  # reach is the worst case: try
        trial = torch.where(fits, little, _LITTLE)
        found, proven = _walk(given, graph, trial, hard, single_root=single_root, log=False)
        done = fits | (maybe & proven)
        little = torch.where(done, trial, little)
        if bool(done.all()) and not (torch.is_grad_enabled() and w.requires_grad):
            return found
    parts, places = [], []  # sentences apart, as derivatives of what does not fit would be NaN
    for some, log in ((done, False), (~done, True)):
        at = some.nonzero().squeeze(1)
        if len(at):
            parts.append(_walk(w[at], graph.select(at), little[at], hard[at], single_root=single_root, log=log)[0])
            places.append(at)
    return torch.cat(parts)[torch.cat(places).argsort()]


def to_heads(rest: Float[Tensor, "B N N"], odds: Float[Tensor, "B N N"], graph: Graph) -> Float[Tensor, "B N N"]:
    """Messages about heads as variables, by the sums over all trees with each of them, without its own weight: divided
    by the sum over all that is not demanded."""
    w = torch.where((odds == torch.inf) | (rest == NEG_INF), NEG_INF, odds + torch.where(rest == NEG_INF, 0.0, rest))
    norm = graph.sum(torch.where(graph.links, w, NEG_INF), 1)
    return torch.where(graph.links, rest - torch.where(norm == NEG_INF, 0.0, norm)[:, None], 0.0)


def _walk(
    w: Float[Tensor, "B N N"],
    graph: Graph,
    little: Float[Tensor, " B"],
    hard: Bool[Tensor, " B"],
    *,
    single_root: bool,
    log: bool,
) -> tuple[Float[Tensor, "B N N"], Bool[Tensor, " B"]]:
    """log u(h, m), and whether it is proven that nothing was too small for a double, and nothing but trees with a
    single root counts. ``hard``: whether arcs are forbidden."""
    found = _log_escapes(w, little if single_root else torch.zeros_like(little), log)
    small = found.detach() < _LEAST_LOG
    if not single_root or (can_validate(w, None) and not bool(hard.any())):
        return found, ~(small & graph.links).flatten(1).any(1)
    # Then there may be links that only trees with two root arcs have. Their u has the little weight in it once
    # more, which shows when that weight changes.
    less = _log_escapes(w.detach(), little - _STEP, log)
    power = ((found.detach() - less) / _STEP).nan_to_num(nan=torch.inf)
    small = small | ((power - 1).abs() > _SURE_POWER)
    power = torch.where(graph.links, power.round(), torch.inf)
    found = torch.where(power > power.amin(1, keepdim=True), NEG_INF, found)
    return found, ~(small & graph.links).flatten(1).any(1)
