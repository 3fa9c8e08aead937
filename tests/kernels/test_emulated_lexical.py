"""The PTX of the kernels of lexicalised trees, run through the project's own launch code, equals the CPU build."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpuparse.backend import Backend
from gpuparse.ops.lexical import LEXICAL
from gpuparse.plain.lexical import Rules, Scores

from .emulator import DTYPES, INF, SCHEDULED
from .emulator import quickly_both as both

pytestmark = pytest.mark.emulated


def sentences(dtype: torch.dtype, words: int, *, shared: bool = True) -> tuple[Scores, Tensor, Tensor]:
    """A ragged batch with forbidden parts, one sentence that needs the wide numbers and one without any tree; a
    grammar of 3 tags, 7 symbols and 60 rules."""
    g = torch.Generator().manual_seed(words)
    T, S, R, B = 3, 7, 60, 5
    codes = torch.randperm((S - T) * S * S * 2, generator=g)[:R]
    rest = codes // (S - T)
    rules = Rules.of(T + codes % (S - T), rest % S, rest // S % S, rest // S // S, S)
    tags = torch.randn(B, words, T, generator=g, dtype=torch.float64)
    arcs = torch.randn(B, words + 1, words + 1, generator=g, dtype=torch.float64)
    by_rule = torch.randn(1 if shared else B, R, generator=g, dtype=torch.float64)
    roots = torch.randn(S, generator=g, dtype=torch.float64)
    tags[1][torch.rand(tags[1].shape, generator=g) < 0.2] = -INF
    arcs[1][torch.rand(arcs[1].shape, generator=g) < 0.1] = -INF
    by_rule[:, ::9] = -INF
    arcs[2] *= 900.0
    arcs[3, :, 0] = float("nan")
    tags[4, 2] = -INF
    lengths = torch.tensor([words, 3, words - 1, 1, 4])
    return (tags.to(dtype), arcs.to(dtype), by_rule.to(dtype), roots.to(dtype)), rules.table, lengths


def sums(scores: Scores, table: Tensor, lengths: Tensor, backend: Backend) -> list[Tensor]:
    """log Z and the expected numbers."""
    logz = torch.empty(len(lengths), dtype=torch.float64)
    out = LEXICAL.empty_scores(scores)
    LEXICAL.sums(scores, (table, lengths), (), logz, out, backend)
    return [logz, *out]


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums(dtype: torch.dtype, schedule: str) -> None:
    scores, table, lengths = sentences(dtype, 5, shared=schedule == "forward")

    def run(backend: Backend) -> Tensor:
        return torch.cat([x.flatten().double() for x in sums(scores, table, lengths, backend)])

    answer = both(run, schedule, 1e-6 if dtype == torch.float32 else 1e-11)
    assert not answer.isnan().any() and answer[4] == -INF and (answer[[0, 2, 3]] > -INF).all()

    def alone(backend: Backend) -> Tensor:
        logz = torch.empty(len(lengths), dtype=torch.float64)
        LEXICAL.sums(scores, (table, lengths), (), logz, None, backend)
        return logz

    both(alone, schedule, 1e-11)


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
def test_best_and_samples(dtype: torch.dtype, schedule: str) -> None:
    scores, table, lengths = sentences(dtype, 6)
    trees = both(lambda backend: LEXICAL.decode("argmax", scores, (table, lengths), backend=backend), schedule, 0.0)
    assert (trees[4] == -1).all() and (trees[0, :, 0] >= 0).all()
    seed = torch.tensor([1234567])
    both(lambda backend: LEXICAL.decode("sample", scores, (table, lengths), 40, seed, backend), schedule, 0.0)


def test_more_cells_than_lanes() -> None:
    """Rows of 70 words for 4 symbols, more than the 256 threads of a block, and bits in two words of memory."""
    (tags, arcs, by_rule, roots), table, _ = sentences(torch.float64, 70)
    lengths = torch.tensor([70])
    scores = tags[:1], arcs[:1], torch.where(torch.arange(60) % 4 == 1, by_rule, -INF), roots
    trees = both(lambda backend: LEXICAL.decode("argmax", scores, (table, lengths), backend=backend), "random", 0.0)
    assert (trees[0, :, 0] >= 0).all()


@SCHEDULED
@pytest.mark.parametrize("which", range(4))
def test_bad_scores_are_poison(which: int, schedule: str) -> None:
    scores, table, lengths = sentences(torch.float64, 4, shared=False)
    scores[which][(..., -1) if which == 3 else (0, 2, 1) if which < 2 else (0, 5)] = float("nan")

    def run(backend: Backend) -> Tensor:
        return torch.cat([x.view(5, -1) for x in sums(scores, table, lengths, backend)], 1)

    answer = both(run, schedule, 1e-11)
    assert answer[0].isnan().all() and (which == 3 or not answer[1:].isnan().any())
    assert (
        both(lambda backend: LEXICAL.decode("argmax", scores, (table, lengths), backend=backend), schedule, 0.0)[0]
        == -1
    ).all()
