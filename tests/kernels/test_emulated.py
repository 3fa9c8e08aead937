"""The PTX of every family, run through the project's own launch code, equals the CPU build: no race, no fault."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpuparse.ops import launch
from gpuparse.ops.backend import Backend
from tests.declared import ARCS, KINDS, Example, example
from tests.ptx.launch import ORDERS

from .emulator import DTYPES, INF, SCHEDULED, both

pytestmark = pytest.mark.emulated
SEED = torch.tensor([1234567])

# Large kernels run for a moment, so they are compiled in a third of the time, and float32 is tried in one order.
SMALL = tuple(ARCS)
EVERY = pytest.mark.parametrize(
    ("name", "dtype", "schedule"),
    [(k, d, s) for k in KINDS for d in DTYPES for s in ORDERS if k in SMALL or d == torch.float64 or s == "random"],
)


def same(name: str, run: object, schedule: str, tolerance: float) -> Tensor:
    return both(run, schedule, tolerance, optimise="-O1" if name in SMALL else "-Og")  # type: ignore[arg-type]


def sums(given: Example, backend: Backend, order: int = 0, *, alone: bool = False) -> list[Tensor]:
    """log Z (not of derivatives) and, unless it is alone, derivatives of it."""
    family, scores = given.family, given.scores
    g = torch.Generator().manual_seed(order)
    directions = [
        [None if x is None else torch.rand(x.shape, generator=g, dtype=x.dtype) for x in scores] for _ in range(order)
    ]
    logz = None if order else torch.empty(len(given.lengths), dtype=torch.float64)
    out = (
        None if alone else [None if x is None else y for x, y in zip(scores, family.empty_scores(scores), strict=True)]
    )
    family.sums(scores, given.inputs, directions, logz, out, backend)
    return [x.double().flatten(1) for x in (*([] if logz is None else [logz[:, None]]), *(out or ())) if x is not None]


@EVERY
@pytest.mark.parametrize("order", (0, 1, 2))
def test_sums(name: str, order: int, dtype: torch.dtype, schedule: str) -> None:
    given = example(name, dtype)
    if order > given.family.orders:
        return  # plain torch takes over
    tolerance = 1e-6 if dtype == torch.float32 else 1e-11
    answer = same(name, lambda backend: torch.cat(sums(given, backend, order), 1), schedule, tolerance)
    assert not answer.isnan().any()
    if order == 0:
        assert answer[4, 0] == -INF and (answer[:4, 0] > -INF).all()
        same(name, lambda backend: sums(given, backend, alone=True)[0], schedule, tolerance)


@EVERY
def test_decoding(name: str, dtype: torch.dtype, schedule: str) -> None:
    given = example(name, dtype, 6)
    decode, kernels = given.family.decode, given.family._kernels(given.scores)
    found = same(name, lambda b: decode("argmax", given.scores, given.inputs, backend=b), schedule, 0.0)
    assert (found[4] == -1).all() and (found[0] > 0).any()
    drawn = same(name, lambda b: decode("sample", given.scores, given.inputs, 40, SEED, b), schedule, 0.0)
    assert (drawn[:, 4] == -1).all() and (drawn[:, 0] != -1).any()
    if kernels.topk:
        best = same(name, lambda b: decode("topk", given.scores, given.inputs, 9, None, b), schedule, 0.0)
        assert (best[1:, 3] == -1).all() and (best[0, 3, 1] == 0).all()


@pytest.mark.parametrize(
    ("words", "names"), [(40, SMALL), (16, ("siblings", "grandsiblings", "third order")), (70, ("lexical",))]
)
def test_more_cells_than_lanes(words: int, names: tuple[str, ...]) -> None:
    """Rows of more places than a block has threads, so that each takes several; bits in two words of memory."""
    for name in names:
        given = example(name, words=words)
        if name == "lexical":  # one sentence, and few rules: it is the slowest
            rules = torch.where(torch.arange(given.scores[2].shape[1]) % 4 == 1, given.scores[2], -INF)
            some = [given.scores[0][:1], given.scores[1][:1], rules, given.scores[3]]  # type: ignore[index]
            given = given._replace(scores=some, inputs=(given.inputs[0], torch.tensor([70])))
        found = same(name, lambda b, x=given: x.family.decode("argmax", x.scores, x.inputs, backend=b), "random", 0.0)
        assert found[0].amax() >= words - 1


@SCHEDULED
def test_more_symbols_than_lanes(schedule: str) -> None:
    """70 symbols over 6 places."""
    given = example("cky, spans", words=6, symbols=74, tags=4, rules=120)
    same("cky, spans", lambda backend: sums(given, backend, alone=True)[0], schedule, 1e-11)


@SCHEDULED
@pytest.mark.parametrize(
    "name", ("siblings", "grandparents", "grandsiblings", "third order", "cky, spans", "lexical, own rules")
)
def test_bad_scores_are_poison(name: str, schedule: str) -> None:
    """Each kind of them: all of its sentence is NaN, or -1, and of all that share it."""
    for which, x in enumerate(example(name).scores):
        if x is None:
            continue
        given, own = example(name, words=4), x.shape[0] == 5
        bad = given.scores[which]
        assert bad is not None
        place = given.read(which).nonzero()
        bad[tuple((place[place[:, 0] == 0] if own else place)[-1])] = float("nan")
        answer = same(name, lambda b, x=given: torch.cat(sums(x, b), 1), schedule, 1e-11)
        assert answer[0].isnan().all() and not (own and answer[1:].isnan().any())
        best = same(name, lambda b, x=given: x.family.decode("argmax", x.scores, x.inputs, backend=b), schedule, 0.0)
        assert (best[0] == -1).all()


@SCHEDULED
@pytest.mark.parametrize("dtype", DTYPES)
def test_check(dtype: torch.dtype, schedule: str) -> None:
    given = example("eisner", dtype)
    arcs, lengths = given.scores[0], given.lengths
    assert arcs is not None
    arcs[0, 1, 2] = float("nan")
    arcs[4, 0, 1] = -(2.0**20)
    lengths[3] = 99
    flags = both(lambda backend: launch.check(arcs, lengths, backend), schedule, 0.0)
    assert flags[0] & 1 and flags[1] & 2 and flags[3] & 4 and flags[4] & 8 and not flags[2]
