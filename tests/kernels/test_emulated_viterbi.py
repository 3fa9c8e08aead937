"""The PTX of every Viterbi kernel, run through the project's own launch code, equals the CPU build."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gpuparse.ops import viterbi
from gpuparse.ops.viterbi import TransitionTable

from .emulator import DTYPES, INF, SCHEDULED, on_both

pytestmark = pytest.mark.emulated


def sentences(dtype: torch.dtype, tags: int, words: int, own: bool, step: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """A ragged batch with ties, forbidden tags and transitions, a sentence without any chain, one with a NaN, and one
    of a single word."""
    generator = torch.Generator().manual_seed(tags)
    unary = (3 * torch.randn(6, words, tags, generator=generator, dtype=torch.float64)).round()
    shape = (6, words - 1) if own else (1, 1)
    pairs = step * torch.randn(*shape, tags, tags, generator=generator, dtype=torch.float64)
    unary[1][torch.rand(words, tags, generator=generator) < 0.3] = -INF
    unary[1, :, 0] = 0.0
    unary[2, 1] = -INF
    unary[3, 0, 0] = float("nan")
    lengths = torch.tensor([words, words - 1, 3, 2, 1, words])
    return unary.to(dtype), pairs.to(dtype), lengths


def check(program: viterbi.ChainProgram, schedule: str, *given: Any) -> None:
    """The CPU and the emulated GPU give the same, and the right sentences have a chain."""
    expected, found = on_both(lambda backend: program.launch(*given, backend=backend), schedule)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0.0, atol=1e-9)
    tags = expected[0]
    assert (tags[[2, 3]] == -1).all() and (tags[[0, 5]] >= 0).all() and (tags[4, 1:] == -1).all() and tags[4, 0] >= 0


SHAPES = pytest.mark.parametrize(("tags", "words", "step"), [(5, 6, 1.0), (41, 4, 1.0), (41, 4, 9.0)])


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("own", (False, True))
@SHAPES
def test_dense(tags: int, words: int, step: float, own: bool, dtype: torch.dtype, schedule: str) -> None:
    unary, pairs, lengths = sentences(dtype, tags, words, own, step)
    table = TransitionTable(pairs)
    row_max = None if own else table.row_max
    check(viterbi.DENSE, schedule, unary, table.rows, table.columns, row_max, lengths, 1)


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
def test_trigrams(dtype: torch.dtype, schedule: str) -> None:
    unary, _, lengths = sentences(dtype, 5, 6, False)
    table = TransitionTable(torch.randn(1, 1, 25, 5, dtype=dtype, generator=torch.Generator().manual_seed(0)))
    check(viterbi.DENSE, schedule, unary, table.rows, None, table.row_max, lengths, 5)


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
@SHAPES
def test_columns(tags: int, words: int, step: float, dtype: torch.dtype, schedule: str) -> None:
    unary, pairs, lengths = sentences(dtype, tags, words, False, step)
    table = TransitionTable(pairs)
    check(viterbi.FORWARD, schedule, unary, table.rows, table.row_max, table.row_min, lengths)
    bounds = table.row_max, table.column_max
    check(viterbi.AVERAGED, schedule, unary, table.rows, table.columns, *bounds, lengths, 2)


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("own", (False, True))
@pytest.mark.parametrize("beam", (1, 3))
def test_beam(beam: int, own: bool, dtype: torch.dtype, schedule: str) -> None:
    unary, pairs, lengths = sentences(dtype, 7, 6, own)
    table = TransitionTable(pairs)
    bounds = (None, None, None) if own else (table.row_max, table.row_min, table.column_max)
    check(viterbi.BEAM, schedule, unary, table.rows, *bounds, lengths, beam)
