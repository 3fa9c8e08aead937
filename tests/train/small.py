"""Training on a small scale, for the tests: a tiny model, a few sentences, and what a run leaves behind."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch

from gpuparse.config import Config
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.batches import Batch, collate
from gpuparse.data.sentence import Sentence
from gpuparse.data.vocab import Vocabulary
from gpuparse.models.parser import Parser
from gpuparse.models.tagger import Tagger
from gpuparse.train import TrainingReport, loop, train, train_tagger
from gpuparse.train.report import read_log

TINY = (
    *("scorer.word=8", "scorer.char=4", "scorer.chars=6", "scorer.tag=4", "scorer.feats=4", "scorer.hidden=8"),
    *("scorer.layers=1", "scorer.arc=8", "scorer.label=6", "scorer.bits=8", "scorer.label_bits=6"),
    *("data.min_count=1", "training.epochs=2", "training.batch_words=40", "training.checkpoint_seconds=0"),
)
NO_DROPOUT = ("scorer.embedding_dropout=0", "scorer.encoder_dropout=0", "scorer.mlp_dropout=0")
TEMPLATES = ("scorer.kind=templates",)
TAGS = ("task=tag",)
BILSTM = (*TAGS, "scorer.kind=bilstm", "data.tags=upos+feats")
TIMES = {"seconds", "dev_seconds", "inference_share", "inference_seconds", "seconds_inference", "words_per_second"}


def config(*overrides: str) -> Config:
    """The configuration of a tiny model, with some changes."""
    return Config.load(None, [*TINY, *overrides])


@cache
def sentences(count: int, seed: int = 7, longest: int = 14) -> tuple[Sentence, ...]:
    """Short sentences of the artificial language."""
    short = [one for one in artificial_treebank(12 * count, seed) if len(one) <= longest]
    assert len(short) >= count
    return tuple(short[:count])


def batch_of(given: tuple[Sentence, ...], vocabulary: Vocabulary) -> Batch:
    return collate([vocabulary.encode(one, tree=True) for one in given], vocabulary.chars)


def parser_and_batch(settings: Config, count: int = 6) -> tuple[Parser, Batch]:
    """An untrained parser and a batch of sentences that it knows."""
    given = sentences(count)
    vocabulary = Vocabulary.build(given, min_count=settings.data.min_count)
    return Parser.new(settings, vocabulary), batch_of(given, vocabulary)


def run(
    directory: Path, *overrides: str, resume: bool = False, report: TrainingReport | None = None, **options: Any
) -> Parser | Tagger:
    """Train on ten sentences, three of which are the dev data as well."""
    options = {"train": sentences(10), "dev": sentences(10)[:3], **options}
    settings = config(*overrides)
    function = train if settings.task == "parse" else train_tagger
    return function(settings, directory, resume=resume, report=report, **options)


def run_alone(directory: str, overrides: tuple[str, ...], resume: bool) -> None:
    """The same in a process of its own."""
    torch.set_num_threads(1)
    loop.draw_curve = lambda *_: True
    run(Path(directory), *overrides, resume=resume)


def told(directory: Path, *events: str) -> list[dict[str, Any]]:
    """The lines of a run's log, without what depends on the clock."""
    lines = [line for line in read_log(directory / "log.jsonl") if not events or line["event"] in events]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def outcome(directory: Path) -> dict[str, Any]:
    """What a finished run leaves, to the byte, but for times and the picture."""
    there = {path.name for path in directory.iterdir()} - {"curve.png"}
    named = ("config.toml", "vocabulary.json", "model.json", "model.safetensors")
    assert there == {*named, "log.jsonl", "training.json"}, there
    return {"log": told(directory)} | {name: (directory / name).read_bytes() for name in named}
