"""``gpuparse sample``: sentences to try things with."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuparse.cli.common import count, say
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.conllu import write_conllu


def sample(
    sentences: Annotated[int, typer.Option("--sentences", "-n", min=0, help="How many sentences.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other sentences of the same language.")] = 0,
    start: Annotated[int, typer.Option(min=0, help="The number of the first sentence.")] = 0,
    output: Annotated[str, typer.Option("--output", "-o", help="A file, *.gz too; - for stdout.")] = "-",
) -> None:
    """Write sentences of the built-in artificial treebank, as CoNLL-U."""
    write_conllu(artificial_treebank(sentences, seed, start=start), output)
    if output != "-":
        say(f"{output}: {count(sentences, 'sentence')}")
