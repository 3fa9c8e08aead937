"""Scorers of a few weights, none of them zero."""

from __future__ import annotations

import dataclasses

import torch

from gpuparse.config import ScorerConfig
from gpuparse.data.batches import collate
from gpuparse.nn.build import build_scorer

TINY = ScorerConfig(word=6, char=4, chars=7, tag=3, feats=3, hidden=8, layers=2, arc=6, label=4)
NO_VECTORS = {"word": 0, "chars": 0, "tag": 0, "feats": 0}


# float32, values of order one, sums whose order may depend on the batch's shape
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def stir(module):
    """Values for what is zero before training, so that everything matters."""
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.any():
                parameter.normal_(std=0.5)
    return module


def make(vocabulary, **changes):
    return stir(build_scorer(dataclasses.replace(TINY, **changes), vocabulary)).eval()


def batch_of(vocabulary, sentences, tree=False):
    return collate([vocabulary.encode(sentence, tree=tree) for sentence in sentences], vocabulary.chars)


def everything(scorer, batch):
    """All scores of each sentence, cut to its size: arcs, labels given two trees, pairs of arcs."""
    with torch.no_grad():
        scores, label_scores = scorer(batch)
        chain = torch.arange(batch.words.shape[1]).expand_as(batch.words) - 1
        to_first = torch.ones_like(batch.words).masked_fill(chain == 0, 0)
        tensors = [scores.arcs, label_scores(chain), label_scores(to_first)]
        parts = [part.dense() for part in (scores.grandparents, scores.siblings) if part is not None]
    found = []
    for row, length in enumerate(batch.lengths.tolist()):
        end = length + 1
        arcs, *labels = (tensor[row] for tensor in tensors)
        found.append([arcs[:end, :end], *(x[1:end] for x in labels), *(p[row, :end, :end, :end] for p in parts)])
    return found


def same(one, two):
    for ours, theirs in zip(one, two, strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)
