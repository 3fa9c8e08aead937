"""What the suite ilp parses: treebanks, parsers trained on them by cross-validation, and their scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import gpuparse as gp
from bench.models import DUTCH, ENGLISH, HUNGARIAN, Fold, Treebank, check_trained, train, treebank_file
from bench.registry import Args
from bench.suites.ilp_conjunctions import converted
from gpuparse import lp
from gpuparse.data.batches import collate
from gpuparse.data.sentence import Sentence

FOLDS = 9


@dataclass(frozen=True)
class Run:
    """A treebank, its parsers and the constraints on its trees.

    Attributes:
        config: of the training, in configs/, and
        settings: those that differ from it.
        constraints: files that come with the package.
        conjunctions: whether conjunctions head their coordinations, in training and parsing.
    """

    title: str
    treebank: Treebank
    config: str
    constraints: tuple[str, ...]
    conjunctions: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def folds(self, args: Args) -> list[Fold]:
        return self.treebank.folds(args, FOLDS, converted if self.conjunctions else list)

    def models(self, model: Path) -> list[Path]:
        """One parser where there is a file to learn from, else one for each fold: ``model/0`` and so on."""
        return [model] if self.treebank.learned else [model / str(fold) for fold in range(FOLDS)]


TEMPLATES = {  # the paper's kind of parser: McDonald's features, MIRA
    "scorer.kind": "templates",
    "training.objective": "mira",
    "training.epochs": 10,
    "training.batch_words": 1500,
}
BOTH = ("ud", "conjunction_nl")
RUNS = {
    "dutch": Run("Dutch, conjunctions as heads", DUTCH, "dutch.toml", BOTH, True),
    "dutch_templates": Run("Dutch, conjunctions as heads, templates", DUTCH, "dutch.toml", BOTH, True, TEMPLATES),
    "dutch_ud": Run("Dutch, UD as it is", DUTCH, "dutch.toml", ("ud",)),
    "english": Run("English, UD", ENGLISH, "english.toml", ("ud",)),
    "hungarian": Run("Hungarian, UD", HUNGARIAN, "hungarian.toml", ("ud",)),
}


def train_run(run: Run, model: Path, args: Args) -> None:
    """Train a run's parsers, those that are not there.

    A fold's parser learns from the other folds, for as many epochs as its configuration says; the fold itself has no
    say in it. A parser that learns from a file of its own keeps its best epoch by the file that is parsed, for want
    of a third one.
    """
    dev = treebank_file(args, run.treebank.parsed) if run.treebank.learned else None
    for path, fold in zip(run.models(model), run.folds(args), strict=True):
        train(path, fold.learned, dev=dev, config=run.config, values=run.settings, threads=args.threads)


@dataclass
class Scored:
    """A sentence with its gold tree, its scores, and the best tree by them; node 0 is the root."""

    words: lp.Words
    gold_heads: list[int]
    gold_labels: list[str]
    names: tuple[str, ...]
    scores: npt.NDArray[np.float64]  # [N, N, L]; an arc's best label costs nothing
    arcs: Tensor  # [1, N, N]
    heads: list[int]
    labels: list[int]

    @property
    def start(self) -> tuple[list[int], list[int]]:
        return self.heads, self.labels

    def __len__(self) -> int:
        return len(self.gold_heads)

    def right(self, heads: Sequence[int], labels: Sequence[int]) -> tuple[list[bool], list[bool]]:
        """Of each word, whether its head is right, and whether its label is too."""
        of_heads = [a == b for a, b in zip(heads[1:], self.gold_heads, strict=True)]
        names = [self.names[label] for label in labels[1:]]
        return of_heads, [a and b == c for a, b, c in zip(of_heads, names, self.gold_labels, strict=True)]


def scored(run: Run, model: Path, args: Args) -> Iterator[Scored]:
    """All sentences of a run, in the order of its folds."""
    for path, fold in zip(run.models(model), run.folds(args), strict=True):
        parser = gp.Parser.load(check_trained(path, "ilp"))
        with torch.inference_mode():
            for sentence in fold.parsed[: args.first or None]:
                yield _scored(parser, sentence)


def _scored(parser: gp.Parser, sentence: Sentence) -> Scored:
    """As the parser has it: labels that training saw only under the root, or never there, are as rare here."""
    names = tuple(parser.vocabulary.labels.names)
    result = parser.scorer(collate([parser.vocabulary.encode(sentence)], parser.vocabulary.chars))
    head = torch.arange(len(sentence) + 1)[:, None].expand(-1, len(sentence) + 1)
    labels = parser._allowed(result.all_labels()[0].double(), head)
    arcs = result.scores.arcs.clone()
    joint = arcs[0, :, :, None].double() + labels - labels.amax(-1, keepdim=True)
    single_root = parser.config.training.single_root
    heads = gp.mst(arcs, single_root=single_root)[0].tolist()
    best = labels.argmax(-1)
    return Scored(
        lp.Words.of(sentence.words, sentence.upos, names),
        sentence.heads,
        sentence.deprels,
        names,
        joint.numpy(),
        arcs,
        heads,
        [-1, *(int(best[heads[m], m]) for m in range(1, len(heads)))],
    )
