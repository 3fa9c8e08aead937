"""A small part of the fuzzing of models' directories; ``make fuzz`` does all of it."""

from __future__ import annotations

import random
import time
from collections import Counter
from importlib import import_module

import pytest

CASES = 120


@pytest.fixture(scope="module")
def target():
    return import_module("model_directories")


def test_some_cases(target, tmp_path):
    outcomes: Counter[str] = Counter()
    for number in range(CASES):
        (tmp_path / str(number)).mkdir()
        began = time.perf_counter()
        outcomes[target.one(random.Random(f"{target.NAME}:{number}"), tmp_path / str(number))] += 1
        assert time.perf_counter() - began < 10, f"case {number}"
    assert set(outcomes) <= {"ok", "refused", "none"}
    assert min(outcomes["ok"], outcomes["refused"]) > CASES / 20  # neither is all that happens


@pytest.mark.parametrize("kind", ["biaffine", "trilinear", "templates", "tagger", "bilstm tagger", "checkpoint"])
def test_without_damage(target, kind, tmp_path):
    """What is damaged is whole before."""
    path = tmp_path / "model"
    path.mkdir()
    for name, content in target.MODELS[kind].items():
        (path / name).write_bytes(content)
    assert (target._resume(path) if kind == target.CHECKPOINT else target._use(kind, path, True)) == "ok"
