"""What bench/ilp.py parses: treebanks, parsers trained on them by cross-validation, and their scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from commands import PROJECT, Problem, run
from conjunctions import converted
from timing import LOG
from torch import Tensor

import gpuparse as gp
from gpuparse import lp
from gpuparse.data.batches import collate
from gpuparse.data.conllu import read_conllu, write_conllu
from gpuparse.data.sentence import Sentence

FOLDS = 9


@dataclass(frozen=True)
class Run:
    """A treebank, its parsers and the constraints on its trees.

    Attributes:
        parsed: the file that is parsed.
        learned: the file that is learned from; "" for cross-validation on the one that is parsed.
        config: of the training, in configs/, and
        settings: those that differ from it.
        constraints: files that come with the package.
        conjunctions: whether conjunctions head their coordinations, in training and parsing.
    """

    title: str
    parsed: str
    learned: str
    config: str
    constraints: tuple[str, ...]
    conjunctions: bool = False
    settings: tuple[str, ...] = ()


TEMPLATES = ("scorer.kind=templates", "training.objective=mira", "training.epochs=10", "training.batch_words=1500")
RUNS = {
    "dutch": Run(
        "Dutch, conjunctions as heads", "nl_alpino-ud-dev.conllu", "", "dutch.toml", ("ud", "conjunction_nl"), True
    ),
    "dutch_templates": Run(  # the paper's kind of parser: McDonald's features, MIRA
        "Dutch, conjunctions as heads, templates",
        "nl_alpino-ud-dev.conllu",
        "",
        "dutch.toml",
        ("ud", "conjunction_nl"),
        True,
        TEMPLATES,
    ),
    "dutch_ud": Run("Dutch, UD as it is", "nl_alpino-ud-dev.conllu", "", "dutch.toml", ("ud",)),
    "english": Run("English, UD", "en_ewt-ud-dev.conllu", "en_ewt-ud-train.conllu", "english.toml", ("ud",)),
    "hungarian": Run(
        "Hungarian, UD", "hu_szeged-ud-dev.conllu", "hu_szeged-ud-train.conllu", "hungarian.toml", ("ud",)
    ),
}


def read(run_: Run, directory: Path) -> list[Sentence]:
    """The sentences that are parsed, with their gold trees."""
    path = directory / run_.parsed
    if not path.is_file():
        raise Problem(f"{run_.parsed} is not among the treebanks", 2)
    try:
        sentences = read_conllu(path)
        return list(converted(sentences) if run_.conjunctions else sentences)
    except ValueError as error:
        raise Problem(" ".join(str(error).split())) from None


def train(run_: Run, directory: Path, model: Path, threads: int) -> None:
    """Train a run's parsers, those that are not there: one in ``model``, or one for each fold in ``model/0`` ...

    Sentence i is in fold i % 9. A fold's parser learns from the other folds, for as many epochs as its configuration
    says; the fold itself has no say in it. A parser that learns from a file of its own keeps its best epoch by the
    file that is parsed, for want of a third one.
    """
    if run_.learned:
        if not (directory / run_.learned).is_file():
            raise Problem(f"{run_.learned} is not among the treebanks", 2)
        _train(run_, model, directory / run_.learned, threads, directory / run_.parsed)
        return
    sentences = read(run_, directory)
    for fold in range(FOLDS):
        part = model / f"train_{fold}.conllu"
        part.parent.mkdir(parents=True, exist_ok=True)
        if not part.is_file():
            write_conllu((s for index, s in enumerate(sentences) if index % FOLDS != fold), part)
        _train(run_, model / str(fold), part, threads)


def _train(run_: Run, model: Path, data: Path, threads: int, dev: Path | None = None) -> None:
    if is_trained(model):
        LOG.print(f"{model}: trained before")
        return
    LOG.print(f"gpuparse train {model} with {run_.config}")
    files = ("--train", data, *(("--dev", dev) if dev else ()), "--config", PROJECT / "configs" / run_.config)
    options = [part for setting in run_.settings for part in ("--set", setting)]
    run("train", model, *files, *options, "--threads", str(threads), "--resume")


def is_trained(model: Path) -> bool:
    return (model / "training.json").is_file() and (model / "model.safetensors").is_file()


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


def scored(run_: Run, directory: Path, model: Path, first: int = 0) -> Iterator[Scored]:
    """All sentences of a run, in the order of its folds; ``first``: no more than so many of a parser."""
    sentences = read(run_, directory)
    parts = [(model, sentences)]
    if not run_.learned:
        parts = [(model / str(fold), sentences[fold::FOLDS]) for fold in range(FOLDS)]
    for path, these in parts:
        if not is_trained(path):
            raise Problem(f"{path}: no trained parser; run the train part of this script first", 2)
        parser = gp.Parser.load(path)
        with torch.inference_mode():
            for sentence in these[: first or None]:
                yield _scored(parser, sentence)


def _scored(parser: gp.Parser, sentence: Sentence) -> Scored:
    """As the parser has it: labels that training saw only under the root, or never there, are as rare here."""
    names = tuple(parser.vocabulary.labels.names)
    result = parser.scorer(collate([parser.vocabulary.encode(sentence)], parser.vocabulary.chars))
    of_root, of_others = torch.tensor(parser.vocabulary.root_labels).T
    allowed = of_others.expand(len(sentence) + 1, 1, -1).clone()
    allowed[0] = of_root
    allowed |= ~allowed.any(-1, keepdim=True)
    labels = result.all_labels()[0].double().masked_fill(~allowed, -torch.inf)
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
