"""One sentence drawn, as SVG and as PNG."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import Any

from gpuparse.data.looks import CONFIDENCE_KEY
from gpuparse.data.sentence import Sentence
from gpuparse.render.compare import ParsedFile, notes_of, parses, tags_of, tokens_of
from gpuparse.render.style import FONT, LIGHT
from gpuparse.render.svg import Drawing, tree_svg
from gpuparse.system.quote import shown

SCALE = 2.0  # pixels of a PNG for each of the drawing's


def sentence_svg(sentence: Sentence, gold: Sentence | None = None, *, confidence_key: str = CONFIDENCE_KEY) -> Drawing:
    """Draw a sentence as an SVG element that can be saved as a file: words, tags, arcs, confidence as opacity.

    Args:
        sentence: it needs words; without heads it is drawn without arcs.
        gold: the same sentence with the right tree; differences are then marked.
        confidence_key: the key in MISC that holds the probability of a word's arc.

    Notebooks show the same of a sentence by themselves. A ``ConlluError`` where the words differ, or a line is
    malformed.

    Example:
        >>> from gpuparse.data import Sentence
        >>> from gpuparse.render import sentence_svg
        >>> drawing = sentence_svg(Sentence.from_words(["She", "sleeps"], heads=[2, 0], deprels=["nsubj", "root"]))
        >>> drawing[:4], "nsubj" in drawing
        ('<svg', True)
    """
    if not len(sentence):
        raise ValueError("sentence: it has no words to draw")
    (parse,) = parses([sentence], None if gold is None else [gold], confidence_key=confidence_key)
    return draw(parse)


def draw(parse: ParsedFile, standalone: bool = True) -> Drawing:
    """A parse with all that is drawn of it; on a page, which has the style once, it is not standalone."""
    sentence = parse.sentence
    return tree_svg(
        [-1, *parse.heads],
        parse.words,
        parse.labels,
        tags=tags_of(sentence),
        gold_heads=None if parse.gold_heads is None else [-1, *parse.gold_heads],
        gold_labels=parse.gold_labels,
        confidence=parse.confidence,
        notes=notes_of(sentence),
        tokens=tokens_of(sentence),
        standalone=standalone,
    )


def svg_png(drawing: str, scale: float = SCALE) -> bytes:
    """A drawing as PNG, light, by resvg (the extra ``png``); ``ValueError`` where that or every font is missing.

    Args:
        drawing: an SVG element with its own style, such as ``sentence_svg`` and ``tree_svg`` give.
        scale: pixels of the image for each of the drawing's.

    Example:
        >>> from gpuparse.render import svg_png, tree_svg
        >>> svg_png(tree_svg([-1, 2, 0], ["She", "sleeps"]))[:4]
        b'\\x89PNG'
    """
    if not 0 < scale <= 100:
        raise ValueError(f"scale: {scale}; wanted more than 0, and 100 at most")
    resvg, fonts = _resvg(), _fonts()
    try:
        return bytes(resvg.svg_to_bytes(svg_string=str(drawing), zoom=scale, background=LIGHT["paper"], **fonts))
    except ValueError as error:
        raise ValueError(f"drawing: not one that becomes a PNG: {shown(str(error))}") from None


def _resvg() -> Any:
    try:
        import resvg_py
    except ImportError:
        raise ValueError("PNG needs resvg; pip install 'gpuparse[png]'") from None
    return resvg_py


@cache
def _fonts() -> dict[str, Any]:
    """Options that let text be seen: none, or the font that matplotlib has, where the system has none that fits."""
    own = find_spec("matplotlib")
    places: list[dict[str, Any]] = [{}]
    if own is not None and own.origin is not None:
        file = os.path.join(os.path.dirname(own.origin), "mpl-data", "fonts", "ttf", "DejaVuSans.ttf")
        places.append({"font_files": [file], "sans_serif_family": "DejaVu Sans"} if os.path.exists(file) else {})
    for options in places:
        with_text, without = (
            _resvg().svg_to_bytes(
                svg_string='<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">'
                f'<text x="2" y="15" font-family="{FONT}">{text}</text></svg>',
                **options,
            )
            for text in ("H", "")
        )
        if with_text != without:
            return options
    raise ValueError(
        "PNG: this machine has no font that fits; install one (on Debian and Ubuntu: fonts-dejavu-core), "
        "or pip install 'gpuparse[plot]', which has one"
    )
