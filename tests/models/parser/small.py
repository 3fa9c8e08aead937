"""A parser of a few weights."""

from __future__ import annotations

import dataclasses

from gpuparse.config import Config, ScorerConfig, TrainingConfig
from gpuparse.data import Sentence
from gpuparse.models.parser import Parser
from tests.models.made import lively

TINY = ScorerConfig(word=6, char=4, chars=6, tag=4, feats=3, hidden=8, layers=1, arc=8, label=6)


def make(vocabulary, scorer=TINY, **training):
    config = Config(scorer=scorer, training=dataclasses.replace(TrainingConfig(), **training))
    return lively(Parser.new(config, vocabulary))


def bare(sentence):
    """Without heads and labels."""
    return Sentence.from_words(sentence.words, sentence.upos, feats=sentence.feats)


def columns(sentence):
    return sentence.heads, sentence.deprels
