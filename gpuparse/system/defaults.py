"""Choices and defaults that ``--help`` shows: they stand apart from what needs torch, whose import takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

BATCH_WORDS = 4000  # nodes (words and root) of a batch, padding counted, where nobody says otherwise
TREE_METHODS = ("mst", "eisner", "dd", "ilp", "ppc", "lp", "bp")  # of gpuparse.decode, beside "auto"
TIME_LIMIT = 10.0  # seconds for a sentence under constraints
TagMethod = Literal["auto", "dense", "column_generation", "beam"]  # of gpuparse.viterbi
BEAM = 8  # tags of a word that a beam keeps
HOST, PORT = "127.0.0.1", 8090  # where `gpuparse serve` listens
SERVE_WORDS = 200  # of a sentence that a server parses
SERVE_SENTENCES = 256  # of a request
SERVE_BYTES = 4_000_000  # of a request
SERVE_SECONDS = 30.0  # that a request may take
READY = Path(__file__).parents[1] / "decoding" / "ilp" / "ready"


def ready() -> list[str]:
    """The names of the files of constraints that come with the package."""
    return sorted(path.stem for path in READY.glob("*.toml"))
