"""The options that commands share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer


def among(names: Iterable[str]) -> Callable[[str], list[str]]:
    """For a shell that completes a word: the names that begin with it."""
    known = list(names)

    def beginning(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return beginning


Model = Annotated[Path, typer.Argument(help="The directory of a trained model.")]
Inputs = Annotated[
    list[str] | None,
    typer.Argument(help="CoNLL-U files, *.gz too; - or none is standard input. Several go to one output."),
]
Output = Annotated[str, typer.Option("--output", "-o", help="The file to write, *.gz is packed; - is standard output.")]
BatchWords = Annotated[int, typer.Option(min=1, help="Words of a batch, roots and padding counted.")]
MaxWords = Annotated[
    int | None, typer.Option(min=1, help="Leave longer sentences as they are.", show_default="no limit")
]
Device = Annotated[
    str, typer.Option(help="Where to run: cpu, cuda, cuda:1.", autocompletion=among(["cpu", "cuda", "cuda:0"]))
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads on the CPU.", show_default="one for each core")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a run that was interrupted; leaves a complete output alone.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Forget a run that was interrupted; also lets the output replace an input.")
]


def _hush(quiet: bool) -> bool:
    """Silence what the library says by itself, too."""
    if quiet:
        logging.getLogger("gpuparse").setLevel(logging.ERROR)
    return quiet


Quiet = Annotated[bool, typer.Option("--quiet", "-q", callback=_hush, help="Say nothing but errors.")]
