"""Files of constraints: what is read, and what is said of one that is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuparse import lp
from gpuparse.decoding.ilp.files import unknown_labels
from gpuparse.system.defaults import ready


def test_every_kind(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        """
        [[constraint]]
        kind = "unique"
        labels = ["nsubj", "obj"]
        [[constraint]]
        kind = "children"
        at_least = 1
        at_most = 2
        tags = ["NOUN"]
        heads = ["VERB"]
        [[constraint]]
        kind = "children"
        exactly = 1
        heads = [""]
        [[constraint]]
        kind = "leaf"
        labels = ["punct"]
        allowed = ["punct", "goes*"]
        weight = 2
        [[constraint]]
        kind = "projective"
        labels = ["conj"]
        except_tags = ["VERB"]
        weight = 0.5
        sentences = ["s1", "s2"]
        [[constraint]]
        kind = "arcs"
        required = ["2 -> 1", "0->2  root"]
        forbidden = ["3 -> 1 nsubj:pass", "* -> 1 obj"]
        [[constraint]]
        kind = "span"
        first = 1
        last = 3
        [[constraint]]
        kind = "projective"
        [[constraint]]
        kind = "coordination"
        always = false
        symmetric = ["and"]
        classes = [["NOUN", "PROPN"], ["VERB"]]
        [[constraint]]
        kind = "label_under"
        label = "det"
        heads = ["NOUN"]
        """
    )
    assert lp.load_constraints(path) == [
        lp.Unique(frozenset({"nsubj", "obj"})),
        lp.Children(1, 2, tags=frozenset({"NOUN"}), heads=frozenset({"VERB"})),
        lp.Children(1, 1, heads=frozenset({""})),
        lp.Soft(lp.Leaf(frozenset({"punct"}), frozenset({"punct", "goes*"})), 2.0),
        lp.Only(lp.Soft(lp.Projective(frozenset({"conj"}), frozenset({"VERB"})), 0.5), frozenset({"s1", "s2"})),
        lp.Arcs(((2, 1, None), (0, 2, "root")), ((3, 1, "nsubj:pass"), (None, 1, "obj"))),
        lp.Span(1, 3),
        lp.Projective(),
        lp.Coordination(frozenset({"and"}), classes=(frozenset({"NOUN", "PROPN"}), frozenset({"VERB"})), always=False),
        lp.LabelUnder("det", frozenset({"NOUN"})),
    ]


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
    ("text", "message"),
    [
        ("[[constraint]", "not TOML"),
        ("x = 1", "wanted .*constraint.* tables and nothing else"),
        ("constraint = 3", "wanted .*constraint.* tables"),
        ("[[constraint]]\nlabels = []", "constraint 1: kind is None; wanted one of unique, children, leaf"),
        ('[[constraint]]\nkind = "unique"', "constraint 1: unique wants labels"),
        ('[[constraint]]\nkind = "unique"\ntags = []', "constraint 1: unique has no tags; it has labels"),
        ('[[constraint]]\nkind = "unique"\nlabels = "x"', "constraint 1: labels is 'x'; wanted a list of strings"),
        ('[[constraint]]\nkind = "children"\nat_most = -1', "at_most is -1; wanted a whole number"),
        ('[[constraint]]\nkind = "coordination"\nclasses = ["x"]', "wanted a list of lists of strings"),
        ('[[constraint]]\nkind = "label_under"\nlabel = 3', "label is 3; wanted a string"),
        ('[[constraint]]\nkind = "coordination"\nalways = 1', "always is 1; wanted true or false"),
        ('[[constraint]]\nkind = "unique"\nlabels = ["n*j"]', r"labels has 'n\*j'; \* stands at the end only"),
        ('[[constraint]]\nkind = "arcs"\nrequired = ["1 -> 2 n*j"]', r"required has 'n\*j'; \* stands at the end only"),
        ('[[constraint]]\nkind = "children"\ntags = ["N*"]', r"tags has 'N\*'; \* is for labels, name each tag"),
        ('[[constraint]]\nkind = "children"\nweight = 0', "constraint 1: weight is 0.0; wanted a number above 0"),
        ('[[constraint]]\nkind = "children"\nweight = "x"', "constraint 1: weight is 'x'; wanted a number above 0"),
        ('[[constraint]]\nkind = "children"\nexactly = 1\nat_most = 2', "exactly is at_least and at_most in one"),
        (
            '[[constraint]]\nkind = "children"\nat_least = 2\nat_most = 1',
            "constraint 1: at_most is 1, below at_least, 2",
        ),
        ('[[constraint]]\nkind = "children"\nsentences = "x"', "sentences is 'x'; wanted a list of strings"),
        ('[[constraint]]\nkind = "arcs"\nrequired = ["1 2"]', "wanted arcs such as"),
        ('[[constraint]]\nkind = "arcs"\nrequired = 3', "wanted arcs such as"),
        ('[[constraint]]\nkind = "span"\nfirst = 3\nlast = 2', "constraint 1: no span from 3 to 2"),
        ('[[constraint]]\nkind = "span"\nfirst = 3', "constraint 1: span wants last"),
        ('[[constraint]]\nkind = "leaf"', "constraint 1: leaf wants labels$"),
        ('[[constraint]]\nkind = ["leaf"]', r"constraint 1: kind is \['leaf'\]; wanted one of"),
        ("[[constraint]]\nkind = {leaf = 1}", r"constraint 1: kind is \{'leaf': 1\}; wanted one of"),
        ('[[constraint]]\nkind = "projective"\nweight = 1e999', "constraint 1: weight is inf; wanted a number"),
        ('[[constraint]]\nkind = "arcs"\nrequired = ["1 -> 1"]', "constraint 1: no arc 1 -> 1 in any sentence"),
        (
            '[[constraint]]\nkind = "arcs"\nrequired = ["* -> 1"]',
            "constraint 1: required has an arc .* without a label",
        ),
        (
            '[[constraint]]\nkind = "arcs"\nweight = 1',
            "constraint 1: arcs asks for nothing; give required or forbidden",
        ),
        (
            '[[constraint]]\nkind = "children"\nlabels = ["x"]',
            "children asks for nothing; give at_least, at_most or exact",
        ),
        (
            '[[constraint]]\nkind = "coordination"\ncommas = [","]',
            "coordination asks for nothing; give symmetric, asym",
        ),
        (
            '[[constraint]]\nkind = "coordination"\nothers = ["x"]',
            "coordination asks for nothing; .* others with classes",
        ),
        ('[[constraint]]\nkind = "unique"\nlabels = []', "constraint 1: unique asks for nothing; give labels"),
        (
            '[[constraint]]\nkind = "coordination"\nclasses = [["N*"]]',
            r"classes has 'N\*'; \* is for labels, name each",
        ),
        ('[[constraint]]\nkind = "children"\nexactly = "1"', "constraint 1: exactly is '1'; wanted a whole number"),
    ],
)
def test_errors(tmp_path: Path, text: str, message: str) -> None:
    check_error(tmp_path, text, message)


@pytest.mark.parametrize(
    ("kind", "before", "part", "many", "after", "message"),
    [
        ("unique", "labels = ", "[", 9000, "", "too many lists in one another"),
        ("unique", "labels.a", ".a", 5000, " = 1", "constraint 1: labels is .*; wanted a list of strings"),
        ("unique", "labels = [3, '", "x", 500, "']", "constraint 1: labels is .*…; wanted a list of strings"),
        (
            "children",
            "at_most = 1",
            "0",
            9,
            "",
            "constraint 1: at_most is 10*; wanted a whole number below 1,000,000,000",
        ),
        (
            "children",
            "at_most = 0x",
            "f",
            9999,
            "",
            "constraint 1: at_most is a number of [0-9]+ bits; wanted a whole number",
        ),
        ("children", "at_most = ", "9", 9999, "", "c.toml: (not TOML: |constraint 1: at_most is)"),
        (
            "projective",
            "weight = 1",
            "0",
            400,
            "",
            "constraint 1: weight is a number of [0-9]+ bits; wanted a number above 0",
        ),
        ("arcs", "required = ['1 -> ", "2", 9999, "']", "constraint 1: required is .*…; wanted arcs such as"),
    ],
)
def test_too_large(tmp_path: Path, kind: str, before: str, part: str, many: int, after: str, message: str) -> None:
    check_error(tmp_path, f'[[constraint]]\nkind = "{kind}"\n{before}{part * many}{after}\n', message)


def check_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        lp.load_constraints(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_ready_ones_by_the_name_of_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert lp.load_constraints("ud.toml") == lp.load_constraints("ud")
    (tmp_path / "ud.toml").write_text('[[constraint]]\nkind = "projective"\n')
    assert lp.load_constraints("ud.toml") == lp.load_constraints(tmp_path / "ud.toml") == [lp.Projective()]
    with pytest.raises(ValueError, match="no such file of constraints"):
        lp.load_constraints(tmp_path / "none" / "ud.toml")
    with pytest.raises(ValueError, match="no such file of constraints"):
        lp.load_constraints(tmp_path)


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
    unknown = unknown_labels(asked, ["obj", "punct"])
    assert unknown == {3: frozenset({"pun"}), 4: frozenset({"rot"}), 5: frozenset({"rot"})}


def test_no_such_file() -> None:
    with pytest.raises(ValueError, match=r"none\.toml: no such file of constraints; those that come along are .*ud"):
        lp.load_constraints("none.toml")
