"""``gpuparse parse``: a corpus of any size, parsed by a trained model."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuparse.cli.common import count, fail, say
from gpuparse.cli.stream import Work, fingerprint, stream
from gpuparse.config import value_of
from gpuparse.corpus.driver import BATCH_WORDS
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import Sentence
from gpuparse.decode import METHODS
from gpuparse.lp import Constraint
from gpuparse.lp.files import constraints_of, constraints_path, ready, unknown_labels
from gpuparse.parser import TIME_LIMIT, Parser
from gpuparse.quote import shown
from gpuparse.tagger import Tagger


def parse(
    model: Annotated[Path, typer.Argument(help="The directory of a trained model.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(help="CoNLL-U files, *.gz too; - or none is standard input. Several are parsed to one output."),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="The file to write, *.gz is packed; - is standard output.")
    ] = "-",
    method: Annotated[str, typer.Option(help=f"How to find the best tree: auto, {', '.join(METHODS)}.")] = "auto",
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
            help=f"A TOML file of constraints on trees, or the name of one that comes along ({', '.join(ready())}). "
            "May be given several times."
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
    batch_words: Annotated[int, typer.Option(min=1, help="Words of a batch, padding counted.")] = BATCH_WORDS,
    max_words: Annotated[
        int | None, typer.Option(min=1, help="Leave longer sentences unparsed.", show_default="no limit")
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
    """Parse CoNLL-U files: HEAD and DEPREL are replaced, all else stays as it is.

    With --tagger the columns of its tags are filled too, and the words parsed with them.
    With --constraints a sentence whose tree violates them is parsed anew under them. Where no tree satisfies them, or
    the best could not be proven in time, a comment says so: # constraints = ...
    A sentence that cannot be parsed is named on stderr and written as it was; the exit code is then 1.
    """

    def begin() -> Work:
        parser = Parser.load(model, device)
        options: dict[str, Any] = {"method": method, "projective": projective, "single_root": single_root}
        if option:
            options["options"] = dict(_name_and_value(text) for text in option)
        settings = {"model": fingerprint(model), "device": device, **options}
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
        told = partial(_constrained, parser.constrained) if asked else None

        def probe(sentences: list[Sentence]) -> list[Prediction]:
            return parser.predict(sentences, confidence=confidence, **options)

        def predict(sentences: list[Sentence]) -> list[Prediction]:
            return parser.predict(
                sentences,
                confidence=confidence,
                constraints=asked,
                time_limit=time_limit,
                batch_words=batch_words,
                **options,
            )

        if tagger is None:
            return Work([parser], predict, None, settings, probe, told)
        own = Tagger.load(tagger, device)
        _check_columns(model, parser, tagger, own, quiet)

        def tag_and_predict(sentences: list[Sentence]) -> list[tuple[Sentence, Prediction]]:
            tagged = own.tag(sentences, batch_words=batch_words)
            return list(zip(tagged, predict(tagged), strict=True))

        def fill(_: Sentence, answer: tuple[Sentence, Prediction]) -> Sentence:
            tagged, prediction = answer
            return prediction.fill(tagged, confidence)

        def probe_both(sentences: list[Sentence]) -> list[Prediction]:
            return probe(own.tag(sentences))

        return Work([own, parser], tag_and_predict, fill, {**settings, "tagger": fingerprint(tagger)}, probe_both, told)

    stream(
        begin,
        inputs,
        output,
        verb=("parse", "parsed"),
        batch_words=batch_words,
        max_words=max_words,
        threads=threads,
        resume=resume,
        overwrite=overwrite,
        quiet=quiet,
        confidence=confidence,
    )


def _name_and_value(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        fail(f"--option {shown(text)}: wanted name=value", 2)
    return name.strip(), value_of(value)


def _check_labels(name: str, constraints: list[Constraint], parser: Parser) -> None:
    """Say which constraints of a file are about labels that the parser never gives."""
    unknown = unknown_labels(constraints, parser.vocabulary.labels.names)
    if unknown:
        told = ", ".join(
            f"constraint {number} ({shown(', '.join(sorted(labels)))})" for number, labels in unknown.items()
        )
        say(f"gpuparse: {name}: the model knows none of the labels of {told}")


def _constrained(counts: dict[str, int]) -> str:
    return (
        f"{count(counts['solved'], 'sentence')} parsed anew under constraints; {counts['infeasible']:,} of them cannot "
        f"satisfy them, {counts['not proven']:,} not proven best in time"
    )


def _check_columns(model: Path, parser: Parser, directory: Path, tagger: Tagger, quiet: bool) -> None:
    """A tagger whose tags the parser does not read would change nothing."""
    given = tagger.vocabulary.tag_set.columns
    reads, gives = (" and ".join(map(str.upper, names)) or "words alone" for names in (parser.columns, given))
    missing = [name.upper() for name in parser.columns if name not in given]
    if len(missing) == len(parser.columns):
        fail(f"--tagger {directory} gives {gives}, and the parser {model} reads {reads}; train one of what it reads")
    if missing and not quiet:
        say(f"{directory} gives {gives}; the parser also reads {' and '.join(missing)}, taken as it is")
