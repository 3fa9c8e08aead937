"""The operator that finds best trees with few pairs scored."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from gpuparse.decoding.parts import Kind
from gpuparse.ops import priced
from gpuparse.ops.library import plain_torch
from gpuparse.ops.pricing import Scorer
from tests.decoding.refusals import refuses
from tests.priced_oracle import FORMS, KINDS, as_pairs, same_scores, some_scores


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kinds", KINDS, ids="+".join)
def test_the_plain_path(form: str, kinds: tuple[Kind, ...]) -> None:
    """It scores all pairs, and has the trees that the kernel has."""
    scores = some_scores(form, kinds, [6, 3, 1, 5], torch.float64, 2, peak=2.0)
    given = scores.arcs, scores.lengths, *as_pairs(scores)
    found = priced.argmax(*given, single_root=True)
    with plain_torch():
        plain = priced.argmax(*given, single_root=True)
    same_scores(scores, found.heads, plain.heads)
    assert (found.siblings <= plain.siblings).all() and (found.grandparents <= plain.grandparents).all()
    assert (plain.siblings > 0).all() == ("siblings" in kinds)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ("siblings", "grandparents"))
def test_scorers(form: str, kind: Kind) -> None:
    """They say what ``Parts.score`` does, of first children too."""
    for seed in range(4):
        scores = some_scores(form, (kind,), [6, 3], torch.float64, seed)
        (parts,) = scores.parts
        scorer = parts.scorer()
        assert scorer is not None and scorer.siblings == (kind == "siblings")
        every = torch.cartesian_prod(*(torch.arange(k) for k in (2, 7, 7, 7)))
        read = every[(every[:, 1:] <= scores.lengths[every[:, 0]][:, None]).all(1)]
        first = read[:, 1] == read[:, 2]
        read = read[(read[:, 2] != read[:, 3]) & (read[:, 1] != read[:, 3]) & ((kind == "siblings") | ~first)]
        b, i, j, k = read.T
        found = scorer.score(b, j, i, k) if kind == "siblings" else scorer.score(b, i, j, k)
        torch.testing.assert_close(found, parts.score(b, i, j, k).detach(), rtol=1e-12, atol=1e-12)


def test_fake_tensors() -> None:
    """The operator knows its outputs without running."""
    scores = some_scores("trilinear", KINDS[2], [4, 3], torch.float32, 1)
    siblings, grandparents = as_pairs(scores)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        arcs = mode.from_tensor(scores.arcs.double())
        found = priced.argmax(arcs, scores.lengths, siblings, grandparents, single_root=True)
    assert found.heads.shape == (2, 5) and found.rounds.shape == (2,)


def test_wrong_input() -> None:
    scores = some_scores("trilinear", KINDS[2], [4, 3], torch.float32, 1)
    siblings, grandparents = as_pairs(scores)
    assert siblings is not None and grandparents is not None
    arcs, lengths = scores.arcs.double(), scores.lengths

    def refused(match: str, *given: Any) -> None:
        refuses(match, priced.argmax, *given, single_root=True)

    refused("^siblings or grandparents must be given$", arcs, lengths, None, None)
    refused("^arcs must be float64", arcs.float(), lengths, siblings, None)
    refused("^arcs must have shape", arcs[0], lengths, siblings, None)
    refused("^lengths must be int64", arcs, lengths.int(), siblings, None)
    refused("^siblings must have a scorer of their kind$", arcs, lengths, grandparents, None)
    refused("^bound of siblings must be float64", arcs, lengths, siblings._replace(bound=arcs[0]), None)
    wide = grandparents._replace(scorer=Scorer.dense(torch.zeros(2, 5, 5, 5, dtype=torch.float64)))
    refused("scorers of one dtype$", arcs, lengths, siblings, wide)
    small = grandparents._replace(scorer=Scorer.dense(torch.zeros(1, 5, 5, 5)))
    refused("^scorer of grandparents must be of 2 sentences and 5 nodes", arcs, lengths, None, small)
    half = grandparents._replace(scorer=Scorer.dense(torch.zeros(2, 5, 5, 5, dtype=torch.float16)))
    refused("^scorer of grandparents must be of float32 or float64, got float16", arcs, lengths, None, half)
