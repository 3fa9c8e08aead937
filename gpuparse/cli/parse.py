"""``gpuparse parse``: a corpus of any size, parsed by a trained model."""

from __future__ import annotations

import hashlib
from functools import partial as bound
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuparse.cli.common import count, fail, say
from gpuparse.cli.options import (
    BatchWords,
    Device,
    Inputs,
    MaxWords,
    Model,
    Output,
    Overwrite,
    Quiet,
    Resume,
    Threads,
    among,
)
from gpuparse.config import value_of
from gpuparse.system import startup
from gpuparse.system.defaults import BATCH_WORDS, TIME_LIMIT, TREE_METHODS, ready
from gpuparse.system.quote import shown

if TYPE_CHECKING:
    from gpuparse.cli.corpus import CorpusReport
    from gpuparse.cli.stream import Work
    from gpuparse.lp import Constraint
    from gpuparse.models.parser import Parser


def parse(
    model: Model,
    inputs: Inputs = None,
    output: Output = "-",
    method: Annotated[
        str,
        typer.Option(
            help=f"How to find the best tree: auto, {', '.join(TREE_METHODS)}.",
            autocompletion=among(["auto", *TREE_METHODS]),
        ),
    ] = "auto",
    option: Annotated[
        list[str] | None,
        typer.Option(help="Of the method, as name=value: exact=true for ppc. May be given several times."),
    ] = None,
    projective: Annotated[
        bool | None,
        typer.Option("--projective/--non-projective", help="Which trees to allow.", show_default="as in training"),
    ] = None,
    single_root: Annotated[
        bool | None,
        typer.Option(
            "--single-root/--multi-root", help="One word under the root, or any number.", show_default="as in training"
        ),
    ] = None,
    tagger: Annotated[
        Path | None,
        typer.Option(help="The directory of a trained tagger: tag the words first, in place of the tags they have."),
    ] = None,
    constraints: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A TOML file of constraints on trees, or the name of one that is included ({', '.join(ready())}). "
            "May be given several times.",
            autocompletion=among(ready()),
        ),
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Seconds for one sentence under constraints; after these it gets the best tree found so far, if any.",
        ),
    ] = TIME_LIMIT,
    confidence: Annotated[
        bool,
        typer.Option("--confidence", help="Write each arc's probability to MISC, as Confidence=0.9731."),
    ] = False,
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities",
            help="The same, and each label's, as LabelConfidence; in comments the whole tree's, and the entropy.",
        ),
    ] = False,
    nbest: Annotated[
        int,
        typer.Option(
            min=0, max=64, help="Write so many of the best trees of a sentence, with their probabilities, best first."
        ),
    ] = 0,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial",
            help="Keep each HEAD and DEPREL that is not _, and the heads that Heads=2,5-7 in MISC allows; predict the "
            "rest given these.",
        ),
    ] = False,
    output_format: Annotated[
        str | None,
        typer.Option(help="conllu, or jsonl: an object a sentence.", show_default="by the output's name, else conllu"),
    ] = None,
    batch_words: BatchWords = BATCH_WORDS,
    max_words: MaxWords = None,
    device: Device = "cpu",
    threads: Threads = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Parse CoNLL-U files: HEAD and DEPREL are replaced, all else stays as it is.

    With --partial they are kept where they are given, and the rest is the best under that.

    With --tagger the columns of its tags are filled too, and the words parsed with them.
    With --constraints a sentence whose tree violates them is parsed anew under them. Where no tree satisfies them, or
    the best could not be proven in time, a comment says so: # constraints = ...
    A sentence that cannot be parsed is named on stderr and written as it was; the exit code is then 1.
    """
    with startup.importing():
        from gpuparse.cli.corpus.forms import writers
        from gpuparse.cli.stream import Run, Work, fingerprint, stream
        from gpuparse.decoding.ilp.files import constraints_of, constraints_path
        from gpuparse.models.pipeline import Pipeline, listed

    def begin() -> Work:
        pipeline = Pipeline.load(tagger, model, device)
        parser = pipeline.parser
        if pipeline.tagger is not None and pipeline.missing and not quiet:
            gives = listed(pipeline.tagger.vocabulary.tag_set.columns)
            say(f"{tagger} gives {gives}; the parser also reads {listed(pipeline.missing)}, taken as it is")
        options: dict[str, Any] = {"method": method, "projective": projective, "single_root": single_root}
        if option:
            options["options"] = dict(_name_and_value(text) for text in option)
        settings = {"model": fingerprint(model), "device": device, **options}
        more = {"probabilities": probabilities, "nbest": nbest, "partial": partial}
        settings |= {name: value for name, value in (*more.items(), ("format", form)) if value and value != "conllu"}
        asked: list[Constraint] = []
        digests = []
        for name in constraints or ():
            path = constraints_path(name)
            text = path.read_bytes()  # once: it may be a pipe
            digests.append(hashlib.blake2b(text, digest_size=16).hexdigest())
            found = constraints_of(text, path)
            if not quiet:
                _check_labels(name, found, parser)
            asked += found
        if asked:
            settings |= {"constraints (digests of their files)": digests, "time_limit": time_limit}
        if tagger is not None:
            settings["tagger"] = fingerprint(tagger)
        probe = bound(pipeline.predict, confidence=confidence, probabilities=probabilities, nbest=nbest, **options)
        limits: dict[str, Any] = {"constraints": asked, "time_limit": time_limit, "partial": partial}
        predict = bound(probe, batch_words=None, **limits)  # the corpus is in batches already
        fill, unfilled = writers(form, nbest > 0, confidence or probabilities)
        return Work(predict, fill, settings, probe, _constrained if asked else None, unfilled)

    form = output_format or ("jsonl" if output.removesuffix(".gz").endswith(".jsonl") else "conllu")
    if form not in ("conllu", "jsonl"):
        fail(f"--output-format {shown(form)}: wanted conllu or jsonl", 2)
    if nbest and constraints:
        fail("--nbest gives trees without regard to --constraints: leave one of them out", 2)
    run = Run(inputs, output, batch_words, max_words, threads, resume, overwrite, quiet)
    stream(begin, run, verb=("parse", "parsed"), confidence=confidence or probabilities)


def _name_and_value(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        fail(f"--option {shown(text)}: wanted name=value", 2)
    return name.strip(), value_of(value)


def _check_labels(name: str, constraints: list[Constraint], parser: Parser) -> None:
    """Say which constraints of a file are about labels that the parser never gives."""
    from gpuparse.decoding.ilp.files import unknown_labels

    unknown = unknown_labels(constraints, parser.vocabulary.labels.names)
    if unknown:
        told = ", ".join(
            f"constraint {number} ({shown(', '.join(sorted(labels)))})" for number, labels in unknown.items()
        )
        say(f"gpuparse: {name}: the model knows none of the labels of {told}")


def _constrained(report: CorpusReport) -> str:
    counts = report.counts
    return (
        f"{count(counts['solved'], 'sentence')} parsed anew under constraints; {counts['infeasible']:,} of them cannot "
        f"satisfy them, {counts['not proven']:,} not proven best in time"
    )
