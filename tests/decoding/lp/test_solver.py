"""The solver: linear and integer programs that grow, and what is said where there is no answer."""

from __future__ import annotations

import math
from typing import Any

import highspy
import numpy as np
import pytest

from gpuparse.decoding import solver
from gpuparse.decoding.solver import Entries, Program, Status


def knapsack() -> Program:
    """max 5 x + 4 y + 3 z with 2 x + 3 y + z <= 5 and 4 x + y + 2 z <= 11: a fraction of y is best."""
    program = Program()
    program.add_columns(np.array([5.0, 4.0]), Entries.of_dense(np.zeros((2, 0))))
    program.add_rows(np.array([-np.inf]), np.array([5.0]), Entries.of_dense(np.array([[2.0, 3.0]])))
    program.add_columns(np.array([3.0]), Entries.of_dense(np.array([[1.0]])))
    program.add_rows(np.array([-np.inf]), np.array([11.0]), Entries.of_dense(np.array([[4.0, 1.0, 2.0]])))
    return program


def test_columns_and_rows_join() -> None:
    program = knapsack()
    assert (program.columns, program.rows) == (3, 2)
    found = program.solve()
    assert found.status is Status.OPTIMAL and found.values is not None and found.prices is not None
    values, matrix, room = found.values, np.array([[2.0, 3.0, 1.0], [4.0, 1.0, 2.0]]), np.array([5.0, 11.0])
    assert (matrix @ values <= room + 1e-9).all()
    # Weak duality with equality: prices prove the value.
    assert (found.prices >= -1e-12).all() and (np.array([5.0, 4.0, 3.0]) - found.prices @ matrix <= 1e-9).all()
    assert found.bound == pytest.approx(float(found.prices @ room)) == pytest.approx(float(values @ [5.0, 4.0, 3.0]))


def test_whole_numbers() -> None:
    program = Program()
    program.add_columns(np.array([1.0, 1.0]), Entries.of_dense(np.zeros((2, 0))))
    program.add_rows(np.array([-np.inf]), np.array([3.0]), Entries.of_dense(np.array([[2.0, 2.0]])))
    assert program.solve().bound == pytest.approx(1.5)
    whole = program.solve_whole(np.array([0, 1]))
    assert whole.bound == pytest.approx(1.0) and whole.prices is None
    some = program.solve_whole(np.array([0]))
    assert some.bound == pytest.approx(1.5)
    assert program.solve().bound == pytest.approx(1.5)


def test_infeasible_and_out_of_time() -> None:
    program = knapsack()
    program.add_rows(np.array([100.0]), np.array([np.inf]), Entries.of_dense(np.array([[1.0, 1.0, 1.0]])))
    assert program.solve().status is Status.INFEASIBLE
    assert program.solve_whole(np.array([0])).status is Status.INFEASIBLE
    late = program.solve(0.0)
    assert late.status is Status.STOPPED and late.values is None and late.bound == math.inf


class Stubborn:
    """HiGHS, but its first runs end without an answer."""

    def __init__(self, failures: int) -> None:
        self.highs, self.failures, self.presolve = highspy.Highs(), failures, [""]
        self.highs.setOptionValue("output_flag", False)
        self.highs.addVar(1.0, 2.0)

    def run(self) -> None:
        if self.failures <= 0:
            self.highs.run()
        self.failures -= 1

    def getModelStatus(self) -> Any:
        return highspy.HighsModelStatus.kSolveError if self.failures >= 0 else self.highs.getModelStatus()

    def setOptionValue(self, name: str, value: Any) -> None:
        if name == "presolve":
            self.presolve.append(value)
        self.highs.setOptionValue(name, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.highs, name)


@pytest.mark.parametrize("whole", [False, True])
def test_no_answer_is_asked_for_again_and_then_said(whole: bool) -> None:
    once, never = Stubborn(1), Stubborn(5)
    assert solver._run(once, 10.0, whole).status is Status.OPTIMAL
    assert once.presolve == ["", "on", "off"]
    assert solver._run(never, 10.0, whole).status is Status.FAILED
