"""Vocabularies: what is counted, what numbers stand for, and the way through JSON."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from gpuparse.data import ConlluError, Sentence, vocab
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.vocab import LONGEST_FORM, PAD, RESERVED, ROOT, UNKNOWN, Index, Vocabulary
from tests.refusals import refusal


def tree(words, heads, deprels, upos=None, feats=None):
    return Sentence.from_words(words, upos, heads=heads, deprels=deprels, feats=feats)


SMALL = [
    tree(["the", "dogs", "bark"], [2, 3, 0], ["det", "nsubj", "root"], ["DET", "NOUN", "VERB"], ["_", "A=1|B=2", "_"]),
    tree(["the", "dog"], [2, 0], ["det", "root"], ["DET", "NOUN"], ["C=1", "A=1"]),
    tree(["barking", "the"], [0, 1], ["root", "root"], ["VERB", "DET"]),
]


@pytest.fixture(scope="module")
def treebank():
    return list(artificial_treebank(60, seed=5))


def test_an_index():
    index = Index(["b", "a"])
    assert (PAD, UNKNOWN, ROOT) == (0, 1, 2) and len(RESERVED) == 3
    assert len(index) == 5 and index.names == [*RESERVED, "b", "a"]
    assert [index["b"], index["a"], index["c"]] == [3, 4, UNKNOWN]
    assert "a" in index and "c" not in index
    assert index.numbers(["a", "c", "b"]) == [4, UNKNOWN, 3]
    assert index.numbers("ac", missing=-1) == [4, -1]
    assert index.to_json() == ["b", "a"]
    # Words that look like reserved names are not those.
    assert [index[name] for name in RESERVED] == [UNKNOWN] * 3 and not any(name in index for name in RESERVED)
    index = Index(["<root>", "<pad>"])
    assert (index["<root>"], index["<pad>"], index["<unknown>"]) == (3, 4, UNKNOWN)
    assert Index(index.to_json()).names == index.names


def test_counted_by_frequency_then_alphabet():
    counted = Counter({"b": 2, "z": 9, "a": 2, "ä": 2, "c": 1})
    assert Index.count(counted).to_json() == ["z", "a", "b", "ä", "c"]
    assert Index.count(counted, min_count=2).to_json() == ["z", "a", "b", "ä"]
    assert Index.count(counted, reserved=()).names == ["z", "a", "b", "ä", "c"]
    assert Index.count(Counter()).names == list(RESERVED)


def test_what_is_counted():
    vocabulary = Vocabulary.build(SMALL, min_count=2)
    assert vocabulary.words.to_json() == ["the"]
    assert vocabulary.prefixes.to_json() == ["the"]
    assert vocabulary.tags.to_json() == ["DET", "NOUN", "VERB"]
    assert vocabulary.feats.to_json() == ["A=1", "B=2", "C=1"]
    # e g h t 3 times, a b d k o r twice; s i n once
    assert vocabulary.chars.to_json() == ["e", "g", "h", "t", "a", "b", "d", "k", "o", "r"]
    assert vocabulary.labels.names == ["root", "det", "nsubj"]  # no reserved names among labels
    assert vocabulary.root_labels == [(True, True), (False, True), (False, True)]


def test_rare_words_by_min_count():
    vocabulary = Vocabulary.build(SMALL, min_count=1)
    assert vocabulary.words.to_json() == ["the", "bark", "barking", "dog", "dogs"]
    assert vocabulary.prefixes.to_json() == ["the", "bark", "barki", "dog", "dogs"]
    assert set("dogsbarkingthe") == set(vocabulary.chars.to_json())
    rare = Vocabulary.build(SMALL, min_count=99)
    assert rare.words.to_json() == []
    for name in ("tags", "feats", "labels"):  # all are kept: there are few of them
        assert getattr(rare, name).names == getattr(vocabulary, name).names


def test_counts_of_a_treebank(treebank):
    vocabulary = Vocabulary.build(treebank, min_count=3)
    assert Vocabulary.build(reversed(treebank), min_count=3).to_json() == vocabulary.to_json()
    assert len(vocabulary.labels) > 10 and vocabulary.feats.to_json()
    words = Counter(word for sentence in treebank for word in sentence.words)
    assert set(vocabulary.words.to_json()) == {word for word, times in words.items() if times >= 3}
    chars = Counter(char for sentence in treebank for word in sentence.words for char in word)
    assert set(vocabulary.chars.to_json()) == {char for char, times in chars.items() if times >= 3}
    feats = {feat for sentence in treebank for bag in sentence.feats if bag != "_" for feat in bag.split("|")}
    assert set(vocabulary.feats.to_json()) == feats
    by_root = {(label, head == 0) for one in treebank for label, head in zip(one.deprels, one.heads, strict=True)}
    for label, (root, other) in zip(vocabulary.labels.names, vocabulary.root_labels, strict=True):
        assert (root, other) == ((label, True) in by_root, (label, False) in by_root)
    assert (True, False) in vocabulary.root_labels and (False, True) in vocabulary.root_labels


def test_a_sentence_in_numbers():
    vocabulary = Vocabulary.build(SMALL, min_count=1)
    given = tree(
        ["the", "dogsled", "barks"], [2, 3, 0], ["det", "obl", "root"], ["DET", "X", "VERB"], ["_", "Z=9|A=1", "C=1"]
    )
    found = vocabulary.encode(given, tree=True)
    assert found.length == 3
    assert found.words.tolist() == [ROOT, vocabulary.words["the"], UNKNOWN, UNKNOWN]
    assert found.prefixes.tolist() == [ROOT, vocabulary.prefixes["the"], UNKNOWN, UNKNOWN]  # dogsl, barks
    assert found.tags.tolist() == [ROOT, vocabulary.tags["DET"], UNKNOWN, vocabulary.tags["VERB"]]
    assert found.feats == [[ROOT], [], [UNKNOWN, vocabulary.feats["A=1"]], [vocabulary.feats["C=1"]]]
    assert found.forms == ["", "the", "dogsled", "barks"]
    assert found.heads.tolist() == [-1, 2, 3, 0]
    assert found.labels.tolist() == [-1, 1, -1, 0]  # a label that training never saw is none
    for array in (found.words, found.prefixes, found.tags, found.heads, found.labels):
        assert array.dtype == np.int64
    assert vocabulary.prefixes["barki"] == vocabulary.encode(Sentence.from_words(["barkission"])).prefixes[1]


def test_without_a_tree_heads_are_not_looked_at():
    vocabulary, bare = Vocabulary.build(SMALL), Sentence.from_words(["the", "dog"])
    found = vocabulary.encode(bare)
    assert found.heads is None and found.labels is None and found.length == 2
    for wants_heads in (lambda: vocabulary.encode(bare, tree=True), lambda: Vocabulary.build([bare])):
        with pytest.raises(ConlluError, match="word 1 has no HEAD"):
            wants_heads()


def test_ranges_and_empty_nodes_are_no_words():
    text = "1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n"
    for number, word in (("1", "de"), ("2", "le"), ("2.1", "x")):
        head = "_" if "." in number else str(int(number) - 1)
        text += f"{number}\t{word}\t_\tX\t_\t_\t{head}\tdep\t_\t_\n"
    vocabulary = Vocabulary.build(SMALL)
    found = vocabulary.encode(Sentence(text + "\n"), tree=True)
    assert found.forms == ["", "de", "le"] and found.heads.tolist() == [-1, 0, 1]
    found = vocabulary.encode(Sentence.from_words([]), tree=True)
    assert found.length == 0 and found.words.tolist() == [ROOT] and found.heads.tolist() == [-1]


def test_features():
    vocabulary = Vocabulary.build(SMALL)
    one, two = (vocabulary.encode(SMALL[0]).feats for _ in range(2))  # kept for the next sentence: each has its own
    assert one == two == [[ROOT], [], [vocabulary.feats["A=1"], vocabulary.feats["B=2"]], []]
    for feats, wanted in (("_", []), ("Case=Nom|Number=Sing", ["Case=Nom", "Number=Sing"]), ("C=A,D", ["C=A,D"])):
        assert vocab.split_feats(feats) == wanted


@pytest.mark.parametrize("length", [0, 1, *range(LONGEST_FORM - 1, LONGEST_FORM + 3), 500])
def test_of_long_forms_both_ends(length):
    form = "".join(chr(0x4E00 + place) for place in range(length))
    half = LONGEST_FORM // 2
    assert vocab.form_characters(form) == (form if length <= LONGEST_FORM else form[:half] + form[length - half :])


def test_round_trip(treebank):
    odd = tree(["<pad>", "a\u2028b", "\U0001f600", "<pad>", "a\u2028b"], [0, 1, 1, 1, 1], ["root"] * 5)
    vocabulary = Vocabulary.build([*treebank, odd])
    text = json.dumps(vocabulary.to_json(), allow_nan=False)
    again = Vocabulary.from_json(json.loads(text))
    assert again.to_json() == vocabulary.to_json()
    assert again.root_labels == vocabulary.root_labels and again.labels.names == vocabulary.labels.names
    unseen = Sentence.from_words(["never", "seen", "<root>"], ["Q"] * 3, heads=[0, 1, 1], deprels=["x"] * 3)
    for sentence in [*treebank[:10], odd, unseen]:
        one, two = (each.encode(sentence, tree=True) for each in (vocabulary, again))
        np.testing.assert_equal(tuple(one), tuple(two))


def test_json_that_is_no_vocabulary():
    saved = Vocabulary.build(SMALL).to_json()
    for name in saved:
        with pytest.raises(ValueError, match=f"^{name} is missing$"):
            Vocabulary.from_json({key: value for key, value in saved.items() if key != name})
    with pytest.raises(ValueError, match="root_labels"):
        Vocabulary.from_json({**saved, "root_labels": saved["root_labels"][:-1]})


@pytest.mark.parametrize("name", ["words", "prefixes", "tags", "feats", "chars", "labels"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, " is None; wanted a list of strings"),
        ("abc", " is 'abc'; wanted a list of strings"),
        ({"a": 1}, " is {'a': 1}; wanted a list of strings"),
        (["a", None], r"[1] is None; wanted a string"),
        ([["a"]], r"[0] is ['a']; wanted a string"),
        (["a", 1, "b"], r"[1] is 1; wanted a string"),
        (["b", "a", "b"], ": 'b' is there 2 times"),
        (["a", "\ud800"], r": '\ud800' has half a surrogate pair"),
    ],
)
def test_names_of_strangers(name, wrong, message):
    saved = Vocabulary.build(SMALL).to_json()
    assert refusal(Vocabulary.from_json, {**saved, name: wrong}) == name + message


@pytest.mark.parametrize("label", ["", "a\tb", "a\nb", "\x00", "a\x1b[31m", "\x85", "\u2028"])
def test_labels_that_cannot_be_written(label):
    saved = Vocabulary.build(SMALL).to_json()
    expected = f"labels: {label!r} is not a value of a column, without control characters"
    assert refusal(Vocabulary.from_json, {**saved, "labels": [*saved["labels"][1:], label]}) == expected
    if label and not set(label) & set("\t\n"):  # nor is it learned
        assert refusal(Vocabulary.build, [Sentence.from_words(["a"], heads=[0], deprels=[label])]) == expected
    # Words are only compared.
    Vocabulary.from_json({**saved, "words": [*saved["words"], label]})


def test_no_labels_and_wrong_root_labels():
    saved = Vocabulary.build(SMALL).to_json()
    for changes, message in (
        ({"labels": []}, "labels: there are none"),
        ({"root_labels": None}, "root_labels is None; wanted a list"),
        ({"root_labels": [3]}, "root_labels[0] is 3; wanted two of true and false"),
        ({"root_labels": [[True, None]]}, "root_labels[0] is [True, None]; wanted two of true and false"),
        ({"root_labels": [[1, 0]]}, "root_labels[0] is [1, 0]; wanted two of true and false"),
        ({"root_labels": [[True] * 3]}, "root_labels[0] is [True, True, True]; wanted two of true and false"),
    ):
        assert refusal(Vocabulary.from_json, {**saved, **changes}) == message
    for wrong in (None, [], 3, "x"):
        assert refusal(Vocabulary.from_json, wrong) == f"{wrong!r}; wanted an object"
