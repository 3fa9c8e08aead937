"""One sentence as SVG and as PNG."""

from __future__ import annotations

import builtins
import re
import struct
from xml.etree import ElementTree

import pytest

from gpuparse.data import ConlluError, Sentence
from gpuparse.render import drawing, sentence_svg, svg_png
from gpuparse.render.style import svg_style
from tests.refusals import refusal
from tests.render.drawings import GOLD, WRONG, arcs, texts


def size(png: bytes) -> tuple[int, int]:
    """Of an image."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and png[-8:-4] == b"IEND"
    return struct.unpack(">II", png[16:24])


def test_a_sentence():
    root = ElementTree.fromstring(sentence_svg(WRONG))
    assert arcs(root) == [(1, 2), (2, 0), (3, 2), (4, 2)] and not arcs(root, "g")
    assert "VERB" in texts(root) and "<style>" in sentence_svg(WRONG)
    compared = ElementTree.fromstring(sentence_svg(WRONG, GOLD))
    assert arcs(compared, "g") == [(3, 4)] and arcs(compared, "x") == [(3, 2)]
    assert sentence_svg(WRONG, confidence_key="None") != sentence_svg(WRONG)
    assert refusal(sentence_svg, Sentence("\n")) == "sentence: it has no words to draw"
    other = Sentence.from_words(["We"], heads=[0])
    assert "give the same words in both" in refusal(sentence_svg, WRONG, other, error=ConlluError)


def test_a_png():
    pytest.importorskip("resvg_py", reason="no resvg-py")
    svg = sentence_svg(WRONG, GOLD)
    for scale in (1.0, 2.0):
        wide, high = size(svg_png(svg, scale))
        assert abs(wide - scale * svg.width) <= 2 and abs(high - scale * svg.height) <= 2
    assert svg_png(svg) != svg_png(svg.replace(">saw<", "><"))  # text is drawn
    assert refusal(svg_png, "<svg").startswith("drawing: not one that becomes a PNG: ")
    assert refusal(svg_png, svg, 0) == "scale: 0; wanted more than 0, and 100 at most"


def test_the_style_is_one_that_makers_of_png_know():
    """Who does not know a selector leaves its rule out."""
    selectors = re.sub(r"\{.*?\}", "", svg_style().partition("@media")[0])
    assert ".gp" in selectors and ":" not in selectors


def test_without_resvg(monkeypatch):
    real = builtins.__import__

    def missing(name, *rest):
        if name == "resvg_py":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert refusal(svg_png, "<svg/>") == "PNG needs resvg; pip install 'gpuparse[png]'"


class Blind:
    """A resvg on a machine without fonts, but for those it is given."""

    def svg_to_bytes(self, svg_string, font_files=(), **_):
        return svg_string.encode() if font_files else b""


def test_without_fonts(monkeypatch):
    monkeypatch.setattr(drawing, "_resvg", Blind)
    monkeypatch.setattr(drawing, "_fonts", drawing._fonts.__wrapped__)
    if drawing.find_spec("matplotlib"):
        assert svg_png("<svg/>") == b"<svg/>"  # by matplotlib's
    monkeypatch.setattr(drawing, "find_spec", lambda name: None)
    assert refusal(svg_png, "<svg/>").startswith("PNG: this machine has no font that fits; install one")
