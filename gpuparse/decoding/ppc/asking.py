"""What work on a sentence asks, and what it is told."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from gpuparse.decoding.ppc.pairs import Doubles, Ints


@dataclass(frozen=True)
class Question:
    """What pricing needs to know of a sentence: for each kind of pairs ceiling, floor and kappa [3, N, N], see
    ``gpuparse.ops.pricing.price``.

    ``z``: weights of arcs. One that joins may want its head's best head by them for a grandparent.
    """

    duals: tuple[Doubles, ...]
    z: Doubles


@dataclass(frozen=True)
class Answer:
    """What pricing found of a kind: triples (x, p, c) [T, 3], with their scores, as costs in the program, and their
    reduced costs (``costs``)."""

    triples: Ints
    scores: Doubles
    costs: Doubles


T = TypeVar("T")
Lists = tuple[Ints, ...]  # triples [T, 3] of each kind
Request = Question | Lists
Reply = tuple[Answer, ...] | tuple[Doubles, ...]
Work = Generator[Request, Any, T]
"""Work on a sentence that comes to a T. It asks what triples have positive reduced cost (a ``Question``, which gets an
``Answer`` for each kind) or what triples of each kind score (which gets their scores), and may be put aside until it is
told."""
