"""Makes proofs whole: what methods know at their end, and the prices of the spanning tree that follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from gpuparse.ops import MATRIX_TREE
from gpuparse.proofs import NEVER, Doubles, Leaf, path_of, spanning_sets
from gpuparse.scores import Scores
from gpuparse.single import Single
from gpuparse.verify import leaf_bound, tree_part

DEAR = 2.0**900  # of the root, where every tree has more than one word under it


@dataclass(frozen=True)
class _Any(Mapping[Any, Any]):
    """Rows of constraints that are taken as they come: whoever reads the proof looks at them."""

    made: list[object] = field(default_factory=list)

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


@np.errstate(over="ignore", invalid="ignore")  # what is not finite proves nothing
def complete(
    scores: Scores, b: int, heads: list[int], score: float, leaves: tuple[Leaf, ...] | None, *, single_root: bool
) -> tuple[tuple[Leaf, ...], float]:
    """The leaves of a sentence with prices of sets, and the bound that follows.

    Args:
        heads: of its tree, [N] with -1 at node 0.
        leaves: None: arcs take over the best of their pairs.
    """
    sentence = Single.of(scores, b, single_root)
    over = sentence.over()
    most = np.where(np.isneginf(over), NEVER, over).sum(0)
    if leaves is None:
        leaves = (Leaf(path_of(()), most),)
    made, bounds = [], []
    enough = score + sentence.rounding(score)
    for leaf in leaves:
        whole = _priced(sentence, replace(leaf, penalties=_within(leaf, most)))
        bound = leaf_bound(sentence, whole, _Any(), True)
        for other in _others(sentence, leaf, leaves, heads, most) if bound > enough and len(leaf.path) else ():
            other = _priced(sentence, other)
            own = leaf_bound(sentence, other, _Any(), True)
            whole, bound = (other, own) if own < bound else (whole, bound)
            if bound <= enough:
                break
        made.append(whole)
        bounds.append(bound)
    return tuple(made), max(bounds)


def _others(sentence: Single, leaf: Leaf, leaves: tuple[Leaf, ...], heads: list[int], most: Doubles) -> Iterator[Leaf]:
    """Other numbers for a leaf: of its one tree, if it has no other, whose pairs are known; and those of other leaves,
    for whatever bounds the trees of one branch bounds those of another, if perhaps not as well."""
    yield replace(leaf, penalties=_of_tree(sentence, leaf, heads, most))
    for each in reversed(leaves):
        if each is not leaf:
            yield replace(each, path=leaf.path, penalties=_within(replace(each, path=leaf.path), most))


def _allowed(leaf: Leaf, N: int) -> Any:
    """Which arcs a leaf has [N, N]."""
    here = np.ones((N, N), dtype=bool)
    for h, m, label, has in leaf.path.tolist():
        if has:
            here[:, m] &= np.arange(N) == h
        elif label < 0:
            here[h, m] = False
    return here


def _within(leaf: Leaf, most: Doubles) -> Doubles:
    """Penalties: of arcs that the leaf has not the most, so that no star has them."""
    return np.maximum(np.where(_allowed(leaf, len(most)), leaf.penalties, most), NEVER)  # with room for sums


def _of_tree(sentence: Single, leaf: Leaf, heads: list[int], most: Doubles) -> Doubles:
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


def _priced(sentence: Single, leaf: Leaf) -> Leaf:
    """A leaf with the prices of the root and of sets of words that prove its best spanning tree."""
    arcs, _ = tree_part(sentence, leaf, _Any(), True)
    root = 0.0
    if sentence.single_root:
        best, tree = arcs[:, 1:].max(0), _best(arcs, True)
        if tree[1] >= 0 and np.isfinite(best).all():
            value = math.fsum(arcs[tree[1:], range(1, len(tree))].tolist())
            root = max(0.0, math.fsum(best.tolist()) - value)
        elif tree[1] < 0:
            root = DEAR
        arcs[0] -= root
    sets, prices = spanning_sets(arcs)
    return replace(leaf, sets=sets, set_prices=prices, root=np.array(root))


def _best(arcs: Doubles, single_root: bool) -> list[int]:
    lengths = torch.tensor([len(arcs) - 1])
    return [int(x) for x in MATRIX_TREE.argmax(torch.from_numpy(arcs)[None], lengths, single_root)[0].tolist()]
