"""Files of constraints: what is read, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuparse.lp import Children, Coordination, LabelUnder, Projective, Unique, Words, load_constraints
from gpuparse.lp.files import ready


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
        kind = "projective"
        [[constraint]]
        kind = "coordination"
        symmetric = ["and"]
        classes = [["NOUN", "PROPN"], ["VERB"]]
        [[constraint]]
        kind = "label_under"
        label = "det"
        heads = ["NOUN"]
        """
    )
    assert load_constraints(path) == [
        Unique(frozenset({"nsubj", "obj"})),
        Children(1, 2, tags=frozenset({"NOUN"}), heads=frozenset({"VERB"})),
        Projective(),
        Coordination(frozenset({"and"}), classes=(frozenset({"NOUN", "PROPN"}), frozenset({"VERB"}))),
        LabelUnder("det", frozenset({"NOUN"})),
    ]


def test_those_that_come_along_can_be_read() -> None:
    assert "ud" in ready()
    words = Words.of(["We", "saw", "it", "."], ["PRON", "VERB", "PRON", "PUNCT"], ["nsubj", "obj", "punct", "root"])
    good, bad = [-1, 2, 0, 2, 2], [-1, 2, 0, 4, 2]
    for name in ready():
        constraints = load_constraints(name)
        assert constraints
        assert not [row for c in constraints for row in c.violated(words, good, [-1, 0, 3, 1, 2])]
    two = [row.why for c in load_constraints("ud") for row in c.violated(words, good, [-1, 0, 3, 0, 2])]
    assert two == ["0 to 1 csubj or csubj:pass or nsubj or nsubj:pass under word 2 ('saw')"]
    under = [row.why for c in load_constraints("ud") for row in c.violated(words, bad, [-1, 0, 3, 1, 2])]
    assert under == ["0 to 0 child under word 4 ('.')"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[constraint]", "not TOML"),
        ("x = 1", "wanted .*constraint.* tables and nothing else"),
        ("constraint = 3", "wanted .*constraint.* tables"),
        ("[[constraint]]\nlabels = []", "constraint 1: kind is None; wanted one of unique, children, projective"),
        ('[[constraint]]\nkind = "unique"', "constraint 1: unique wants labels"),
        ('[[constraint]]\nkind = "unique"\ntags = []', "constraint 1: unique has no tags; it has labels"),
        ('[[constraint]]\nkind = "unique"\nlabels = "x"', "constraint 1: labels is 'x'; wanted a list of strings"),
        ('[[constraint]]\nkind = "children"\nat_most = -1', "at_most is -1; wanted a whole number"),
        ('[[constraint]]\nkind = "coordination"\nclasses = ["x"]', "wanted a list of lists of strings"),
        ('[[constraint]]\nkind = "label_under"\nlabel = 3', "label is 3; wanted a string"),
    ],
)
def test_errors(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        load_constraints(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_no_such_file() -> None:
    with pytest.raises(ValueError, match=r"none\.toml: no such file of constraints; those that come along are ud"):
        load_constraints("none.toml")
