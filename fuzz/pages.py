"""Pages, drawings, trees in text: whatever words, labels and names hold, none of it becomes a tag or an attribute."""

from __future__ import annotations

import io
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from conllu import tree
from mutate import field, piece, refusal

from gpuparse.data.sentence import Sentence
from gpuparse.render import tree_svg, tree_text
from gpuparse.render.page import write_page

NAME = "pages"
COUNT = 30_000

# Everything that a page may hold. What came from the data would be something else, sooner or later.
_TAGS = {
    *("html", "head", "meta", "title", "style", "body", "div", "h1", "p", "dl", "dt", "dd", "ul", "li", "nav", "a"),
    *("b", "button", "kbd", "label", "input", "main", "section", "i", "span", "bdi", "footer", "script"),
    *("svg", "g", "path", "text", "tspan", "title", "desc", "use", "rect", "line", "circle", "clippath", "defs"),
}
_ATTRIBUTES = {
    *("lang", "charset", "name", "content", "http-equiv", "class", "dir", "href", "type", "data-step", "id", "xmlns"),
    *("autocomplete", "aria-label", "aria-hidden", "aria-labelledby", "role", "style", "tabindex", "width", "height"),
    *("viewbox", "d", "x", "y", "dy", "dx", "opacity", "textlength", "lengthadjust", "transform", "text-anchor"),
    *("fill", "stroke", "data-h", "data-m", "data-i", "x1", "x2", "y1", "y2", "direction", "unicode-bidi", "title"),
    *("xml:space", "rx"),
}
_VOID = {"meta", "input"}


def _text(rng: random.Random) -> str:
    odd = ["cat", "语", "שלום", "x" * 500, "&amp;", "<b>", "a'b\"c", "</title><script>x()</script>", "</style>"]
    return field(rng) if rng.random() < 0.5 else rng.choice(odd)


class _Reader(HTMLParser):
    """Counts tags and looks at attributes."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _TAGS, f"a tag {tag!r}"
        self.tags[tag] += 1
        for name, value in attrs:
            assert name in _ATTRIBUTES, f"an attribute {name!r} of {tag}"
            if name == "href":
                assert re.fullmatch(r"#[set][0-9]+", value or ""), f"a link to {value!r}"
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment {data[:40]!r}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"a processing instruction {data[:40]!r}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration {data[:40]!r}")


def read_page(page: str) -> Counter[str]:
    """The tags of a page that is well-formed and holds nothing that it should not."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open, f"not closed: {reader.open}"
    return reader.tags


def _sentence(rng: random.Random, words: Sequence[str]) -> Sentence:
    count = len(words)
    names = ["lemmas", "upos", "xpos", "feats", "deprels", "misc"]
    columns = {name: [_text(rng) for _ in words] for name in names if rng.random() < 0.6}
    if rng.random() < 0.3:
        columns["misc"] = [f"Confidence={rng.random()}|{field(rng)}" for _ in words]
    comments = []
    for key in ("sent_id", "text", piece(rng)):
        comment = f"# {key} = {_text(rng)}"
        if rng.random() < 0.5 and not set(comment) & set("\r\n"):
            comments.append(comment)
    heads = tree(rng, count) if rng.random() < 0.9 else None
    sentence = Sentence.from_words(words, heads=heads, comments=comments, **columns)
    if rng.random() < 0.2 and count > 1:  # a token of several words
        first = f"1-2\t{_text(rng)}" + "\t_" * 8
        sentence = Sentence(sentence.text.replace("\n1\t", f"\n{first}\n1\t", 1), sentence.source)
    return sentence


def one(rng: random.Random, directory: Path) -> str:
    given = [[_text(rng) for _ in range(rng.randint(1, 6))] for _ in range(rng.randint(1, 3))]
    sentences = [_sentence(rng, words) for words in given]
    gold = [_sentence(rng, words) for words in given] if rng.random() < 0.4 else None
    page = io.StringIO()
    try:
        write_page(sentences, page, gold=gold, title=_text(rng), note=_text(rng) if rng.random() < 0.5 else "")
        tags = read_page(page.getvalue())
        assert tags["script"] == 1 and tags["style"] == 1 and tags["section"] == len(sentences)
        outcome = "page"
    except ValueError as error:
        outcome = refusal(error)
    words = given[0]
    heads, labels = [-1, *tree(rng, len(words))], [_text(rng) for _ in words]
    drawing = tree_svg(heads, words, labels, tags=[_text(rng) for _ in words], notes=[_text(rng) for _ in words])
    names = {element.tag.rpartition("}")[2].lower() for element in ElementTree.fromstring(drawing).iter()}
    assert names <= _TAGS - {"script"}, f"tags {names - _TAGS}"
    text = tree_text(heads, words, labels)
    assert text.count("\n") == len(words), "a word of several lines"
    bad = {char for char in text if unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}} - {"\n"}
    assert not bad, f"{bad} in a tree in text"
    return outcome
