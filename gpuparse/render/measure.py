"""How wide a text is drawn, without a browser to ask; and texts made fit to draw."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

# Widths in em, between those of the usual sans-serif fonts and rather too wide: a gap does less harm than an overlap.
_ASCII = {
    0.28: "ijlI'!,.:;| ",
    0.39: '()-[]{}/\\frtJ`"',
    0.54: "csvxyzk?*_",
    0.62: "abdeghnopqu0123456789$#<>=+^~FLT",
    0.68: "ABEKPRSVXYZ&",
    0.77: "CDGHNOQUw",
    0.95: "mMW%@",
}
_WIDTHS = {character: width for width, characters in _ASCII.items() for character in characters}
# Single characters that are drawn as wide as words.
_WIDTHS |= {"\ufdfd": 9.0, "\ufdfa": 3.5, "\u2e3a": 2.0, "\u2e3b": 3.0, "\u2014": 1.0, "\u2026": 1.0}
_WIDTHS |= {"\ufffd": 1.0, "\t": 1.0, "ß": 0.62, "æ": 0.92, "œ": 0.98, "Æ": 0.95, "Œ": 1.05}

_ZERO_WIDTH = {"Mn", "Me", "Cf"}
_NOT_DRAWN = {"Cc", "Cs", "Zl", "Zp"}
_ODD = re.compile(r"[^ -~]")
_ELLIPSIS = "…"


def text_width(text: str, size: float) -> float:
    """The width in pixels of a text in a sans-serif font of ``size`` pixels, estimated."""
    return size * sum(map(_em, text))


@lru_cache(maxsize=1 << 16)
def _em(character: str) -> float:
    known = _WIDTHS.get(character)
    if known is not None:
        return known
    category = unicodedata.category(character)
    if category in _ZERO_WIDTH or "\u1160" <= character <= "\u11ff":  # vowels and finals join the Hangul before them
        return 0.0
    if unicodedata.east_asian_width(character) in {"W", "F"}:
        return 1.0
    base = unicodedata.normalize("NFD", character)[0]
    if base != character:  # an accent adds nothing
        return _em(base)
    if category == "Mc":
        return 0.4
    if unicodedata.bidirectional(character) in {"R", "AL"}:
        return 0.56
    return {"Lu": 0.74, "Ll": 0.62, "Lo": 0.75}.get(category, 0.8 if category.startswith("S") else 0.6)


def drawable(text: str) -> str:
    """The text in one line, with what XML cannot hold replaced, and a ring under an accent that stands first."""
    if not _ODD.search(text):
        return text
    shown = "".join("\ufffd" if unicodedata.category(c) in _NOT_DRAWN or ord(c) & 0xFFFE == 0xFFFE else c for c in text)
    return f"\u25cc{shown}" if unicodedata.category(shown[0]) in {"Mn", "Me", "Mc"} else shown


def shorten(text: str, most: int) -> str:
    """At most about ``most`` characters, with an ellipsis in the middle; accents stay with their letters."""
    if len(text) <= most:
        return text
    head, tail = 2 * most // 3, len(text) - most // 3
    while head > 1 and _joins(text, head):
        head -= 1
    while tail < len(text) and _joins(text, tail):
        tail += 1
    return f"{text[:head]}{_ELLIPSIS}{text[tail:]}"


def _joins(text: str, at: int) -> bool:
    """Whether the character at ``at`` belongs to the one before."""
    return unicodedata.category(text[at]) in {"Mn", "Me", "Mc", "Cf", "Sk"} or text[at - 1] == "\u200d"


def is_right_to_left(texts: Iterable[str]) -> bool:
    """Whether most letters of the texts are written from right to left."""
    balance = 0
    for text in texts:
        if text.isascii():
            balance -= sum(map(str.isalpha, text))
            continue
        for character in text:
            direction = unicodedata.bidirectional(character)
            balance += (direction in {"R", "AL"}) - (direction == "L")
    return balance > 0


def isolated(text: str) -> str:
    """The text, kept from turning its surroundings round where it is not written from left to right."""
    if text.isascii() or not any(unicodedata.bidirectional(c) in {"R", "AL", "RLE", "RLO", "RLI"} for c in text):
        return text
    return f"\u2068{text}\u2069"
