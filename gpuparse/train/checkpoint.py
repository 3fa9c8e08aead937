"""Checkpoints of a training run: one safetensors file, there whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save

from gpuparse.system.files import parse_json, write_bytes
from gpuparse.system.quote import quoted, shown
from gpuparse.system.tensors import Outline, check_outlines, not_finite, read_header, read_tensors
from gpuparse.train.learner import Learner

NAME = "training.safetensors"
FORMAT = 1
_WRONG = "not a checkpoint"


def save_checkpoint(directory: Path, learner: Learner[Any], position: dict[str, Any]) -> None:
    """Write weights, the learner's state and where the run is."""
    tensors = {f"model.{name}": value for name, value in learner.model.state_dict().items()}
    tensors |= {f"learner.{name}": value for name, value in learner.state().items()}
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    metadata = {"position": json.dumps({"format": FORMAT, **position})}
    write_bytes(directory / NAME, save(tensors, metadata))


def load_checkpoint(directory: Path, learner: Learner[Any]) -> dict[str, Any]:
    """Put the run back where it was; returns its position. ``ValueError``, in one line, if the file is another's."""
    path = directory / NAME
    position = read_position(directory)
    found = _under(read_header(path, directory, _WRONG).tensors, "model.")
    try:
        check_outlines(found, {name: Outline.of(value) for name, value in learner.model.state_dict().items()})
        tensors = read_tensors(path, directory, _WRONG)
        wrong = not_finite(tensors)
        if wrong is not None:
            raise ValueError(f"{quoted(wrong)} has a NaN or an infinity")
        learner.model.load_state_dict(_under(tensors, "model."))
        learner.load_state(_under(tensors, "learner."))
    except KeyError as error:
        raise ValueError(f"{path}: not of this model: {error} is missing") from None
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{path}: not of this model: {shown(str(error))}") from None
    return position


def read_position(directory: Path) -> dict[str, Any]:
    """Where the run is, without its tensors."""
    path = directory / NAME
    metadata = read_header(path, directory, _WRONG).metadata
    if "position" not in metadata:
        raise ValueError(f"{path}: {_WRONG}: its metadata have no position")
    position = parse_json(metadata["position"].encode("utf-8", "replace"), f"{path}: {_WRONG}: its position")
    if not isinstance(position, dict):
        raise ValueError(f"{path}: {_WRONG}: its position is {quoted(position)}; wanted an object")
    if position.get("format") != FORMAT:
        raise ValueError(
            f"{path}: a checkpoint of format {quoted(position.get('format'))}, this version reads {FORMAT}: start anew"
        )
    return position


def check_position(position: dict[str, Any], directory: Path) -> None:
    """``ValueError`` where the position of a checkpoint there is none that a run could have been at."""

    def wrong(name: str, wanted: str) -> ValueError:
        return ValueError(f"{directory / NAME}: {_WRONG}: {name} is {quoted(position.get(name))}; wanted {wanted}")

    for name in ("epoch", "batch", "steps", "processes", "log_length"):
        if type(position.get(name)) is not int or not 0 <= position[name] < 1 << 62:
            raise wrong(name, "a whole number, 0 or more")
    for name in ("loss", "words", "seconds", "step_seconds", "inference"):
        if type(position.get(name)) not in (int, float):
            raise wrong(name, "a number")
    for name, needed in (("words", position["batch"] > 0), ("step_seconds", True)):
        if needed and position[name] <= 0:
            raise wrong(name, "a number above 0")
    best = position.get("best")
    if not isinstance(best, dict) or not all(type(value) in (int, float) for value in best.values()):
        raise wrong("best", "scores by their names")
    if best and type(best.get("epoch")) is not int:
        raise wrong("best", "also the epoch that they are of")


def _under(named: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name[len(prefix) :]: value for name, value in named.items() if name.startswith(prefix)}
