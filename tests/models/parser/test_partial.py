"""Partial trees, n-best and probabilities, against all trees of short sentences."""

from __future__ import annotations

import json
import random

import pytest
import torch

from gpuparse.config import ScorerConfig
from gpuparse.data import ConlluError, Sentence
from gpuparse.data.partial import Partial
from gpuparse.data.prediction import Prediction
from tests.models.parser.small import TINY, make
from tests.oracle import all_trees

PAIRS = ScorerConfig(**{**TINY.__dict__, "grandparents": 3, "siblings": 3})


@pytest.fixture(scope="module")
def words(treebank):
    """Sentences of up to five words."""
    return [
        Sentence.from_words(one.words[:n], one.upos[:n], feats=one.feats[:n]) for one in treebank for n in (2, 4, 5)
    ][:24]


def some_partial(count, names, rng):
    """A partial tree that some tree has."""
    trees = all_trees(count, single_root=True, projective=True)
    tree = trees[rng.randrange(len(trees))].tolist()
    known = Partial.nothing(count)
    for word in range(1, count + 1):
        if rng.random() < 0.3:
            known = known.require(tree[word], word)
        elif rng.random() < 0.3:
            others = [head for head in range(count + 1) if head not in (word, tree[word])]
            known = known.forbid(rng.choice(others), word) if others else known
        if rng.random() < 0.3:
            known = known.label(word, rng.choice(names))
    return known


def enumerated(parser, sentence, known, *, projective, single_root):
    """Trees that keep what is known, and their probabilities, by the scores of the parser."""
    names = parser.vocabulary.labels.names
    with torch.inference_mode():
        scored = parser.scorer(parser._batch([sentence]))
    trees = all_trees(len(sentence), single_root=single_root, projective=projective)
    total = scored.scores.total(trees[:, None])[:, 0]
    labels = scored.all_labels()[0].log_softmax(-1).double()
    keep = torch.ones(len(trees), dtype=torch.bool)
    for word, (heads, label) in enumerate(zip(known.heads, known.labels, strict=True), 1):
        if heads is not None:
            keep &= torch.tensor([int(head) in heads for head in trees[:, word]])
        if label is not None and (heads is None or len(heads) > 1):
            total = total + labels[trees[:, word], word, names.index(label)]
    return trees[keep], total[keep].detach().softmax(0)


@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("scorer", [TINY, PAIRS], ids=["arcs", "pairs"])
def test_what_is_given_stays_and_the_rest_is_best(vocabulary, words, scorer, projective):
    parser = make(vocabulary, scorer)
    rng = random.Random(3)
    known = [some_partial(len(one), vocabulary.labels.names, rng) for one in words]
    method = {} if projective or scorer is TINY else {"method": "ppc", "options": {"exact": True}}
    options = {"projective": projective, "single_root": True, **method}
    found = parser.predict(words, partial=known, nbest=4, probabilities=True, marginals=True, **options)
    for sentence, own, one in zip(words, known, found, strict=True):
        trees, share = enumerated(parser, sentence, own, projective=projective, single_root=True)
        order = share.argsort(descending=True, stable=True)
        assert one.heads == trees[order[0], 1:].tolist()
        for label, kept in zip(one.deprels, own.labels, strict=True):
            assert kept in (None, label)
        assert [tree.heads for tree in one.alternatives] == [trees[k, 1:].tolist() for k in order[:4]]
        if one.estimated:  # an estimate is near, and what is impossible is not possible by it
            assert not projective and scorer is PAIRS
            assert all(p < 1e-6 for heads, p in unlike(one, own))
            continue
        assert one.probability == pytest.approx(float(share.max()), abs=2e-5)
        for tree, k in zip(one.alternatives, order, strict=False):
            assert tree.probability == pytest.approx(float(share[k]), abs=2e-5)
        marginals = torch.zeros(len(sentence) + 1, len(sentence) + 1, dtype=torch.float64)
        for tree, p in zip(trees, share, strict=True):
            marginals[tree[1:], torch.arange(1, len(sentence) + 1)] += p
        torch.testing.assert_close(torch.tensor(one.marginals).double(), marginals, atol=2e-5, rtol=0)
        entropy = -(share * share.log().clamp(min=-1e9)).sum()
        assert one.entropy == pytest.approx(float(entropy), abs=1e-4)
        assert one.confidence == pytest.approx([float(marginals[h, m]) for m, h in enumerate(one.heads, 1)], abs=2e-5)


def unlike(prediction, known):
    """Marginals of arcs that may not be."""
    for word, heads in enumerate(known.heads, 1):
        if heads is not None:
            for head in range(len(known.heads) + 1):
                if head not in heads:
                    yield head, prediction.marginals[head][word]


def test_columns_are_kept_to_the_byte(vocabulary, words):
    parser = make(vocabulary)
    text = (
        "# sent_id = x\n1\tShe\t_\tPRON\t_\t_\t_\tnsubj\t_\tHeads=2\n2\tsaw\t_\tVERB\t_\t_\t_\t_\t_\tA=b\r\n"
        "3\thim\t_\tPRON\t_\t_\t2\tunheard:of\t_\t_\n\n"
    )
    given = Sentence(text, "f.conllu", 7)
    (found,) = parser.parse([given], partial=True)
    assert found.heads[0] == 2 and found.heads[2] == 2 and found.deprels[0] == "nsubj"
    assert found.deprels[2] == "unheard:of"  # which the parser does not know
    fields = [line.split("\t") for line in found.text.split("\n")]
    for before, after in zip([line.split("\t") for line in text.split("\n")], fields, strict=True):
        assert [x for k, x in enumerate(before) if k not in (6, 7)] == [
            x for k, x in enumerate(after) if k not in (6, 7)
        ]
    (again,) = parser.parse([found], partial=True)
    assert again.text == found.text  # nothing is open any more
    twice = parser.predict([given, given], partial=[Partial.nothing(3).require(3, 2), Partial.nothing(3).require(1, 2)])
    assert twice[0].heads[1] == 3 and twice[1].heads[1] == 1  # one sentence, two starts


def test_an_impossible_start_is_named(vocabulary):
    parser = make(vocabulary)
    sentence = Sentence.from_words(["a", "b", "c"], heads=[2, 1, None], source="f.conllu", line=9)
    with pytest.raises(ConlluError, match=r"^f.conllu:9: heads of words 1 and 2 make a cycle: 1 -> 2 -> 1$"):
        parser.predict([sentence], partial=True)
    ring = Partial((frozenset({2, 3}), frozenset({1, 3}), frozenset({1, 2}), frozenset({0})), (None,) * 4)
    four = Sentence.from_words(["a", "b", "c", "d"], source="f.conllu", line=2)
    with pytest.raises(
        ConlluError, match=r"^f.conllu:2: no tree has the heads that are given; leave some of them open$"
    ):
        parser.predict([four], partial=[ring])
    for wrong in ([], [Partial.nothing(3)], "yes", [None]):
        with pytest.raises(ValueError, match="partial"):
            parser.predict([four], partial=wrong)
    for nbest in (-1, 65, True, 1.0):
        with pytest.raises(ValueError, match="nbest must be a whole number from 0 to 64"):
            parser.predict([four], nbest=nbest)


def test_given_labels_under_constraints(vocabulary, words):
    from gpuparse import lp

    parser = make(vocabulary)
    name = vocabulary.labels.names[1]
    four = [one for one in words if len(one) == 4]
    known = [Partial.nothing(4).label(2, name) for _ in four]
    rule = [lp.Unique(frozenset({name}))]
    found = parser.predict(four, partial=known, constraints=rule)
    assert found.counts["infeasible"] == 0
    for one in found:
        assert one.deprels[1] == name
        marked = [head for head, label in zip(one.heads, one.deprels, strict=True) if label == name]
        assert len(set(marked)) == len(marked)
    with pytest.raises(ValueError, match="without regard to constraints"):
        parser.predict(four, nbest=2, constraints=rule)


def test_written_out(vocabulary, words):
    parser = make(vocabulary)
    (before,) = parser.predict(words[2:3], nbest=3, probabilities=True)
    texts = before.each_filled(words[2], confidence=True)
    assert [one.comment("nbest") for one in texts] == ["1/3", "2/3", "3/3"]
    assert [one.heads for one in texts] == [tree.heads for tree in before.alternatives]
    assert [one.comment("tree_probability") for one in texts] == [f"{x.probability:.4g}" for x in before.alternatives]
    filled = before.fill(words[2], confidence=True)
    assert filled.comment("entropy") == f"{before.entropy:.4g}"
    assert all("Confidence=" in misc and "|LabelConfidence=" in misc for misc in filled.misc)
    plain = Prediction(before.heads, before.deprels).fill(filled)
    assert plain.comment("tree_probability") is None is plain.comment("entropy")  # they were of another parse
    record = json.loads(json.dumps(before.record(words[2])))
    assert record["heads"] == before.heads and len(record["trees"]) == 3 and record["words"] == words[2].words
    assert (
        before.each_filled(words[2])[0].text != Prediction([0], ["x"]).each_filled(Sentence.from_words(["a"]))[0].text
    )
