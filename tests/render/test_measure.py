from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuparse.render.measure import drawable, is_right_to_left, isolated, shorten, text_width


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("e\u0301te\u0301", "ete"),  # combining accents take no room
        ("été", "ete"),
        ("कि\u200d", "कि"),
        ("\ud55c", "\u1112\u1161\u11ab"),  # one Hangul syllable, in one character and in three
    ],
)
def test_accents_and_joiners_take_no_room(text, same):
    assert text_width(text, 10) == pytest.approx(text_width(same, 10))


def test_widths_order_like_glyphs():
    assert text_width("i", 10) < text_width("n", 10) < text_width("W", 10) < text_width("\ufdfd", 10)
    assert text_width("", 10) == 0
    assert text_width("漢字", 10) == text_width("ＡＢ", 10) == 20  # wide characters are squares
    assert text_width("abc", 20) == 2 * text_width("abc", 10)


@given(st.text())
def test_what_is_drawn_is_one_line_of_xml(text: str):
    shown = drawable(text)
    assert len(shown.splitlines()) <= 1
    assert not any(unicodedata.category(c) in {"Cc", "Cs"} or ord(c) & 0xFFFE == 0xFFFE for c in shown)
    assert text_width(text, 10) >= 0
    assert drawable("\u0301") == "\u25cc\u0301" and drawable("<é>") == "<é>"  # an accent alone gets a ring


def test_shorten_keeps_accents_with_their_letters():
    assert shorten("abc", 3) == "abc"
    assert shorten("a" * 20 + "b" * 20, 12) == "aaaaaaaa…bbbb"
    long = "e\u0301" * 30
    for most in range(4, 20):
        head, _, tail = shorten(long, most).partition("…")
        assert head.endswith("\u0301") and tail[:1] != "\u0301"
        assert len(head) + len(tail) <= most


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["כתב", "HTML", "בבית"], True),
        (["الولد", "5", "."], True),
        (["the", "word", "بيت"], False),
        (["1", "."], False),
        ([], False),
        (["我", "们"], False),
    ],
)
def test_direction(words, expected):
    assert is_right_to_left(words) is expected
    for word in words:  # only what runs the other way is isolated
        assert isolated(word) == (f"\u2068{word}\u2069" if is_right_to_left([word]) else word)
    assert isolated("a\u202eb") == "\u2068a\u202eb\u2069"
