"""What taggers read: tag sets, features, vocabularies, batches."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from gpuparse.data import Sentence
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.tagging import TAG_SETS, TagSet, TagVocabulary, collate_tags
from gpuparse.data.tagging.features import ATOMS, NAMES, PAIRS, SINGLE, Features, atoms, shape
from tests.refusals import refusal


@pytest.fixture(scope="module")
def treebank():
    return list(artificial_treebank(30, seed=3))


@pytest.mark.parametrize("name", TAG_SETS)
def test_tags_there_and_back(treebank, name):
    tag_set = TagSet(name)
    for sentence in treebank:
        bare = sentence.with_tags(upos=["X"] * len(sentence), xpos=["Y"] * len(sentence), feats=["_"] * len(sentence))
        filled = tag_set.fill(bare, tag_set.tags(sentence))
        for column in ("upos", "xpos", "feats"):
            source = sentence if column in tag_set.columns else bare
            assert getattr(filled, column) == getattr(source, column)
        assert (filled.heads, filled.misc, filled.comments) == (sentence.heads, sentence.misc, sentence.comments)


def test_to_the_byte():
    words = "1\ta\t_\tX\tx\t_\t0\troot\t_\tA=b\r\n2\tb\t_\tX\tx\t_\t1\td\t_\t_\r\n\r\n"
    text = f"# c\r\n1-2\tab\t_\t_\t_\t_\t_\t_\t_\t_\r\n{words}"
    filled = TagSet("upos+feats").fill(Sentence(text), ["NOUN\tCase=Nom|Number=Sing", "PUNCT\t_"])
    new = text.replace("\ta\t_\tX\tx\t_\t", "\ta\t_\tNOUN\tx\tCase=Nom|Number=Sing\t").replace("b\t_\tX", "b\t_\tPUNCT")
    assert filled.text == new
    assert filled.upos == ["NOUN", "PUNCT"]  # not split anew
    empty = Sentence("# nothing but this\n\n")
    assert TagSet("upos+feats").fill(empty, []).text == empty.text


def test_columns_that_are_wrong_or_empty(treebank):
    sentence = Sentence.from_words(["a", "b"])
    with pytest.raises(ValueError, match="xpos: 1 for 2 words"):
        sentence.with_tags(xpos=["X"])
    with pytest.raises(ValueError, match=r"upos: 'X\\tY' of word 2"):
        sentence.with_tags(upos=["X", "X\tY"])
    bare = [Sentence.from_words(one.words, one.upos, feats=one.feats) for one in treebank]
    for name in ("upos", "upos+feats"):
        TagSet(name).check(bare, "a.conllu")
    with pytest.raises(ValueError, match=r"^a\.conllu: the XPOS column is empty and data\.tags is 'xpos'; set it to"):
        TagSet("xpos").check(bare, "a.conllu")
    with pytest.raises(ValueError, match=r"data\.tags is 'lemma'; wanted one of"):
        TagSet("lemma")


def test_shapes_and_atoms():
    found = {form: shape(form) for form in ("McDonald-2012", "a", "ÄÖü", "U.S.", "...", "3rd", "")}
    assert found == {"McDonald-2012": "XxXx-d", "a": "x", "ÄÖü": "Xx", "U.S.": "X.X.", "...": ".", "3rd": "dx", "": ""}
    found = dict(zip(ATOMS, atoms("Spanish"), strict=True))
    assert (found["form"], found["lower"], found["prefix3"], found["suffix3"]) == ("Spanish", "spanish", "spa", "ish")
    short = dict(zip(ATOMS, atoms("an"), strict=True))
    assert (short["prefix1"], short["prefix2"], short["suffix1"], short["suffix2"]) == ("a", "", "n", "")


def plain_features(words):
    """Every feature of every word, one at a time."""
    rows = []
    for place in range(len(words)):
        row = []
        for template in (*SINGLE, *PAIRS):
            parts = []
            for atom, offset in template:
                inside = 0 <= place + offset < len(words)
                parts.append(atoms(words[place + offset])[atom] if inside else "")
            row.append("\t".join(parts))
        rows.append(row)
    return rows


def test_features_are_those_of_a_plain_loop(treebank):
    words = [one.words for one in treebank]
    features = Features.build(words, min_count=2)
    listed = [[name, value] for name, values in features.to_json().items() for value in values]
    assert len(listed) == features.count - 1
    counts = {}
    for sentence in words:
        for row in plain_features(sentence):
            for feature in zip(NAMES, row, strict=True):
                counts[feature] = counts.get(feature, 0) + 1
    assert {tuple(one) for one in listed} == {feature for feature, times in counts.items() if times >= 2}
    unseen = [["Zebras", "unseen", *words[0]], ["x"]]
    for sentence in [*words, *unseen]:
        found = features(sentence)
        assert found.shape == (len(sentence), len(NAMES))
        for rows, expected in zip(found.tolist(), plain_features(sentence), strict=True):
            for row, name, value in zip(rows, NAMES, expected, strict=True):
                assert listed[row - 1] == [name, value] if row else counts.get((name, value), 0) < 2


def test_the_commonest_features_are_kept(treebank):
    words = [one.words for one in treebank]
    whole, some = Features.build(words), Features.build(words, most=64)
    assert whole.count > 64 == some.count
    assert all(set(few) <= set(all_) for few, all_ in zip(some.values, whole.values, strict=True))
    assert some.to_json()["shape"]  # the commonest are those of few values


def test_features_do_not_depend_on_what_was_seen_before(treebank, monkeypatch):
    words = [one.words for one in treebank]
    features = Features.build(words)
    expected = [features(one) for one in words]
    monkeypatch.setattr("gpuparse.data.tagging.features._CACHED", 3)
    forgetful = Features.from_json(json.loads(json.dumps(features.to_json())))
    for one, rows in zip(reversed(words), reversed(expected), strict=True):
        assert np.array_equal(forgetful(one), rows)


def test_other_templates():
    saved = Features.build([["a"]], min_count=1).to_json()
    for wrong, message in (
        *((each, "other templates") for each in ({}, {**saved, "more": []}, dict(reversed(saved.items())))),
        *((each, "wanted an object of templates") for each in (None, [], 3)),
        ({**saved, "shape": None}, r"^features\['shape'\] is None; wanted a list of strings$"),
        ({**saved, "shape": [None]}, r"^features\['shape'\]\[0\] is None; wanted a string$"),
        ({**saved, "shape": ["a", "a"]}, r"^features\['shape'\]: 'a' is there 2 times$"),
    ):
        with pytest.raises(ValueError, match=message):
            Features.from_json(wrong)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tags": None}, "tags is None; wanted a list of strings"),
        ({"tags": [None]}, "tags[0] is None; wanted a string"),
        ({"tags": []}, "tags: there are none"),
        ({"tags": ["A", "A"]}, "tags: 'A' is there 2 times"),
        ({"tags": ["A\tB"]}, "tags: 'A\\tB' is not a value of a column, without control characters"),
        ({"tags": ["\x1b"]}, "tags: '\\x1b' is not a value of a column, without control characters"),
        (
            {"tag_set": "upos+feats", "tags": ["A\tB", "A"]},
            "tags: 'A' is not the values of 2 columns, a tab between them, without control characters",
        ),
        ({"tag_set": None}, "data.tags is None; wanted one of 'xpos', 'upos', 'upos+feats'"),
        ({"tag_set": ["upos"]}, "data.tags is ['upos']; wanted one of 'xpos', 'upos', 'upos+feats'"),
        ({"words": 3}, "words is 3; wanted a list of strings"),
        ({"features": 3}, "features is 3; wanted an object of templates"),
    ],
)
def test_vocabularies_of_strangers(changes, message):
    saved = {"tag_set": "upos", "tags": ["A"], "words": ["a"], "chars": ["a"], "features": None}
    TagVocabulary.from_json(saved)
    with pytest.raises(ValueError, match="tags: there are none"):
        TagVocabulary.build([], "upos")
    assert refusal(TagVocabulary.from_json, {**saved, **changes}) == message


@pytest.mark.parametrize("features", [0, 4096])
@pytest.mark.parametrize("name", TAG_SETS)
def test_vocabulary(treebank, name, features):
    vocabulary = TagVocabulary.build(treebank[:20], name, features=features)
    again = TagVocabulary.from_json(json.loads(json.dumps(vocabulary.to_json())))
    assert again.to_json() == vocabulary.to_json()
    assert set(vocabulary.tags.names) == {tag for one in treebank[:20] for tag in TagSet(name).tags(one)}
    for sentence in treebank:
        example, other = vocabulary.encode(sentence, gold=True), again.encode(sentence, gold=True)
        assert example.length == len(sentence) == len(example.gold)
        expected = [
            vocabulary.tags.names.index(tag) if tag in vocabulary.tags else -1 for tag in TagSet(name).tags(sentence)
        ]
        assert example.gold.tolist() == other.gold.tolist() == expected
        assert example.words.tolist() == other.words.tolist()
        assert (example.features is None) == (not features)
        if features:
            assert np.array_equal(example.features, other.features)
    assert vocabulary.encode(treebank[0]).gold is None
    bare = TagVocabulary.build(treebank[:20], name, words=False, features=features)
    assert len(bare.words) == len(bare.chars) == 3  # what is reserved


def test_batches(treebank):
    vocabulary = TagVocabulary.build(treebank, "upos", features=1024)
    examples = [vocabulary.encode(one, gold=True) for one in treebank[:4]]
    batch = collate_tags(examples, vocabulary.chars)
    longest = max(map(len, treebank[:4]))
    assert len(batch) == 4 and batch.lengths.tolist() == [len(one) for one in treebank[:4]]
    assert batch.words.shape == batch.forms.shape == (4, longest + 1)
    assert batch.features.shape == (4, longest, len(NAMES)) and batch.gold.shape == (4, longest)
    for row, example in enumerate(examples):
        assert batch.gold[row].tolist() == [*example.gold.tolist(), *[-1] * (longest - example.length)]
        assert np.array_equal(batch.features[row, : example.length], example.features)
        assert not batch.features[row, example.length :].any()
        assert batch.texts[row] == ["", *treebank[row].words]
    moved = batch.to("cpu")
    assert type(moved) is type(batch) and torch.equal(moved.gold, batch.gold)
    mixed = collate_tags([examples[0], vocabulary.encode(treebank[1])], vocabulary.chars)
    assert mixed.gold is None
    without = TagVocabulary.build(treebank, "upos")
    assert collate_tags([without.encode(treebank[0])], without.chars).features is None
