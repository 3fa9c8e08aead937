"""A live linear program by HiGHS: columns and rows join between solves, each of which goes on from the last.

HiGHS has a thread pool of its own; one thread is set before anything else, so that many programs may run side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "presolve": "off",  # of a live program it would begin anew, of one in whole numbers it is not to be trusted
    "mip_detect_symmetry": False,
    "threads": 1,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 0.0,
    "mip_feasibility_tolerance": 1e-9,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}


class Status(Enum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    STOPPED = "stopped"  # at the time limit
    FAILED = "failed"  # the solver could not say
    LEFT = "left"  # there is more to do than was allowed


@dataclass(frozen=True)
class Solution:
    """What a solve found.

    Attributes:
        values: of the columns; None if no feasible point was found.
        prices: of the rows, what one more unit of room in each would add; None unless a linear program was solved.
        bound: no feasible point scores more, if the solver is right.
    """

    status: Status
    values: Doubles | None
    prices: Doubles | None
    bound: float


@dataclass(frozen=True)
class Entries:
    """A sparse matrix in rows: entry i of row r stands in ``places[starts[r] + i]``, with ``values`` alike."""

    starts: Ints
    places: Ints
    values: Doubles

    @classmethod
    def of(cls, rows: int, row: Ints, place: Ints, values: Doubles) -> Entries:
        """Of entries in any order, each at its row and place."""
        order = np.argsort(row, kind="stable")
        return cls(np.searchsorted(row[order], np.arange(rows + 1)), place[order], values[order])

    @classmethod
    def alike(cls, places: Ints, values: Doubles) -> Entries:
        """Of rows with the same values [K], at places [R, K]; -1: not there."""
        rows, each = places.shape
        all_values, there = np.ones((rows, 1)) * values, places >= 0
        if there.all():
            return cls(np.arange(0, rows * each + 1, each), places.ravel(), all_values.ravel())
        return cls(np.concatenate([[0], there.sum(1).cumsum()]), places[there], all_values[there])

    @classmethod
    def of_dense(cls, dense: npt.NDArray[Any]) -> Entries:
        """Those of a dense matrix that are not 0."""
        row, place = np.nonzero(dense)
        return cls.of(len(dense), row, place, dense[row, place].astype(np.float64))


class Program:
    """max costs · x over x >= 0, and rows low <= a · x <= high; some x are whole numbers where that is asked for."""

    def __init__(self) -> None:
        self._highs = _new()
        self.columns = 0
        self.rows = 0

    def add_columns(self, costs: Doubles, entries: Entries) -> None:
        """Add columns; ``entries`` has their entries in the rows that there are, column by column."""
        count, zeros = len(costs), np.zeros(len(costs))
        if count:
            _check(
                self._highs.addCols(
                    count,
                    -costs.astype(np.float64),  # HiGHS minimises
                    zeros,
                    np.full(count, np.inf),
                    len(entries.places),
                    entries.starts[:-1].astype(np.int32),
                    entries.places.astype(np.int32),
                    entries.values,
                )
            )
            self.columns += count

    def add_rows(self, low: Doubles, high: Doubles, entries: Entries) -> None:
        """Add rows over the columns that there are."""
        if len(low):
            _check(
                self._highs.addRows(
                    len(low),
                    low.astype(np.float64),
                    high.astype(np.float64),
                    len(entries.places),
                    entries.starts[:-1].astype(np.int32),
                    entries.places.astype(np.int32),
                    entries.values,
                )
            )
            self.rows += len(low)

    def add_alike(self, low: float, high: float, *parts: tuple[Ints, float]) -> Ints:
        """Rows alike, of columns (one for each row, -1 where there is none) and their value; the rows' numbers."""
        columns = np.array([column for column, _ in parts]).T
        first, count = self.rows, len(columns)
        entries = Entries.alike(columns, np.array([value for _, value in parts]))
        self.add_rows(np.full(count, low), np.full(count, high), entries)
        return first + np.arange(count)

    def limit(self, columns: Ints, high: Doubles) -> None:
        """Let these columns be no more than so much."""
        if len(columns):
            zeros = np.zeros(len(columns))
            _check(self._highs.changeColsBounds(len(columns), columns.astype(np.int32), zeros, high))

    def price(self, columns: Ints, costs: Doubles) -> None:
        """Let these columns cost something else."""
        for column, cost in zip(columns.tolist(), costs.tolist(), strict=True):
            _check(self._highs.changeColCost(column, -cost))

    def solve(self, seconds: float = math.inf) -> Solution:
        """Solve it, on from the last solution."""
        return _run(self._highs, seconds, whole=False)

    def ray(self) -> Doubles | None:
        """Of a program without a solution, prices of the rows that prove it; None if the solver has none."""
        _, there, ray = self._highs.getDualRay()
        return -np.array(ray) if there and len(ray) == self.rows else None

    def solve_whole(self, whole: Ints, seconds: float = math.inf) -> Solution:
        """Solve it with these columns whole numbers."""
        highs = _new()
        model = self._highs.getLp()
        kinds = np.full(self.columns, highspy.HighsVarType.kContinuous)
        kinds[whole] = highspy.HighsVarType.kInteger
        model.integrality_ = list(kinds)
        highs.passModel(model)
        return _run(highs, seconds, whole=True)


def _check(status: Any) -> None:
    if status == highspy.HighsStatus.kError:
        raise ValueError(
            "the solver does not take numbers of 1e15 and more; make differences of scores and weights smaller"
        )


def _new() -> Any:
    highs = highspy.Highs()
    for name, value in OPTIONS.items():
        highs.setOptionValue(name, value)
    return highs


def _run(highs: Any, seconds: float, whole: bool) -> Solution:
    if seconds <= 0:
        return Solution(Status.STOPPED, None, None, math.inf)
    kinds = highspy.HighsModelStatus
    if math.isfinite(seconds):
        highs.setOptionValue("time_limit", highs.getRunTime() + seconds)
    highs.run()
    status = highs.getModelStatus()
    if status not in (kinds.kOptimal, kinds.kInfeasible, kinds.kTimeLimit):  # once more from the start, the other way
        highs.clearSolver()
        highs.setOptionValue("presolve", "on")
        highs.run()
        status = highs.getModelStatus()
        highs.setOptionValue("presolve", "off")
        if whole and status == kinds.kInfeasible:
            status = kinds.kUnknown
    info = highs.getInfo()
    found = highs.getSolution()
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(found.col_value) if feasible else None
    bound = -float(info.mip_dual_bound) if whole else -float(info.objective_function_value)
    if status == kinds.kOptimal and values is not None:
        return Solution(Status.OPTIMAL, values, None if whole else -np.array(found.row_dual), bound)
    if status in (kinds.kInfeasible, kinds.kUnboundedOrInfeasible):  # nothing here is unbounded
        return Solution(Status.INFEASIBLE, None, None, -math.inf)
    if status == kinds.kTimeLimit:
        return Solution(Status.STOPPED, values, None, bound if whole and math.isfinite(bound) else math.inf)
    return Solution(Status.FAILED, values, None, math.inf)
