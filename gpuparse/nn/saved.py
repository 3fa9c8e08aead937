"""A model's directory: ``model.json`` (versions and results), settings, vocabulary, weights, and how it is written."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors.torch import save as to_safetensors
from torch import nn

from gpuparse.config import Config
from gpuparse.nn.build import PRETRAINED, save_files
from gpuparse.system.files import MOST_BYTES, MOST_VALUES, count_values, is_there, json_bytes, read_json, write_together
from gpuparse.system.quote import quoted, shown
from gpuparse.system.tensors import Outline, check_outlines, not_finite, read_header, read_tensors

FORMAT = 1  # of the directory
FILES = ("model.json", "config.toml", "vocabulary.json", "model.safetensors")
WHAT = {"parse": "parser", "tag": "tagger"}  # a model by its task
MOST_ABOUT = 1 << 20  # bytes of model.json
_WRONG = "not the weights of this model"

Scorer = TypeVar("Scorer", bound=nn.Module)


class Saved(NamedTuple):
    """What is in a model's directory, but for its weights."""

    config: Config
    vocabulary: Any  # as JSON has it
    results: dict[str, Any]


def read_model(path: Path, task: str) -> Saved:
    """Read what a model of this task is made of; ``ValueError``, in one line, where there is none that is whole."""
    if not is_there(path / "model.json"):
        raise ValueError(f"{path}: no model here (there is no model.json); gpuparse train makes one")
    about = read_json(path / "model.json", MOST_ABOUT, inside=path)
    found = about.get("format") if isinstance(about, dict) else None
    if type(found) is not int or found != FORMAT:
        writer = about.get("gpuparse", "?") if isinstance(about, dict) else "?"
        raise ValueError(
            f"{path}: a model of format {_bare(found)}, written by gpuparse {_bare(writer)}; "
            f"gpuparse {_version()} reads format {FORMAT}: train it anew"
        )
    own, results = about.get("task", "parse"), about.get("results", {})
    if own != task:
        raise ValueError(
            f"{path}: holds a {WHAT[own] if isinstance(own, str) and own in WHAT else quoted(own)}, "
            f"and a {WHAT[task]} is wanted; gpuparse train --task {task} makes one"
        )
    if not isinstance(results, dict):
        raise ValueError(f"{path / 'model.json'}: results is {quoted(results)}; wanted an object")
    for name in FILES:
        if not is_there(path / name):
            raise ValueError(f"{path}: {name} is missing; the model is not whole")
    config = Config.load(path / "config.toml", inside=path)
    if config.task != task:
        raise ValueError(f"{path}: config.toml is that of a {WHAT[config.task]} and model.json is not; it is not whole")
    return Saved(config, read_json(path / "vocabulary.json", inside=path), results)


def model_files(path: Path) -> list[Path]:
    """The files of a model that was loaded that its answers depend on."""
    encoder: list[Path] = []
    if Config.load(path / "config.toml", inside=path).scorer.pretrained:
        encoder = sorted(file for file in (path / PRETRAINED).rglob("*") if file.is_file())
    return [*(path / name for name in FILES if name != "model.json"), *encoder]


def vocabulary_bytes(vocabulary: Any) -> bytes:
    """The content of ``vocabulary.json``; ``ValueError`` where it is more than is ever read."""
    content = json_bytes(vocabulary)
    if len(content) > MOST_BYTES or count_values(content) > MOST_VALUES:
        raise ValueError(
            f"vocabulary: {len(content):,} bytes, {count_values(content):,} values; a model has at most "
            f"{MOST_BYTES:,} and {MOST_VALUES:,}: raise data.min_count, or lower scorer.bits of a tagger"
        )
    return content


def write_model(path: Path, config: Config, vocabulary: Any, scorer: nn.Module, results: dict[str, Any]) -> None:
    """Write a model to its directory, each file whole or not at all."""
    about = {"format": FORMAT, "gpuparse": _version(), "task": config.task, "results": results}
    weights = {name: value.detach().cpu().contiguous() for name, value in scorer.state_dict().items()}
    contents = {
        path / "config.toml": config.to_toml().encode(),
        path / "vocabulary.json": vocabulary_bytes(vocabulary),
        path / "model.safetensors": to_safetensors(weights),
        path / "model.json": json_bytes(about),
    }
    # Over another model: without model.json there is none, until all of this one is there.
    fixed = (path / "config.toml", path / "vocabulary.json")
    same = all(file.is_file() and file.read_bytes() == contents[file] for file in fixed)
    save_files(scorer, path)
    write_together(contents, first_remove=None if same else path / "model.json")


def load_scorer(build: Callable[[], Scorer], directory: Path) -> Scorer:
    """A scorer with the weights of a model's directory.

    It is first made without memory for its weights, and nothing is read or allocated unless the file has all of them,
    of the same shapes.

    Args:
        build: makes it, untrained.
    """
    try:
        with torch.device("meta"):
            wanted = build()
    except ValueError as error:
        named = str(error).startswith(str(directory))
        raise ValueError(str(error) if named else f"{directory}: {error}") from None
    check_weights(wanted, directory / "model.safetensors", directory)
    scorer = build()
    load_weights(scorer, directory / "model.safetensors", directory)
    return scorer


def check_weights(scorer: nn.Module, path: Path, inside: Path | None = None) -> None:
    """``ValueError``, in one line, where a file is not that of a scorer's weights, by its header."""
    found = read_header(path, inside, _WRONG).tensors
    try:
        check_outlines(found, {name: Outline.of(value) for name, value in scorer.state_dict().items()})
    except ValueError as error:
        raise ValueError(f"{path}: {_WRONG}: {error} by config.toml and vocabulary.json") from None


def load_weights(scorer: nn.Module, path: Path, inside: Path | None = None) -> None:
    """Take the weights from a file, all of them; ``ValueError``, in one line, where they are others, or no numbers."""
    check_weights(scorer, path, inside)
    weights = read_tensors(path, inside, _WRONG)
    try:
        scorer.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{path}: {_WRONG}: {shown(str(error))}") from None
    wrong = not_finite(dict(scorer.named_parameters()))
    if wrong is not None:
        raise ValueError(f"{path}: {quoted(wrong)} has a NaN or an infinity; the file is damaged, or training diverged")


def _version() -> str:
    return str(import_module("gpuparse").__version__)  # which imports all of this, so that it cannot be imported before


def _bare(value: object) -> str:
    """A value in a message; a string without quotation marks."""
    return shown(value) if isinstance(value, str) else quoted(value)
