"""Makes proofs whole: what methods know at their end, and the prices of the spanning tree that follows from it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gpuparse.decoding.proofs import NEVER, Doubles, Proof, ProofLeaf, path_of, spanning_sets
from gpuparse.decoding.scores import Scores
from gpuparse.decoding.single import Single, plus, total
from gpuparse.decoding.verifying import tree_bound, tree_part
from gpuparse.ops import MATRIX_TREE

TRIED = 20  # other leaves whose numbers are tried
MOST = 500  # leaves that are split here, where what a method knew is not enough
MANY = 2.0**10  # times the size of all arcs: the price of the root, where every tree has more than one word under it
DEAREST = 2.0**1000


class _Any(Mapping[Any, Any]):
    """Rows of constraints that are taken as they come: whoever reads the proof looks at them."""

    def __getitem__(self, key: Any) -> Any:
        return _Group(object())

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key]

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True)
class _Group:
    group: object


def prove(
    scores: Scores,
    near: Scores,
    parse: Any,
    known: Mapping[int, tuple[ProofLeaf, ...]],
    *,
    projective: bool,
    single_root: bool,
) -> Proof:
    """The proof of a parse: of each sentence that is certified the leaves that are known, made whole. Projective trees
    without constraints have none: they are proven by computing them anew.

    Args:
        near: the scores without what cannot matter (``gpuparse.decoding.impossible``).
    """
    same = near is scores
    leaves, scores = {}, scores.dense()
    near = scores if same else near.dense()
    for b in parse.certified.nonzero()[:, 0].tolist():
        if b in known or not projective:
            heads = parse.heads[b, : int(scores.lengths[b]) + 1].tolist()
            sentence, score = Single.of(scores, b, single_root), float(parse.score[b])
            own = sentence if same else Single.of(near, b, single_root)
            leaves[b], _ = complete(sentence, heads, score + own.rounding(score), known.get(b))
    return Proof(leaves)


@np.errstate(over="ignore", invalid="ignore")  # what is not finite proves nothing
def complete(
    sentence: Single, heads: list[int], enough: float, leaves: tuple[ProofLeaf, ...] | None
) -> tuple[tuple[ProofLeaf, ...], float]:
    """The leaves of a sentence with prices of sets, and the bound that follows.

    Args:
        heads: of its tree, [N] with -1 at node 0.
        enough: a bound that is no better need not be looked for.
        leaves: None: arcs take over the best of their pairs.
    """
    over = sentence.over()
    most = np.where(np.isneginf(over), NEVER, over).sum(0)
    if leaves is None:
        leaves = (ProofLeaf(path_of(()), most),)
    made, bounds, left = [], [], MOST
    todo = list(reversed(leaves))
    while todo:
        leaf, bound, tree = _bounded(sentence, todo.pop(), leaves, heads, most, enough)
        step = _dispute(sentence, leaf, tree, heads) if bound > enough and left else None
        if step is None:
            made.append(leaf)
            bounds.append(bound)
        else:
            left -= 1
            todo += [replace(leaf, path=np.concatenate([leaf.path, path_of([(*step, -1, has)])])) for has in (0, 1)]
    return tuple(made), max(bounds)


def _bounded(
    sentence: Single, leaf: ProofLeaf, leaves: tuple[ProofLeaf, ...], heads: list[int], most: Doubles, enough: float
) -> tuple[ProofLeaf, float, list[int]]:
    """A leaf with prices, its bound, and the tree that reaches it."""
    first = replace(leaf, penalties=_within(leaf, most))
    whole, tree, bound = first, heads, np.inf
    if all((heads[m] == h) == bool(has) for h, m, _, has in leaf.path.tolist()):
        whole, tree, bound = _priced(sentence, first, heads)
    for other in itertools.chain((first,), _others(sentence, leaf, leaves, heads, most)) if bound > enough else ():
        made, its_tree, own = _priced(sentence, other)
        if own <= bound:
            whole, bound, tree = made, own, its_tree
        if bound <= enough:
            break
    return whole, bound, tree


def _others(
    sentence: Single, leaf: ProofLeaf, leaves: tuple[ProofLeaf, ...], heads: list[int], most: Doubles
) -> Iterator[ProofLeaf]:
    """Other numbers for a leaf: of its one tree, if it has no other, whose pairs are known; and those of other leaves,
    for whatever bounds the trees of one branch bounds those of another, if perhaps not as well."""
    yield replace(leaf, penalties=_of_tree(sentence, leaf, heads, most))
    for each in leaves[-1 : -TRIED - 1 : -1]:
        if each is not leaf:
            yield replace(each, path=leaf.path, penalties=_within(replace(each, path=leaf.path), most))


def _dispute(sentence: Single, leaf: ProofLeaf, tree: list[int], heads: list[int]) -> tuple[int, int] | None:
    """An arc to split a leaf by that is not proven: one that its tree has and the answer has not, or any; None if
    there is but one tree in it."""
    here = _allowed(leaf, len(heads)) & (sentence.arcs > -np.inf)
    words = [m for m in range(1, len(heads)) if here[:, m].sum() > 1]
    if not words:
        return None
    m = next((m for m in words if tree[m] != heads[m] and tree[m] >= 0), words[0])
    h = tree[m] if tree[m] >= 0 and here[tree[m], m] else int(here[:, m].argmax())
    return h, m


def _allowed(leaf: ProofLeaf, N: int) -> Any:
    """Which arcs a leaf has [N, N]."""
    here = np.ones((N, N), dtype=bool)
    for h, m, label, has in leaf.path.tolist():
        if has:
            here[:, m] &= np.arange(N) == h
        elif label < 0:
            here[h, m] = False
    return here


def _within(leaf: ProofLeaf, most: Doubles) -> Doubles:
    """Penalties: of arcs that the leaf has not, or that cannot matter, more than the most, so that no star has them."""
    known = _allowed(leaf, len(most)) & (leaf.penalties > NEVER)
    own = np.where(known, leaf.penalties, most + 2.0**-30 * np.abs(most))
    return np.maximum(own, NEVER)  # with room for sums


def _of_tree(sentence: Single, leaf: ProofLeaf, heads: list[int], most: Doubles) -> Doubles:
    """Penalties of a leaf's only tree, or of the best one by arcs: its arcs take over the pairs that they have."""
    N = len(most)
    arcs = np.where(_allowed(leaf, N), sentence.arcs + sentence.labels.max(2), -np.inf)
    found = _best(arcs, sentence.single_root)
    y = most.copy()
    for m, h in enumerate(found[1:], 1):
        if found[1] >= 0:
            y[h, m] = 0.0
            if sentence.grandparents is not None and h > 0:
                y[h, m] += sentence.grandparents[found[h], h, m]
            if sentence.siblings is not None:
                step = 1 if h < m else -1
                y[h, m] += sentence.siblings[h, next((k for k in range(m - step, h, -step) if found[k] == h), h), m]
    return np.where(np.isfinite(y), y, most)


def _priced(sentence: Single, leaf: ProofLeaf, tree: list[int] | None = None) -> tuple[ProofLeaf, list[int], float]:
    """A leaf with the prices of the root and of sets of words that prove its best spanning tree; that, which may be
    given, as a guess; its bound."""
    arcs, terms = tree_part(sentence, replace(leaf, root=np.zeros(())), _Any(), True)
    root, tree = 0.0, tree or _best(arcs, sentence.single_root)
    if sentence.single_root:
        best = arcs[:, 1:].max(0)
        if tree[1] >= 0 and np.isfinite(best).all():
            value = total(arcs[tree[1:], range(1, len(tree))].tolist())
            root = min(max(0.0, total(best.tolist()) - value), DEAREST)
        elif tree[1] < 0:
            root = min(MANY * float(np.abs(arcs[np.isfinite(arcs)]).sum()), DEAREST)
        arcs[0] = plus(arcs[0], -root)
        terms.append(root)
    sets, prices = spanning_sets(arcs)
    made = replace(leaf, sets=sets, set_prices=prices, root=np.array(root))
    return made, tree, tree_bound(arcs, terms, made)


def _best(arcs: Doubles, single_root: bool) -> list[int]:
    lengths = torch.tensor([len(arcs) - 1])
    return [int(x) for x in MATRIX_TREE.argmax((torch.from_numpy(arcs)[None],), lengths, single_root)[0].tolist()]
