"""Whole files through the corpus driver and the evaluation: nothing is lost, and what fails is named."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

from conllu import case, document
from mutate import refusal

from gpuparse.cli.corpus import Failure, parse_corpus
from gpuparse.data.conllu import read_conllu
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import Sentence
from gpuparse.evaluate import evaluate

NAME = "corpora"
COUNT = 20_000


class _Broken(Exception):
    """What a model fails with."""


def one(rng: random.Random, directory: Path) -> str:
    path = directory / "case.conllu"
    data = case(rng)
    path.write_bytes(data)
    return _parse(rng, path, data) if rng.random() < 0.6 else _evaluate(rng, path, data)


def _evaluate(rng: random.Random, path: Path, data: bytes) -> str:
    """Compare a file with itself, or with another one."""
    other = path.with_name("other.conllu")
    other.write_bytes(data if rng.random() < 0.5 else case(rng) if rng.random() < 0.5 else document(rng))
    try:
        result = evaluate(str(path), str(other), single_root=rng.random() < 0.5)
    except ValueError as error:
        return f"evaluation {refusal(error)}"
    for score in result.metrics.values():
        assert 0 <= score.correct <= min(score.gold, score.system), "more is right than there is"
    result.to_json()
    return "evaluated"


def _parse(rng: random.Random, path: Path, data: bytes) -> str:
    """Parse a file by a model that fails on some sentences."""
    packed = rng.random() < 0.2
    source, target = path, path.with_name("parsed.conllu.gz" if packed else "parsed.conllu")
    if packed:
        source = path.with_name("case.conllu.gz")
        content = gzip.compress(data)
        source.write_bytes(content[: rng.randint(0, len(content))] if rng.random() < 0.3 else content)
    unlucky = rng.random() < 0.3
    failures: list[Failure] = []

    def predict(sentences: list[Sentence]) -> list[Prediction]:
        if unlucky and any(len(sentence) % 2 for sentence in sentences):
            raise _Broken("x" * 500)
        return [Prediction(list(range(len(sentence))), ["dep"] * len(sentence)) for sentence in sentences]

    try:
        report = parse_corpus(source, target, predict, window=rng.choice([1, 3, 2000]), on_failure=failures.append)
    except (ValueError, RuntimeError) as error:
        if isinstance(error, RuntimeError):
            assert "sentences failed" in str(error), str(error)
        assert not list(path.parent.glob("parsed*")), "something was left of a run that failed"
        return refusal(error)
    assert len(failures) == report.failed
    for failure in failures:
        refusal(ValueError(str(failure)))
    read = list(read_conllu(source, check=False))
    written = list(read_conllu(target, check=False))
    assert len(read) == len(written) == report.sentences, "sentences were lost"
    failed = {failure.line for failure in failures}
    for before, after in zip(read, written, strict=True):
        lines = range(before.line, before.line + before.text.count("\n") + 1)
        if failed & set(lines) and before.text != after.text:
            assert after.heads == list(range(len(after))), "named as failed, yet changed"
    return "parsed in part" if failures else "parsed"
