"""Decoders that solve on the host, for scores on a device: what they say is what they say on a CPU, and what crosses is
counted. In a process of its own, on a simulated device (see far_decoding.py)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Simulate

pytestmark = pytest.mark.slow
Run = Callable[[str], Any]


@pytest.fixture
def run(simulate: Simulate) -> Run:
    return lambda what: json.loads(simulate("tests.far_decoding", what).stdout)


def test_the_device(run: Run) -> None:
    assert run("device")["ok"]


@pytest.mark.parametrize("kind", ["dense", "trilinear", "exact"])
def test_parse_price_and_cut_is_a_pipeline(run: Run, kind: str) -> None:
    found = run(kind)
    assert not found["different"]
    assert found["rounds"] >= 10 and (found["branches"] > 0) == (kind == "exact")
    assert found["waits"] <= 2 * found["rounds"]
    assert found["bytes"] <= 0.5e6 * found["rounds"]
    assert found["overlap"] >= 0.8


def test_answers_are_those_of_a_cpu(run: Run) -> None:
    found = run("answers")
    assert len(found) == 16
    assert not any(found.values()), found


def test_more_is_found_than_there_is_room_for(run: Run) -> None:
    found = run("room")
    assert not found["different"]
    assert found["again"] > 0


def test_branch_and_bound_sends_its_sentence_alone(run: Run) -> None:
    found = run("branches")
    assert found["branches"] > 0
    assert found["alone"] > 0
    assert found["bytes"] < 16 * 3 * 13 * 13 * 8 / 4  # duals of the batch, of which it is one in 16


def test_integer_programs_get_all_scores_at_once(run: Run) -> None:
    found = run("ilp")
    for each in found.values():
        assert not each["different"]
        assert each["transfers"] <= 10
