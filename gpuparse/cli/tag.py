"""``gpuparse tag``: a corpus of any size, tagged by a trained model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpuparse.cli.options import BatchWords, Device, Inputs, MaxWords, Model, Output, Overwrite, Quiet, Resume, Threads
from gpuparse.system import startup
from gpuparse.system.defaults import BATCH_WORDS, BEAM, TagMethod

if TYPE_CHECKING:
    from gpuparse.cli.stream import Work
    from gpuparse.data.sentence import Sentence


def tag(
    model: Model,
    inputs: Inputs = None,
    output: Output = "-",
    method: Annotated[TagMethod, typer.Option(help="How to find the best tags.")] = "auto",
    beam: Annotated[int, typer.Option(min=1, help="Tags of a word that --method beam keeps.")] = BEAM,
    batch_words: BatchWords = BATCH_WORDS,
    max_words: MaxWords = None,
    device: Device = "cpu",
    threads: Threads = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Tag CoNLL-U files: UPOS, XPOS, or UPOS and FEATS are replaced, whichever MODEL learned; all else stays.

    A sentence that cannot be tagged is named on stderr and written as it was; the exit code is then 1.
    """
    with startup.importing():
        from gpuparse.cli.stream import Run, Work, fingerprint, stream
        from gpuparse.models.tagger import Tagger

    def begin() -> Work:
        tagger = Tagger.load(model, device)

        def predict(sentences: list[Sentence]) -> list[list[str]]:
            return tagger.predict(sentences, method=method, beam=beam, batch_words=None)

        settings = {"model": fingerprint(model), "device": device, "method": method, "beam": beam}
        return Work(predict, tagger.vocabulary.tag_set.fill, settings)

    run = Run(inputs, output, batch_words, max_words, threads, resume, overwrite, quiet)
    stream(begin, run, verb=("tag", "tagged"))
