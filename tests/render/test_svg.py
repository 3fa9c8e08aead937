from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpuparse.render import Token, outcomes, tree_svg
from tests.refusals import refusal
from tests.render.drawings import SVG, WORDS, arcs, groups, texts, trees

HEADS = [-1, 2, 0, 4, 2]
LABELS = ["nsubj", "root", "det", "obj"]


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def label_of(root: ElementTree.Element, word: int, kind: str = "a") -> str:
    (group,) = (g for g in groups(root, kind) if g.get("data-m") == str(word) and "g" not in g.get("class", "").split())
    return "".join(texts(group))


@pytest.mark.slow
@given(trees(12), st.data())
def test_every_word_and_arc_is_there_once(heads: list[int], data: st.DataObject):
    count = len(heads) - 1
    letters = st.text(st.characters(exclude_categories=("C", "Z", "M")), min_size=1, max_size=12)
    words = data.draw(st.lists(letters, min_size=count, max_size=count))
    root = parse(tree_svg(heads, words, [f"l{i}" for i in range(count)], tags=["T"] * count))
    assert arcs(root) == [(word, head) for word, head in enumerate(heads) if word]
    drawn = groups(root, "w")
    assert [texts(group) for group in drawn] == [[word, "T"] for word in words]
    assert [group.get("data-i") for group in drawn] == [str(i) for i in range(1, count + 1)]
    assert sorted(label_of(root, word) for word in range(1, count + 1)) == sorted(f"l{i}" for i in range(count))


@given(trees(12))
def test_all_of_it_is_inside_the_box(heads: list[int]):
    count = len(heads) - 1
    gold = [-1, *(0 if head else (1 if word > 1 else 0) for word, head in enumerate(heads[1:], 1))]
    drawing = tree_svg(heads, ["word"] * count, ["label"] * count, gold_heads=gold, gold_labels=["other"] * count)
    root = parse(drawing)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert (round(drawing.width, 1), round(drawing.height, 1)) == (width, height)
    for text in root.iter(f"{SVG}text"):
        assert 0 < float(text.get("x", "")) < width and 5 < float(text.get("y", "")) < height
    for path in root.iter(f"{SVG}path"):
        for x, y in re.findall(r"M(-?[\d.]+) (-?[\d.]+)", path.get("d", "")):
            assert 0 < float(x) < width and 0 < float(y) < height


def test_an_arc_goes_from_its_head_to_its_modifier():
    root = parse(tree_svg(HEADS, WORDS, LABELS))
    middle = {int(g.get("data-i", "")): float(g[1].get("x", "")) for g in groups(root, "w")}
    for group in groups(root, "a"):
        line, arrow = (path.get("d", "") for path in group.iter(f"{SVG}path"))
        head, word = int(group.get("data-h", "")), int(group.get("data-m", ""))
        start = float(line[1:].split(" ")[0])
        tip = float(arrow[1:].split(" ")[0])
        assert abs(tip - middle[word]) < 20
        assert abs(start - middle[head or word]) < 20


def test_right_to_left_is_mirrored():
    words = ["הילד", "קרא", "ספר"]
    drawing = tree_svg([-1, 2, 0, 2], words, ["nsubj", "root", "obj"])
    root = parse(drawing)
    places = [float(g[1].get("x", "")) for g in groups(root, "w")]
    assert places == sorted(places, reverse=True)
    assert drawing.right_to_left
    assert any(g.get("direction") == "rtl" for g in root.iter(f"{SVG}g"))
    assert arcs(root) == [(1, 2), (2, 0), (3, 2)]


def test_differences_are_marked():
    gold = {"gold_heads": HEADS, "gold_labels": ["nsubj", "root", "det", "obl"]}
    root = parse(tree_svg([-1, 2, 0, 2, 2], WORDS, ["obj", "root", "det", "obl:tmod"], **gold))
    marked = {"x": (3, 2), "g": (3, 4), "l": (1, 2), "s": (4, 2)}  # wrong, missed, another label, another subtype
    assert {kind: arcs(root, kind) for kind in marked} == {kind: [arc] for kind, arc in marked.items()}
    assert [label_of(root, word) for word in range(1, 5)] == ["× obj (nsubj)", "root", "× det", "obl:tmod (obl)"]
    assert [g.get("data-i") for g in groups(root, "e")] == ["1", "3"]
    missed = groups(root, "g")[0]
    assert texts(missed) == ["det"]
    words_at = float(groups(root, "w")[0][1].get("y", ""))
    assert float(missed.find(f"{SVG}text").get("y")) > words_at, "under the words"
    assert "3 the: det of 2 saw (wrong, right is det of 4 man)" in root.find(f"{SVG}desc").text
    root = parse(tree_svg(HEADS, WORDS, LABELS))  # without gold nothing is marked
    assert not any(arcs(root, kind) for kind in "xgls") and not groups(root, "e")
    assert "×" not in "".join(texts(root))


def test_outcomes():
    found = outcomes([2, 0, 2, 2, 1], ["a", "b", "c:x", "d", "e"], [2, 0, 2, 2, 2], ["a", "x", "c", "d:y", "e"])
    assert found == ["right", "label", "subtype", "subtype", "head"]


def test_opacity_follows_confidence():
    sure = [0.0, 0.4, None, 1.0]
    root = parse(tree_svg(HEADS, WORDS, LABELS, confidence=sure))
    by_word = {int(g.get("data-m", "")): g for g in groups(root, "a")}

    def line(word: int) -> float | None:
        inner = by_word[word].find(f"{SVG}g")
        return None if inner is None else float(inner.get("opacity", ""))

    assert line(3) is None
    assert 0.3 <= line(1) < line(2) < line(4) == 1
    label = by_word[1].find(f"{SVG}text")
    assert float(label.get("opacity")) >= 0.6
    assert by_word[2].find(f"{SVG}title").text == "saw ← the root: root\nconfidence 0.4"
    assert "confidence" not in by_word[3].find(f"{SVG}title").text


def test_crossing_arcs_have_a_gap():
    plain = parse(tree_svg(HEADS, WORDS))
    assert not [path for path in plain.iter(f"{SVG}path") if path.get("class") == "k"]
    crossing = parse(tree_svg([-1, 3, 4, 0, 3], WORDS))  # 3→1, 4→2
    gaps = [g for g in groups(crossing, "a") if any(path.get("class") == "k" for path in g)]
    assert arcs(crossing) == [(1, 3), (2, 4), (3, 0), (4, 3)]
    assert gaps


@pytest.mark.parametrize(
    "odd",
    ["<b>&amp;\"'</b>", "</svg><script>x()</script>", "]]>", "a\x00b\x1b[31m", "\ud800", "\ufffe", "\u2028", "<!--"],
)
def test_anything_can_be_a_word_label_or_tag(odd):
    svg = tree_svg(
        [-1, 2, 0], ["a", odd], [odd, "root"], tags=[odd, odd], notes=[odd, odd], gold_heads=[-1, 0, 1],
        gold_labels=["x", odd], tokens=[Token(1, 2, odd)],
    )  # fmt: skip
    root = parse(svg)
    svg.encode()
    assert root.find(f".//{SVG}script") is None
    assert texts(groups(root, "w")[1])[0] == "".join("\ufffd" if c in "\x00\x1b\ud800\ufffe\u2028" else c for c in odd)


def test_a_word_that_is_long_is_cut_and_told_in_full():
    word = "https://example.org/" + "x" * 200
    root = parse(tree_svg([-1, 0], [word]))
    (group,) = groups(root, "w")
    assert len(texts(group)[0]) < 60 and "…" in texts(group)[0]
    assert word in group.find(f"{SVG}title").text
    text = group.find(f"{SVG}text")
    assert float(text.get("textLength")) <= float(root.get("width", ""))


def test_what_is_no_tree_is_drawn_all_the_same():
    """Words without a head, cycles, several roots; tokens of several words; tensors with padding; no words."""
    root = parse(tree_svg([-1, 2, 0, -1, -1], WORDS))
    assert arcs(root) == [(1, 2), (2, 0)] and len(groups(root, "w")) == 4
    compared = parse(tree_svg([-1, 2, 0, -1, 2], WORDS, gold_heads=HEADS))
    assert (arcs(compared, "g"), arcs(compared, "x")) == ([(3, 4)], [])
    root = parse(tree_svg([-1, 2, 1, 0, 0], WORDS, tokens=[Token(2, 3, "saw’t")]))
    assert arcs(root) == [(1, 2), (2, 1), (3, 0), (4, 0)]
    assert [texts(token) for token in groups(root, "m")] == [["saw’t"]]
    assert tree_svg(torch.tensor([*HEADS, -1, -1]), WORDS) == tree_svg(HEADS, WORDS)
    assert parse(tree_svg([-1], [])).find(f"{SVG}desc").text == "no words"


def test_standalone_has_its_style_and_nothing_from_elsewhere():
    svg = tree_svg(HEADS, WORDS, LABELS)
    assert "<style>" in svg and "prefers-color-scheme:dark" in svg
    assert "<style>" not in tree_svg(HEADS, WORDS, LABELS, standalone=False)
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\(|@import|href|src=", svg)
    root = parse(svg)
    assert root.find(f"{SVG}style") is not None
    assert (root.get("role"), root.get("aria-label")) == ("img", "Dependency tree of 4 words")
    assert root.find(f"{SVG}desc").text == "1 We: nsubj of 2 saw; 2 saw: root; 3 the: det of 4 man; 4 man: obj of 2 saw"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": [-1, 0]}, "heads: 2 nodes for 4 words; wanted 5, the root first"),
        ({"heads": [0, 2, 0, 4, 2]}, "heads: node 0 is the root and has head -1, not 0"),
        ({"heads": [-1, 2, 0, 4, 5]}, "heads: the head of word 4 is 5, not another word of 1..4 or 0"),
        ({"heads": [-1, 1, 0, 4, 2]}, "heads: the head of word 1 is 1, not another word of 1..4 or 0"),
        ({"gold_heads": [-1, 2, 0, 4, -1]}, "gold_heads: the head of word 4 is -1"),
        ({"labels": ["a"]}, "labels: 1 for 4 words"),
        ({"tags": ["a"]}, "tags: 1 for 4 words"),
        ({"gold_labels": []}, "gold_labels: 0 for 4 words"),
        ({"confidence": [0.1, 1.5, 0.2, 0.3]}, "confidence: that of word 2 is 1.5, not between 0 and 1"),
        ({"confidence": [0.1, float("nan"), 0.2, 0.3]}, "confidence: that of word 2 is nan"),
        ({"notes": ["a"]}, "notes: 1 for 4 words"),
        ({"tokens": [Token(3, 5, "x")]}, "tokens: 'x' is of words 3 to 5, not within 1..4"),
    ],
)
def test_errors(arguments, message):
    assert message in refusal(tree_svg, **{"heads": HEADS, "words": WORDS, **arguments})
