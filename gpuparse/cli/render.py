"""``gpuparse render``: trees drawn on an HTML page, as pictures or in the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuparse.cli.common import count, fail, reason, say
from gpuparse.cli.pictures import kind_of, write_pictures
from gpuparse.data.conllu import Sentence, read_conllu
from gpuparse.data.looks import CONFIDENCE_KEY
from gpuparse.render.compare import ParsedFile, parses, text_of
from gpuparse.render.page import Tally, output_file, write_page
from gpuparse.render.text import tree_text
from gpuparse.system.quote import visible


def render(
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help="The parsed CoNLL-U file, or - for standard input; *.gz is unpacked.")
    ],
    gold: Annotated[
        str | None, typer.Option(metavar="FILE", help="The same sentences with the right trees: mark the differences.")
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where it goes; - is standard output. *.html is a page, *.txt a text, *.svg and *.png a picture: of "
            "several trees they are numbered, as in tree-1.svg.",
        ),
    ] = "-",
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Draw N sentences at most.")] = None,
    only_errors: Annotated[
        bool, typer.Option("--only-errors", help="Draw only sentences with a wrong head or label (wants --gold).")
    ] = False,
    confidence_key: Annotated[
        str, typer.Option(metavar="KEY", help="The key in MISC that has the probability of each word's arc.")
    ] = CONFIDENCE_KEY,
    title: Annotated[str | None, typer.Option(help="The page's title; else the file's name.")] = None,
    text: Annotated[bool, typer.Option("--text", help="Draw in text, for the terminal, instead of a page.")] = False,
) -> None:
    """Draw dependency trees on one HTML page that needs nothing else, as SVG or PNG, or as text."""
    if source == gold == "-":
        fail("standard input can be INPUT or --gold, not both", 2)
    if only_errors and gold is None:
        fail("--only-errors: there are no errors to find without --gold FILE", 2)
    if output == "-" and not text and sys.stdout.isatty():
        fail("a page is not for the terminal: give --output FILE, or --text to draw in text", 2)
    for given in (source, gold):
        if given is not None and _is_same(given, output):
            fail(f"--output: {output} is the input; give another name", 2)
    try:
        kind = "txt" if text else kind_of(output)
    except ValueError as error:
        fail(f"--output: {error}", 2)
    sentences = _some(source)
    right = None if gold is None else read_conllu(gold)
    chosen: dict[str, Any] = {"limit": limit, "only_errors": only_errors, "confidence_key": confidence_key}
    try:
        if kind in ("svg", "png"):
            say(write_pictures(sentences, output, gold=right, **chosen))
            return
        if kind == "txt":
            with output_file(output) as stream:
                found = enumerate(parses(sentences, right, confidence_key=confidence_key), 1)
                wanted = ((number, parse) for number, parse in found if parse.wrong or not only_errors)
                stream.writelines(_drawn(*each) for each in islice(wanted, limit))
            return
        tally = write_page(
            sentences,
            output,
            gold=right,
            title=title or _name(source),
            note="" if gold is None else f"{_name(source)} compared with {_name(gold)}",
            **chosen,
        )
    except (OSError, ValueError) as error:
        fail(reason(error))
    say(_said(tally, output))


def _some(source: str) -> Iterator[Sentence]:
    """The sentences of a file that has some."""
    empty = True
    for sentence in read_conllu(source):
        empty = False
        yield sentence
    if empty:
        raise ValueError(f"{_name(source)}: no sentences to draw")


def _is_same(one: str, other: str) -> bool:
    return "-" not in (one, other) and os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def _name(source: str) -> str:
    return "standard input" if source == "-" else Path(source).name


def _said(tally: Tally, output: str) -> str:
    where = "" if output == "-" else f"{output}: "
    scores = f", UAS {tally.uas:.2f}, LAS {tally.las:.2f}" if tally.compared and tally.words else ""
    wrong = f", {tally.wrong_sentences:,} with errors" if tally.compared else ""
    return f"{where}{count(tally.shown, 'tree')} of {count(tally.sentences, 'sentence')}{wrong}{scores}"


def _drawn(number: int, parse: ParsedFile) -> str:
    """A sentence in text: a line about it, its text, the tree and an empty line."""
    head = [str(number), parse.sentence.sent_id or "", count(len(parse.words), "word")]
    if parse.outcomes is not None:
        head += [f"UAS {100 * parse.right_heads / len(parse.words):.1f}"]
        head += [f"LAS {100 * parse.right_labels / len(parse.words):.1f}"]
    if min(parse.heads) < 0:
        tree = "(not parsed)"
    else:
        try:
            tree = tree_text([-1, *parse.heads], parse.words, [_label(parse, i) for i in range(len(parse.words))])
        except ValueError as error:
            tree = f"(not a tree: {error})"
    about = (visible(line, keep="") for line in ("  ".join(filter(None, head)), text_of(parse.sentence)))
    return "\n".join([*about, tree, "", ""])


def _label(parse: ParsedFile, index: int) -> str:
    """The label of a word, how sure it is, and what would be right."""
    parts = [parse.labels[index] or "_"]
    sure = parse.confidence[index]
    if sure is not None:
        parts.append(f"{sure:.2f}")
    if parse.outcomes is not None and parse.outcomes[index] not in {"right", "subtype"}:
        assert parse.gold_heads is not None and parse.gold_labels is not None
        head = parse.gold_heads[index]
        of = f" of {head} {parse.words[head - 1]}" if parse.outcomes[index] == "head" and head else ""
        parts.append(f"× {parse.gold_labels[index] or '_'}{of}")
    return "  ".join(parts)
