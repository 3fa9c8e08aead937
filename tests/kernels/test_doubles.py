"""Sums for float32 scores on a GPU: few instructions are of doubles, and the results are those of doubles."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from gpuparse.ops import chains
from gpuparse.ops.backend import Backend, backend_for
from tests.declared import Example, example

from .emulator import INF, EmulatedGpu

pytestmark = [pytest.mark.emulated, pytest.mark.slow]
MOST = 0.03  # of the instructions
WORDS = 20
NAMES = ("eisner", "matrix_tree", "siblings", "grandparents", "grandsiblings", "cky, spans", "lexical")
CASES = pytest.mark.parametrize("case", ("usual", "large", "forbidden", "masked"))


@cache
def gpu() -> EmulatedGpu:
    return EmulatedGpu("-O1", races=False, counting=True)


def made(case: str, scores: list[Tensor | None]) -> list[Tensor | None]:
    """Scores up to some 1e4; or a tenth of the first kind at -inf, or at a large finite number."""
    if case == "large":
        return [None if x is None else 3000.0 * x for x in scores]
    first, *others = scores
    assert first is not None
    if case != "usual":
        some = torch.rand(first.shape, generator=torch.Generator().manual_seed(2)) < 0.1
        first = first.masked_fill(some, -INF if case == "forbidden" else -1e30)
    return [first, *others]


def one(name: str, case: str) -> Example:
    """The first sentence of an example."""
    given = example(name, torch.float32, 12 if name == "lexical" else WORDS, symbols=10, tags=4)
    scores = [x if x is None or x.shape[0] != 5 else x[:1] for x in given.scores]
    inputs = tuple(x[:1] if x is given.lengths else x for x in given.inputs)
    return given._replace(scores=made(case, scores), inputs=inputs)


def sums(given: Example, dtype: torch.dtype, backend: Backend | None) -> list[Tensor]:
    scores = [None if x is None else x.to(dtype) for x in given.scores]
    logz, family = torch.empty(1, dtype=torch.float64), given.family
    out = [None if x is None else y for x, y in zip(scores, family.empty_scores(scores), strict=True)]
    family.sums(scores, given.inputs, (), logz, out, backend)
    return [logz, *(x for x in out if x is not None)]


def tags_of(trigrams: bool, case: str) -> list[Tensor]:
    g, tags = torch.Generator().manual_seed(1), 6 if trigrams else 12
    unary = torch.randn(1, WORDS, tags, generator=g)
    pairs = torch.randn(1, 1, tags * tags if trigrams else tags, tags, generator=g)
    return [x for x in made(case, [unary, pairs]) if x is not None]


def chain_sums(scores: list[Tensor], dtype: torch.dtype, backend: Backend | None, trigrams: bool) -> list[Tensor]:
    unary, pairs = (x.to(dtype) for x in scores)
    lengths, weight = torch.tensor([WORDS]), torch.tensor([-2.0], dtype=torch.float64)
    value, _ = chains.sums(unary, pairs, lengths, trigrams, (), backend=backend)
    return [value, *chains.sums(unary, pairs, lengths, trigrams, (), weight, backend=backend)]


def same(found: list[Tensor], expected: list[Tensor], least: float = 1e-35) -> None:
    """To 1e-6: room for the 31 bits that numbers have and the 24 of results; below ``least`` floats have fewer."""
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x.double(), y.double(), rtol=1e-6, atol=least, equal_nan=True)


def share_of_doubles(gpu: EmulatedGpu, before: int) -> float:
    counts = [found for _, found in gpu.launched[before:] if found is not None]
    return sum(x.double_instructions for x in counts) / sum(x.warp_instructions for x in counts)


@CASES
@pytest.mark.parametrize("name", NAMES)
def test_trees(name: str, case: str) -> None:
    given, before = one(name, case), len(gpu().launched)
    found = sums(given, torch.float32, gpu())
    share = share_of_doubles(gpu(), before)
    print(f"{name}, {case}: {share:.2%}")
    assert share <= MOST
    # what the elimination finds on its way back is a difference
    least = 1e-9 if name == "matrix_tree" else 1e-35
    same(found, sums(given, torch.float64, backend_for(torch.device("cpu"))), least)


@CASES
@pytest.mark.parametrize("trigrams", (False, True), ids=["pairs", "triples"])
def test_chains(trigrams: bool, case: str) -> None:
    scores, before = tags_of(trigrams, case), len(gpu().launched)
    found = chain_sums(scores, torch.float32, gpu(), trigrams)
    share = share_of_doubles(gpu(), before)
    print(f"chain of {3 if trigrams else 2}, {case}: {share:.2%}")
    assert share <= MOST
    same(found, chain_sums(scores, torch.float64, backend_for(torch.device("cpu")), trigrams))


def test_cards_with_many_units_for_doubles() -> None:
    """Go on with doubles."""
    given, many = one("eisner", "usual"), EmulatedGpu("-O1", races=False, counting=True, architecture="80")
    found = sums(given, torch.float32, many)
    assert share_of_doubles(many, 0) > 3 * MOST
    same(found, sums(given, torch.float64, backend_for(torch.device("cpu"))))


@pytest.mark.parametrize("score", (-1e30, 3e6, 1e30, -INF, INF, float("nan")))
def test_scores_out_of_range(score: float) -> None:
    """All of a word's: doubles take over, and say so if a score is wrong."""
    cpu = backend_for(torch.device("cpu"))
    for name in ("eisner", "matrix_tree", "siblings", "cky, spans", "lexical"):
        given = one(name, "usual")
        first = given.scores[0]
        assert first is not None
        first[0, :, 3] = score
        if first.shape[1] != first.shape[2]:
            first[0, 3] = score
        same(sums(given, torch.float32, gpu()), sums(given, torch.float32, cpu), 1e-9)
    for trigrams in (False, True):
        scores = tags_of(trigrams, "usual")
        scores[0][0, 3] = score
        same(*(chain_sums(scores, torch.float32, backend, trigrams) for backend in (gpu(), cpu)))
