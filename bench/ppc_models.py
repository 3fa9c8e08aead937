"""What bench/ppc.py parses: treebanks, and parsers with grandparents trained on them by belief propagation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from commands import Problem, run, settings
from timing import LOG
from torch import Tensor

import gpuparse as gp
from gpuparse.data.batches import batches_by_length, collate
from gpuparse.data.conllu import read_conllu, write_conllu
from gpuparse.data.sentence import Sentence

FOLDS = 5
NEURAL = {
    "scorer.layers": 1,
    "scorer.hidden": 150,
    "scorer.arc": 150,
    "scorer.chars": 60,
    "scorer.feats": 100,
    "scorer.embedding_dropout": 0.4,
    "scorer.encoder_dropout": 0.4,
    "training.bf16": "true",
}
KINDS = {
    "templates": {"scorer.kind": "templates", "scorer.grandparents": 1, "training.learning_rate": 0.005},
    "trilinear": {**NEURAL, "scorer.grandparents": 32},
    "both": {**NEURAL, "scorer.grandparents": 8, "scorer.siblings": 8},  # of bench/dual.py
}


@dataclass(frozen=True)
class Language:
    """A treebank: the file that is parsed, and the one that is learned from. Without the latter, each fifth of the
    sentences is parsed by a parser that learned from the others."""

    parsed: str
    learned: str = ""
    epochs: tuple[int, int, int] = (5, 20, 12)  # of each kind


LANGUAGES = {
    "danish": Language("da_ddt-ud-dev.conllu"),
    "italian": Language("it_isdt-ud-dev.conllu"),
    "hungarian": Language("hu_szeged-ud-dev.conllu", "hu_szeged-ud-train.conllu", (3, 25, 12)),
    "english": Language("en_ewt-ud-dev.conllu", "en_ewt-ud-train.conllu", (2, 5, 3)),
}


def folds(language: Language, directory: Path) -> list[tuple[list[Sentence] | None, list[Sentence]]]:
    """What is learned from (None: the file) and what is parsed, fold by fold."""
    if not (directory / language.parsed).is_file():
        raise Problem(f"{language.parsed} is not among the treebanks", 2)
    parsed = list(read_conllu(directory / language.parsed))
    if language.learned:
        return [(None, parsed)]
    return [([s for i, s in enumerate(parsed) if i % FOLDS != fold], parsed[fold::FOLDS]) for fold in range(FOLDS)]


def train(name: str, kind: str, directory: Path, models: Path, threads: int) -> None:
    """Train the parsers of a language that are not there."""
    language = LANGUAGES[name]
    for fold, (learned, _) in enumerate(folds(language, directory)):
        model = models / f"{name}_{kind}_{fold}"
        if (model / "training.json").is_file():
            LOG.print(f"{model.name}: trained before")
            continue
        data = directory / language.learned
        if learned is not None:
            data = models / f"{name}_{fold}.conllu"
            models.mkdir(parents=True, exist_ok=True)
            write_conllu(learned, data)
        values = {
            "training.objective": "bp",
            "training.batch_words": 500,
            "training.epochs": language.epochs[list(KINDS).index(kind)],
            **KINDS[kind],
        }
        LOG.print(f"gpuparse train {model.name}")
        run("train", model, "--train", data, *settings(values), "--threads", str(threads), "--resume")


@dataclass
class Scored:
    """A batch of sentences with its scores and gold heads."""

    scores: gp.Scores
    heads: Tensor


def scored(
    name: str, kind: str, directory: Path, models: Path, *, most: int, first: int, batch_words: int
) -> Iterator[Scored]:
    """The sentences of up to ``most`` words (``first``: of each fold no more than so many), shortest first."""
    for fold, (_, parsed) in enumerate(folds(LANGUAGES[name], directory)):
        model = models / f"{name}_{kind}_{fold}"
        if not (model / "training.json").is_file():
            raise Problem(f"{model}: no trained parser; run the train part of this script first", 2)
        parser = gp.Parser.load(model)
        sentences = [s for s in parsed if 0 < len(s) <= most][: first or None]
        with torch.inference_mode():
            for indices in batches_by_length([len(s) for s in sentences], batch_words):
                examples = [parser.vocabulary.encode(sentences[i], tree=True) for i in indices]
                batch = collate(examples, parser.vocabulary.chars)
                assert batch.heads is not None
                found = parser.scorer(batch).scores
                parts = {"siblings": found.siblings, "grandparents": found.grandparents}
                yield Scored(gp.Scores(found.arcs, found.lengths, **parts), batch.heads)
