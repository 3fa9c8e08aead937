"""Many dependency trees on one self-contained HTML page."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import IO

from gpuparse.data.conllu import Sentence
from gpuparse.data.looks import CONFIDENCE_KEY
from gpuparse.render.compare import ParsedFile, parses, text_of
from gpuparse.render.drawing import draw
from gpuparse.render.measure import drawable, is_right_to_left
from gpuparse.render.style import SCRIPT, page_style
from gpuparse.render.svg import ARROW, ARROW_UP, FAINTEST, Drawing, arc_path, label_room
from gpuparse.system.files import is_special, replacing
from gpuparse.system.streams import standard_output


@dataclass
class Tally:
    """What was read for a page and what is on it."""

    sentences: int = 0
    shown: int = 0
    words: int = 0
    right_heads: int = 0
    right_labels: int = 0
    wrong_sentences: int = 0
    compared: bool = False
    with_confidence: bool = False

    @property
    def uas(self) -> float:
        """Percentage of words with the right head."""
        return _percent(self.right_heads, self.words)

    @property
    def las(self) -> float:
        """Percentage of words with the right head and label, subtypes aside."""
        return _percent(self.right_labels, self.words)

    def add(self, parse: ParsedFile) -> None:
        """Count a sentence as read."""
        self.sentences += 1
        self.words += len(parse.words)
        self.right_heads += parse.right_heads
        self.right_labels += parse.right_labels
        self.wrong_sentences += parse.wrong


def write_page(
    sentences: Iterable[Sentence],
    target: str | os.PathLike[str] | IO[str],
    *,
    gold: Iterable[Sentence] | None = None,
    title: str = "Dependency trees",
    note: str = "",
    limit: int | None = None,
    only_errors: bool = False,
    confidence_key: str = CONFIDENCE_KEY,
) -> Tally:
    """Write the trees of sentences as one HTML page that needs nothing else, and say what is on it.

    Args:
        sentences: the parsed sentences. One without heads is drawn without arcs.
        target: a path, ``-`` (stdout) or a file open for text. A file appears under its name once it is complete.
        gold: the same sentences with the right trees; differences are then marked and counted.
        title: of the page.
        note: a line under the title.
        limit: draw this many sentences at most, and read no further.
        only_errors: draw only sentences with a wrong head or label (wants ``gold``).
        confidence_key: the key in MISC that holds the probability of a word's arc.

    Memory is that of one sentence: the drawings wait in a temporary file for the counts that stand over them.

    Example:
        >>> import io
        >>> from gpuparse.data import Sentence
        >>> from gpuparse.render import write_page
        >>> page = io.StringIO()
        >>> write_page([Sentence.from_words(["She", "sleeps"], heads=[2, 0])], page).shown
        1
        >>> "<svg" in page.getvalue()
        True
    """
    if only_errors and gold is None:
        raise ValueError("only_errors: there are no errors to find without gold; give gold")
    if limit is not None and limit < 1:
        raise ValueError(f"limit: {limit} sentences; wanted 1 or more")
    tally = Tally(compared=gold is not None)
    named = isinstance(target, (str, os.PathLike)) and not is_special(os.fspath(target))
    beside = os.path.dirname(os.path.realpath(str(target))) if named else None
    with output_file(target) as stream, tempfile.TemporaryFile("w+", encoding="utf-8", dir=beside) as body:
        errors = 0
        for parse in parses(sentences, gold, confidence_key=confidence_key):
            tally.add(parse)
            if only_errors and not parse.wrong:
                continue
            errors += parse.wrong
            tally.shown += 1
            tally.with_confidence |= any(value is not None for value in parse.confidence)
            body.write(_section(parse, tally.sentences, errors))
            if tally.shown == limit:
                break
        stream.write(_opening(tally, title, note))
        body.seek(0)
        shutil.copyfileobj(body, stream, 1 << 20)
        end = "No sentences." if not tally.shown else "No more errors." if errors else ""
        footer = f'</main>\n<footer id="e{errors + 1}">{end}</footer>\n'
        stream.write(f"{footer}<script>{SCRIPT}</script>\n</body>\n</html>\n")
    return tally


def _html(text: str) -> str:
    return escape(drawable(text))


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _plural(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _section(parse: ParsedFile, number: int, error: int) -> str:
    """A sentence; ``error`` counts the wrong ones so far, this one included."""
    sentence = parse.sentence
    drawing = draw(parse, standalone=False)
    head = [f'<a href="#s{number}">{number:,}</a>']
    if sentence.sent_id:
        head.append(f"<b><bdi>{_html(sentence.sent_id)}</bdi></b>")
    head.append(f"<span>{_plural(len(parse.words), 'word')}</span>")
    if all(value < 0 for value in parse.heads):
        head.append("<span>not parsed</span>")
    if parse.outcomes is not None:
        count = len(parse.words)
        uas, las = _percent(parse.right_heads, count), _percent(parse.right_labels, count)
        head.append(f'<span class="f">UAS {uas:.1f}</span><span class="f">LAS {las:.1f}</span>')
        heads, labels = count - parse.right_heads, parse.right_heads - parse.right_labels
        wrong = [_plural(many, f"wrong {what}") for many, what in ((heads, "head"), (labels, "label")) if many]
        if wrong:
            head.append(f'<span class="c">× {", ".join(wrong)}</span>')
            head.append(f'<a class="n" href="#e{error + 1}">next error ↓</a>')
    kind, anchor = (' class="bad"', f'<i id="e{error}"></i>') if parse.wrong else ("", "")
    direction = ' dir="rtl"' if is_right_to_left(parse.words) else ""
    wide = drawing.width > _PAPER
    focus = ' tabindex="0"' if wide else ""  # so that it scrolls by keyboard
    named = drawing.replace("<svg ", f'<svg id="t{number}" ', 1)
    shown = f"{named}</div>{_strips(drawing, number)}" if wide else f"{drawing}</div>"
    return (
        f'<section id="s{number}"{kind} style="contain-intrinsic-size:auto {drawing.height + 90:.0f}px">{anchor}'
        f'<div class="head">{"".join(head)}</div>\n'
        f'<p class="text" dir="auto">{_html(text_of(sentence))}</p>\n'
        f'<div class="box{" wide" if wide else ""}"{direction}{focus}>{shown}</section>\n'
    )


def _strips(drawing: Drawing, number: int) -> str:
    """A wide drawing in strips, one over the other, cut between words: what is printed in its place."""
    cuts = [0.0]
    while drawing.width - cuts[-1] > _PAPER:
        within = [(clear, cut) for cut, clear in drawing.cuts if cuts[-1] < cut <= cuts[-1] + _PAPER]
        # The last gap that cuts no label, unless it leaves half a sheet empty.
        last = [cut for clear, cut in within if clear and cut > cuts[-1] + _PAPER / 2] or [cut for _, cut in within]
        cuts.append(last[-1] if last else cuts[-1] + _PAPER)
    strips = []
    for left, right in pairwise([*cuts, drawing.width]):
        size = f'width="{right - left:.1f}" height="{drawing.height:.1f}"'
        box = f'viewBox="{left:.1f} 0 {right - left:.1f} {drawing.height:.1f}"'
        strips.append(f'<svg {size} {box}><use href="#t{number}"/></svg>')
    if drawing.right_to_left:
        strips.reverse()
    return f'<div class="strips" aria-hidden="true">{"".join(strips)}</div>'


_PAPER = 1000.0  # pixels across a sheet
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def _opening(tally: Tally, title: str, note: str) -> str:
    figures = [("Sentences", f"{tally.sentences:,}"), ("Words", f"{tally.words:,}")]
    if tally.compared:
        figures += [("UAS", f"{tally.uas:.2f}"), ("LAS", f"{tally.las:.2f}")]
        figures += [("Sentences with errors", f"{tally.wrong_sentences:,}")]
    if tally.shown != tally.sentences:
        figures += [("Shown", f"{tally.shown:,}")]
    numbers = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{_html(title)}</title>\n<style>{page_style()}</style>\n</head>\n<body>\n"
        f'<div class="top"><h1 dir="auto">{_html(title)}</h1>\n{f"<p>{_html(note)}</p>" if note else ""}'
        f"<dl>{numbers}</dl>\n{_legend(tally)}</div>\n{_navigation(tally)}<main>\n"
    )


def _navigation(tally: Tally) -> str:
    if not (tally.compared and tally.wrong_sentences):
        return ""
    return (
        '<nav aria-label="Errors"><div>'
        '<a class="first" href="#e1">First error</a>'
        '<button type="button" data-step="-1">← Previous<kbd>p</kbd></button>'
        '<button type="button" data-step="1">Next →<kbd>n</kbd></button>'
        '<label><input type="checkbox" id="only" autocomplete="off"> only sentences with errors</label>'
        "</div></nav>\n"
    )


def _legend(tally: Tally) -> str:
    """Small drawings of what the marks mean."""
    items: list[tuple[str, str]] = []
    if tally.compared:
        items += [
            (_sample("a", "nsubj"), "right"),
            (_sample("a x", "× nsubj"), "wrong head"),
            (_sample("a g", "nsubj", under=True), "the right head, under the words"),
            (_sample("a l", "× obj (obl)"), "wrong label (the right one)"),
        ]
    if tally.with_confidence:
        items.append((_sample("a", "", FAINTEST) + _sample("a", ""), "the fainter, the less sure"))
    if not items:
        return ""
    return f'<ul class="legend">{"".join(f"<li>{drawn}{said}</li>" for drawn, said in items)}</ul>\n'


def _sample(kind: str, label: str, opacity: float = 1, under: bool = False) -> str:
    room = label_room(label)
    right = max(room + 30, 46)
    start, level, sign, arrow = (3, 19, 1, ARROW_UP) if under else (24, 8, -1, ARROW)
    path = arc_path(5, right, (5 + right) / 2, room, start, level, start + sign * 6, sign)
    ours, bracket, gold = label.partition(" (")
    text = f'<tspan class="p">{ours}</tspan> <tspan class="q">({gold}</tspan>' if bracket else label
    return (
        f'<svg class="gp" width="{right + 5:g}" height="27" aria-hidden="true"><g class="{kind}" opacity="{opacity:g}">'
        f'<path d="{path}"/><path class="h" d="M{right:g} {start}{arrow}"/>'
        f'<text x="{(5 + right) / 2:g}" y="{level + 3.8:g}">{text}</text></g></svg>'
    )


@contextmanager
def output_file(target: str | os.PathLike[str] | IO[str]) -> Iterator[IO[str]]:
    """A stream that becomes the page: a file under its name once all went well, stdout, or a stream as given."""
    if not isinstance(target, (str, os.PathLike)):
        yield target
        return
    path = os.fspath(target)
    try:
        with nullcontext(standard_output()) if path == "-" else replacing(path) as raw:
            output = io.TextIOWrapper(raw, encoding="utf-8", newline="\n", write_through=True)
            try:
                yield output
                output.flush()
            finally:
                output.detach()
    except OSError as error:
        if error.filename == f"{os.path.realpath(path)}.{os.getpid()}.tmp":
            error.filename = path
        raise
