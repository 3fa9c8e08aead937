"""What the bound of a branch of an integer program follows from, as a proof has it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import numpy.typing as npt

from gpuparse.decoding.ilp.constrained import ConstrainedSentence
from gpuparse.decoding.ilp.master import Master, masks
from gpuparse.decoding.ilp.rows import Box
from gpuparse.decoding.proofs import NEVER, ProofLeaf, path_of

Doubles = npt.NDArray[np.float64]
Path = tuple[tuple[int, int, int, int], ...]  # decisions, as a proof has them


def leaf_of(sentence: ConstrainedSentence, master: Master, path: Path, paid: Doubles) -> ProofLeaf:
    """A branch as a proof has it: arcs take over from pairs what these are worth at most, less what rows of pairs
    say of that; cycles and the root are priced anew."""
    N, _, L = sentence.distances.shape
    y = np.zeros((N, N))
    for part in sentence.parts:
        y += np.where(np.isneginf(part.most), NEVER, part.most)
    rows: list[tuple[float, float, float, float, float]] = []
    boxes: list[tuple[int, float, Box]] = []
    for row, price in master.priced_rows(paid).items():
        if row in sentence.of_parts:
            kind, (first, *rest) = sentence.of_parts[row].kind, row.boxes
            child = [rest[0] if math.isinf(row.weight) else first] if kind == "grandparents" else row.boxes
            for box in child:
                for arc in product(box.heads or (), box.words or ()):
                    y[arc] -= price * box.weight
        elif row not in sentence.cycles and row not in sentence.own:
            boxes += [(len(rows), box.weight, box) for box in row.boxes]
            rows.append((row.low, row.high, row.weight, 0.0, price))
    of_boxes = [
        masks([getattr(box, name) for *_, box in boxes], n) for name, n in (("heads", N), ("words", N), ("labels", L))
    ]
    numbers = np.array([r for r, *_ in boxes], dtype=np.int64), np.array([w for _, w, _ in boxes], dtype=np.float64)
    of_rows = np.array(rows, dtype=np.float64).reshape(-1, 5)
    return replace(
        ProofLeaf(path_of(path), y),
        rows=of_rows,
        box_row=numbers[0],
        box_weight=numbers[1],
        box_heads=of_boxes[0],
        box_words=of_boxes[1],
        box_labels=of_boxes[2],
    )
