"""T2, no cycles: a set of words has fewer arcs among them than words. Found in trees and in fractional solutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from gpuparse.decoding.ilp.rows import Box, Row

Doubles = npt.NDArray[np.float64]

LEVELS = 8  # graphs of heavier and heavier arcs that are looked at


def cycles(heads: Sequence[int]) -> Iterator[Row]:
    """For each cycle among the heads, that fewer of its nodes have their head among them."""
    state = [0] * len(heads)  # 1: on the way, 2: done
    for start in range(1, len(heads)):
        path = []
        node = start
        while node > 0 and state[node] == 0:
            state[node] = 1
            path.append(node)
            node = heads[node]
        if node > 0 and state[node] == 1:
            yield _fewer(frozenset(path[path.index(node) :]))
        for done in path:
            state[done] = 2


def pairs(arcs: npt.NDArray[np.bool_]) -> Iterator[Row]:
    """Of all cycles of two words whose arcs are both among these [N, N]."""
    for i, j in zip(*np.nonzero(np.triu(arcs & arcs.T)), strict=True):
        if i:
            yield _fewer(frozenset({int(i), int(j)}))


def fractional_cycles(arcs: Doubles, least: float) -> Iterator[Row]:
    """Sets of words with more than their number less 1 in arcs among them, by ``least``; not all that there are.

    Args:
        arcs: weights of the arcs in a solution [N, N].

    Looks at the strong components of the arcs that are heavy enough, for some of their weights.
    """
    weights = np.unique(arcs[arcs > least])
    found = set()
    for level in weights[:: max(1, len(weights) // LEVELS)].tolist():
        for nodes in _components(arcs >= level):
            if nodes not in found:
                found.add(nodes)
                inside = np.fromiter(nodes, dtype=np.int64)
                if arcs[np.ix_(inside, inside)].sum() > len(nodes) - 1 + least:
                    yield _fewer(nodes)


def _components(arcs: npt.NDArray[np.bool_]) -> set[frozenset[int]]:
    """Strong components of more than one word; node 0 has no head, so it is in none."""
    reach = arcs | np.eye(len(arcs), dtype=bool)
    for _ in range(len(arcs).bit_length()):
        reach = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
    mutual = reach & reach.T
    return {frozenset(np.nonzero(row)[0].tolist()) for row in mutual if row.sum() > 1}


def _fewer(nodes: frozenset[int]) -> Row:
    names = ", ".join(map(str, sorted(nodes)))
    return Row((Box(nodes, nodes),), 0, len(nodes) - 1, f"a cycle of words {names}")
