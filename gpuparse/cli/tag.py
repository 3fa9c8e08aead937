"""``gpuparse tag``: a corpus of any size, tagged by a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpuparse.chain.viterbi import BEAM, Method
from gpuparse.cli.stream import Work, fingerprint, stream
from gpuparse.corpus.driver import BATCH_WORDS
from gpuparse.data.sentence import Sentence
from gpuparse.tagger import Tagger


def tag(
    model: Annotated[Path, typer.Argument(help="The directory of a trained model.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(help="CoNLL-U files, *.gz too; - or none is standard input. Several are tagged to one output."),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="The file to write, *.gz is packed; - is standard output.")
    ] = "-",
    method: Annotated[Method, typer.Option(help="How to find the best tags.")] = "auto",
    beam: Annotated[int, typer.Option(min=1, help="Tags of a word that --method beam keeps.")] = BEAM,
    batch_words: Annotated[int, typer.Option(min=1, help="Words of a batch, padding counted.")] = BATCH_WORDS,
    max_words: Annotated[
        int | None, typer.Option(min=1, help="Leave longer sentences untagged.", show_default="no limit")
    ] = None,
    device: Annotated[str, typer.Option(help="Where to run: cpu, cuda, cuda:1.")] = "cpu",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads on the CPU.", show_default="one for each core")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with a run that was interrupted; leaves a complete output alone."),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Forget a run that was interrupted; also lets the output replace an input."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Tag CoNLL-U files: UPOS, XPOS, or UPOS and FEATS are replaced, whichever MODEL learned; all else stays.

    A sentence that cannot be tagged is named on stderr and written as it was; the exit code is then 1.
    """

    def begin() -> Work:
        tagger = Tagger.load(model, device)

        def predict(sentences: list[Sentence]) -> list[list[str]]:
            return tagger.predict(sentences, method=method, beam=beam, batch_words=batch_words)

        settings = {"model": fingerprint(model), "device": device, "method": method, "beam": beam}
        return Work([tagger], predict, tagger.vocabulary.tag_set.fill, settings)

    stream(
        begin,
        inputs,
        output,
        verb=("tag", "tagged"),
        batch_words=batch_words,
        max_words=max_words,
        threads=threads,
        resume=resume,
        overwrite=overwrite,
        quiet=quiet,
    )
