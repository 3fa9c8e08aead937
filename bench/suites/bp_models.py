"""What the suite bp compares: parsers of one encoder and different factors, trained by belief propagation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import gpuparse as gp
from bench.models import DANISH, DUTCH, ENGLISH, HUNGARIAN, Treebank
from bench.output import PROJECT, RESULTS, Problem, write_json
from bench.parsers import Sums, scored_batches
from bench.registry import Args
from bench.timing import timed
from gpuparse import bp
from gpuparse.config import Config
from gpuparse.data.batches import Batch, shuffled_batches
from gpuparse.data.conllu import read_conllu
from gpuparse.data.sentence import Sentence
from gpuparse.decoding.bp.parsing import best_trees, factors_of
from gpuparse.system.stopwatch import Stopwatch
from gpuparse.train.distributed import Processes
from gpuparse.train.gradient import GradientLearner
from gpuparse.train.learner import put, read_stats
from gpuparse.train.objectives import SCHEDULE, label_loss
from gpuparse.train.task import Parsing

ITERATIONS = 5
FOLDS = 3
HOW: dict[str, Any] = {"iterations": ITERATIONS, "schedule": SCHEDULE}
RANK = 32  # of the scores of pairs
SMALL = {"layers": 1, "hidden": 150, "arc": 150, "chars": 60}  # an encoder with which inference takes most of the time


@dataclass(frozen=True)
class Language:
    """A treebank. Without a file to learn from, every third sentence, from the seed's on, is parsed.

    Attributes:
        every: of the file that is learned from, only one sentence of so many.
        seeds: how often the two parsers of the bar are trained.
    """

    treebank: Treebank
    every: int = 1
    epochs: int = 20
    seeds: int = 3

    def split(self, args: Args, seed: int) -> tuple[list[Sentence], list[Sentence]]:
        """What a parser learns from, and what it parses."""
        folds = self.treebank.folds(args, FOLDS)
        learned, parsed = folds[(seed - 1) % len(folds)]
        if isinstance(learned, Path):
            return list(read_conllu(learned))[:: self.every], parsed
        return learned, parsed


LANGUAGES = {
    "danish": Language(DANISH),
    "dutch": Language(DUTCH),
    "hungarian": Language(HUNGARIAN, every=2, seeds=1),
    "english": Language(ENGLISH, every=20, seeds=1),
}

WEAKER: dict[str, Callable[[], list[bp.Factors]]] = {
    "NOT2": lambda: [bp.NotTwo()],
    "ATMOST1": lambda: [bp.AtMostOne()],
    "EXACTLY1": lambda: [bp.ExactlyOne()],
    "+ NO2CYCLE": lambda: [bp.ExactlyOne(), bp.NoTwoCycle()],
    "TREE": lambda: [bp.Tree()],
    "PTREE": lambda: [bp.ProjectiveTree()],
}
"""Constraints of Table 3."""


@dataclass(frozen=True)
class Model:
    """Which factors a parser has besides LINK. ``constraint``: one of WEAKER."""

    constraint: str = "TREE"
    nocross: bool = False
    grand: bool = False
    sequence: bool = False


FIRST, SECOND = "TREE+LINK", "TREE+LINK+GRAND+CHILDSEQ"
MODELS = {
    FIRST: Model(),
    SECOND: Model(grand=True, sequence=True),
    "+NOCROSS": Model(nocross=True),
    "+GRAND": Model(nocross=True, grand=True),
    "+CHILDSEQ": Model(nocross=True, grand=True, sequence=True),
    **{name: Model(name) for name in ("NOT2", "ATMOST1", "EXACTLY1", "+ NO2CYCLE")},
}


def crossed(heads: Tensor) -> Tensor:
    """[B, N, N]: whether the links of words j < l to their heads cross, by heads [B, N]."""
    node = torch.arange(heads.shape[1])
    low, high = torch.minimum(heads, node), torch.maximum(heads, node)
    a, b, c, d = low[:, :, None], high[:, :, None], low[:, None], high[:, None]
    word = (heads >= 0)[:, :, None] & (heads >= 0)[:, None]
    return (word & (((a < c) & (c < b) & (b < d)) | ((c < a) & (a < d) & (d < b)))).triu(1)


class FactorLearner(GradientLearner):
    """Trees learned with a model's factors; NOCROSS has a weight for every two tags (``scorer.nocross``)."""

    def __init__(self, parser: gp.Parser, model: Model) -> None:
        self.parser, self.factors = parser, model
        if model.nocross:
            tags = len(parser.vocabulary.tags.names)
            parser.scorer.nocross = nn.Parameter(torch.zeros(tags, tags))
        super().__init__(parser.scorer, parser.config.training)

    def graph(self, scores: gp.Scores, nocross: Tensor | None, constraint: str | None = None) -> list[bp.Factors]:
        """The factors of some sentences; ``constraint``: another one than that of training."""
        factors = [*WEAKER[constraint or self.factors.constraint](), *factors_of(scores)[1:]]
        return factors if nocross is None else [*factors, bp.NoCross(nocross, exactly_one=False)]

    def nocross(self, batch: Batch) -> Tensor | None:
        """Scores of NOCROSS [B, N, N]."""
        if not self.factors.nocross:
            return None
        table: Tensor = self.parser.scorer.nocross  # type: ignore[assignment]
        return table[batch.tags[:, :, None], batch.tags[:, None]]

    def _backward(self, batch: Batch, words: int) -> tuple[Tensor, Stopwatch]:
        assert batch.heads is not None and batch.labels is not None
        with torch.autocast("cpu", torch.bfloat16, enabled=self.config.bf16):
            scored = self.model(batch)
            labels = label_loss(scored.label_scores(batch.heads), batch.labels).sum() / words
            made = [scored.scores.arcs, *(parts.dense() for parts in scored.scores.parts)]
        clock = Stopwatch(batch.heads.device)
        parts = dict(zip(scored.scores.second_order, made[1:], strict=True))
        scores = gp.Scores(made[0], batch.lengths, **parts, validate_args=False)
        nocross = self.nocross(batch)
        settings = gp.BeliefPropagation(self.graph(scores, nocross), tolerance=1e-4, **HOW)
        right = scores.total(batch.heads).double()
        if nocross is not None:
            right = right + torch.where(crossed(batch.heads), nocross, 0.0).flatten(1).sum(1)
        trees = (settings.log_partition(batch.lengths) - right).sum() / words
        clock.stop()
        (trees + labels).backward()
        return (trees + labels).detach().double(), clock


def train(language: Language, model: Model, args: Args, seed: int) -> tuple[FactorLearner, list[Sentence]]:
    """A parser of these factors, its averaged weights in place, and the sentences to parse."""
    learned, parsed = language.split(args, seed)
    sizes = SMALL | {"grandparents": RANK * model.grand, "siblings": RANK * model.sequence}
    overrides = ["training.objective=bp", f"training.epochs={language.epochs}", f"training.seed={seed}"]
    overrides += [f"scorer.{name}={size}" for name, size in sizes.items()]
    config = Config.load(PROJECT / "configs" / "dutch.toml", overrides)
    task = Parsing(config, learned, torch.device("cpu"), Processes())
    learner = FactorLearner(task.model, model)
    lengths = [len(sentence) for sentence in learned]
    training = config.training
    for epoch in range(training.epochs):
        batches = shuffled_batches(lengths, training.batch_words, seed=seed, epoch=epoch)
        for number, indices in enumerate(batches):
            progress = (epoch + number / len(batches)) / training.epochs
            told = learner.step(task.batch(indices), words=sum(lengths[i] for i in indices), progress=progress)
            (stats,) = read_stats([told])
            if not stats["loss"] < float("inf"):
                raise Problem(f"the loss of epoch {epoch + 1} is {stats['loss']}")
    assert learner.average is not None
    put(list(learner.parameters.values()), learner.average)
    return learner, parsed


Decoder = Callable[[FactorLearner, gp.Scores, Tensor | None], Tensor]


def by_beliefs(constraint: str | None = None) -> Decoder:
    """The tree of least risk by the beliefs after five iterations."""

    def decode(learner: FactorLearner, scores: gp.Scores, nocross: Tensor | None) -> Tensor:
        factors = learner.graph(scores, nocross, constraint)
        found = gp.BeliefPropagation(factors, **HOW).run(scores.lengths)
        return best_trees(found, scores, projective=constraint == "PTREE")

    return decode


def projective(learner: FactorLearner, scores: gp.Scores, nocross: Tensor | None) -> Tensor:
    """The best projective tree, exactly."""
    return gp.decode(scores, "eisner").heads


def hill_climbing(learner: FactorLearner, scores: gp.Scores, nocross: Tensor | None) -> Tensor:
    """From the best projective tree on (McDonald and Pereira 2006): the best change of one head, while it pays."""
    heads = gp.decode(scores, "eisner").heads
    parts = {name: part.dense() for name, part in zip(scores.second_order, scores.parts, strict=True)}
    for b, n in enumerate(scores.lengths.tolist()):
        at = slice(n + 1)
        one = {name: part[b : b + 1, at, at, at].expand(n + 1, -1, -1, -1) for name, part in parts.items()}
        arcs = scores.arcs[b : b + 1, at, at].expand(n + 1, -1, -1)
        rows = gp.Scores(arcs, torch.full((n + 1,), n), **one, validate_args=False)
        now = heads[b, : n + 1].clone()
        while True:
            before = float(rows.total(now.expand(n + 1, -1))[0])
            best, change = before + 1e-6, (0, 0)
            for m in range(1, n + 1):
                tried = now.repeat(n + 1, 1)
                tried[:, m] = torch.arange(n + 1)
                legal = _trees(tried)
                totals = rows.total(torch.where(legal[:, None], tried, now)).masked_fill(~legal, -torch.inf)
                value, h = (float(totals.max()), int(totals.argmax()))
                if value > best:
                    best, change = value, (h, m)
            if not change[1]:
                break
            now[change[1]] = change[0]
        heads[b, : n + 1] = now
    return heads


def _trees(heads: Tensor) -> Tensor:
    """Which rows of heads [K, N] are trees with a single root."""
    up = heads.clamp(min=0)
    reached = up.clone()
    for _ in range(heads.shape[1].bit_length()):
        reached = reached.gather(1, reached)
    return (reached == 0).all(1) & ((heads[:, 1:] == 0).sum(1) == 1)


def decoders(name: str) -> dict[str, Decoder]:
    """How the trees of a model are found."""
    if name == FIRST:
        return {constraint: by_beliefs(constraint) for constraint in WEAKER}
    found = {name: by_beliefs()}
    if name == SECOND:
        found |= {"projective": projective, "hill-climbing": hill_climbing}
    return found


def accuracy(learner: FactorLearner, parsed: Sequence[Sentence], which: dict[str, Decoder]) -> dict[str, Any]:
    """Percent of heads right, and seconds, by decoder."""
    sums, words = {name: Sums() for name in which}, 0
    for scores, nocross, gold in _scored(learner, parsed):
        words += int((gold >= 0).sum())
        for name, decode in which.items():
            heads, seconds = timed(partial(decode, learner, scores, nocross))
            sums[name].add(seconds=seconds, right=int(((heads == gold) & (gold >= 0)).sum()))
    return {n: {"uas": 100 * of["right"] / words, "words": words, "seconds": of["seconds"]} for n, of in sums.items()}


def _scored(learner: FactorLearner, parsed: Sequence[Sentence]) -> Iterator[tuple[gp.Scores, Tensor | None, Tensor]]:
    learner.parser.scorer.eval()
    for batch, scores in scored_batches(learner.parser, parsed, 1000, tree=True):
        assert batch.heads is not None
        with torch.inference_mode():
            yield scores, learner.nocross(batch), batch.heads


def run(language: str, name: str, seed: int, args: Args) -> dict[str, Any]:
    """Train and measure one parser; what was measured before is read from its file."""
    path = RESULTS / "bp" / f"{language}_{name.strip('+ ').replace('+', '_').lower()}_{seed}.json"
    if path.is_file():
        known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return known
    torch.set_num_threads(1)
    (learner, parsed), seconds = timed(lambda: train(LANGUAGES[language], MODELS[name], args, seed))
    found: dict[str, Any] = {"language": language, "model": name, "seed": seed, "minutes": seconds / 60}
    found["decoders"] = accuracy(learner, parsed, decoders(name))
    write_json(path, found)
    return found
