"""A model's directory: ``model.json`` (versions and results), settings, vocabulary, weights, and how it is written."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn

from gpuparse.config import Config
from gpuparse.files import json_bytes, read_json, write_together
from gpuparse.nn.build import save_files

FORMAT = 1  # of the directory
FILES = ("model.json", "config.toml", "vocabulary.json", "model.safetensors")
WHAT = {"parse": "parser", "tag": "tagger"}  # a model by its task


class Saved(NamedTuple):
    """What is in a model's directory, but for its weights."""

    config: Config
    vocabulary: Any  # as JSON has it
    results: dict[str, Any]


def read_model(path: Path, task: str) -> Saved:
    """Read what a model of this task is made of; ``ValueError``, in one line, where there is none that is whole."""
    if not (path / "model.json").is_file():
        raise ValueError(f"{path}: no model here (there is no model.json); gpuparse train makes one")
    about = read_json(path / "model.json")
    found = about.get("format") if isinstance(about, dict) else None
    if found != FORMAT:
        writer = str(about.get("gpuparse", "?")) if isinstance(about, dict) else "?"
        raise ValueError(
            f"{path}: a model of format {found}, written by gpuparse {writer}; "
            f"gpuparse {_version()} reads format {FORMAT}: train it anew"
        )
    own = str(about.get("task", "parse"))
    if own != task:
        raise ValueError(
            f"{path}: holds a {WHAT.get(own, own)}, and a {WHAT[task]} is wanted; "
            f"gpuparse train --task {task} makes one"
        )
    for name in FILES:
        if not (path / name).is_file():
            raise ValueError(f"{path}: {name} is missing; the model is not whole")
    config = Config.load(path / "config.toml")
    if config.task != task:
        raise ValueError(f"{path}: config.toml is that of a {WHAT[config.task]} and model.json is not; it is not whole")
    return Saved(config, read_json(path / "vocabulary.json"), about.get("results", {}))


def no_vocabulary(path: Path, error: Exception) -> ValueError:
    """Says that a vocabulary could not be made of what was read."""
    return ValueError(f"{path / 'vocabulary.json'}: not a vocabulary of this version: {error!r}")


def write_model(path: Path, config: Config, vocabulary: Any, scorer: nn.Module, results: dict[str, Any]) -> None:
    """Write a model to its directory, each file whole or not at all."""
    about = {"format": FORMAT, "gpuparse": _version(), "task": config.task, "results": results}
    weights = {name: value.detach().cpu().contiguous() for name, value in scorer.state_dict().items()}
    contents = {
        path / "config.toml": config.to_toml().encode(),
        path / "vocabulary.json": json_bytes(vocabulary),
        path / "model.safetensors": to_safetensors(weights),
        path / "model.json": json_bytes(about),
    }
    # Over another model: without model.json there is none, until all of this one is there.
    same = all(_holds(path / name, contents[path / name]) for name in ("config.toml", "vocabulary.json"))
    save_files(scorer, path)
    write_together(contents, first_remove=None if same else path / "model.json")


def load_weights(scorer: nn.Module, path: Path) -> None:
    """Take the weights from a file, all of them."""
    weights: dict[str, Tensor]
    try:
        weights = load_file(path)
        scorer.load_state_dict(weights)
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{path}: not the weights of this model: {' '.join(str(error).split())}") from None


def _version() -> str:
    return str(import_module("gpuparse").__version__)  # which imports all of this, so that it cannot be imported before


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content
