"""Cases of fuzzing that failed once, and must not again."""

from __future__ import annotations

import random
from importlib import import_module
from pathlib import Path

import pytest

CASES = (
    ("certificates", 3874),  # ppc called a sentence impossible whose only trees were beyond its horizon
    ("api", 24773),  # KL of chains beside a mask that no chain of weight has
    ("api", 105748),  # a score where doubles end
    ("proofs", 164),  # sums of prices that overflow
    ("proofs", 182),
)


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways from which these cases were drawn: linear programs had grandparents, and trees that may cross."""
    ways = []
    for method, options, kinds, must in import_module("certificates").WAYS:
        if "projective" not in options:
            ways.append((method, options, (("grandparents",),) if method in ("ppc", "lp") else kinds, must))
    for name in ("certificates", "proofs"):
        monkeypatch.setattr(import_module(name), "WAYS", tuple(ways))


@pytest.mark.parametrize(("target", "number"), CASES)
def test_a_case_that_failed(target: str, number: int, tmp_path: Path) -> None:
    module = import_module(target)
    assert module.one(random.Random(f"{module.NAME}:{number}"), tmp_path)


@pytest.mark.parametrize(
    "number",
    [
        901205,  # a tree beyond the range of doubles: its rounding is infinite, which would prove anything
        911109,  # parts that cancel: the best tree seemed better than the best that there could be
    ],
)
def test_a_case_of_linear_programs_that_failed(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("certificates")
    monkeypatch.setattr(module, "WAYS", tuple(way for way in module.WAYS if way[0] in ("ppc", "lp")))
    assert module.one(random.Random(f"only:{number}"), tmp_path) == "ppc: all certified"
