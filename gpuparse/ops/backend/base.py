"""What a kernel is called by, and what a backend does with it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Long(int):
    """An argument that is a C long long; other ints are C ints."""


#: a tensor (passed as a pointer to its data), None (a null pointer), an int, a Long or a float (a C double)
Argument = Tensor | None | int | float


class Kernel(NamedTuple):
    """An instance of a kernel template: ``Kernel("eisner", "float", 1)`` is ``eisner<float, 1>`` in eisner.cu."""

    name: str
    number: str  # "float" or "double"
    order: int | None = None

    @property
    def symbol(self) -> str:
        return "_".join(str(x) for x in (self.name, self.number, self.order) if x is not None)

    @property
    def expression(self) -> str:
        return f"{self.name}<{', '.join(str(x) for x in (self.number, self.order) if x is not None)}>"


#: every kernel source, with the derivative orders that its template is instantiated for
SOURCES: dict[str, tuple[int | None, ...]] = {
    "automata": (None,),
    "bp_children": (0, 1),
    "bp_grand": (0, 1),
    "bp_grand_heads": (None,),
    "bp_grand_odds": (None,),
    "bp_heads": (None,),
    "bp_settle": (None,),
    "bp_tree": (0, 1),
    "chain": (0, 1, 2),
    "chain_sample": (None,),
    "chain_topk": (None,),
    "check": (None,),
    "cky": (0, 1, 2),
    "cky_argmax": (None,),
    "cky_sample": (None,),
    "eisner": (0, 1, 2),
    "eisner_argmax": (None,),
    "eisner_sample": (None,),
    "eisner_topk": (None,),
    "grandsiblings": (0, 1, 2),
    "grandsiblings_argmax": (None,),
    "grandsiblings_priced": (None,),
    "grandsiblings_sample": (None,),
    "lexical": (None,),
    "lexical_argmax": (None,),
    "lexical_sample": (None,),
    "matrix_tree": (0, 1, 2),
    "matrix_tree_sample": (None,),
    "mst": (None,),
    "mst_topk": (None,),
    "multipliers": (None,),
    "pricing": (0, 1, 2, 3),
    "readings": (None,),
    "siblings": (0, 1, 2),
    "siblings_argmax": (None,),
    "siblings_sample": (None,),
    "third_order": (None,),
    "third_order_argmax": (None,),
    "third_order_sample": (None,),
    "viterbi": (0, 1),
    "viterbi_averaged": (None,),
    "viterbi_beam": (0, 1),
    "viterbi_forward": (None,),
}


#: those that take doubles only
OF_DOUBLES = frozenset(name for name in SOURCES if name.startswith("bp_"))


def instances(name: str) -> list[Kernel]:
    """All instances of the kernel in ``name``.cu."""
    numbers = ("double",) if name in OF_DOUBLES else ("float", "double")
    return [Kernel(name, number, order) for number in numbers for order in SOURCES[name]]


class Backend(Protocol):
    """Runs kernels on one kind of device."""

    #: lanes that work on one sentence and may need storage of their own
    lanes: int

    def slots(self, sentences: int, slot_bytes: int, work: int) -> int:
        """How many sentences to work on at once, each with a workspace of ``slot_bytes`` and ``work`` steps to do."""
        ...

    def prepare(self, name: str, number: str, device: torch.device) -> None:
        """Compile ``name``.cu for a number type and a device, or raise whatever is in the way."""
        ...

    def launch(self, kernel: Kernel, args: Sequence[Argument], *, slots: int, nodes: int) -> None:
        """Run ``kernel`` with one team for each slot on sentences of at most ``nodes`` nodes."""
        ...


@cache
def announce(device: str) -> None:
    """Say, once in a process, that kernels are compiled: the first use takes seconds, and nobody would know why.

    It is a warning of the logger ``gpuparse``: on stderr where a program sets up no logging, as the command line does
    not; ``logging.getLogger("gpuparse").setLevel("ERROR")`` silences it, and ``--quiet`` does.
    """
    logging.getLogger("gpuparse").warning(
        "gpuparse: compiling kernels for the %s, some seconds each; the cache keeps them, if it can be written", device
    )


@cache
def kernels_directory() -> Path:
    """Where the .cu files are: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[2]
    for place in (package / "_kernels", package.parent / "kernels"):
        if (place / "lanes.cuh").is_file():
            return place
    raise FileNotFoundError(
        f"gpuparse was installed without its kernels ({package / '_kernels'} is missing): reinstall it"
    )


@cache
def source_text(name: str) -> str:
    """The source of one kernel (or .cpp file) with its headers in place of the #include lines."""
    directory, seen = kernels_directory(), set[str]()

    def expand(file: str) -> str:
        lines = []
        for line in (directory / file).read_text(encoding="utf-8").splitlines():
            if line.startswith('#include "'):
                header = line.split('"')[1]
                if header not in seen:
                    seen.add(header)
                    lines.append(expand(header))
            elif line != "#pragma once":
                lines.append(line)
        return "\n".join(lines)

    return expand(f"{name}.cu" if name in SOURCES else f"{name}.cpp")
