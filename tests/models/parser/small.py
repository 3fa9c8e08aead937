"""A parser of a few weights."""

from __future__ import annotations

import dataclasses

import torch

from gpuparse.config import Config, ScorerConfig, TrainingConfig
from gpuparse.data import Sentence
from gpuparse.models.parser import Parser

TINY = ScorerConfig(word=6, char=4, chars=6, tag=4, feats=3, hidden=8, layers=1, arc=8, label=6)
FILES = {"config.toml", "model.json", "model.safetensors", "vocabulary.json"}


def make(vocabulary, scorer=TINY, **training):
    """A parser with weights of some size, none of them zero, so that it prefers some trees to others."""
    parser = Parser.new(Config(scorer=scorer, training=dataclasses.replace(TrainingConfig(), **training)), vocabulary)
    with torch.no_grad():
        for parameter in parser.scorer.parameters():
            if not parameter.any():
                parameter.normal_()
    return parser


def bare(sentence):
    """Without heads and labels."""
    return Sentence.from_words(sentence.words, sentence.upos, feats=sentence.feats)


def columns(sentence):
    return sentence.heads, sentence.deprels
