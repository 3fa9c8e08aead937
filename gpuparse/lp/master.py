"""The restricted program: some labelled arcs e_{i,j,l} as columns, some rows over them, and what all arcs are worth.

For any prices of the rows, no tree that keeps to them scores more than ``Prices.bound``: the prices times the rows'
room, and for every word the best of its labelled arcs after it paid for the rows that it is in (the Lagrangian of all
rows but one head a word). So a tree with the labelled arc a scores at most bound - gap(a), gap(a) being what a then
falls short of its word's best; with prices of 0 these are the scores as they are. Nothing in this trusts the solver.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuparse.lp.rows import Box, Row
from gpuparse.lp.solver import Entries, Program, Solution

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CELLS = 1 << 22  # of tables of rows by arcs


@dataclass(frozen=True)
class Prices:
    """What the labelled arcs are worth after paying for rows.

    Attributes:
        reduced: of every labelled arc [N, N, L], -inf where there is none.
        best: of every word's [N - 1].
        bound: no tree that keeps to the rows scores more.
    """

    reduced: Doubles
    best: Doubles
    bound: float

    @property
    def gap(self) -> Doubles:
        """What each labelled arc falls short of its word's best [N, N - 1, L]."""
        return self.best[None, :, None] - self.reduced[:, 1:]


class Master:
    """Columns for some labelled arcs of a sentence, and rows; T1 (one head a word) are the first.

    Attributes:
        scores: of all labelled arcs [N, N, L], -inf where there is none.
        inside: which of them are columns [N, N, L].
        head, word, label: of these columns.
        column: where they stand in the program; slacks of soft rows stand between them.
        rows: those of the program.
    """

    def __init__(self, scores: Doubles, rows: Sequence[Row], first: Bools) -> None:
        self.scores = scores
        self.N, self.L = scores.shape[0], scores.shape[2]
        self.inside = np.zeros(scores.shape, dtype=bool)
        self.head = self.word = self.label = self.column = np.zeros(0, dtype=np.int64)
        self.rows: list[Row] = []
        self._stated: set[Row] = set()
        self._program = Program()
        self._slacks: dict[tuple[Hashable, float], int] = {}
        self._boxes = _Boxes(self.N, self.L)
        self.grow(first)
        self.state([*(one_head(m) for m in range(1, self.N)), *rows])

    def grow(self, arcs: Bools) -> None:
        """Make columns of labelled arcs."""
        head, word, label = (x.astype(np.int64) for x in np.nonzero(arcs & ~self.inside))
        columns = self._program.columns + np.arange(len(head))
        rows, places, values = self._boxes.entries(head, word, label)
        self._program.add_columns(self.scores[head, word, label], Entries.of(len(head), places, rows, values))
        self.head, self.word = np.concatenate([self.head, head]), np.concatenate([self.word, word])
        self.label, self.column = np.concatenate([self.label, label]), np.concatenate([self.column, columns])
        self.inside |= arcs

    def is_stated(self, row: Row) -> bool:
        return row in self._stated

    def state(self, rows: Sequence[Row]) -> None:
        """Add rows, each with its slacks if it is soft."""
        rows = [row for row in dict.fromkeys(rows) if row not in self._stated]
        if not rows:
            return
        self._boxes.add(rows, len(self.rows))
        over = [self._slack(row, -1.0) if row.high < math.inf else None for row in rows]
        under = [self._slack(row, 1.0) if row.low > -math.inf else None for row in rows]
        of_arcs, places, values = self._boxes.entries(self.head, self.word, self.label, len(self.rows))
        slacks = [
            (r, place, sign)
            for slack, sign in ((over, -1.0), (under, 1.0))
            for r, place in enumerate(slack)
            if place is not None
        ]
        of_slacks = np.array(slacks, dtype=np.float64).reshape(-1, 3)
        entries = Entries.of(
            len(rows),
            np.concatenate([of_arcs - len(self.rows), of_slacks[:, 0].astype(np.int64)]),
            np.concatenate([self.column[places], of_slacks[:, 1].astype(np.int64)]),
            np.concatenate([values, of_slacks[:, 2]]),
        )
        low, high = (np.array([getattr(row, side) for row in rows], dtype=float) for side in ("low", "high"))
        self._program.add_rows(low, high, entries)
        self.rows += rows
        self._stated.update(rows)

    def _slack(self, row: Row, sign: float) -> int | None:
        """The column by which a soft row may be off on one side; None for a hard one."""
        if row.is_hard:
            return None
        key = (row if row.share is None else row.share, sign)
        if key not in self._slacks:
            self._slacks[key] = self._program.columns
            none = np.zeros(0, dtype=np.int64)
            self._program.add_columns(np.array([-row.weight]), Entries.of(1, none, none, np.zeros(0)))
        return self._slacks[key]

    def solve(self, seconds: float) -> Solution:
        return self._program.solve(seconds)

    def solve_whole(self, seconds: float) -> Solution:
        return self._program.solve_whole(self.column, seconds)

    def weights(self, values: Doubles) -> Doubles:
        """Of the arc columns in a solution."""
        return values[self.column]

    def amounts(self, rows: Sequence[Row], weights: Doubles) -> Doubles:
        """How many arcs, by weight, rows would count that need not be stated."""
        boxes = _Boxes(self.N, self.L)
        boxes.add(rows, 0)
        places, arcs, values = boxes.entries(self.head, self.word, self.label)
        return np.bincount(places, values * weights[arcs], minlength=len(rows)).astype(np.float64)

    def price(self, prices: Doubles | None = None) -> Prices:
        """All labelled arcs at prices of the rows that they are in; None: prices of 0."""
        reduced, constant = self.scores.copy(), 0.0
        spent: dict[Hashable, float] = {}
        for r, price in enumerate([] if prices is None else prices.tolist()):
            row = self.rows[r]
            if r < self.N - 1 or price == 0.0 or math.isinf(room := row.high if price > 0 else row.low):
                continue
            if not row.is_hard:  # its slack must not pay
                key = (row if row.share is None else row.share, price > 0)
                price = math.copysign(min(abs(price), row.weight - spent.get(key, 0.0)), price)
                spent[key] = spent.get(key, 0.0) + abs(price)
            constant += price * room
            for box in row.boxes:
                reduced[self._boxes.places(box)] -= price * box.weight
        best = reduced[:, 1:].max((0, 2)) if self.N > 1 else np.zeros(0)
        return Prices(reduced, best, constant + float(best.sum()))

    def label_classes(self) -> list[Ints]:
        """Labels that no row tells apart."""
        members: dict[tuple[bool, ...], list[int]] = {}
        sets = {box.labels for row in self.rows for box in row.boxes if box.labels is not None}
        for label in range(self.L):
            members.setdefault(tuple(label in places for places in sets), []).append(label)
        return [np.array(labels) for labels in members.values()]


class _Boxes:
    """The boxes of rows as masks, so that many arcs are looked up at once."""

    def __init__(self, N: int, L: int) -> None:
        self.N, self.L = N, L
        self.heads, self.words = np.zeros((0, N), dtype=bool), np.zeros((0, N), dtype=bool)
        self.labels = np.zeros((0, L), dtype=bool)
        self.weight = np.zeros(0)
        self.first: list[int] = []  # the first box of each row

    def add(self, rows: Sequence[Row], known: int) -> None:
        if len(self.first) != known:
            raise AssertionError("rows are added once")
        boxes: list[Box] = []
        for row in rows:
            self.first.append(len(self.weight) + len(boxes))
            boxes += row.boxes
        self.heads = np.concatenate([self.heads, _masks([box.heads for box in boxes], self.N)])
        self.words = np.concatenate([self.words, _masks([box.words for box in boxes], self.N)])
        self.labels = np.concatenate([self.labels, _masks([box.labels for box in boxes], self.L)])
        self.weight = np.concatenate([self.weight, [box.weight for box in boxes]])

    def entries(self, head: Ints, word: Ints, label: Ints, begin: int = 0) -> tuple[Ints, Ints, Doubles]:
        """Where the rows from ``begin`` on count these labelled arcs, and how often: rows, arcs, values."""
        rows: list[Ints] = [np.zeros(0, dtype=np.int64)]
        arcs: list[Ints] = [np.zeros(0, dtype=np.int64)]
        values: list[Doubles] = [np.zeros(0)]
        most = max(1, CELLS // max(1, len(head)))  # rows at a time
        for low in range(begin, len(self.first), most):
            high = min(low + most, len(self.first))
            at, end = self.first[low], self.first[high] if high < len(self.first) else len(self.weight)
            counted = self.heads[at:end, head] & self.words[at:end, word] & self.labels[at:end, label]
            weighted = counted * self.weight[at:end, None]
            table = np.add.reduceat(weighted, np.array(self.first[low:high]) - at, axis=0)
            row, arc = np.nonzero(table)
            rows.append(row + low)
            arcs.append(arc)
            values.append(table[row, arc])
        return np.concatenate(rows), np.concatenate(arcs), np.concatenate(values)

    def places(self, box: Box) -> tuple[npt.NDArray[np.intp], ...]:
        """Where a box is in a table of all labelled arcs."""
        heads, words = _places(box.heads, self.N), _places(box.words, self.N)
        return np.ix_(heads, words, _places(box.labels, self.L))


def _places(places: frozenset[int] | None, count: int) -> Ints:
    return np.arange(count) if places is None else np.fromiter(places, dtype=np.int64, count=len(places))


def _masks(places: Sequence[frozenset[int] | None], count: int) -> Bools:
    masks = np.zeros((len(places), count), dtype=bool)
    for mask, these in zip(masks, places, strict=True):
        mask[_places(these, count)] = True
    return masks


def one_head(word: int) -> Row:
    """T1."""
    return Row((Box(None, frozenset({word})),), 1, 1, f"one head of word {word}")
