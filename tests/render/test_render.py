from __future__ import annotations

import re
from textwrap import dedent

import pytest
import torch
from hypothesis import given
from rich.cells import cell_len

from gpuparse.render import tree_text
from tests.refusals import refusal
from tests.render.drawings import is_projective, trees


def read(drawing: str) -> list[int]:
    """The heads, read off a drawing: from each arrow back along its arc."""
    lines = drawing.split("\n")
    heads = [-1]
    for row in range(1, len(lines)):
        at = lines[row].index("►") - 1
        while lines[row][at] in "─│":
            at -= 1
        step = {"╭": 1, "╰": -1}[lines[row][at]]
        row += step
        while lines[row][at] == "│":
            row += step
        assert lines[row][at] in "╭╰├┬┴┼"
        heads.append(row)
    return heads


def test_projective():
    heads = [-1, 2, 0, 4, 2, 4, 7, 5, 2, 8]
    words = ["We", "saw", "the", "man", "on", "the", "hill", "with", "binoculars"]
    labels = ["nsubj", "root", "det", "dobj", "prep", "det", "pobj", "prep", "pobj"]
    assert tree_text(heads, words, labels) == dedent("""\
        ╭──────────── ROOT
        │         ╭─► We          nsubj
        ╰►╭─┬─────┴── saw         root
          │ │     ╭─► the         det
          │ ╰►╭───┴── man         dobj
          │   ╰►╭──── on          prep
          │     │ ╭─► the         det
          │     ╰►╰── hill        pobj
          ╰──────►╭── with        prep
                  ╰─► binoculars  pobj""")


def test_non_projective():
    heads = [-1, 2, 0, 4, 2, 2, 4, 5]
    words = ["We", "saw", "the", "man", "today", "smiling", "gladly"]
    assert tree_text(heads, words) == dedent("""\
        ╭──────── ROOT
        │     ╭─► We
        ╰►╭─┬─┴── saw
          │ │ ╭─► the
          │ ╰►├── man
          ╰►╭─│── today
            │ ╰─► smiling
            ╰───► gladly""")


def test_odd_trees_and_words():
    assert tree_text([-1], []) == "ROOT"
    padded = torch.tensor([-1, 2, 0, -1, -1])
    assert tree_text(padded, ["a", "b"]) == tree_text([-1, 2, 0], ["a", "b"])
    drawn = tree_text([-1, 2, 0, 2], ["我", "喜欢", "a"], ["x", "y", "z"]).split("\n")[1:]
    assert len({cell_len(line) for line in drawn}) == 1  # labels stay in line
    assert len(tree_text([-1, 0, 1], ["a\nb", "c\u2028d"], ["\t", "\r"]).splitlines()) == 3


@given(trees())
def test_drawing_says_the_tree(heads: list[int]):
    drawing = tree_text(heads, ["w"] * (len(heads) - 1))
    assert read(drawing) == heads
    if is_projective(heads):
        assert not re.search("─│|│─", drawing), "arcs of a projective tree need not cross"


@pytest.mark.parametrize(
    ("heads", "words", "labels", "message"),
    [
        ([-1, 0], ["a", "b"], None, "heads: 2 nodes for 2 words; wanted 3"),
        ([-1, 0, 1], ["a"], None, "heads: 3 nodes for 1 words; wanted 2"),
        ([], [], None, "heads: 0 nodes"),
        ([0, 0], ["a"], None, "heads: node 0"),
        ([-1, -1], ["a"], None, "heads: the head of word 1 is -1, not in 0..1"),
        ([-1, 2], ["a"], None, "heads: the head of word 1 is 2, not in 0..1"),
        ([-1, 1], ["a"], None, "heads: word 1 is on a cycle"),
        ([-1, 0, 3, 2], ["a", "b", "c"], None, "heads: word 2 is on a cycle"),
        ([-1, 0], ["a"], [], "labels: 0 labels for 1 words"),
    ],
)
def test_errors(heads, words, labels, message):
    assert message in refusal(tree_text, heads, words, labels)
