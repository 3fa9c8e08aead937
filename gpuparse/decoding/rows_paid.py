"""Rows of constraints in a proof: each must be one that constraints have, and is paid for at its price."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuparse.decoding.proofs import ProofLeaf
from gpuparse.decoding.single import plus
from gpuparse.system.quote import quoted

Doubles = npt.NDArray[np.float64]


def pay_rows(table: Doubles, terms: list[float], leaf: ProofLeaf, known: Mapping[Any, Any], projective: bool) -> None:
    """Take off labelled arcs what they pay for rows of constraints, each of which must be one."""
    spent: dict[Hashable, float] = {}
    for r, (low, high, weight, _, price) in enumerate(leaf.rows.tolist()):
        of_row = np.nonzero(leaf.box_row == r)[0].tolist()
        boxes = [(leaf.box_heads[k], leaf.box_words[k], leaf.box_labels[k], float(leaf.box_weight[k])) for k in of_row]
        row: Any = known.get(
            (tuple((h.tobytes(), w.tobytes(), x.tobytes(), z) for h, w, x, z in boxes), low, high, weight)
        )
        if row is None and not (projective and _all_cross(boxes, low, high, weight)):
            raise ValueError("a row is none of the constraints")
        if weight < math.inf:
            spent[row.group] = float(np.nextafter(spent.get(row.group, 0.0) + abs(price) / weight, math.inf))
            if spent[row.group] > 1 + 2.0**-40:
                raise ValueError("a soft row is paid for more than once")
        elif all(z.is_integer() for *_, z in boxes):
            low = math.ceil(low - 1e-9) if low > -math.inf else low  # counts are whole
            high = math.floor(high + 1e-9) if high < math.inf else high
        room = high if price > 0 else low
        terms.append(float(np.nextafter(price * room, math.inf)))
        for h, w, x, z in boxes:
            at = np.ix_(h, w, x)
            table[at] = plus(table[at], -np.nextafter(price * z, -math.inf))


def row_key(row: Any, shape: tuple[int, ...]) -> Any:
    """A row of a constraint as a proof has it."""
    sizes = shape[0], shape[1], shape[2]
    boxes = tuple(
        (
            *(
                np.isin(np.arange(n), sorted(x)).tobytes() if x is not None else np.ones(n, dtype=bool).tobytes()
                for x, n in zip((box.heads, box.words, box.labels), sizes, strict=True)
            ),
            float(box.weight),
        )
        for box in row.boxes
    )
    return boxes, float(row.low), float(row.high), float(row.weight)


def _all_cross(boxes: list[Any], low: float, high: float, weight: float) -> bool:
    """Whether no projective tree has two of the arcs in boxes: all that are of different words cross."""
    listed = [(int(h), int(m)) for hs, ms, *_ in boxes for h in np.nonzero(hs)[0] for m in np.nonzero(ms)[0]]
    arcs = set(listed)
    spans = [(min(a), max(a), a[1]) for a in arcs if a[0] != a[1]]
    ok = all(m == k or (a, b) == (c, d) or a < c < b < d or c < a < d < b for a, b, m in spans for c, d, k in spans)
    return (
        ok
        and len(arcs) == len(listed)
        and low <= 0
        and high == 1
        and weight == math.inf
        and all(z == 1.0 for *_, z in boxes)
    )


def asked_for(constraints: Any, words: Any, sentences: int) -> tuple[Any, ...]:
    """The constraints, if they and the words that they look at are what they should be; else a ValueError."""
    found = tuple(constraints) if isinstance(constraints, Iterable) else (constraints,)
    if not isinstance(constraints, Iterable) or not all(hasattr(each, "all_rows") for each in found):
        raise ValueError(f"constraints must be a list of constraints, got {quoted(constraints)}")
    if found and (not isinstance(words, Sequence) or len(words) != sentences):
        raise ValueError(f"words: wanted those of {sentences} sentences, which the constraints look at")
    return found


def penalties(broken: Iterable[Any], heads: list[int], labels: list[int]) -> list[float]:
    """What a tree pays for the soft rows that it breaks: of each group the most that a row asks."""
    costs: dict[Hashable, float] = {}
    for row in broken:
        if not row.is_hard:
            costs[row.group] = max(costs.get(row.group, 0.0), row.weight * row.excess(heads, labels))
    return list(costs.values())
