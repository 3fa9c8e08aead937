"""The conventions on binary trees of a grammar, and what can be read off them.

A tree of n words is rows [2n - 1, 4] (i, j, symbol, split): a symbol over the words i..j, from 0 and both within, whose
left child ends with word ``split`` (-1 for a tag, which has no children). Parents come before their children and the
left child's rows before the right one's. Rows past a sentence's end are -1, all of them where there is no tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from gpuparse.structures.grammars import Grammar
from gpuparse.structures.trees import as_integers

__all__ = ["as_trees", "double_rule", "is_tree", "rules_of", "score_of", "tags_of", "to_brackets"]

Trees = Int[Tensor, "*S B rows 4"]


def as_trees(trees: Tensor, tags: Float[Tensor, "B n T"], columns: int = 4) -> Int[Tensor, "*S B rows columns"]:
    """Trees of the sentences of ``tags``, with any leading sample dimensions, checked for shape and type."""
    B, n = tags.shape[:2]
    as_integers(trees, "trees", f"[..., B, 2n - 1, {columns}]", tags.device)
    if trees.dim() < 3 or trees.shape[-3:] != (B, 2 * n - 1, columns):
        wanted = f"[..., B, 2n - 1, {columns}] = [..., {B}, {2 * n - 1}, {columns}]"
        raise ValueError(f"trees must have shape {wanted} like tags, got {list(trees.shape)}")
    return trees.to(torch.int64)


def _rows(lengths: Int[Tensor, " B"], rows: int) -> Bool[Tensor, "B rows"]:
    """True at the rows that a tree of each sentence has."""
    return torch.arange(rows, device=lengths.device) < 2 * lengths[:, None] - 1


def _children(trees: Trees) -> tuple[Trees, Trees]:
    """Of every row, the rows of its left and its right child; of a tag's, any two."""
    rows = trees.shape[-2]
    at = torch.arange(rows, device=trees.device)
    left = (at + 1).expand(trees.shape[:-1])
    right = at + 2 * (trees[..., 3] - trees[..., 0] + 1)
    both = (x.clamp(0, rows - 1)[..., None].expand_as(trees) for x in (left, right))
    one, other = (trees.gather(-2, index) for index in both)
    return one, other


def is_tree(trees: Trees, lengths: Int[Tensor, " B"], tags: int) -> Bool[Tensor, "*S B"]:
    """Whether rows are a binary tree over the whole sentence, tags (symbols below ``tags``) at its words and other
    symbols above; no waiting. Rows past the end are not read, and rules not asked for."""
    i, j, symbol, split = trees.unbind(-1)
    at = torch.arange(trees.shape[-2], device=trees.device)
    left, right = _children(trees)
    leaf = (i == j) & (split == -1) & (symbol >= 0) & (symbol < tags)
    inner = (i <= split) & (split < j) & (symbol >= tags) & (at + 2 * (j - i) < 2 * lengths[:, None] - 1)
    inner = inner & (left[..., 0] == i) & (left[..., 1] == split) & (right[..., 0] == split + 1) & (right[..., 1] == j)
    whole = (i[..., 0] == 0) & (j[..., 0] == lengths - 1)
    return whole & (leaf | inner | ~_rows(lengths, trees.shape[-2])).all(-1)


def _keys(grammar: Grammar) -> Int[Tensor, " R"]:
    S = len(grammar.symbols)
    return (grammar.parents * S + grammar.lefts) * S + grammar.rights


def double_rule(grammar: Grammar) -> str | None:
    """A rule that the grammar has twice, if there is one. Waits for the device."""
    keys, order = _keys(grammar).sort(stable=True)
    same = (keys[1:] == keys[:-1]).nonzero()
    if not len(same):
        return None
    names = (grammar.symbols[int(x[order[same[0, 0]]])] for x in (grammar.parents, grammar.lefts, grammar.rights))
    return "{} -> {} {}".format(*names)


def rules_of(trees: Trees, grammar: Grammar) -> Int[Tensor, "*S B rows"]:
    """The rule that makes each row's children: its index, -1 where there is none (in a tag's row and past the end)."""
    left, right = _children(trees)
    S, R = len(grammar.symbols), len(grammar.parents)
    if R == 0:
        return torch.full_like(trees[..., 0], -1)
    key = (trees[..., 2] * S + left[..., 2]) * S + right[..., 2]
    keys, order = _keys(grammar).sort(stable=True)
    found = torch.searchsorted(keys, key.contiguous()).clamp(max=R - 1)
    known = (trees[..., 3] >= 0) & (keys[found] == key)
    return torch.where(known, order[found], -1)


def tags_of(trees: Trees) -> Int[Tensor, "*S B n"]:
    """Tags of the words; -1 past the end."""
    n = (trees.shape[-2] + 1) // 2
    leaf = (trees[..., 3] == -1) & (trees[..., 0] >= 0)
    at = torch.where(leaf, trees[..., 0], n)  # what is no leaf goes to a place of its own
    tags = torch.full((*trees.shape[:-2], n + 1), -1, dtype=trees.dtype, device=trees.device)
    return tags.scatter(-1, at, trees[..., 2])[..., :n]


def score_of(
    trees: Trees,
    grammar: Grammar,
    tags: Float[Tensor, "B n T"],
    lengths: Int[Tensor, " B"],
    *,
    rules: Float[Tensor, "B R"] | None = None,
    roots: Float[Tensor, "B S"] | None = None,
    spans: Float[Tensor, "B n n S"] | None = None,
) -> Float64[Tensor, "*S B"]:
    """Score of each tree in float64: its root's, rules', tags' and spans'; differentiable. -inf for what is not a tree
    of the grammar. Rules and roots are the grammar's if not given."""
    (B, n, T), S = tags.shape, len(grammar.symbols)
    rules = grammar.scores.expand(B, -1) if rules is None else rules
    roots = grammar.roots.expand(B, -1) if roots is None else roots
    there = _rows(lengths, trees.shape[-2])
    i, j, symbol, split = trees.unbind(-1)
    rule, inner = rules_of(trees, grammar), there & (split >= 0)
    good = is_tree(trees, lengths, grammar.tags) & ((rule >= 0) | ~inner).all(-1)

    def part(values: Tensor, index: Tensor, used: Tensor) -> Tensor:
        used = used & good[..., None]
        index = torch.where(used, index, 0)
        flat = index.movedim(-2, 0).flatten(1)  # [B, ...], so that the gradient needs no copy of the scores a sample
        if values.shape[1] == 0:
            return torch.zeros_like(good, dtype=torch.float64)
        picked = values.gather(1, flat).reshape(B, *index.shape[:-2], index.shape[-1]).movedim(0, -2)
        return torch.where(used, picked, 0.0).sum(-1, dtype=torch.float64)

    first = torch.arange(trees.shape[-2], device=trees.device) == 0
    total = part(tags.flatten(1), i * T + symbol, there & (split < 0)) + part(rules, rule, inner)
    total = total + part(roots, symbol, first.expand_as(symbol))
    if spans is not None:
        total = total + part(spans.flatten(1), (i * n + j) * S + symbol, inner)
    return torch.where(good, total, -torch.inf)


def to_brackets(tree: Int[Tensor, "rows 4"], grammar: Grammar, words: Sequence[str] | None = None) -> str:
    """One tree as text, "(S (NP (D the) (N dog)) (V barks))"; without words, tags alone. "" where there is no tree."""
    rows = [row for row in tree.tolist() if row[0] >= 0]
    if not rows:
        return ""
    at = 0

    def take() -> str:
        nonlocal at
        i, _, symbol, split = rows[at]
        at += 1
        name = grammar.symbols[symbol]
        if split < 0:
            return name if words is None else f"({name} {words[i]})"
        left = take()
        return f"({name} {left} {take()})"

    return take()
