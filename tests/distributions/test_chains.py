"""What is special about chains of tags: long sentences, tags that do not go together, bad input."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.autograd import grad
from torch.distributions import kl_divergence

from gpuparse.distributions import TagChains, TrigramChains
from tests.distributions.checks import check_against_plain
from tests.distributions.families import FAMILIES
from tests.distributions.numeric import F32, F64, INF, NAN, NEG_INF, close, normal

CHAINS = ("tags", "tags, own transitions", "trigrams")


@pytest.fixture(params=CHAINS)
def name(request: pytest.FixtureRequest) -> str:
    """Of a family."""
    return str(request.param)


def row_shape(name: str, batch: int, words: int, tags: int) -> tuple[int, ...]:
    return {"tags": (tags, tags), "trigrams": (tags, tags, tags)}.get(name, (batch, words - 1, tags, tags))


def make(name: str, unary: torch.Tensor, rows: torch.Tensor, lengths: Any = None, **options: Any) -> Any:
    return (TrigramChains if name == "trigrams" else TagChains)(unary, rows, lengths, **options)


def check_tags(tags: torch.Tensor, lengths: torch.Tensor, T: int) -> None:
    """Are tags [..., B, n] chains, -1 past the end?"""
    word = torch.arange(tags.shape[-1]) < lengths[:, None]
    assert tags.dtype == torch.int64 and bool(((tags >= 0) == word).all()) and bool((tags < T).all())


def test_counts(name: str, dtype: torch.dtype) -> None:
    """All scores zero: Z is T^n."""
    lengths, T = torch.arange(1, 301, 13), 5
    B, tol = len(lengths), 1e-7 if dtype == F32 else 1e-12
    p = make(name, torch.zeros(B, 300, T, dtype=dtype), torch.zeros(row_shape(name, B, 300, T), dtype=dtype), lengths)
    for found in (p.log_partition, p.entropy()):
        close(found, lengths.double() * math.log(T), tol)
    word = (torch.arange(300) < lengths[:, None])[..., None]
    close(p.marginals, word.double().expand(-1, -1, T) / T, tol)


@pytest.mark.parametrize("gap", [10.0, 300.0, 700.0, 720.0, 5000.0])
def test_best_tags_that_do_not_go_together(name: str, gap: float) -> None:
    """What leads at every word cannot be continued: all of Z is in states far below the greatest."""
    n, T, lengths = 12, 3, torch.tensor([12, 9])
    unary, rows = normal(2, n, T, seed=0), normal(*row_shape(name, 2, n, T), seed=1)
    unary[:, :, 0] += gap
    family, key = FAMILIES[name], "trigrams" if name == "trigrams" else "transitions"
    for low in (NEG_INF, -3 * gap):
        rows[(Ellipsis, *[0] * (3 if name == "trigrams" else 2))] = low
        check_against_plain(family, {"unary": unary, key: rows}, lengths)
    rows[..., 0, 1:] = NEG_INF  # nothing follows the tag that leads
    check_against_plain(family, {"unary": unary, key: rows}, lengths)


@pytest.mark.parametrize("low", [-1e4, -1e9, -1e14, -1e30])
def test_a_low_score_that_every_chain_needs(name: str, low: float) -> None:
    p = make(name, torch.zeros(1, 4, 2, dtype=F64), torch.full(row_shape(name, 1, 4, 2), low, dtype=F64))
    places = 2 if name == "trigrams" else 3
    close(p.log_partition, torch.tensor([places * low + 4 * math.log(2)], dtype=F64), 1e-12)
    close(p.marginals, torch.full((1, 4, 2), 0.5), 1e-11)
    check_tags(p.sample((5,)), p.lengths, 2)


def test_long_sentences(name: str, dtype: torch.dtype) -> None:
    """1,000 words, some peaked and some not: probabilities add up, the second derivative is finite."""
    T, n = 6, 1000
    unary = normal(2, n, T, seed=0, dtype=dtype) * torch.tensor([1.0, 20.0], dtype=dtype)[:, None, None]
    rows = normal(*row_shape(name, 2, n, T), seed=1, dtype=dtype) * 3
    p = make(name, unary.requires_grad_(), rows.requires_grad_(), [n, 750])
    word = torch.arange(n) < p.lengths[:, None]
    close(p.marginals.sum(2).detach(), word.double(), 1e-6 if dtype == F32 else 1e-11)
    assert bool((p.log_partition >= p.max).all()) and bool((p.entropy() > 0).all())
    assert all(bool(g.isfinite().all()) for g in grad(p.entropy().sum(), (unary, rows)))
    tags, scores = p.topk(2)
    for found in (p.sample((2,)), tags):
        check_tags(found, p.lengths, T)
    assert bool((scores[0] >= scores[1]).all())


def test_kl_of_long_sentences(name: str) -> None:
    """A part of probability 2^-1000 and less still counts; one that no chain has does not."""
    unary = torch.zeros(2, 400, 3, dtype=F64)
    unary[:, :, 2] = NEG_INF
    other = unary.clone()
    other[0, 200, 1] = NEG_INF
    unary[:, :, 1] = -9.0
    other[1, 200, 2] = NEG_INF
    rows = torch.zeros(row_shape(name, 2, 400, 3), dtype=F64)
    value = kl_divergence(make(name, unary, rows), make(name, other, rows))
    assert value[0] == INF and value[1].isfinite()


def test_kl_of_forbidden_rows(name: str) -> None:
    """q forbids a pair that p allows: it counts, unless no chain of p can have its tags."""
    unary, rows = normal(1, 4, 3, seed=3), normal(*row_shape(name, 1, 4, 3), seed=4)
    unary[0, :, 2] = NEG_INF
    p = make(name, unary, rows)
    for tag, want in ((2, 0.0), (1, INF)):
        other = rows.clone()
        (other[:, :, tag] if rows.dim() == 4 else other[tag]).fill_(NEG_INF)
        close(kl_divergence(p, make(name, unary, other)), torch.tensor([want]), 1e-14)


def test_bad_rows_are_only_read_by_longer_sentences(name: str) -> None:
    unary, rows = normal(3, 4, 2, seed=0), normal(*row_shape(name, 3, 4, 2), seed=1)
    rows[..., 0, 0] = NAN
    p = make(name, unary, rows, [4, 1, 2 if name == "trigrams" else 1], validate_args=False)
    assert p.log_partition.isnan().tolist() == [True, False, False]
    assert (p.topk(1)[0][0] == -1).all(1).tolist() == (p.sample() == -1).all(1).tolist() == [True, False, False]


def test_bad_input(name: str) -> None:
    unary, rows = normal(2, 4, 3, seed=0), normal(*row_shape(name, 2, 4, 3), seed=1)
    key = "trigrams" if name == "trigrams" else "transitions"
    wrong, bad, none = unary.clone(), rows.clone(), unary.clone()
    wrong[1, 0, 2] = bad.view(-1)[1] = NAN
    none[1, 0] = NEG_INF
    cases: tuple[tuple[tuple[Any, ...], str], ...] = (
        ((wrong, rows), r"unary\[1, 0, 2\] is nan \(sentence 1, word 0, tag 2\)"),
        ((unary, bad), rf"{key}\[.* is nan"),
        ((none, rows), r"sentence 1 allows no chain of tags: every tag of word 0 scores -inf"),
        ((unary, rows[..., :2]), rf"{key} must have shape"),
        ((unary, rows.float()), rf"{key} must have the dtype and device of unary"),
        ((unary[0], rows), r"unary must have shape \[B, n, T\]"),
        ((unary, rows, [4, 5]), r"lengths\[1\] is 5"),
    )
    for args, message in cases:
        with pytest.raises(ValueError, match=message):
            make(name, *args)
    with pytest.raises(TypeError):
        type(make(name, unary, rows))(unary, rows, None, True)
    p = make(name, unary, rows)
    assert repr(p).endswith("(sentences: 2, words: 4, tags: 3)") and torch.equal(getattr(p, key), rows)
    outside = torch.zeros(2, 4, dtype=torch.int64)
    outside[0, 0] = 9
    unchecked = make(name, unary, rows, [4, 2], validate_args=False)
    assert unchecked.log_prob(outside).isneginf().tolist() == [True, False]
