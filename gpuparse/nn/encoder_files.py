"""The files of a pretrained encoder within a model's directory, that anybody may have made: looked at beforehand.

The library that reads them makes whatever its configuration asks for, opens the files that it names, and would wait for
a pipe.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuparse.system.files import MOST_BYTES, is_there, open_file, read_json
from gpuparse.system.quote import quoted

SETTINGS_FILE = "encoder.json"
_SETTINGS = {"name_or_path", "layers", "max_pieces", "pooling", "freeze", "dropout"}
_MOST_FILES = 1000
_MOST_PARTS = 500  # layers, experts and the like, each of them a module
_MOST_NUMBER = 1 << 31
_PARTS = re.compile(r"(^|_)(layers?|experts|blocks|depths?|stages)$")


def read_settings(directory: Path) -> dict[str, Any]:
    """What an encoder was made with; ``ValueError``, in one line, where its files are not fit to be read."""
    file = directory / SETTINGS_FILE
    if not is_there(file):
        raise ValueError(f"{file}: not there; give the directory of a saved encoder")
    if directory.is_symlink():
        raise ValueError(f"{directory}: a link; put the directory itself there")
    for path in _files(directory):
        with open_file(path, inside=directory) as content:
            size = os.fstat(content.fileno()).st_size
            if size > MOST_BYTES:
                raise ValueError(f"{path}: {size:,} bytes; at most {MOST_BYTES:,} are read")
    settings = read_json(file, inside=directory)
    if not isinstance(settings, dict) or settings.keys() != _SETTINGS:
        raise ValueError(f"{file}: not the settings of this version's encoders; save the model again")
    _check_settings(settings, file)
    for path in _files(directory):
        if path.suffix == ".json" and path.name != SETTINGS_FILE:
            _check_values(read_json(path, inside=directory), path)
    return settings


def _files(directory: Path) -> Iterator[Path]:
    count = 0
    for place, inner, names in os.walk(directory):  # which follows no links
        for name in inner:
            if Path(place, name).is_symlink():
                raise ValueError(f"{Path(place, name)}: a link; put the directory itself there")
        for name in names:
            count += 1
            if count > _MOST_FILES:
                raise ValueError(f"{directory}: more than {_MOST_FILES} files")
            yield Path(place, name)


def _check_settings(settings: dict[str, Any], file: Path) -> None:
    layers, pieces, dropout = settings["layers"], settings["max_pieces"], settings["dropout"]
    right = {
        "name_or_path": isinstance(settings["name_or_path"], str),
        "layers": type(layers) is int and 1 <= layers <= _MOST_PARTS,
        "max_pieces": pieces is None or (type(pieces) is int and 1 <= pieces < _MOST_NUMBER),
        "pooling": isinstance(settings["pooling"], str),
        "freeze": isinstance(settings["freeze"], bool),
        "dropout": type(dropout) in (int, float) and 0 <= dropout < 1,
    }
    for name, fits in right.items():
        if not fits:
            raise ValueError(f"{file}: {name} is {quoted(settings[name])}; save the model again")


def _check_values(value: Any, path: Path, name: str = "") -> None:
    """Refuse numbers that would never end, and names of files elsewhere."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_values(inner, path, key)
    elif isinstance(value, list) and path.name != "tokenizer.json":
        for inner in value:
            _check_values(inner, path, name)
    elif type(value) is int and path.name == "config.json":
        most = _MOST_PARTS if _PARTS.search(name) else _MOST_NUMBER
        if not -most <= value <= most:
            raise ValueError(f"{path}: {quoted(name)} is {quoted(value)}; wanted at most {most:,}")
    elif isinstance(value, str) and name.endswith("_file") and re.search(r"[/\\\0]|^\.\.$", value):
        raise ValueError(f"{path}: {quoted(name)} is {quoted(value)}, a file elsewhere; wanted one beside it")
