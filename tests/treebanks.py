"""Real treebanks, which are no part of the project: the directory that GPUPARSE_TREEBANKS names, by default
``../shared/treebanks`` beside the checkout. ``tools/fetch_treebanks.py`` fetches them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.fetch_treebanks import FILES

NAMES = [file.name.removesuffix(".conllu") for file in FILES]


def directory() -> Path:
    beside = Path(__file__).resolve().parents[2] / "shared" / "treebanks"
    return Path(os.environ.get("GPUPARSE_TREEBANKS") or beside)


def treebank(name: str) -> Path:
    """A file by its name without ".conllu"; the test is skipped where it is not there."""
    path = directory() / f"{name}.conllu"
    if not path.is_file():
        pytest.skip(f"no treebank {path.name} (see CONTRIBUTING.md, GPUPARSE_TREEBANKS)")
    return path
