"""The kernels of every family and its plain torch path say the same, in any range and whatever memory holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.distributions.checks import (
    SCORES,
    check_against_plain,
    check_best,
    check_derivatives,
    check_samples,
    check_sums,
    derivatives_of,
)
from tests.distributions.families import FAMILIES, LARGER, Family, plainly
from tests.distributions.numeric import F32, F64, INF, NAN, NEG_INF, close, generator

LEAN = settings(max_examples=10, deadline=None)
EVERY = {**FAMILIES, **LARGER}
ANY = pytest.mark.parametrize("any_family", EVERY.values(), ids=EVERY)
PEAKED = (1.0, 30.0, 700.0, 3000.0)


@SCORES
def test_plain_path(family: Family, forbidden: float, magnitude: float) -> None:
    scores, lengths = batch = family.scores(2, words=3, forbidden=forbidden, magnitude=magnitude)
    few = {name: (x * (2 / magnitude)).round() for name, x in scores.items()}
    with plainly():
        check_sums(family, batch, F64, magnitude)
        check_best(family, batch, F64)
        check_best(family, (few, lengths), F64, k=20)
        check_derivatives(family, batch, F64, magnitude)


@pytest.mark.parametrize("magnitude", [1.0, 1e4])
def test_samples_of_the_plain_path(family: Family, magnitude: float) -> None:
    batch = family.scores(5, words=3, forbidden=0.3, magnitude=magnitude)
    with plainly():
        check_samples(family, *batch, draws=2000)


@ANY
@pytest.mark.parametrize(("words", "dtype"), [(2, F64), (8, F32), (9, F64), (13, F64)])
def test_longer_sentences(any_family: Family, words: int, dtype: torch.dtype) -> None:
    for magnitude, forbidden in ((1.0, 0.2), (300.0, 0.0)):
        batch = any_family.scores(words, words=words, forbidden=forbidden, magnitude=magnitude, poison=False)
        scores = {name: x.to(dtype) for name, x in batch[0].items()}
        check_against_plain(any_family, scores, batch[1], 1e-4 if dtype == F32 else 1e-9)


@pytest.mark.parametrize("words", (1, 2, 4, 5, 7, 8, 9, 12, 16, 17, 25, 34))
@pytest.mark.parametrize("name", ("projective", "projective, many roots"))
def test_lengths_around_whole_tiles(name: str, words: int, dtype: torch.dtype) -> None:
    """Of eisner_tiles.cuh. Results are rounded to their dtype; plain torch loses 1e-12 or so in float64."""
    scores, lengths = FAMILIES[name].scores(words, batch=6, words=words, forbidden=0.1, dtype=dtype)
    scores["arcs"][3:5] *= torch.tensor([8.0, 1e4], dtype=dtype)[:, None, None]
    p, q = (FAMILIES[name].make({"arcs": x}, lengths) for x in (scores["arcs"], scores["arcs"].double()))
    found = p.marginals, p.log_partition
    with plainly():
        for x, y in zip(found, (q.marginals, q.log_partition), strict=True):
            close(x, y, 1e-6 if dtype == F32 else 1e-10)
    assert not bool(p.marginals[scores["arcs"].isneginf()].any())


@pytest.mark.parametrize("words", [3, 6])
def test_sentences_of_any_kind_after_each_other(family: Family, words: int) -> None:
    """About where the range of doubles ends, and impossible ones: none takes over what another left."""
    scores, lengths = family.scores(words, batch=40, words=words, forbidden=0.3, poison=False)
    name, first = next(iter(scores.items()))
    g = generator(0)
    first *= torch.tensor(PEAKED, dtype=F64)[torch.randint(len(PEAKED), (40,), generator=g)][:, None, None]
    first[torch.rand(40, generator=g) < 0.2] = NEG_INF
    check_against_plain(family, {**scores, name: first.masked_fill(first.isnan(), 0.0)}, lengths)


@LEAN
@given(
    seed=st.integers(0, 10**6),
    words=st.integers(2, 10),
    forbidden=st.sampled_from([0.0, 0.5, 0.9]),
    low=st.floats(-1e4, 1e4),
    high=st.floats(-1e4, 1e4),
)
def test_any_range(family: Family, seed: int, words: int, forbidden: float, low: float, high: float) -> None:
    """Scores uniform between two bounds."""
    scores, lengths = family.scores(seed, batch=2, words=words, forbidden=forbidden, poison=False)
    g = generator(seed)
    for x in scores.values():
        x[x.isfinite()] = (low + (high - low) * torch.rand(x.shape, generator=g, dtype=F64))[x.isfinite()]
    check_against_plain(family, scores, lengths)


@pytest.mark.parametrize("words", [2, 5, 12])
def test_few_large_values(family: Family, words: int) -> None:
    """So that many structures are about equal."""
    scores, lengths = family.scores(words, words=words, forbidden=0.0, poison=False)
    g = generator(words)
    large = {name: x + torch.randint(-1, 2, x.shape, generator=g) * 1e4 for name, x in scores.items()}
    check_against_plain(family, large, lengths)


@pytest.mark.usefixtures("path")
def test_nothing_else_is_read(family: Family) -> None:
    """What no structure has may hold anything, forward and backward."""
    clean, lengths = family.scores(6, forbidden=0.2, poison=False)
    poisoned = family.scores(6, forbidden=0.2)[0]
    want = derivatives_of(family, clean, lengths)
    for junk in (NAN, INF, NEG_INF, 1e30):
        dirty = {name: x.where(~poisoned[name].isnan(), junk) for name, x in clean.items()}
        family.make(dirty, lengths)
        for name, x in derivatives_of(family, dirty, lengths).items():
            assert torch.equal(x, want[name]), (name, junk)


@ANY
@pytest.mark.parametrize(("magnitude", "dtype"), [(1.0, F32), (1e3, F64)])
def test_new_memory_may_hold_anything(
    any_family: Family, magnitude: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not initialised is not read: lengths around the width of a SIMD register."""

    def dirty(make: Callable[..., Tensor], value: float, whole: int) -> Callable[..., Tensor]:
        def make_dirty(*args: Any, **kwargs: Any) -> Tensor:
            new = make(*args, **kwargs)
            return new.fill_(value if new.is_floating_point() else whole)

        return make_dirty

    slow = {"rules", "grandsiblings"} & any_family.shapes(1, 1).keys()
    longer = () if slow else (15, 17, 33)
    for words in (1, 2, 3, 4, 7, 8, 9, *longer):
        scores, lengths = any_family.scores(
            words, batch=2, words=words, forbidden=0.1, magnitude=magnitude, dtype=dtype
        )
        outcomes = []
        for value, whole in ((NAN, 2**30), (1e30, -1)):
            with monkeypatch.context() as patch:
                for name in ("empty", "empty_like"):
                    patch.setattr(torch, name, dirty(getattr(torch, name), value, whole))
                torch.manual_seed(0)
                drawn = any_family.make(scores, lengths, validate_args=False).sample((3,))
                outcomes.append({**derivatives_of(any_family, scores, lengths), "sample": drawn})
        for name, result in outcomes[0].items():
            assert not bool(result.isnan().any()), (name, words)
            assert torch.equal(result, outcomes[1][name]), (name, words)
