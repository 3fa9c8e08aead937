"""Batches: the cut of a corpus into them, and the padding of each."""

from __future__ import annotations

import random
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuparse.data import Sentence
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.batches import Batch, batches_by_length, collate, shuffled_batches
from gpuparse.data.vocab import LONGEST_FORM, PAD, ROOT, UNKNOWN, Vocabulary, form_characters

TENSORS = ("lengths", "words", "prefixes", "tags", "feats", "forms", "chars", "heads", "labels")


@pytest.fixture(scope="module")
def treebank():
    return list(artificial_treebank(200, seed=7))


def nodes(batch, lengths):
    """Of a batch, padding counted."""
    return len(batch) * max(lengths[index] + 1 for index in batch)


def check(batches, lengths, budget):
    """Every sentence once; nothing over the budget but sentences by themselves."""
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert batch and (nodes(batch, lengths) <= budget or len(batch) == 1)


some_lengths = st.lists(st.integers(0, 60), max_size=60)


@settings(max_examples=150, deadline=None)
@given(some_lengths, st.integers(1, 200))
def test_by_length(lengths, budget):
    batches = batches_by_length(lengths, budget)
    check(batches, lengths, budget)
    ordered = [lengths[index] for batch in batches for index in batch]
    assert ordered == sorted(lengths)
    for batch, after in pairwise(batches):  # no batch could have had one more
        assert nodes([*batch, after[0]], lengths) > budget


@settings(max_examples=150, deadline=None)
@given(some_lengths, st.integers(1, 200), st.integers(0, 2**63 - 1), st.integers(0, 1000))
def test_shuffled(lengths, budget, seed, epoch):
    batches = shuffled_batches(lengths, budget, seed=seed, epoch=epoch)
    check(batches, lengths, budget)
    assert shuffled_batches(lengths, budget, seed=seed, epoch=epoch) == batches


def test_the_widest_counts_wherever_it_stands():
    """Shuffled batches are sorted roughly only."""
    lengths = np.random.default_rng(0).integers(30, 60, 300).tolist()
    late = 0
    for epoch in range(10):
        batches = shuffled_batches(lengths, 400, seed=0, epoch=epoch)
        check(batches, lengths, 400)
        late += sum(lengths[batch[-1]] < max(lengths[index] for index in batch) for batch in batches)
    assert late > 100


def test_edges():
    assert batches_by_length([2, 2, 1, 2, 1], 6) == [[2, 4], [0, 1], [3]]  # of equal length: their order
    assert batches_by_length([3, 99, 3, 98], 8) == [[0, 2], [3], [1]]  # over the budget: alone
    check(shuffled_batches([3, 99, 3, 98], 8, seed=0, epoch=0), [3, 99, 3, 98], 8)
    assert batches_by_length([], 10) == [] == shuffled_batches([], 10, seed=1, epoch=1)
    for cut in (batches_by_length, partial(shuffled_batches, seed=0, epoch=0)):
        for budget in (0, -1):
            with pytest.raises(ValueError, match=rf"^batch budget: {budget} words; wanted 1 or more$"):
                cut([1], budget)


def test_seed_and_epoch_decide_and_nothing_else(treebank):
    lengths = [len(sentence) for sentence in treebank]
    first = shuffled_batches(lengths, 400, seed=1, epoch=0)
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    for same in (lengths, np.array(lengths)):
        assert shuffled_batches(same, 400, seed=1, epoch=0) == first
    for seed, epoch in ((2, 0), (1, 1), (0, 1)):
        other = shuffled_batches(lengths, 400, seed=seed, epoch=epoch)
        assert other != first
        # Not the same batches in another order: a sentence meets others.
        assert len(set(map(frozenset, first)) & set(map(frozenset, other))) < len(first) / 2


def test_order_is_shuffled_and_padding_little(treebank):
    lengths = [len(sentence) for sentence in treebank]
    batches = shuffled_batches(lengths, 600, seed=1, epoch=0)
    widest = [max(lengths[index] for index in batch) for batch in batches]
    assert widest != sorted(widest) and widest != sorted(widest, reverse=True)
    padded = sum(nodes(batch, lengths) for batch in batches)
    assert padded < 1.25 * sum(length + 1 for length in lengths)
    whole = [[*range(start, min(start + 20, len(lengths)))] for start in range(0, len(lengths), 20)]
    assert padded < 0.75 * sum(nodes(batch, lengths) for batch in whole)  # as they come, it would be much


def test_padded_by_hand():
    see, it, odd = ["VERB", "PRON"], ["PRON", "VERB", "PRON", "VERB"], ["nsubj", "root", "nsubj", "odd"]
    sentences = [
        Sentence.from_words(["see", "it"], see, heads=[0, 1], deprels=["root", "obj"], feats=["M=I|T=P|V=F", "_"]),
        Sentence.from_words(["it", "sees", "it", "go"], it, heads=[2, 0, 4, 2], deprels=odd),
    ]
    vocabulary = Vocabulary.build([sentences[0], sentences[0], sentences[1].with_parse([2, 0, 4, 2], ["nsubj"] * 4)])
    word, tag, label = vocabulary.words, vocabulary.tags, vocabulary.labels
    batch = collate([vocabulary.encode(sentence, tree=True) for sentence in sentences], vocabulary.chars)
    assert len(batch) == 2 and batch.lengths.tolist() == [2, 4]
    assert batch.words.tolist() == [
        [ROOT, word["see"], word["it"], PAD, PAD],
        [ROOT, word["it"], UNKNOWN, word["it"], UNKNOWN],
    ]
    assert batch.prefixes.tolist()[0] == [ROOT, vocabulary.prefixes["see"], vocabulary.prefixes["it"], PAD, PAD]
    assert batch.tags.tolist() == [
        [ROOT, tag["VERB"], tag["PRON"], PAD, PAD],
        [ROOT, tag["PRON"], tag["VERB"], tag["PRON"], tag["VERB"]],
    ]
    bag = [vocabulary.feats[feat] for feat in ("M=I", "T=P", "V=F")]
    empty = [PAD] * 3
    assert batch.feats.tolist() == [
        [[ROOT, PAD, PAD], bag, empty, empty, empty],
        [[ROOT, PAD, PAD], empty, empty, empty, empty],
    ]
    assert batch.forms.tolist() == [[0, 1, 2, 0, 0], [0, 2, 3, 2, 4]]  # each form once
    rows = [vocabulary.chars.numbers(form) for form in ("see", "it", "sees", "go")]
    assert batch.chars.tolist() == [row + [PAD] * (4 - len(row)) for row in [[ROOT], *rows]]
    assert batch.heads.tolist() == [[-1, 0, 1, -1, -1], [-1, 2, 0, 4, 2]]
    root, obj, nsubj = (label.names.index(name) for name in ("root", "obj", "nsubj"))
    assert batch.labels.tolist() == [[-1, root, obj, -1, -1], [-1, nsubj, root, nsubj, -1]]  # odd: never seen
    assert batch.texts == [["", "see", "it"], ["", "it", "sees", "it", "go"]]
    for name in TENSORS:
        assert getattr(batch, name).dtype == torch.int64


def test_a_batch_has_what_its_examples_have(treebank, vocabulary):
    """Whatever is batched with whatever: each sentence as it is, padding beyond."""
    examples = [vocabulary.encode(sentence, tree=True) for sentence in treebank[:25]]
    batch = collate(examples, vocabulary.chars)
    assert batch.words.shape == (25, 1 + max(map(len, treebank[:25])))
    for number, example in enumerate(examples):
        end = example.length + 1
        for name, padding in (("words", 0), ("prefixes", 0), ("tags", 0), ("heads", -1), ("labels", -1)):
            row = getattr(batch, name)[number]
            assert row[:end].tolist() == getattr(example, name).tolist(), name
            assert (row[end:] == padding).all(), name
        assert not batch.feats[number, end:].any()
        for bag, expected in zip(batch.feats[number].tolist(), example.feats, strict=False):
            assert bag == expected + [PAD] * (len(bag) - len(expected))
        assert not batch.forms[number, end:].any()
        for row, form in zip(batch.forms[number, :end].tolist(), example.forms, strict=True):
            expected = vocabulary.chars.numbers(form_characters(form)) if form else [ROOT]
            found = batch.chars[row].tolist()
            assert found == expected + [PAD] * (len(found) - len(expected))
    assert len(batch.chars) == len({form for example in examples for form in example.forms})


def form_rows(vocabulary, *words):
    batch = collate([vocabulary.encode(Sentence.from_words(words))], vocabulary.chars)
    return batch.chars[batch.forms[0, 1:]].tolist(), batch.chars.shape[1]


def test_long_forms_are_cut_in_the_middle(vocabulary):
    a, b, c = vocabulary.chars.to_json()[:3]
    half = LONGEST_FORM // 2
    (long, short), width = form_rows(vocabulary, a * half + b * 1000 + c * half, b)
    assert width == LONGEST_FORM
    assert long == [vocabulary.chars[a]] * half + [vocabulary.chars[c]] * half
    assert short == [vocabulary.chars[b]] + [PAD] * (LONGEST_FORM - 1)


def test_forms_alike_at_both_ends_are_forms_of_their_own(vocabulary):
    a, b = vocabulary.chars.to_json()[:2]
    forms = [a * 16 + b * n + a * 16 for n in (10, 20)]
    example = vocabulary.encode(Sentence.from_words(forms))
    batch = collate([example], vocabulary.chars)
    assert batch.forms.tolist() == [[0, 1, 2]] and batch.texts == [["", *forms]]


def test_unknown_characters(vocabulary):
    known = vocabulary.chars.to_json()[0]
    rows, width = form_rows(vocabulary, "\U0001f600", known + "日\u0301", "<☃")
    assert width == 3 and PAD not in rows[2][:2]
    assert rows[:2] == [[UNKNOWN, PAD, PAD], [vocabulary.chars[known], UNKNOWN, UNKNOWN]]  # an emoji is one character


def test_heads_only_if_all_have_them(vocabulary, treebank):
    given, bare = vocabulary.encode(treebank[0], tree=True), vocabulary.encode(treebank[1])
    assert collate([given], vocabulary.chars).heads is not None
    for examples in ([bare], [given, bare], [bare, given]):
        batch = collate(examples, vocabulary.chars)
        assert batch.heads is None and batch.labels is None


def test_nothing_to_pad(vocabulary):
    batch = collate([], vocabulary.chars)
    assert len(batch) == 0 and batch.words.shape == (0, 1) and batch.lengths.shape == (0,)
    only_root = collate([vocabulary.encode(Sentence.from_words([]))], vocabulary.chars)
    assert only_root.words.tolist() == [[ROOT]] and only_root.lengths.tolist() == [0]
    assert only_root.feats.tolist() == [[[ROOT]]] and only_root.chars.tolist() == [[ROOT]]


def test_moved_whole(vocabulary, treebank):
    batch = collate([vocabulary.encode(sentence, tree=True) for sentence in treebank[:3]], vocabulary.chars)
    moved = batch.to("meta")
    assert isinstance(moved, Batch) and moved.texts == batch.texts
    for name in TENSORS:
        assert getattr(moved, name).device.type == "meta" and getattr(batch, name).device.type == "cpu"
        assert getattr(moved, name).shape == getattr(batch, name).shape
    bare = collate([vocabulary.encode(treebank[0])], vocabulary.chars).to("meta")
    assert bare.heads is None and bare.labels is None
    same = batch.to("cpu")
    assert all(torch.equal(getattr(same, name), getattr(batch, name)) for name in TENSORS)
