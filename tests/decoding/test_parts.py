"""Families of triples: which are read, bounds on them, lists of them."""

from __future__ import annotations

import math

import pytest
import torch

from gpuparse.decoding.parts import KINDS, DenseParts, Kind, legal_pairs, legal_triples
from tests.decoding.refusals import refuses
from tests.oracle import all_trees

kinds = pytest.mark.parametrize("kind", KINDS)


def triples_of_trees(kind: Kind, n: int) -> set[tuple[int, int, int]]:
    """Every triple that some tree of n words has, found tree by tree."""
    found = set()
    for heads in all_trees(n, single_root=False, projective=False).tolist():
        for m in range(1, n + 1):
            h = heads[m]
            if kind == "grandparents":
                if h >= 1:
                    found.add((heads[h], h, m))
                continue
            step = 1 if m > h else -1
            between = [s for s in range(h + step, m, step) if s >= 1 and heads[s] == h]
            found.add((h, between[-1] if between else h, m))
    return found


@kinds
def test_legal_triples_are_those_of_trees(kind: Kind) -> None:
    lengths = torch.tensor([1, 2, 3, 4, 5])
    legal = legal_triples(kind, lengths, 6)
    for b, n in enumerate(lengths.tolist()):
        assert set(map(tuple, legal[b].nonzero().tolist())) == triples_of_trees(kind, n)


@kinds
@pytest.mark.parametrize("axis", range(3))
def test_legal_pairs(kind: Kind, axis: int) -> None:
    lengths = torch.tensor([1, 2, 3, 4, 5, 7])
    want = legal_triples(kind, lengths, 8).any(axis + 1)
    assert torch.equal(legal_pairs(kind, axis, lengths, 8), want)


def random_dense(kind: Kind, seed: int) -> DenseParts:
    g = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([5, 1, 3])
    values = torch.randn(3, 6, 6, 6, generator=g)
    values = values.masked_fill(torch.rand(values.shape, generator=g) < 0.3, -math.inf)
    return DenseParts(values.masked_fill(~legal_triples(kind, lengths, 6), math.nan), lengths, kind=kind)


@kinds
@pytest.mark.parametrize("axis", range(3))
def test_dense_bounds_are_the_greatest(kind: Kind, axis: int) -> None:
    parts = random_dense(kind, 0)
    bound = parts.bound(axis)
    want = torch.full_like(bound, -math.inf)
    for b, *triple in legal_triples(kind, parts.lengths, 6).nonzero().tolist():
        place = (b, *(node for which, node in enumerate(triple) if which != axis))
        want[place] = max(want[place], parts.values[(b, *triple)])
    assert torch.equal(bound, want)
    assert parts.scored == 0


@kinds
def test_lists_and_counts(kind: Kind) -> None:
    parts = random_dense(kind, 1)
    sentence, i, j, k = legal_triples(kind, parts.lengths, 6).nonzero(as_tuple=True)
    assert torch.equal(parts.score(sentence, i, j, k), parts.values[sentence, i, j, k])
    assert parts.scored == len(i)
    assert parts.dense() is parts.values
    assert parts.scored == len(i) + 3 * 6**3
    assert repr(parts) == f"DenseParts({kind}, sentences: 3, words: 5, scored: {parts.scored})"
    assert parts.to("meta").scored == 0


def test_bad_input() -> None:
    values = torch.zeros(1, 3, 3, 3)
    refuses(r"^kind must be one of grandparents, siblings, got 'cousins'", DenseParts, values, kind="cousins")
    refuses(r"^axis must be 0, 1 or 2 .*, got 3", DenseParts(values, kind="siblings").bound, 3)
    refuses(r"^siblings must have shape \[B, N, N, N\]", DenseParts, values[0], kind="siblings")
