"""The tagger: what it takes and gives, what is kept in its directory, what is refused."""

from __future__ import annotations

import json

import pytest
import torch

from gpuparse.data import ConlluError, Sentence
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.tagging import TAG_SETS, TagSet
from gpuparse.data.vocab import Vocabulary
from gpuparse.models.parser import Parser
from gpuparse.models.tagger import Tagger
from gpuparse.structures.tags import chain_scores
from gpuparse.train.tagging import tag_vocabulary
from tests.models.made import FILES, lively, refused
from tests.train.small import config


@pytest.fixture(scope="module")
def treebank():
    return list(artificial_treebank(25, seed=5))


def make(treebank, *overrides):
    settings = config("task=tag", *overrides)
    return lively(Tagger.new(settings, tag_vocabulary(settings, treebank)))


@pytest.fixture(scope="module", params=["templates", "bilstm", "bilstm+templates"])
def tagger(request, treebank):
    return make(treebank, f"scorer.kind={request.param}", "data.tags=upos+feats")


@pytest.mark.parametrize("name", TAG_SETS)
def test_columns(treebank, name):
    tagger = make(treebank, f"data.tags={name}")
    for before, after in zip(treebank, tagger.tag(treebank), strict=True):
        assert set(TagSet(name).tags(after)) <= set(tagger.tags)
        assert TagSet(name).fill(after, TagSet(name).tags(before)).text == before.text  # all else is as it was


def test_ways_to_give_sentences(tagger, treebank):
    words = [one.words for one in treebank]
    expected = tagger.predict(treebank)
    assert len({tuple(tags) for tags in expected}) > len(treebank) / 2
    assert [list(map(len, words))] == [list(map(len, expected))]
    for given in (words, map(tuple, words), [[(word, "X") for word in one] for one in words]):
        assert tagger.predict(given) == expected
    assert [one.upos for one in tagger.tag(words)] == [[tag.split("\t")[0] for tag in tags] for tags in expected]
    assert tagger.predict([]) == tagger.tag([]) == []
    comments = Sentence("# only this\n\n")
    assert tagger.predict([comments, treebank[0]]) == [[], expected[0]]
    assert tagger.tag([comments])[0].text == comments.text


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        (["a b"], "sentence 0 is a string; wanted a list of words"),
        ([["a"], [1]], "sentence 1 is neither words nor"),
        ([["a", ""]], "sentence 0: words: '' of word 2"),
    ],
)
def test_what_is_no_sentence(tagger, sentences, message):
    for function in (tagger.tag, tagger.predict):
        with pytest.raises(ValueError, match=message):
            function(sentences)
    with pytest.raises(ValueError, match="one sentence; wanted a list of them"):
        tagger.tag(Sentence.from_words(["a"]))
    with pytest.raises(ConlluError, match="<text>:1: 2 columns"):
        tagger.tag([Sentence("1\ta\n\n")])


def test_batches_do_not_matter(tagger, treebank):
    expected = tagger.predict(treebank)
    for budget in (1, 50, 10**6):
        assert tagger.predict(treebank, batch_words=budget) == expected


def test_scores(tagger, treebank):
    """Of every sentence once; what predict gives is the best under them."""
    found = {}
    predicted = tagger.predict(treebank)
    assert tagger.transitions.shape == (len(tagger.tags),) * 2 and not tagger.transitions.requires_grad
    transitions = tagger.transitions[None, None]
    for unary, lengths, indices in tagger.score(treebank, batch_words=100):
        assert unary.shape == (len(indices), max(lengths.tolist()), len(tagger.tags))
        assert lengths.tolist() == [len(treebank[index]) for index in indices]
        best = torch.zeros(unary.shape[:2], dtype=torch.int64)
        for row, index in enumerate(indices):
            tags = [tagger.tags.index(tag) for tag in predicted[index]]
            best[row, : len(tags)] = torch.tensor(tags)
            found[index] = True
        score = chain_scores(unary, transitions, best, lengths)
        for _ in range(20):
            place = torch.randint(unary.shape[1], (len(indices), 1))
            other = best.scatter(1, place, torch.randint(len(tagger.tags), place.shape))
            assert (chain_scores(unary, transitions, other, lengths) <= score + 1e-4).all()
    assert len(found) == len(treebank)


def test_methods(tagger, treebank):
    expected = tagger.predict(treebank)
    for method in ("dense", "column_generation"):
        assert tagger.predict(treebank, method=method) == expected
    assert [len(tags) for tags in tagger.predict(treebank, method="beam")] == [len(one) for one in treebank]
    with pytest.raises(ValueError, match="method"):
        tagger.predict(treebank, method="guess")


def test_saved_and_loaded(tagger, treebank, tmp_path):
    tagger.results = {"dev_accuracy": 0.5}
    tagger.save(tmp_path / "a")
    assert {path.name for path in (tmp_path / "a").iterdir()} == FILES
    assert json.loads((tmp_path / "a" / "model.json").read_text())["task"] == "tag"
    again = Tagger.load(tmp_path / "a")
    assert (again.results, again.config, again.tags) == (tagger.results, tagger.config, tagger.tags)
    assert again.predict(treebank) == tagger.predict(treebank)
    with pytest.raises(ValueError, match="'moon' is not to be had"):
        Tagger.load(tmp_path / "a", "moon")


def test_a_tagger_is_no_parser(tagger, treebank, tmp_path):
    tagger.save(tmp_path / "tagger")
    Parser.new(config(), Vocabulary.build(treebank)).save(tmp_path / "parser")
    line = refused(tmp_path / "tagger", Parser)
    assert line == ": holds a tagger, and a parser is wanted; gpuparse train --task parse makes one"
    told = ": holds a parser, and a tagger is wanted; gpuparse train --task tag makes one"
    assert refused(tmp_path / "parser", Tagger) == told
    # A parser from before there were taggers.
    about = json.loads((tmp_path / "parser" / "model.json").read_text())
    del about["task"]
    (tmp_path / "parser" / "model.json").write_text(json.dumps(about))
    Parser.load(tmp_path / "parser")
    assert refused(tmp_path / "parser", Tagger) == told
