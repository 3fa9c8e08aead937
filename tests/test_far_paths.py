"""Every distribution, decoder, objective and model, and the self-test, on a simulated `cuda` device: what comes out is
what comes out on a CPU, and each path has a budget. In a process of its own (see far_paths.py)."""

from __future__ import annotations

import json

import pytest

from gpuparse.ops.backend.base import SOURCES

from .conftest import Simulate

pytestmark = pytest.mark.slow

# How often each waits, all that it has; and a little more than the operations and the kilobytes that they make. Of
# decoders four sentences of up to seven words, of objectives a step of six sentences, of models nine in four batches.
BUDGETS: dict[str, dict[str, tuple[int, int, int]]] = {
    "decoders": {
        "mst": (0, 74, 15),
        "eisner": (0, 74, 15),
        "eisner, pairs": (0, 160, 95),
        "eisner, pairs priced": (1, 220, 105),
        "bp": (1, 490, 1500),
        "bp, projective": (1, 490, 1500),
        "bp, max-product": (0, 1600, 2200),
        "dd": (36, 6100, 8200),
        "dd, exact": (174, 38000, 23000),
        "ppc": (9, 1200, 2400),
        "ppc, exact": (9, 1200, 2400),
        "ppc, pairs, exact": (144, 13500, 31000),
        "ppc, pairs, projective": (111, 10500, 24000),
        "lp": (6, 200, 69),
        "lp, pairs": (7, 260, 116),
        "ilp": (3, 140, 22),
        "ilp, constraints": (3, 160, 23),
        "ilp, pairs": (4, 410, 340),
        "ilp, constraints, pairs": (4, 430, 340),
        "auto": (0, 74, 15),
        "auto, projective": (0, 74, 15),
        "auto, grandparents": (19, 2950, 2850),
        "auto, pairs": (98, 10300, 17500),
        "viterbi, auto": (0, 18, 8),
        "viterbi, dense": (0, 18, 8),
        "viterbi, column_generation": (0, 11, 5),
        "viterbi, beam": (0, 17, 6),
        "viterbi, averaged": (0, 13, 9),
    },
    "objectives": {
        "nll": (0, 370, 600),
        "nll, projective": (0, 370, 600),
        "local": (0, 340, 620),
        "hinge": (0, 420, 620),
        "hinge, projective": (0, 420, 620),
        "nll, templates": (0, 2000, 12000),
        "nll, pairs": (0, 710, 3200),
        "hinge, pairs": (0, 840, 3300),
        "bp": (0, 1300, 28000),
        "bp, projective": (0, 1300, 28000),
        "bp_l2": (0, 8200, 110000),
        "bp_l2, projective": (0, 1100, 30000),
        "dd": (0, 980, 16000),
        "perceptron": (16, 2700, 11000),
        "mira": (16, 2700, 11000),
        "tag, nll": (0, 270, 430),
        "tag, local": (0, 210, 390),
        "tag, hinge": (0, 310, 570),
        "tag, perceptron": (11, 96, 320),
    },
    "models": {
        "parse": (4, 500, 310),
        "parse, confidence": (4, 520, 320),
        "parse, projective, pairs": (4, 1100, 1200),
        "parse, pairs": (28, 6600, 7100),
        "parse, bp": (8, 3200, 14000),
        "parse, templates": (4, 4700, 5900),
        "parse, constraints": (32, 1200, 1400),
        "tag": (4, 240, 280),
        "tag, templates": (4, 66, 44),
        "tag, beam": (4, 220, 230),
    },
}
NAMES = ("waits", "operations", "bytes")


@pytest.mark.parametrize("paths", BUDGETS)
def test_answers_are_those_of_a_cpu_within_budget(paths: str, simulate: Simulate) -> None:
    found = json.loads(simulate("tests.far_paths", paths).stdout)
    assert found.keys() == BUDGETS[paths].keys()
    assert [name for name, path in found.items() if path["differs"]] == []
    assert paths != "decoders" or "tolist at gpuparse.decoding.ppc.brute:" in found["lp"]["lines"]["waits"]
    over = []
    for name, path in found.items():
        waits, operations, kilobytes = BUDGETS[paths][name]
        for what, most in zip(NAMES, (waits, operations, 1000 * kilobytes), strict=True):
            if path["counted"][what] > most:
                over.append(f"{name}: more than {most} {what}, by line {path['lines'][what]}")
    assert not over, "\n".join(over)


@pytest.mark.parametrize("paths", ["distributions", "scores"])
def test_what_never_waits(paths: str, simulate: Simulate) -> None:
    found = json.loads(simulate("tests.far_paths", paths).stdout)
    assert len(found) > 3 and [name for name, path in found.items() if path["differs"]] == []
    assert {name: path["lines"]["waits"] for name, path in found.items() if path["counted"]["waits"]} == {}


def test_the_selftest(simulate: Simulate) -> None:
    found = json.loads(simulate("tests.far_paths", "selftest").stdout)
    assert found["wrong"] == []
    assert found["kernels"] == sorted(SOURCES) and found["devices"] == ["cuda:0"]
    ((kernel, seconds, plain_seconds),) = found["timed"]
    assert kernel == "mst" and 0 < seconds < plain_seconds
