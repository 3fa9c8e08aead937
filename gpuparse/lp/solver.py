"""A live integer program: variables and rows are added between solves. HiGHS does the work, in one thread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]


class Status(Enum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    STOPPED = "stopped"  # at the time limit
    FAILED = "failed"  # the solver could not say


@dataclass(frozen=True)
class Solution:
    """What a solve found.

    Attributes:
        values: of the variables; None if no feasible point was found.
        bound: no feasible point scores more.
    """

    status: Status
    values: Doubles | None
    bound: float


class Program:
    """max costs · x over binary x, and rows low <= a · x <= high."""

    def __init__(self) -> None:
        self._highs = highspy.Highs()
        for name, value in (
            ("output_flag", False),
            ("threads", 1),
            ("mip_rel_gap", 0.0),
            ("mip_abs_gap", 0.0),
            ("mip_feasibility_tolerance", 1e-9),
            ("primal_feasibility_tolerance", 1e-9),
            ("dual_feasibility_tolerance", 1e-9),
        ):
            self._highs.setOptionValue(name, value)
        self._highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        self.variables = 0
        self.rows = 0

    def add_variables(self, costs: Doubles, rows: Sequence[tuple[Ints, Doubles]] = ()) -> None:
        """Add binary variables; ``rows[i]`` has the entries of row i in them: places among the new ones, and values."""
        count = len(costs)
        if not count:
            return
        first = self.variables
        places = np.arange(first, first + count, dtype=np.int32)
        self._highs.addVars(count, np.zeros(count), np.ones(count))
        self._highs.changeColsCost(count, places, np.ascontiguousarray(costs, dtype=np.float64))
        kinds = np.full(count, highspy.HighsVarType.kInteger)
        self._highs.changeColsIntegrality(count, places, kinds)
        for row, (where, values) in enumerate(rows):
            for place, value in zip(where.tolist(), values.tolist(), strict=True):
                self._highs.changeCoeff(row, first + place, value)
        self.variables += count

    def add_row(self, places: Ints, values: Doubles, low: float, high: float) -> None:
        """Add low <= values · x[places] <= high."""
        self._highs.addRow(low, high, len(places), places.astype(np.int32), values.astype(np.float64))
        self.rows += 1

    def solve(self, seconds: float = math.inf) -> Solution:
        """Solve what is there."""
        if seconds <= 0:
            return Solution(Status.STOPPED, None, math.inf)
        self._highs.setOptionValue("time_limit", self._highs.getRunTime() + seconds)
        for _ in range(2):
            self._highs.run()
            status = self._highs.getModelStatus()
            if status != highspy.HighsModelStatus.kUnknown:
                break
            self._highs.clearSolver()  # once more from the start
        return self._read(status)

    def _read(self, status: Any) -> Solution:
        info = self._highs.getInfo()
        feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        values = np.array(self._highs.getSolution().col_value) if feasible else None
        kinds = highspy.HighsModelStatus
        if status == kinds.kOptimal and values is not None:
            return Solution(Status.OPTIMAL, values, float(info.mip_dual_bound))
        if status in (kinds.kInfeasible, kinds.kUnboundedOrInfeasible):
            return Solution(Status.INFEASIBLE, None, -math.inf)
        if status == kinds.kTimeLimit:
            bound = float(info.mip_dual_bound)
            return Solution(Status.STOPPED, values, bound if math.isfinite(bound) else math.inf)
        return Solution(Status.FAILED, values, math.inf)
