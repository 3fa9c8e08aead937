"""Trees as pictures: one file a sentence, all of them or none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gpuparse.cli.common import count
from gpuparse.data.looks import CONFIDENCE_KEY
from gpuparse.data.sentence import Sentence
from gpuparse.render.compare import parses
from gpuparse.render.drawing import draw, svg_png
from gpuparse.system.files import is_special, replacing, write_together

MOST = 100  # files that are written where nobody names a limit


def write_pictures(
    sentences: Iterator[Sentence],
    output: str,
    *,
    gold: Iterator[Sentence] | None = None,
    limit: int | None = None,
    only_errors: bool = False,
    confidence_key: str = CONFIDENCE_KEY,
) -> str:
    """Draw sentences as SVG or PNG, by the output's name, and say in a line what was written.

    One picture has that name. Several are numbered by their places in the input: ``tree-1.svg``, ``tree-2.svg``. More
    than a hundred are a ``ValueError``, before anything is written, unless ``limit`` is as many.
    """
    if not os.path.isdir(os.path.dirname(output) or "."):
        raise ValueError(f"{output}: no such directory")
    drawn: dict[int, bytes] = {}
    for number, parse in enumerate(parses(sentences, gold, confidence_key=confidence_key), 1):
        if only_errors and not parse.wrong:
            continue
        if limit is None and len(drawn) == MOST:
            raise ValueError(
                f"{output}: more than {MOST} trees, each a file; --limit N allows more, and *.html has all on one page"
            )
        svg = draw(parse)
        drawn[number] = svg_png(svg) if kind_of(output) == "png" else f"{svg}\n".encode()
        if len(drawn) == limit:
            break
    if not drawn:
        return f"{output}: no trees to draw, nothing written"
    if len(drawn) == 1:
        (content,) = drawn.values()
        with replacing(output) as stream:
            stream.write(content)
        return f"{output}: 1 tree"
    if is_special(output):
        raise ValueError(f"{output}: {count(len(drawn), 'tree')}, each a file; give a name of a file, or --limit 1")
    stem, suffix = os.path.splitext(output)
    digits = len(str(max(drawn)))
    names = [f"{stem}-{number:0{digits}}{suffix}" for number in drawn]
    write_together({Path(name): content for name, content in zip(names, drawn.values(), strict=True)})
    return f"{names[0]} to {names[-1]}: {count(len(drawn), 'tree')}"


def kind_of(output: str) -> str:
    """What is written under a name: "svg", "png", "txt", or else "html"; ``ValueError`` for other kinds of pictures."""
    ending = os.path.splitext(output)[1].lower()
    if ending in _OTHERS:
        raise ValueError(f"{output}: *{ending} is not what is drawn; wanted *.html, *.svg, *.png or *.txt")
    return ending[1:] if ending in (".svg", ".png", ".txt") else "html"


_OTHERS = {".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".bmp", ".eps", ".ps", ".tex", ".md"}
