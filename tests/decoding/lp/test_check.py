"""Trees of a batch against constraints: the same as one sentence after the other."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from gpuparse.decoding.ilp.check import CheckedTrees
from gpuparse.lp import Arcs, Box, Children, Constraint, Only, Row, Soft, Span, Unique, Words, violates
from tests.decoding.lp.some import LABELS, constraints, sentence, tree
from tests.decoding.refusals import refuses


def batch(rng: random.Random, least: int, most: int, B: int = 7) -> tuple[list[Words], Tensor, Tensor]:
    """Sentences of several lengths, one of them of the least; past the end there is what must not be looked at."""
    lengths = [least, *(rng.randint(least, most) for _ in range(B - 1))]
    words = [sentence(rng, n) for n in lengths]
    N = max(lengths) + 1 + rng.randint(0, 2)
    heads, labels = torch.full((B, N), -1), torch.full((B, N), -1)
    for b, n in enumerate(lengths):
        found = tree(rng, n)
        heads[b, : n + 1], labels[b, : n + 1] = torch.tensor(found[0]), torch.tensor(found[1])
    return words, heads, labels


def one_by_one(constraint: Constraint, words: list[Words], heads: Tensor, labels: Tensor) -> list[bool]:
    rows = zip(words, heads.tolist(), labels.tolist(), strict=True)
    return [any(True for _ in constraint.violated(w, h[: len(w.forms)], x[: len(w.forms)])) for w, h, x in rows]


@pytest.mark.parametrize("seed", range(60))
def test_every_kind_as_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    least = rng.randint(1, 5)
    words, heads, labels = batch(rng, least, least + rng.randint(0, 8))
    asked = constraints(rng, least)
    each = [one_by_one(constraint, words, heads, labels) for constraint in asked]
    for constraint, expected in zip(asked, each, strict=True):
        assert violates([constraint], words, heads, labels).tolist() == expected, constraint
        assert violates([constraint], words, heads.int(), labels.int()).tolist() == expected
    assert violates(asked, words, heads, labels).tolist() == [any(b) for b in zip(*each, strict=True)]
    assert not violates([], words, heads, labels).any()


def test_no_kind_looks_at_sentences_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckedTrees, "each", lambda self: pytest.fail("one by one"))
    rng = random.Random(0)
    words, heads, labels = batch(rng, 3, 6)
    violates(constraints(rng, 3), words, heads, labels)


def test_labels_numbered_otherwise() -> None:
    rng = random.Random(1)
    words, heads, labels = batch(rng, 4, 6)
    other = {name: 3 - number for name, number in LABELS.items()}
    words = [Words(w.forms, w.tags, other if b % 2 else {"obj": 1}, w.sentence) for b, w in enumerate(words)]
    for constraint in constraints(rng, 4):
        assert violates([constraint], words, heads, labels).tolist() == one_by_one(constraint, words, heads, labels)


def test_without_labels() -> None:
    words = [Words.of(["x"] * 3), Words.of(["x"])]
    heads = torch.tensor([[-1, 2, 0, 2], [-1, 0, -1, -1]])
    assert violates([Children(at_most=1)], words, heads).tolist() == [True, False]
    assert violates([Unique(frozenset({"nsubj"}))], words, heads).tolist() == [False, False]


@dataclass(frozen=True)
class NoFirst(Constraint):
    """The first word is not under the root. Has no look at a batch of its own."""

    def rows(self, words: Words) -> Iterator[Row]:
        yield Row((Box(frozenset({0}), frozenset({1})),), 0, 0, "the first word is not the root's")


def test_one_written_by_a_user() -> None:
    words = [Words.of(["x", "y"]), Words.of(["x"])]
    heads = torch.tensor([[-1, 2, 0], [-1, 0, -1]])
    for constraint in (NoFirst(), Soft(NoFirst(), 1.0)):
        assert violates([constraint], words, heads).tolist() == [False, True]
    assert not violates([Only(NoFirst(), frozenset({"a"}))], words, heads).any()


def test_only_looks_at_its_own_sentences() -> None:
    @dataclass(frozen=True)
    class Known(Constraint):
        def rows(self, words: Words) -> Iterator[Row]:
            assert words.sentence == "a"
            return NoFirst().rows(words)

    heads = torch.tensor([[-1, 0, 1], [-1, 0, -1]])
    for name, expected in (("a", True), (None, False)):
        words = [Words.of(["x", "y"], sentence=name), Words.of(["x"], sentence="b")]
        for constraint in (Known(), Soft(Known(), 1.0)):
            assert violates([Only(constraint, frozenset({"a"}))], words, heads).tolist() == [expected, False]


def test_labels_under_any_head() -> None:
    words = [Words.of(["x"] * 3, labels=["a", "b"]), Words.of(["x"] * 2, labels=["b"])]
    heads = torch.tensor([[-1, 2, 0, 2], [-1, 0, 1, -1]])
    labels = torch.tensor([[-1, 0, 1, 1], [-1, 0, 0, -1]])
    for arcs in (Arcs(required=((None, 1, "b"),)), Arcs(forbidden=((None, 1, "a"), (None, 2, "a")))):
        expected = one_by_one(arcs, words, heads, labels)
        assert violates([arcs], words, heads, labels).tolist() == expected == [True, False]


def test_errors() -> None:
    words = [Words.of(["x", "y"]), Words.of(["x"])]
    heads = torch.tensor([[-1, 2, 0], [-1, 0, -1]])
    with pytest.raises(ValueError, match="constraints on sentence 1: no arc 0 -> 2 in a sentence of 1 word;"):
        violates([Soft(Arcs(required=((0, 2, None),)), 1.0)], words, heads)
    refuses("constraints on sentence 1: no span from 1 to 2", violates, [Span(1, 2)], words, heads)
    refuses("words: 1 for 2 sentences", violates, [Span(1, 1)], words[:1], heads)
