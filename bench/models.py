"""Treebanks, and models trained on them, once for all suites that need one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.commands import run, settings
from bench.output import LOG, PROJECT, Problem
from bench.registry import Args
from gpuparse.data.conllu import read_conllu, write_conllu
from gpuparse.data.sentence import Sentence


def treebanks(args: Args) -> Path:
    """The directory of the treebanks: by --treebanks, else by GPUPARSE_TREEBANKS, else that beside the project."""
    directory = Path(args.treebanks or os.environ.get("GPUPARSE_TREEBANKS") or PROJECT.parent / "shared" / "treebanks")
    if not any(directory.glob("*.conllu")):
        raise Problem(f"no *.conllu in {directory}: say where they are by --treebanks or GPUPARSE_TREEBANKS", 2)
    return directory


def treebank_file(args: Args, name: str) -> Path:
    path = treebanks(args) / name
    if not path.is_file():
        raise Problem(f"{name} is not among the treebanks", 2)
    return path


class Fold(NamedTuple):
    """What a parser learns from, a file or sentences, and what it parses."""

    learned: Path | list[Sentence]
    parsed: list[Sentence]


@dataclass(frozen=True)
class Treebank:
    """The file that is parsed and the one that is learned from; without the latter sentences are parsed by parsers that
    learned from the others."""

    parsed: str
    learned: str = ""

    def folds(
        self, args: Args, count: int, convert: Callable[[Iterable[Sentence]], Iterable[Sentence]] = list
    ) -> list[Fold]:
        """One where there is a file to learn from; else so many, sentence i being parsed in fold i % count."""
        try:
            parsed = list(convert(read_conllu(treebank_file(args, self.parsed))))
        except ValueError as error:
            raise Problem(" ".join(str(error).split())) from None
        if self.learned:
            return [Fold(treebank_file(args, self.learned), parsed)]
        others = ([s for i, s in enumerate(parsed) if i % count != fold] for fold in range(count))
        return [Fold(learned, parsed[fold::count]) for fold, learned in enumerate(others)]


ENGLISH = Treebank("en_ewt-ud-dev.conllu", "en_ewt-ud-train.conllu")
HUNGARIAN = Treebank("hu_szeged-ud-dev.conllu", "hu_szeged-ud-train.conllu")
DANISH = Treebank("da_ddt-ud-dev.conllu")
DUTCH = Treebank("nl_alpino-ud-dev.conllu")
ITALIAN = Treebank("it_isdt-ud-dev.conllu")


def is_trained(model: Path) -> bool:
    return (model / "training.json").is_file() and (model / "model.safetensors").is_file()


def check_trained(model: Path, suite: str) -> Path:
    """``Problem`` unless a model is there; ``suite`` is the one that trains it."""
    if not is_trained(model):
        raise Problem(f"{model}: no trained parser; python -m bench run {suite} train makes it", 2)
    return model


def train(
    model: Path,
    data: Path | Sequence[Sentence] | None = None,
    *,
    dev: Path | None = None,
    config: str | Path | None = None,
    values: Mapping[str, Any] | None = None,
    threads: int | None = None,
    task: str | None = None,
    anew: bool = False,
) -> float | None:
    """``gpuparse train``, unless the model is there; one that was interrupted goes on.

    Args:
        data: sentences are written beside the model; None is the built-in treebank.
        dev: the file by which the best epoch is kept.
        config: a file, or a name in configs/.
        values: settings that differ from it.
        task: "tag" for a tagger.
        anew: train, and overwrite what is there.

    Returns:
        The seconds of the whole command; None if nothing was trained.
    """
    if is_trained(model) and not anew:
        LOG.print(f"{model.name}: trained before")
        return None
    if data is not None and not isinstance(data, Path):
        sentences, data = data, model.with_name(f"{model.name}.train.conllu")
        data.parent.mkdir(parents=True, exist_ok=True)
        write_conllu(sentences, data)
    path = PROJECT / "configs" / config if isinstance(config, str) else config
    named = {"--train": data, "--dev": dev, "--config": path, "--threads": threads, "--task": task}
    options = [str(part) for pair in named.items() if pair[1] is not None for part in pair]
    LOG.print(f"gpuparse train {model.name} {' '.join(settings(values or {}))}".rstrip())
    how = "--overwrite" if anew else "--resume"
    return run("train", model, *options, *settings(values or {}), how, show=data is not None).seconds
