"""Certificates: one rule, the same at every scale, and no mask that says anything about what is proven."""

from __future__ import annotations

import math
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.decoding.certificates import UNIT, is_proven, rounding
from tests.fuzz_cases import outcomes_of
from tests.oracle import all_trees

sys.path.insert(0, str(Path(__file__).parents[2] / "fuzz"))

import certificates

from tests.decoding.instances import tensors as drawn
from tests.decoding.refusals import refuses

EXACT: dict[str, dict[str, Any]] = {
    "ppc": {"exact": True},
    "lp": {},
    "dd": {"exact": True, "iterations": 50},
    "ilp": {},
    "auto": {"exact": True},
}
TAKES = dict.fromkeys(("lp", "auto"), ("grandparents",))  # of pairs; the others are given both kinds
BOTH = ("grandparents", "siblings")
SUMS = 2.0**-46  # what sums of doubles may be off, by the sizes of their parts


def _decode(tensors: dict[str, Tensor], method: str, **options: Any) -> gp.Parse:
    return gp.decode(gp.Scores(**tensors), method, **options)  # type: ignore[arg-type]


def _best(tensors: dict[str, Tensor], single_root: bool = True) -> tuple[float, float]:
    """The best score of all trees, and the sizes of its parts."""
    tables = {name: x[0].double().tolist() for name, x in tensors.items()}
    every = []
    for heads in all_trees(len(tables["arcs"]) - 1, single_root=single_root, projective=False).tolist():
        parts = certificates.parts_of(tuple(heads), tables)
        every.append((certificates.total(parts), sum(map(abs, parts))))
    return max(every)


def test_the_rule() -> None:
    assert rounding(0, 0.0) == 0.0
    assert is_proven(0.0, 1.0, 1.0) and not is_proven(0.0, 1.0, math.inf)  # which is not known, and proves nothing
    assert is_proven(*torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, math.inf]])).tolist() == [True, False]
    assert rounding(10, 1.0) > 10 * UNIT  # not less than what adding up ten terms may be off
    assert rounding(11, 1.0) > rounding(10, 1.0)
    for power in (-900, -40, 40, 900):
        assert rounding(10, 2.0**power) == rounding(10, 1.0) * 2.0**power
    assert rounding(1000, 1.7e308) < math.inf
    assert is_proven(1.0, 1.0, 0.0) and is_proven(1.0, 0.5, 0.0)
    assert not is_proven(1.0, math.nextafter(1.0, 2.0), 0.0)
    off = rounding(10, 1.0)
    assert is_proven(1.0, 1.0 + off, off) and not is_proven(1.0, 1.0 + 2 * off, off)
    assert (
        not is_proven(-math.inf, 0.0, off) and not is_proven(math.nan, 0.0, off) and not is_proven(0.0, math.nan, off)
    )
    score, bound = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([1.0, 2.0, math.inf])
    assert is_proven(score, bound, torch.zeros(3)).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("method", "options"),
    (("ppc", {}), ("ppc", {"exact": True}), ("lp", {}), ("ilp", {}), ("dd", {"iterations": 50}), ("dd", EXACT["dd"])),
)
def test_powers_of_two(method: str, options: dict[str, Any]) -> None:
    """Scores times a power of two: nothing is rounded otherwise, so all is the same."""
    every = [drawn(seed, 1, 5, TAKES.get(method, BOTH), labels=2) for seed in range(8)]
    tensors = {name: torch.cat([x[name] for x in every]) for name in every[0]}
    tensors["arcs"][:, 2, 3] = -math.inf
    found = _decode(tensors, method, **options)
    assert found.certified.any() and (found.certified.all() or not (options.get("exact") or method == "ilp"))
    for power in (-900, -40, 40, 900):
        scaled = _decode({name: x * 2.0**power for name, x in tensors.items()}, method, **options)
        assert torch.equal(scaled.certified, found.certified), power
        assert torch.equal(scaled.heads[found.certified], found.heads[found.certified]), power
        assert torch.equal(scaled.score[found.certified], (found.score * 2.0**power)[found.certified]), power


def test_a_masked_arc() -> None:
    """The lowest number of float32 as a mask: what rounding does to it is not let through elsewhere."""
    for seed in range(60):
        torch.manual_seed(seed)
        a, g = torch.randn(1, 4, 4), torch.randn(1, 4, 4, 4)
        a[0, 3, 1] = torch.finfo(torch.float32).min
        found = gp.decode(gp.Scores(a, grandparents=g), "ppc", exact=True)
        best, size = _best({"arcs": a, "grandparents": g})
        assert found.certified.all(), seed
        assert abs(float(found.score) - best) <= SUMS * size, seed


@cache
def _masked(kinds: tuple[str, ...], single_root: bool) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Any]]:
    """A batch of scores and masks of every kind, with a tree each that is not forbidden; the best of each."""
    every, best = [], []
    for seed in range(12):
        tensors = drawn(seed, 1, 4, kinds, labels=2)
        g = torch.Generator().manual_seed(seed)
        share = (0.1, 0.2, 0.3)[seed % 3]
        masks = {name: torch.rand(x.shape, generator=g) < share for name, x in tensors.items()}
        of_all = _best({name: x.masked_fill(masks[name], -math.inf) for name, x in tensors.items()}, single_root)
        if of_all[0] > -math.inf:
            every.append((tensors, masks))
            best.append(of_all)
    stacked = [{name: torch.cat([x[k][name] for x in every]) for name in every[0][k]} for k in (0, 1)]
    return stacked[0], stacked[1], best


@cache
def _masked_by(value: float, method: str, kinds: tuple[str, ...], single_root: bool) -> gp.Parse:
    tensors, masks, _ = _masked(kinds, single_root)
    low = {name: x.masked_fill(masks[name], value) for name, x in tensors.items()}
    return _decode(low, method, single_root=single_root, **EXACT[method])


@pytest.mark.parametrize("single_root", (True, False))
@pytest.mark.parametrize(("method", "kinds"), [(x, TAKES.get(x, BOTH)) for x in EXACT])
@pytest.mark.parametrize("value", (-1e16, -1e30, torch.finfo(torch.float32).min, torch.finfo(torch.float64).min))
def test_masks(method: str, kinds: tuple[str, ...], value: float, single_root: bool) -> None:
    """Wherever there is a tree without forbidden parts, any low number forbids as -inf does."""
    best = _masked(kinds, single_root)[2]
    wanted, found = (_masked_by(x, method, kinds, single_root) for x in (-math.inf, value))
    assert len(best) >= 5 and (method == "lp" or (wanted.certified & found.certified).all())
    for one in (wanted, found):
        for b, (of_all, size) in enumerate(best):
            assert not one.certified[b] or abs(float(one.score[b]) - of_all) <= SUMS * size, b
            assert float(one.bound[b]) >= of_all - SUMS * size, b
    both = wanted.certified & found.certified
    assert both.sum() >= 4 and torch.equal(found.heads[both], wanted.heads[both])


PAIRS = ("ppc", "lp", "dd", "ilp", "auto", "bp", "eisner")


@pytest.mark.parametrize("single_root", (True, False))
@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *(("grandparents", method) for method in PAIRS),
        *(("siblings", method) for method in PAIRS),
        *(("arcs", method) for method in ("mst", *PAIRS)),
    ],
)
def test_every_tree_has_something_forbidden(kind: str, method: str, single_root: bool) -> None:
    given = {"siblings": ("siblings",), "arcs": () if method == "mst" else ("grandparents",)}
    tensors = drawn(0, 1, 3, given.get(kind, ("grandparents",)))
    if kind == "arcs":
        tensors["arcs"][0, :, 2] = -math.inf  # a word without a head
    else:
        tensors["arcs"][0, 0, 2:] = -math.inf  # word 1 is under the root, and nothing under it may be
        tensors[kind][0, int(kind == "siblings"), 1] = -math.inf
    assert _best(tensors, single_root)[0] == -math.inf
    refuses("sentence 0", _decode, tensors, method, single_root=single_root, **EXACT.get(method, {}))


@pytest.mark.parametrize("part", range(3))
def test_a_small_part_of_the_fuzzing(part: int, tmp_path: Path) -> None:
    """``make fuzz`` runs more of the same cases."""
    outcomes = outcomes_of(certificates, range(25 * part, 25 * (part + 1)), tmp_path)
    assert sum(count for word, count in outcomes.items() if word.endswith("all certified")) > 5, outcomes
