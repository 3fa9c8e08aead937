"""Second-order parsers that several suites parse with, trained by belief propagation, and their scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

import gpuparse as gp
from bench.models import DANISH, ENGLISH, HUNGARIAN, ITALIAN, Treebank, check_trained, train
from bench.registry import Args
from gpuparse.data.batches import batches_by_length, collate

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
    "both": {**NEURAL, "scorer.grandparents": 8, "scorer.siblings": 8},
}


LANGUAGES: dict[str, tuple[Treebank, tuple[int, int, int]]] = {  # and epochs of each kind
    "danish": (DANISH, (5, 20, 12)),
    "italian": (ITALIAN, (5, 20, 12)),
    "hungarian": (HUNGARIAN, (3, 25, 12)),
    "english": (ENGLISH, (2, 5, 3)),
}


def pairs(args: Args) -> list[tuple[str, str]]:
    """The languages and kinds of parsers that are asked for."""
    return [(name, kind) for kind in args.kinds for name in args.languages]


def train_parsers(args: Args) -> None:
    """Those that are not there."""
    for name, kind in pairs(args):
        treebank, epochs = LANGUAGES[name]
        for number, fold in enumerate(treebank.folds(args, FOLDS)):
            values = {
                "training.objective": "bp",
                "training.batch_words": 500,
                "training.epochs": epochs[list(KINDS).index(kind)],
                **KINDS[kind],
            }
            train(args.models / f"{name}_{kind}_{number}", fold.learned, values=values, threads=args.threads)


@dataclass
class Scored:
    """A batch of sentences with its scores and gold heads."""

    scores: gp.Scores
    heads: Tensor

    def right(self, heads: Tensor) -> int:
        """How many heads are the gold ones."""
        return int(((heads == self.heads) & (self.heads >= 0)).sum())


def scored(
    name: str, kind: str, args: Args, *, most: int = 10**9, first: int | None = None, batch_words: int | None = None
) -> Iterator[Scored]:
    """The sentences of up to ``most`` words, shortest first; of each fold no more than ``first``, where that is not 0.

    What is not given is as in ``args``.
    """
    first, batch_words = args.first if first is None else first, batch_words or args.batch_words
    for number, fold in enumerate(LANGUAGES[name][0].folds(args, FOLDS)):
        parser = gp.Parser.load(check_trained(args.models / f"{name}_{kind}_{number}", "ppc"))
        sentences = [s for s in fold.parsed if 0 < len(s) <= most][: first or None]
        with torch.inference_mode():
            for indices in batches_by_length([len(s) for s in sentences], batch_words):
                examples = [parser.vocabulary.encode(sentences[i], tree=True) for i in indices]
                batch = collate(examples, parser.vocabulary.chars)
                assert batch.heads is not None
                found = parser.scorer(batch).scores
                parts = {"siblings": found.siblings, "grandparents": found.grandparents}
                yield Scored(gp.Scores(found.arcs, found.lengths, **parts), batch.heads)


def fresh(scores: gp.Scores) -> gp.Scores:
    """The same without anything known of its parts."""
    parts = {name: getattr(scores, name) for name in ("grandparents", "siblings")}
    parts = {name: None if x is None else x.to(x.device) for name, x in parts.items()}
    return gp.Scores(scores.arcs, scores.lengths, **parts, validate_args=False)


class Sums(dict[str, float]):
    """Figures added up over batches; one that was never added is 0."""

    def add(self, **values: float) -> None:
        for name, value in values.items():
            self[name] = self[name] + float(value)

    def __missing__(self, name: str) -> float:
        return 0.0

    def percent(self, one: str, other: str) -> float:
        return 100 * self[one] / self[other]
