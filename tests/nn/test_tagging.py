"""Scorers of tags."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from gpuparse.config import Config, DataConfig, ScorerConfig
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.tagging import TagVocabulary, collate_tags
from gpuparse.nn.build import build_tag_scorer
from gpuparse.nn.tagging import BiLSTMTagScorer, MeanScorer, TemplateTagScorer
from gpuparse.train.tagging import tag_vocabulary
from tests.decoding.refusals import refuses
from tests.nn.small_scorers import stir

TINY = ScorerConfig(kind="bilstm", word=6, char=4, chars=6, hidden=8, layers=2)
KINDS = {
    "bilstm": TINY,
    "no words": dataclasses.replace(TINY, word=0),
    "no characters": dataclasses.replace(TINY, chars=0),
    "no encoder": dataclasses.replace(TINY, layers=0),
    "templates": dataclasses.replace(TINY, kind="templates", bits=12),
    "both": dataclasses.replace(TINY, kind="bilstm+templates", bits=12),
}


@pytest.fixture(scope="module")
def treebank():
    return list(artificial_treebank(12, seed=4))


def scorer_of(treebank, config):
    vocabulary = tag_vocabulary(Config(DataConfig(min_count=1, tags="upos+feats"), config, task="tag"), treebank)
    torch.manual_seed(1)
    return vocabulary, stir(build_tag_scorer(config, vocabulary)).eval()


def batch_of(vocabulary, sentences):
    return collate_tags([vocabulary.encode(one, gold=True) for one in sentences], vocabulary.chars)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_a_sentence_do_not_depend_on_the_batch(treebank, kind):
    vocabulary, scorer = scorer_of(treebank, KINDS[kind])
    together = scorer(batch_of(vocabulary, treebank))
    longest = max(map(len, treebank))
    assert together.shape == (len(treebank), longest, len(vocabulary.tags)) and together.dtype == torch.float32
    for row, sentence in enumerate(treebank):
        alone = scorer(batch_of(vocabulary, [sentence]))
        # Sums of some hundred products in another order, in float32.
        torch.testing.assert_close(together[row, : len(sentence)], alone[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_matters(treebank, kind):
    vocabulary, scorer = scorer_of(treebank, KINDS[kind])
    scorer(batch_of(vocabulary, treebank)).square().sum().backward()
    for name, parameter in scorer.named_parameters():
        if not name.endswith("transitions"):
            assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
    assert scorer.pair_scores().shape == (len(vocabulary.tags),) * 2


def test_tags_in_the_data_are_not_read(treebank):
    """Neither right ones nor any others."""
    for config in KINDS.values():
        vocabulary, scorer = scorer_of(treebank, config)
        before = scorer(batch_of(vocabulary, treebank))
        bare = [one.with_tags(upos=["X"] * len(one), xpos=["_"] * len(one), feats=["_"] * len(one)) for one in treebank]
        assert torch.equal(scorer(batch_of(vocabulary, bare)), before)


def test_templates_are_sums_of_weights(treebank):
    vocabulary, scorer = scorer_of(treebank, KINDS["templates"])
    batch = batch_of(vocabulary, treebank[:3])
    found = scorer(batch)
    for row, sentence in enumerate(treebank[:3]):
        for word in range(len(sentence)):
            rows = [number for number in batch.features[row, word].tolist() if number]
            torch.testing.assert_close(found[row, word], scorer.weights[rows].sum(0), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        scorer.weights[0] += 100  # which is of nothing
    again = scorer(batch)
    assert torch.equal(again, found)
    again.sum().backward()
    assert not scorer.weights.grad[0].any()


def test_what_does_not_fit(treebank):
    vocabulary = TagVocabulary.build(treebank, "upos")
    for kind in ("templates", "both"):
        refuses("vocabulary: features are wanted for templates alone", build_tag_scorer, KINDS[kind], vocabulary)
    _, scorer = scorer_of(treebank, KINDS["templates"])
    refuses("batch: no features", scorer, batch_of(vocabulary, treebank))
    for kind, made in (("bilstm", BiLSTMTagScorer), ("templates", TemplateTagScorer), ("both", MeanScorer)):
        scorer = scorer_of(treebank, KINDS[kind])[1]
        assert isinstance(scorer, made) and len(scorer.experts()) == 1 + (kind == "both")


def test_the_mean_of_network_and_features(treebank):
    vocabulary, scorer = scorer_of(treebank, KINDS["both"])
    batch = batch_of(vocabulary, treebank)
    network, features = scorer.experts()
    assert isinstance(network, BiLSTMTagScorer) and isinstance(features, TemplateTagScorer)
    torch.testing.assert_close(scorer(batch), (network(batch) + features(batch)) / 2)
    torch.testing.assert_close(scorer.pair_scores(), (network.transitions + features.transitions) / 2)
