"""Labelled brackets: what counts as a phrase, and the figures."""

from __future__ import annotations

import io
import json
import random

import pytest

from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.binary import binarise
from gpuparse.data.brackets import Constituent, read_brackets
from gpuparse.data.constituents import lexicalise_sentence
from gpuparse.evaluate import bracket_scores
from gpuparse.evaluate.brackets import phrases

GOLD = "(S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (NP (NN fish)) (PP (IN on) (NP (NNS trees))))) (. .))"
OTHER = "(S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (NN fish)) (PP (IN on) (NP (VBZ trees)))) (. .))"


def read(text):
    (tree,) = read_brackets(io.StringIO(text))
    return tree


def test_by_hand():
    scores = bracket_scores([read(GOLD), read(GOLD)], [read(OTHER), read(GOLD)])
    # GOLD has S NP VP NP NP PP NP; OTHER lacks the NP of "fish on trees".
    assert (scores.labelled.correct, scores.labelled.gold, scores.labelled.system) == (13, 14, 13)
    assert scores.labelled.precision == 1
    assert scores.labelled.recall == 13 / 14
    assert scores.labelled.f1 == pytest.approx(26 / 27)
    assert (scores.exact.correct, scores.exact.gold) == (1, 2)
    assert (scores.tags.correct, scores.tags.gold) == (13, 14)
    json.dumps(scores.to_json())
    scores = bracket_scores([read("(S (NP (NN a) (NN b)) (VB c))")], [read("(S (VP (NN a) (NN b)) (VB c))")])
    assert (scores.labelled.correct, scores.unlabelled.correct, scores.exact.correct) == (1, 2, 0)
    scores = bracket_scores([read(GOLD), read(GOLD)], [None, read(GOLD)])  # one without a parse
    assert (scores.labelled.correct, scores.labelled.gold, scores.labelled.system) == (7, 14, 7)
    assert (scores.exact.correct, scores.exact.gold, scores.exact.system) == (1, 2, 1)


def test_chains_and_parts():
    """A binary tree has the phrases of the tree that it was made of."""
    for text in (GOLD, OTHER, "(S (VP (VP (VB go))))"):
        assert phrases(binarise(read(text))) == phrases(read(text))
    assert phrases(read("(S (VP (VP (VB go))))")) == {(0, 0, "S"): 1, (0, 0, "VP"): 2}
    scores = bracket_scores([read("(S (VP (VP (VB go))))")], [read("(S (VP (VB go)))")])
    assert (scores.labelled.correct, scores.labelled.gold, scores.labelled.system) == (2, 3, 2)


def test_treebank():
    """Against phrases counted one by one, by the words that they are above."""
    shuffled = random.Random(1)
    gold = [lexicalise_sentence(sentence).tree for sentence in artificial_treebank(40, seed=6)]
    system = []
    for tree in gold:
        n = len(tree.words)
        words = [Constituent(tag, word=word) for tag, word in zip(tree.tags, tree.words, strict=True)]
        while len(words) > 1:
            k = shuffled.randrange(len(words) - 1)
            words[k : k + 2] = [Constituent(shuffled.choice(["NOUN*", "VERB*"]), tuple(words[k : k + 2]))]
        assert len(words[0].words) == n
        system.append(words[0])

    def listed(tree, start=0):
        if tree.word is None:
            yield (start, start + len(tree.words) - 1, tree.label)
        for child in tree.children:
            yield from listed(child, start)
            start += len(child.words)

    right = sum(len(set(listed(a)) & set(listed(b))) for a, b in zip(gold, system, strict=True))
    scores = bracket_scores(gold, system)
    assert scores.labelled.correct == right > 0
    assert scores.labelled.gold == scores.labelled.system == sum(len(tree.words) - 1 for tree in gold)
    same = bracket_scores(gold, gold)
    assert same.labelled.f1 == same.unlabelled.f1 == same.exact.f1 == same.tags.f1 == 1


def test_errors():
    with pytest.raises(ValueError, match=r"^system: 0 trees for 1 sentences"):
        bracket_scores([read(GOLD)], [])
    with pytest.raises(ValueError, match=r"^system: sentence 1 has 1 words and 7 are wanted"):
        bracket_scores([read(GOLD)] * 2, [None, read("(S (NN a))")])
