"""Second-order parsers that several suites parse with, trained by belief propagation, and their scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import gpuparse as gp
from bench.models import DANISH, ENGLISH, HUNGARIAN, ITALIAN, Treebank, check_trained, train
from bench.registry import BATCH_WORDS, FIRST, TREEBANKS, Args, Option, languages, models, threads
from gpuparse.data.batches import Batch, batches_by_length, collate
from gpuparse.data.sentence import Sentence

FOLDS = 5
NEURAL = {
    **{"scorer.layers": 1, "scorer.hidden": 150, "scorer.arc": 150, "scorer.chars": 60, "scorer.feats": 100},
    **{"scorer.embedding_dropout": 0.4, "scorer.encoder_dropout": 0.4, "training.bf16": "true"},
}
TEMPLATES = {"scorer.kind": "templates", "scorer.grandparents": 1, "training.learning_rate": 0.005}
KINDS = {
    "templates": TEMPLATES,
    "trilinear": {**NEURAL, "scorer.grandparents": 32},
    "both": {**NEURAL, "scorer.grandparents": 8, "scorer.siblings": 8},
    "templates_both": {**TEMPLATES, "scorer.siblings": 1},
}

LANGUAGES: dict[str, tuple[Treebank, tuple[int, int, int, int]]] = {  # and epochs of each kind
    "danish": (DANISH, (5, 20, 12, 5)),
    "italian": (ITALIAN, (5, 20, 12, 5)),
    "hungarian": (HUNGARIAN, (3, 25, 12, 3)),
    "english": (ENGLISH, (2, 5, 3, 2)),
}


def options(*own: Option, kinds: Sequence[str] = (), named: Sequence[str] = ()) -> list[Option]:
    """Of a suite that parses with these parsers; ``kinds`` and languages (``named``) are asked for where there are."""
    asked = [Option("kinds", "parsers", list(kinds), many=True, choices=list(KINDS))] if kinds else []
    asked += [languages(LANGUAGES, named)] if named else []
    return [TREEBANKS, models("ppc"), *asked, *own, FIRST, BATCH_WORDS, threads()]


def pairs(args: Args) -> list[tuple[str, str]]:
    """The languages and kinds of parsers that are asked for."""
    return [(name, kind) for kind in args.kinds for name in args.languages]


def train_parsers(args: Args) -> None:
    """Those that are not there."""
    for name, kind in pairs(args):
        treebank, epochs = LANGUAGES[name]
        for number, fold in enumerate(treebank.folds(args, FOLDS)):
            how = {"training.objective": "bp", "training.batch_words": 500}
            values = {**how, "training.epochs": epochs[list(KINDS).index(kind)], **KINDS[kind]}
            train(args.models / f"{name}_{kind}_{number}", fold.learned, values=values, threads=args.threads)


@dataclass
class Scored:
    """A batch of sentences with its scores and gold heads."""

    scores: gp.Scores
    heads: Tensor

    def counts(self, parse: gp.Parse) -> dict[str, float]:
        """What a parse came to, added up over the sentences."""
        right = (parse.heads == self.heads) & (self.heads >= 0)
        each = {"words": self.scores.lengths, "right": right, "certified": parse.certified, **parse.stats}
        sums = {name: float(x.sum()) for name, x in each.items()}
        return sums | {"sentences": len(self.heads), "iterations": float(parse.iterations.sum())}


def encoded(parser: gp.Parser, sentences: Iterable[Sentence], tree: bool = False) -> Batch:
    return collate([parser.vocabulary.encode(s, tree=tree) for s in sentences], parser.vocabulary.chars)


def scores_of(parser: gp.Parser, batch: Batch) -> gp.Scores:
    """Those of arcs and of pairs."""
    with torch.inference_mode():
        found = parser.scorer(batch).scores
        return gp.Scores(found.arcs, found.lengths, **{kind: getattr(found, kind) for kind in found.second_order})


def scored_batches(
    parser: gp.Parser, sentences: Sequence[Sentence], words: int, tree: bool = False
) -> Iterator[tuple[Batch, gp.Scores]]:
    """Sentences of like lengths together, in batches of so many words, and their scores."""
    for indices in batches_by_length([len(sentence) for sentence in sentences], words):
        batch = encoded(parser, (sentences[i] for i in indices), tree)
        yield batch, scores_of(parser, batch)


def scored(
    name: str,
    kind: str,
    args: Args,
    *,
    least: int = 1,
    most: int = 10**9,
    first: int | None = None,
    batch_words: int | None = None,
) -> Iterator[Scored]:
    """The sentences of ``least`` to ``most`` words, shortest first; of each fold no more than ``first``, if not 0.

    What is not given is as in ``args``.
    """
    first, batch_words = args.first if first is None else first, batch_words or args.batch_words
    for number, fold in enumerate(LANGUAGES[name][0].folds(args, FOLDS)):
        parser = gp.Parser.load(check_trained(args.models / f"{name}_{kind}_{number}", "ppc"))
        sentences = [s for s in fold.parsed if least <= len(s) <= most][: first or None]
        for batch, scores in scored_batches(parser, sentences, batch_words, tree=True):
            assert batch.heads is not None
            yield Scored(scores, batch.heads)


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
        return 100 * self[one] / max(self[other], 1.0)
