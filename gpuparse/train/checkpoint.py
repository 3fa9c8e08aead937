"""Checkpoints of a training run: one safetensors file, there whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from gpuparse.files import write_bytes
from gpuparse.train.learner import Learner

NAME = "training.safetensors"
FORMAT = 1


def save_checkpoint(directory: Path, learner: Learner[Any], position: dict[str, Any]) -> None:
    """Write weights, the learner's state and where the run is."""
    tensors = {f"model.{name}": value for name, value in learner.model.state_dict().items()}
    tensors |= {f"learner.{name}": value for name, value in learner.state().items()}
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    metadata = {"position": json.dumps({"format": FORMAT, **position})}
    write_bytes(directory / NAME, save(tensors, metadata))


def load_checkpoint(directory: Path, learner: Learner[Any]) -> dict[str, Any]:
    """Put the run back where it was; returns its position."""
    position = read_position(directory)
    tensors: dict[str, Tensor] = {}
    with safe_open(directory / NAME, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 (it is no mapping)
            tensors[name] = file.get_tensor(name)
    _load(learner.model, _under(tensors, "model."), directory / NAME)
    learner.load_state(_under(tensors, "learner."))
    return position


def read_position(directory: Path) -> dict[str, Any]:
    """Where the run is, without its tensors."""
    path = directory / NAME
    try:
        with safe_open(path, framework="pt") as file:
            position = json.loads((file.metadata() or {})["position"])
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not a checkpoint: {error}") from None
    if position.get("format") != FORMAT:
        raise ValueError(
            f"{path}: a checkpoint of format {position.get('format')}, this version reads {FORMAT}: start anew"
        )
    return position


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}


def _load(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{path}: not of this model: {' '.join(str(error).split())}") from None
