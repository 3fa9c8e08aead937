"""Sentences in one line, as drawings, and their confidences."""

from __future__ import annotations

import pytest

from gpuparse.data import ConlluError, Sentence
from gpuparse.data.looks import probabilities
from tests.refusals import refusal

WORDS = ["We", "saw", "it"]
PARSED = Sentence.from_words(
    WORDS, heads=[2, 0, 2], deprels=["nsubj", "root", "obj"], misc=["A=b|Confidence=0.25", "_", "Confidence=1.0004"]
)


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        (PARSED, "Sentence(1 We ← 2, 2 saw ← 0, 3 it ← 2)"),
        (Sentence.from_words(WORDS), "Sentence(1 We, 2 saw, 3 it)"),
        (Sentence("# nothing\n\n"), "Sentence(no words)"),
        (Sentence.from_words(["\x1b[31m", "\u202eb"]), r"Sentence(1 \x1b[31m, 2 \u202eb)"),
        (Sentence("1\tword\n\n", "f.conllu", 7), "Sentence(malformed: f.conllu:7: 2 columns where CoNLL-U has 10;"),
    ],
)
def test_one_line(sentence, shown):
    assert repr(sentence).startswith(shown) and repr(sentence).isprintable()


def test_one_line_is_short():
    long = repr(Sentence.from_words(["w" * 1000] * 1000, heads=[0] * 1000))
    assert len(long) < 600 and long.endswith(", … 1000 words)")


def test_confidence():
    assert PARSED.confidence == [0.25, None, 1.0]
    assert Sentence.from_words(WORDS).confidence == [None] * 3 and Sentence("\n").confidence == []
    assert probabilities(PARSED, "B") == [None] * 3
    for wrong in ("high", "1.2", "-0.1", "nan", ""):
        sentence = Sentence.from_words(["a", "b"], misc=["_", f"Confidence={wrong}"])
        line = refusal(lambda one=sentence: one.confidence, error=ConlluError)
        assert line.startswith("<words>:2: Confidence=") and "is not a number between 0 and 1" in line


def test_a_notebook_shows_the_tree():
    drawing = PARSED._repr_svg_()
    assert drawing.startswith("<svg") and "nsubj" in drawing and "confidence 0.25" in drawing
    bare = Sentence.from_words(WORDS)._repr_svg_()
    assert bare.startswith("<svg") and 'data-m="' not in bare
    for nothing in (Sentence("\n"), Sentence("1\tword\n\n"), Sentence.from_words(WORDS, heads=[1, 1, 1])):
        assert nothing._repr_svg_() is None
