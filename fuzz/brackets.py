"""Bracketed trees: read, written, read again."""

from __future__ import annotations

import io
import random
from pathlib import Path

from mutate import mutated, piece, refusal

from gpuparse.data.brackets import BracketError, Constituent, read_brackets, write_brackets

NAME = "brackets"
COUNT = 80_000

_WORDS = [
    *(b"(", b")", b"((", b"))", b" ", b"\n", b"(S ", b"(NP-SBJ-1 ", b"(-NONE- *T*)", b"-LRB-", b"()", b"(-"),
    b"=",
    b"( ",
]


def _phrase(rng: random.Random, deep: int) -> str:
    label = rng.choice(["S", "NP", "VP", "NP-SBJ", "-LRB-", "NN", "-NONE-", "X=1"])
    if deep == 0 or rng.random() < 0.4:
        word = piece(rng) if rng.random() < 0.2 else rng.choice(["cat", "the", "-RRB-", "*T*", "语"])
        return f"({label} {word})"
    return f"({label} {' '.join(_phrase(rng, deep - 1) for _ in range(rng.randint(1, 3)))})"


def _case(rng: random.Random) -> bytes:
    if rng.random() < 0.02:  # deep, or wide
        times = rng.choice([100, 5000, 30_000])
        middle = b"(A b)" * rng.choice([1, times])
        return b"(S " * times + middle + b")" * (times + rng.choice([0, 0, -1, 1]))
    trees = [_phrase(rng, rng.randint(0, 4)) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.3:
        trees = [f"( {tree})" for tree in trees]
    return mutated(rng, rng.choice(["\n", " ", ""]).join(trees).encode(), _WORDS)


def one(rng: random.Random, directory: Path) -> str:
    data = _case(rng)
    options = {"traces": rng.random() < 0.5, "functions": rng.random() < 0.5}
    trees: list[Constituent] = []
    try:
        for tree in read_brackets(io.BytesIO(data), **options):
            trees.append(tree)
        outcome = "ok"
    except BracketError as error:
        outcome = refusal(error)
    text = "".join(f"{tree}\n" for tree in trees)
    again = list(read_brackets(io.StringIO(text), **options))
    # What follows a phrase's name goes once, not what looks like it in what is left: nothing is left of it.
    assert [str(tree) for tree in again] == [str(tree) for tree in trees], "written and read, the trees are others"
    for tree in trees:
        assert len(tree.words) == len(tree.tags) and tree.words, "a tree without words"
    if rng.random() < 0.01:
        path = directory / "trees.mrg"
        write_brackets(trees, path)
        assert path.read_text(encoding="utf-8") == text
    return outcome
