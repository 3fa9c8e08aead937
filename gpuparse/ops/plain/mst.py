"""Maximum spanning arborescences: Chu-Liu-Edmonds for a whole batch, in rounds instead of by recursion."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gpuparse.ops.plain.semiring import NEG_INF, clean
from gpuparse.structures.masks import word_mask


def _best_by_component(
    gain: Float[Tensor, "B N"], component: Int64[Tensor, "B N"]
) -> tuple[Float[Tensor, "B N"], Int64[Tensor, "B N"]]:
    """Every component's best gain and the first word that has it, [B, N] each; -inf for an unused id."""
    ids = torch.arange(gain.shape[1], device=gain.device)
    member = component[:, None, :] == ids[:, None]
    best, word = torch.where(member, gain[:, None, :], NEG_INF).max(2)
    return best, word


def _cycles(parent: Int64[Tensor, "B N"]) -> tuple[Bool[Tensor, "B N"], Int64[Tensor, "B N"]]:
    """By pointer jumping: is an id on a cycle of `parent` [B, N], and if so, the cycle's smallest id."""
    nodes = parent.shape[1]
    jump, low = parent, torch.arange(nodes, device=parent.device).expand_as(parent)
    for _ in range((nodes - 1).bit_length()):
        # low is the least of the first 2^s ids on the way from here, jump the id after them
        low = torch.minimum(low, low.gather(1, jump))
        jump = jump.gather(1, jump)
    # after N or more steps every way is on a cycle, and every cycle is covered
    on_cycle = torch.zeros_like(parent).scatter(1, jump, 1) > 0
    return on_cycle, low


def mst(arcs: Float[Tensor, "B N N"], lengths: Int64[Tensor, " B"], single_root: bool) -> Int64[Tensor, "B N"]:
    """Heads [B, N] of a best tree: -1 at node 0, past the end, and everywhere if there is no tree.

    A round: every component takes its best arc from outside, cycles become components, and the arcs into a
    cycle's member lose the score of the arc they would replace. N - 1 rounds leave no cycle. Then the rounds
    are undone from the last to the first: a component that no later arc enters keeps the arc it took.

    With a single root a component takes the root only if it has no other arc. No arc on a cycle leaves the
    root, so this finds the best of the trees with the fewest root arcs. Equals: the smallest head and word.
    """
    w = clean(arcs.detach(), lengths)
    batch, nodes, _ = w.shape
    words = word_mask(lengths, nodes)
    node = torch.arange(nodes, device=w.device)
    component = node.expand(batch, nodes)
    paid = w.new_zeros(batch, nodes)  # scores of the arcs that an arc into this word replaces
    dead = torch.zeros_like(lengths, dtype=torch.bool)
    rounds = []
    for _ in range(nodes - 1):
        # the best arc from outside into each word, and of those into each component
        outside = torch.where(component[:, :, None] != component[:, None, :], w, NEG_INF)
        skip = int(single_root)
        score, head = outside[:, skip:].max(1)
        best, word = _best_by_component(score - paid, component)
        head = (head + skip).gather(1, word)
        # the root where there is nothing else
        root_best, root_word = _best_by_component(outside[:, 0] - paid, component)
        rootless = best > NEG_INF
        best, word = torch.where(rootless, best, root_best), torch.where(rootless, word, root_word)
        head = torch.where(rootless, head, 0)

        taken = best > NEG_INF
        dead = (words & ~taken.gather(1, component)).any(1)
        rounds.append((component, taken, head, word))

        # contract the cycles; the root and what has no arc count as children of the root
        parent = torch.where(taken, component.gather(1, head), 0)
        on_cycle, low = _cycles(parent)
        merge = on_cycle.gather(1, component) & (component != 0)
        paid = paid + torch.where(merge, best.gather(1, component), 0.0)
        component = torch.where(merge, low.gather(1, component), component)

    heads = torch.full_like(component, -1)
    for component, taken, head, word in reversed(rounds):
        entered = torch.zeros_like(heads).scatter_add(1, component, (heads >= 0).long()) > 0
        enter = (taken & ~entered).gather(1, component) & (word.gather(1, component) == node)
        heads = torch.where(enter, head.gather(1, component), heads)
    if single_root:
        dead = dead | ((heads == 0) & words).sum(1).gt(1)
    return torch.where(words & ~dead[:, None], heads, -1)
