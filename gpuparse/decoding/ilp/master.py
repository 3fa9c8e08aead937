"""The restricted program: some labelled arcs e_{i,j,l} as columns, some rows over them, and what all arcs are worth.

For any prices of the rows, no tree that keeps to them scores more than ``Prices.bound``: the prices times the rows'
room, and for every word the best of its labelled arcs after it paid for the rows that it is in (the Lagrangian of all
rows but one head a word). So a tree with the labelled arc a scores at most bound - gap(a), gap(a) being what a then
falls short of its word's best; with prices of 0 these are the scores as they are. Nothing in this trusts the solver.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpuparse.decoding import certificates
from gpuparse.decoding.ilp.rows import Box, Row
from gpuparse.decoding.ppc.units import scaled, scaled_number
from gpuparse.decoding.solver import Entries, Program, Solution

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CELLS = 1 << 22  # of tables of rows by arcs
DEAR = 2.0**40  # no slack costs more, in a program, and none has a greater entry: prices are checked without it
NOTHING = Box(frozenset(), frozenset(), frozenset())


@dataclass(frozen=True)
class Prices:
    """What the labelled arcs are worth after paying for rows.

    Attributes:
        reduced: of every labelled arc [N, N, L], -inf where there is none.
        best: of every word's [N - 1].
        bound: no tree that keeps to the rows scores more, whatever rounding did.
        paid: the prices of the rows; shorter where more rows joined later.
    """

    reduced: Doubles
    best: Doubles
    bound: float
    paid: Doubles

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
        given: rows as they were given, and
        rows: as the program has them.

    Args:
        power: the program has scores times 2 to this, so that the solver's tolerances mean the same for all sizes.
    """

    def __init__(self, scores: Doubles, rows: Sequence[Row], first: Bools, power: int = 0) -> None:
        self.scores, self.power = scores, power
        self.N, self.L = scores.shape[0], scores.shape[2]
        self.inside = np.zeros(scores.shape, dtype=bool)
        self.head = self.word = self.label = self.column = np.zeros(0, dtype=np.int64)
        self.rows: list[Row] = []
        self.source: list[Row] = []  # what each was given as
        self.given: dict[Row, None] = {}
        self._program = Program()
        self._slacks: dict[Hashable, tuple[int, float]] = {}
        self._counted: dict[int, tuple[Ints, Doubles]] = {}
        self._boxes = _Boxes(self.N, self.L)
        self.grow(first)
        self.state([*(one_head(m) for m in range(1, self.N)), *rows])

    def grow(self, arcs: Bools) -> None:
        """Make columns of labelled arcs."""
        head, word, label = (x.astype(np.int64) for x in np.nonzero(arcs & ~self.inside))
        columns = self._program.columns + np.arange(len(head))
        rows, places, values = self._boxes.entries(head, word, label)
        costs = scaled(self.scores[head, word, label], self.power)
        self._program.add_columns(costs, Entries.of(len(head), places, rows, values))
        self.head, self.word = np.concatenate([self.head, head]), np.concatenate([self.word, word])
        self.label, self.column = np.concatenate([self.label, label]), np.concatenate([self.column, columns])
        self.inside |= arcs

    def is_stated(self, row: Row) -> bool:
        return row in self.given

    def state(self, given: Sequence[Row]) -> None:
        """Add rows, those that may be off each with its slack."""
        new = [row for row in dict.fromkeys(given) if row not in self.given]
        self.given.update(dict.fromkeys(new))
        stated = [(row, part) for row in new for part in _as_stated(row)]
        rows = [part for _, part in stated]
        self.source += [row for row, _ in stated]
        if not rows:
            return
        self._boxes.add(rows, len(self.rows))
        slacks = [(r, *self._slack(row)) for r, row in enumerate(rows) if not row.is_hard]
        of_arcs, places, values = self._boxes.entries(self.head, self.word, self.label, len(self.rows))
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

    def _slack(self, row: Row) -> tuple[int, float]:
        """The column by which a soft row may be off, and its entry; of the first that shares it the entry is 1."""
        if row.share not in self._slacks:
            self._slacks[row.share] = self._program.columns, row.weight
            none = np.zeros(0, dtype=np.int64)
            # Less than it costs only makes bounds higher, and trees are not scored by the program.
            cost = min(scaled_number(row.weight, self.power), DEAR)
            self._program.add_columns(np.array([-cost]), Entries.of(1, none, none, np.zeros(0)))
        column, cost = self._slacks[row.share]
        return column, math.copysign(min(cost / row.weight, DEAR), -1.0 if row.high < math.inf else 1.0)

    def solve(self, seconds: float) -> Solution:
        """Solve it; prices are those of the scores as they are."""
        found = self._program.solve(seconds)
        return found if found.prices is None else replace(found, prices=scaled(found.prices, -self.power))

    def solve_whole(self, seconds: float) -> Solution:
        """Solve it with whole columns: for whether there is a solution."""
        return self._program.solve_whole(self.column, seconds)

    def forbid(self, forbidden: Bools) -> None:
        """Let no solution have these labelled arcs [N, N, L]; others may be there again."""
        high = np.where(forbidden[self.head, self.word, self.label], 0.0, np.inf)
        self._program.limit(self.column, high)

    def weights(self, values: Doubles) -> Doubles:
        """Of the arc columns in a solution."""
        return values[self.column]

    def rounded(self, weights: Doubles) -> tuple[list[int], list[int]]:
        """Every word with its heaviest labelled arc: heads and labels of the nodes, -1 at node 0."""
        heads, labels = [-1] * self.N, [-1] * self.N
        for k in np.argsort(weights, kind="stable")[-np.count_nonzero(weights > 1e-6) :].tolist():
            heads[self.word[k]], labels[self.word[k]] = int(self.head[k]), int(self.label[k])
        return heads, labels

    def amounts(self, rows: Sequence[Row], weights: Doubles) -> Doubles:
        """How many arcs, by weight, rows would count that need not be stated."""
        boxes = _Boxes(self.N, self.L)
        boxes.add(rows, 0)
        places, arcs, values = boxes.entries(self.head, self.word, self.label)
        return np.bincount(places, values * weights[arcs], minlength=len(rows)).astype(np.float64)

    def price(self, prices: Doubles | None = None, forbidden: Bools | None = None) -> Prices:
        """All labelled arcs at prices of the rows that they are in, those that are forbidden at -inf; None: prices of
        0, and nothing is forbidden."""
        return self._price(self.scores, prices, forbidden)

    def refutes(self, ray: Doubles, forbidden: Bools) -> float:
        """By how much prices show that no tree keeps to the rows without what is forbidden, whatever arcs score; they
        do not if that is not above 0."""
        return -self._price(np.where(np.isfinite(self.scores), 0.0, -np.inf), ray, forbidden).bound

    def _price(self, scores: Doubles, prices: Doubles | None, forbidden: Bools | None) -> Prices:
        paid, room = self._payable(np.zeros(0) if prices is None else prices)
        reduced, off = self._pay(scores, paid)
        if forbidden is not None:
            reduced[forbidden] = -np.inf
        with np.errstate(over="ignore", invalid="ignore"):
            best = np.where(np.isneginf(reduced), reduced, reduced + off)[:, 1:].max((0, 2))
            sums = np.concatenate([room, best])
            noise = certificates.rounding(0, float(np.abs(sums[np.isfinite(sums)]).sum()))  # of what pairwise sums do
            return Prices(reduced, best, float(sums.sum()) + noise, paid)

    def _pay(self, scores: Doubles, paid: Doubles) -> tuple[Doubles, Doubles]:
        """Scores less what rows are paid for, and what each may be off by rounding."""
        rows = np.nonzero(paid)[0].tolist()
        counted = [self._cells(r) for r in rows]
        cells = np.concatenate([np.zeros(0, dtype=np.int64), *(x for x, _ in counted)])
        prices = np.repeat(paid[rows], [len(x) for x, _ in counted])
        prices = prices * np.concatenate([np.zeros(0), *(x for _, x in counted)])
        tables = (np.bincount(cells, x, scores.size).reshape(scores.shape) for x in (prices, np.abs(prices), None))
        pays, size, terms = tables
        return scores - pays, 2 * certificates.UNIT * (terms + 2) * (np.abs(scores) + size)

    def _cells(self, r: int) -> tuple[Ints, Doubles]:
        """The labelled arcs that a row counts, as places in a flat table of all, and how often."""
        if r not in self._counted:
            cells = [self._boxes.cells(box) for box in self.rows[r].boxes]
            weights = np.repeat([box.weight for box in self.rows[r].boxes], [len(x) for x in cells])
            self._counted[r] = np.concatenate([np.zeros(0, dtype=np.int64), *cells]), weights
        return self._counted[r]

    def _payable(self, prices: Doubles) -> tuple[Doubles, Doubles]:
        """Prices that rows can have, and what the rows have at them: none of T1, none of a side that is open."""
        low, high = (np.array([getattr(row, side) for row in self.rows[: len(prices)]]) for side in ("low", "high"))
        room = np.where(prices > 0, high, low)
        paid = np.where(np.isfinite(room), prices, 0.0)
        paid[: self.N - 1] = 0.0
        spent: dict[Hashable, float] = {}
        for r in np.nonzero(paid)[0].tolist():
            row = self.rows[r]
            if not row.is_hard:  # the slack must not pay: prices by weight are 1 at most, of all that share it
                left = max(0.0, 1.0 - spent.get(row.share, 0.0))
                paid[r] = math.copysign(min(abs(paid[r]), left * row.weight), paid[r])
                spent[row.share] = spent.get(row.share, 0.0) + abs(paid[r]) / row.weight
        return paid, paid[paid != 0] * room[paid != 0]

    def priced_rows(self, paid: Doubles) -> dict[Row, float]:
        """Rows as they were given that are paid for, T1 left out, with their prices."""
        found: dict[Row, float] = {}
        for r in np.nonzero(paid)[0].tolist():
            given = self.source[r]
            most = max((abs(box.weight) for box in given.boxes), default=1.0)
            found[given] = found.get(given, 0.0) + float(paid[r]) / most
        return found

    def ray(self) -> Doubles | None:
        """Prices of the rows that prove, made large, that there is no solution; None where the solver has none."""
        return self._program.ray()

    def label_classes(self) -> list[Ints]:
        """Labels that no row tells apart."""
        members: dict[tuple[bool, ...], list[int]] = {}
        sets = {box.labels for row in self.rows for box in row.boxes if box.labels is not None}
        for label in range(self.L):
            members.setdefault(tuple(label in places for places in sets), []).append(label)
        return [np.array(labels) for labels in members.values()]


def _as_stated(row: Row) -> list[Row]:
    """A row as the program has it: its greatest weight 1, a soft one by its sides, which share a slack."""
    most = max((abs(box.weight) for box in row.boxes), default=0.0)
    low, high = row.low, row.high
    if row.is_hard and all(float(box.weight).is_integer() for box in row.boxes):
        whole = math.ceil(low - 1e-9) if low > -math.inf else low, math.floor(high + 1e-9) if high < math.inf else high
        low, high = whole if whole[0] <= whole[1] else (low, high)  # counts are whole
    if most not in (0.0, 1.0):
        boxes = tuple(replace(box, weight=box.weight / most) for box in row.boxes)
        low, high = low / most, high / most
        row = Row(boxes, low, high, row.why, row.weight * most, row.group)
    if row.is_hard:
        return [row if (low, high) == (row.low, row.high) else replace(row, low=low, high=high)]
    sides = [(-math.inf, high), (low, math.inf)]
    return [replace(row, low=a, high=b, share=row.group) for a, b in sides if a > -math.inf or b < math.inf]


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
            boxes += row.boxes or (NOTHING,)
            for box in row.boxes:
                for places, most in ((box.heads, self.N), (box.words, self.N), (box.labels, self.L)):
                    if places and not 0 <= min(places) <= max(places) < most:
                        raise ValueError(f"row {row.why!r}: {max(places)} is not in 0..{most - 1}")
        self.heads = np.concatenate([self.heads, masks([box.heads for box in boxes], self.N)])
        self.words = np.concatenate([self.words, masks([box.words for box in boxes], self.N)])
        self.labels = np.concatenate([self.labels, masks([box.labels for box in boxes], self.L)])
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

    def cells(self, box: Box) -> Ints:
        """Where a box is in a flat table of all labelled arcs."""
        heads, words, labels = _places(box.heads, self.N), _places(box.words, self.N), _places(box.labels, self.L)
        return ((heads[:, None] * self.N + words)[:, :, None] * self.L + labels).ravel()


def _places(places: frozenset[int] | None, count: int) -> Ints:
    return np.arange(count) if places is None else np.fromiter(places, dtype=np.int64, count=len(places))


def masks(places: Sequence[frozenset[int] | None], count: int) -> Bools:
    """Sets of nodes or labels as masks [.., count]."""
    masks = np.zeros((len(places), count), dtype=bool)
    for mask, these in zip(masks, places, strict=True):
        mask[_places(these, count)] = True
    return masks


def one_head(word: int) -> Row:
    """T1."""
    return Row((Box(None, frozenset({word})),), 1, 1, f"one head of word {word}")
