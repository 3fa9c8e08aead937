"""Files of constraints: what is read, and what is said of one that is wrong."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from gpuparse import lp
from gpuparse.decoding.ilp.files import unknown_labels
from gpuparse.system.defaults import ready
from tests.decoding.refusals import refuses


def written(directory: Path, kind: str, rest: str) -> Path:
    """A file of one constraint, or of a text that is none."""
    path = directory / "c.toml"
    path.write_text(f'[[constraint]]\nkind = "{kind}"\n{rest}\n' if kind else rest)
    return path


@pytest.mark.parametrize(
    ("kind", "rest", "expected"),
    [
        ("unique", 'labels = ["nsubj", "obj"]', lp.Unique({"nsubj", "obj"})),
        (
            "children",
            'at_least = 1\nat_most = 2\ntags = ["NOUN"]\nheads = ["VERB"]',
            lp.Children(1, 2, tags={"NOUN"}, heads={"VERB"}),
        ),
        ("children", 'exactly = 1\nheads = [""]', lp.Children(1, 1, heads={""})),
        (
            "leaf",
            'labels = ["punct"]\nallowed = ["punct", "goes*"]\nweight = 2',
            lp.Soft(lp.Leaf({"punct"}, {"punct", "goes*"}), 2.0),
        ),
        (
            "projective",
            'labels = ["conj"]\nexcept_tags = ["VERB"]\nweight = 0.5\nsentences = ["s1", "s2"]',
            lp.Only(lp.Soft(lp.Projective({"conj"}, {"VERB"}), 0.5), {"s1", "s2"}),
        ),
        (
            "arcs",
            'required = ["2 -> 1", "0->2  root"]\nforbidden = ["3 -> 1 nsubj:pass", "* -> 1 obj"]',
            lp.Arcs(((2, 1, None), (0, 2, "root")), ((3, 1, "nsubj:pass"), (None, 1, "obj"))),
        ),
        ("span", "first = 1\nlast = 3", lp.Span(1, 3)),
        ("projective", "", lp.Projective()),
        (
            "coordination",
            'always = false\nsymmetric = ["and"]\nclasses = [["NOUN", "PROPN"], ["VERB"]]',
            lp.Coordination({"and"}, classes=({"NOUN", "PROPN"}, {"VERB"}), always=False),
        ),
        ("label_under", 'label = "det"\nheads = ["NOUN"]', lp.LabelUnder("det", {"NOUN"})),
    ],
)
def test_every_kind(tmp_path: Path, kind: str, rest: str, expected: Any) -> None:
    path = written(tmp_path, kind, rest)
    assert lp.load_constraints(path) == [expected]
    path.write_text(path.read_text() * 2)
    assert lp.load_constraints(path) == [expected] * 2


def test_those_that_come_along_can_be_read() -> None:
    assert "ud" in ready()
    words = lp.Words.of(["We", "saw", "it", "."], ["PRON", "VERB", "PRON", "PUNCT"], ["nsubj", "obj", "punct", "root"])
    good, bad = [-1, 2, 0, 2, 2], [-1, 2, 0, 4, 2]
    for name in ready():
        constraints = lp.load_constraints(name)
        assert constraints
        assert not [row for c in constraints for row in c.violated(words, good, [-1, 0, 3, 1, 2])]
    two = [row.why for c in lp.load_constraints("ud") for row in c.violated(words, good, [-1, 0, 3, 0, 2])]
    assert two == ["at most 1 csubj or csubj:pass or nsubj or nsubj:pass under word 2 ('saw')"]
    under = [row.why for c in lp.load_constraints("ud") for row in c.violated(words, bad, [-1, 0, 3, 1, 2])]
    assert under == ["word 3 ('it') not under word 4 ('.') as a leaf (punct)"]


def test_conjunctions_that_head_their_arguments() -> None:
    for name, text in (("conjunction_nl", "jan en piet slapen"), ("conjunction_en", "jan and piet sleep")):
        words = lp.Words.of(text.split(), ["PROPN", "CCONJ", "PROPN", "VERB"], ["conj", "nsubj", "root", "det"])
        asked = lp.load_constraints(name)
        assert not [row for c in asked for row in c.violated(words, [-1, 2, 4, 2, 0], [-1, 0, 1, 0, 2])]
        alone = [row.why for c in asked for row in c.violated(words, [-1, 2, 4, 4, 0], [-1, 0, 1, 3, 2])]
        assert alone == [f"one argument to the right of word 2 ({words.forms[2]!r})"]


@pytest.mark.parametrize(
    ("kind", "rest", "message"),
    [
        ("", "[[constraint]", "not TOML"),
        ("", "x = 1", "wanted .*constraint.* tables and nothing else"),
        ("", "constraint = 3", "wanted .*constraint.* tables"),
        ("", "[[constraint]]\nlabels = []", "constraint 1: kind is None; wanted one of unique, children, leaf"),
        ("", '[[constraint]]\nkind = ["leaf"]', r"constraint 1: kind is \['leaf'\]; wanted one of"),
        ("", "[[constraint]]\nkind = {leaf = 1}", r"constraint 1: kind is \{'leaf': 1\}; wanted one of"),
        ("unique", "", "unique wants labels"),
        ("unique", "tags = []", "unique has no tags; it has labels"),
        ("unique", 'labels = "x"', "labels is 'x'; wanted a list of strings"),
        ("unique", 'labels = ["n*j"]', r"labels has 'n\*j'; \* stands at the end only"),
        ("unique", "labels = []", "unique asks for nothing; give labels"),
        ("", f'[[constraint]]\nkind = "unique"\nlabels = {"[" * 9000}', "not TOML: too many lists in one another"),
        ("unique", f"labels.a{'.a' * 5000} = 1", "labels is .*; wanted a list of strings"),
        ("unique", f"labels = [3, '{'x' * 500}']", "labels is .*…; wanted a list of strings"),
        ("children", "at_most = -1", "at_most is -1; wanted a whole number"),
        (
            "children",
            f"at_most = 1{'0' * 9}",
            "at_most is 10*; wanted a whole number below 1,000,000,000",
        ),
        ("children", f"at_most = 0x{'f' * 9999}", "at_most is a number of [0-9]+ bits; wanted a whole number"),
        ("", f'[[constraint]]\nkind = "children"\nat_most = {"9" * 9999}', "(not TOML: |constraint 1: at_most is)"),
        ("children", 'tags = ["N*"]', r"tags has 'N\*'; \* is for labels, name each tag"),
        ("children", "weight = 0", "weight is 0.0; wanted a number above 0"),
        ("children", 'weight = "x"', "weight is 'x'; wanted a number above 0"),
        ("children", "exactly = 1\nat_most = 2", ".*exactly is at_least and at_most in one"),
        ("children", 'exactly = "1"', "exactly is '1'; wanted a whole number"),
        ("children", "at_least = 2\nat_most = 1", "at_most is 1, below at_least, 2"),
        ("children", 'sentences = "x"', "sentences is 'x'; wanted a list of strings"),
        ("children", 'labels = ["x"]', "children asks for nothing; give at_least, at_most or exact"),
        ("coordination", 'classes = ["x"]', ".*wanted a list of lists of strings"),
        ("coordination", 'classes = [["N*"]]', r"classes has 'N\*'; \* is for labels, name each"),
        ("coordination", "always = 1", "always is 1; wanted true or false"),
        ("coordination", 'commas = [","]', "coordination asks for nothing; give symmetric, asym"),
        ("coordination", 'others = ["x"]', "coordination asks for nothing; .* others with classes"),
        ("label_under", "label = 3", "label is 3; wanted a string"),
        ("arcs", 'required = ["1 -> 2 n*j"]', r"required has 'n\*j'; \* stands at the end only"),
        ("arcs", 'required = ["1 2"]', ".*wanted arcs such as"),
        ("arcs", "required = 3", ".*wanted arcs such as"),
        ("arcs", 'required = ["1 -> 1"]', "no arc 1 -> 1 in any sentence"),
        ("arcs", 'required = ["* -> 1"]', "required has an arc .* without a label"),
        ("arcs", "weight = 1", "arcs asks for nothing; give required or forbidden"),
        ("arcs", f"required = ['1 -> {'2' * 9999}']", "required is .*…; wanted arcs such as"),
        ("span", "first = 3\nlast = 2", "no span from 3 to 2"),
        ("span", "first = 3", "span wants last"),
        ("leaf", "", "leaf wants labels$"),
        ("projective", "weight = 1e999", "weight is inf; wanted a number"),
        ("projective", f"weight = 1{'0' * 400}", "weight is a number of [0-9]+ bits; wanted a number above 0"),
    ],
)
def test_errors(tmp_path: Path, kind: str, rest: str, message: str) -> None:
    path = written(tmp_path, kind, rest)
    refuses(f"{re.escape(str(path))}: {'constraint 1: ' * bool(kind)}{message}", lp.load_constraints, path)


def test_ready_ones_by_the_name_of_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert lp.load_constraints("ud.toml") == lp.load_constraints("ud")
    (tmp_path / "ud.toml").write_text('[[constraint]]\nkind = "projective"\n')
    assert lp.load_constraints("ud.toml") == lp.load_constraints(tmp_path / "ud.toml") == [lp.Projective()]
    refuses("no such file of constraints", lp.load_constraints, tmp_path / "none" / "ud.toml")
    refuses("no such file of constraints", lp.load_constraints, tmp_path)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="wants /dev/fd")
def test_a_pipe() -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b'[[constraint]]\nkind = "projective"\n')
        os.close(writing)
        assert lp.load_constraints(f"/dev/fd/{reading}") == [lp.Projective()]
    finally:
        os.close(reading)


def test_labels_that_are_not_known() -> None:
    asked = [
        lp.Unique(frozenset({"nsub", "obj"})),
        lp.Soft(lp.Unique(frozenset({"nsub", "o*"})), 1.0),
        lp.Only(lp.Leaf(frozenset({"pun"})), frozenset({"a"})),
        lp.LabelUnder("rot", frozenset({""})),
        lp.Arcs(required=((0, 1, None), (0, 2, "rot"))),
        lp.Projective(),
        lp.Span(1, 2),
    ]
    assert unknown_labels(asked, ["obj", "punct"]) == {
        3: frozenset({"pun"}),
        4: frozenset({"rot"}),
        5: frozenset({"rot"}),
    }


def test_no_such_file() -> None:
    with pytest.raises(ValueError, match=r"none\.toml: no such file of constraints; those that come along are .*ud"):
        lp.load_constraints("none.toml")
