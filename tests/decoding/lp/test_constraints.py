"""What constraints say of trees, one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from gpuparse import lp
from tests.decoding.lp.some import constraints, sentence, tree
from tests.decoding.refusals import refuses

ABOUT = {"a": 0, "nsubj": 1, "nsubj:pass": 2, "punct": 3, "conj": 4}


def whys(constraint: lp.Constraint, words: lp.Words, heads: list[int], labels: list[str]) -> list[str]:
    """What a tree breaks; heads and labels of the words."""
    return [row.why for row in constraint.violated(words, [-1, *heads], [-1, *(ABOUT[name] for name in labels)])]


def words(text: str, tags: str) -> lp.Words:
    return lp.Words(("", *text.split()), ("", *tags.split()), ABOUT, "s1")


def test_violated_finds_rows_and_all_that_matter() -> None:
    rng = random.Random(0)
    broken = dict.fromkeys(range(12), 0)
    for _ in range(150):
        n = rng.randint(1, 6)
        seen, (heads, labels) = sentence(rng, n), tree(rng, n)
        for kind, constraint in enumerate(constraints(rng, n)):
            rows = list(constraint.rows(seen))
            wrong = {row for row in rows if row.is_violated(heads, labels)}
            found = set(constraint.violated(seen, heads, labels))
            assert found == wrong
            broken[kind] += bool(found)
    assert all(10 <= count <= 140 for count in broken.values())


def test_labels_by_their_beginning() -> None:
    here = words("x y z", "N V N")
    assert (
        set(here.named(["nsubj*"]).values()) == {1, 2}
        and here.named(["nsubj", "none"]) == {"nsubj": 1}
        and here.numbers(None) is None
    )
    two = [2, 0, 2], ["nsubj", "a", "nsubj:pass"]
    assert whys(lp.Children(at_most=1, labels=frozenset({"nsubj*"})), here, *two) == [
        "at most 1 nsubj* under word 2 ('y')"
    ]
    assert not whys(lp.Unique(frozenset({"nsubj*"})), here, *two)  # of each label one
    refuses(r"label 'n\*j': \* stands at the end only", here.numbers, ["n*j"])


def test_root_by_no_tag() -> None:
    here = words("x y", "N V")
    under = lp.Children(at_most=1, heads=frozenset({""}))
    assert whys(under, here, [0, 0], ["a", "a"]) == ["at most 1 child under the root"]
    assert not whys(lp.Children(at_most=0), here, [0, 0], ["a", "a"])  # which leaves the root alone
    exactly = lp.Children(1, 1, frozenset({"nsubj"}), heads=frozenset({"", "V"}))
    assert whys(exactly, here, [2, 0], ["nsubj", "a"]) == ["1 nsubj under the root"]
    untagged = lp.Words.of(["x", "y"], labels=["a"])
    assert not list(under.violated(untagged, [-1, 2, 0], [-1, 0, 0]))


def test_leaves() -> None:
    here = words("x , y", "N P N")
    leaf = lp.Leaf(frozenset({"punct"}), frozenset({"punct"}))
    assert whys(leaf, here, [2, 0, 1], ["a", "punct", "a"]) == [
        "word 1 ('x') not under word 2 (',') as a leaf (punct)",
    ]
    assert whys(leaf, here, [2, 0, 1], ["punct", "punct", "a"]) == [
        "word 3 ('y') not under word 1 ('x') as a leaf (punct)",
    ]
    assert not whys(leaf, here, [2, 0, 2], ["punct", "punct", "punct"])


def test_crossing_but_of_some_tags() -> None:
    here = words("a b c d", "N V N V")
    crossing = [3, 4, 4, 0], ["conj", "conj", "a", "a"]
    assert whys(lp.Projective(), here, *crossing) == ["no arc of word 2 ('b') crosses 1 - 3"]
    assert len(whys(lp.Projective(frozenset({"conj"})), here, *crossing)) == 2
    assert not whys(lp.Projective(frozenset({"a"})), here, *crossing)
    assert len(whys(lp.Projective(frozenset({"conj"}), frozenset({"V"})), here, *crossing)) == 1
    assert not whys(lp.Projective(frozenset({"conj"}), frozenset({"V", "N"})), here, *crossing)


def test_coordination() -> None:
    here = words("a , b and c", "N P N C N")
    symmetric = frozenset({"and"})
    args = ["conj", "punct", "conj", "a", "conj"]
    good = [4, 4, 4, 0, 4], args
    all_of_it = lp.Coordination(symmetric, commas=frozenset({","}), labels=frozenset({"conj"}), tags=frozenset({"C"}))
    assert not whys(all_of_it, here, *good)
    assert whys(all_of_it, here, [3, 4, 4, 0, 3], args) == ["one argument to the right of word 4 ('and')"]
    assert whys(lp.Coordination(symmetric, commas=frozenset({","})), here, *good) == [
        "a comma between the arguments 1 and 2 of word 4 ('and')",
        "a comma between the arguments 2 and 3 of word 4 ('and')",
    ]
    assert not whys(lp.Coordination(symmetric, tags=frozenset({"X"})), here, [3, 3, 0, 3, 3], args)
    none = [3, 3, 0, 3, 3], ["a"] * 5
    assert len(whys(lp.Coordination(symmetric), here, *none)) == 2
    assert not whys(lp.Coordination(symmetric, always=False), here, *none)
    assert whys(lp.Coordination(symmetric, always=False), here, [3, 3, 0, 3, 4], args) == [
        "an argument to the left of word 4 ('and')"
    ]
    classes = (frozenset({"N"}), frozenset({"C"}))
    assert not whys(lp.Coordination(symmetric, classes=classes, labels=frozenset({"conj"})), here, *good)


def test_soft_rows_have_a_weight() -> None:
    here = words("x y", "N V")
    soft = lp.Soft(lp.Children(at_most=0), 2.5)
    assert {row.weight for row in soft.rows(here)} == {2.5}
    assert [row.weight for row in soft.violated(here, [-1, 2, 0], [-1, 0, 0])] == [2.5]
    weight: Any
    for weight in (0.0, -1.0, float("inf"), float("nan"), 10**400, "2"):
        refuses(r"weight is .*; wanted a number above 0", lp.Soft, lp.Children(), weight)


def test_some_sentences_only() -> None:
    here = words("x y", "N V")
    assert list(lp.Only(lp.Span(1, 2), frozenset({"s1"})).rows(here)) == list(lp.Span(1, 2).rows(here))
    other = lp.Only(lp.Span(1, 9), frozenset({"s2"}))
    other.check(here)
    assert not list(other.rows(here)) and not whys(other, here, [2, 0], ["a", "a"])


def test_what_is_not_there() -> None:
    here = words("x y", "N V")
    for arc in ((0, 3, None), (3, 1, None)):
        refuses(rf"no arc {arc[0]} -> {arc[1]} in a sentence of 2 words", lp.Arcs(forbidden=(arc,)).check, here)
    refuses(r"no arc \* -> 3 in a sentence of 2 words", lp.Arcs(required=((None, 3, "obj"),)).check, here)
    refuses("no span from 1 to 3 in a sentence of 2 words", lp.Span(1, 3).check, here)
    for first, last in ((0, 1), (3, 2)):
        refuses(f"no span from {first} to {last}; count words from 1", lp.Span, first, last)
    refuses("at_most is 1, below at_least, 2", lp.Children, 2, 1)


def test_arcs() -> None:
    here = words("x y", "N V")
    assert lp.Arcs(required=[(2, 1)]) == lp.Arcs(required=((2, 1, None),))  # type: ignore[arg-type]
    label = lp.Arcs(required=((None, 1, "nsubj*"),), forbidden=((None, 2, "a"),))
    assert whys(label, here, [2, 0], ["a", "a"]) == ["the arc * -> 1 (nsubj*)", "no arc * -> 2 (a)"]
    assert not whys(label, here, [2, 0], ["nsubj:pass", "conj"])
    for arc in ((0, 0, None), (1, 1, None), (-1, 2, None), (None, 0, "a")):
        refuses(r"no arc .* -> \d in any sentence; words count from 1, the root is 0", lp.Arcs, forbidden=(arc,))
    with pytest.raises(ValueError, match=r"required has an arc \* -> 1 without a label; name its head or its label"):
        lp.Arcs(required=((None, 1, None),))
    wrong: Any
    for wrong in (3, (2, 1), "2 -> 1", [(1,)], [(1, None, "a")], [(1, 2, 3)], [("1", "2", None)], [(1, 2, "a", 4)]):
        refuses(r"forbidden has .*; wanted arcs as in", lp.Arcs, forbidden=wrong)


def test_names_in_any_collection() -> None:
    few: Any
    for few in (["a", "b"], ("b", "a"), {"a", "b"}, iter(["a", "b"])):
        assert lp.Unique(few) == lp.Unique(frozenset({"a", "b"}))
    many: Any = ["a", "b"]
    two = frozenset(many)
    assert lp.Children(1, 2, many, many, many) == lp.Children(1, 2, two, two, two)
    assert lp.Projective(many, many) == lp.Projective(two, two) and lp.Leaf(many, many) == lp.Leaf(two, two)
    assert lp.LabelUnder("a", many) == lp.LabelUnder("a", two) and lp.Only(lp.Span(1, 2), many) == lp.Only(
        lp.Span(1, 2), two
    )
    classes: Any = [["a"], {"b"}]
    made = lp.Coordination(many, commas=many, classes=classes, labels=many)
    assert made == lp.Coordination(two, commas=two, classes=(frozenset({"a"}), frozenset({"b"})), labels=two)
    assert hash(made)
    wrong: Any
    for wrong in ("nsubj", 3, [3], [["a"]]):
        refuses(r"labels is .*; wanted a set of names, as in \{'nsubj'\}", lp.Unique, wrong)
    nothing: Any = None
    for make in (
        lambda: lp.Unique(nothing),
        lambda: lp.Leaf(frozenset({"a"}), nothing),
        lambda: lp.Only(lp.Span(1, 2), nothing),
    ):
        refuses("is None; wanted a set of names", make)
    for wrong in ("NOUN", ["NOUN"], 3):
        refuses(r"one of classes is .*; wanted a set of names", lp.Coordination, classes=wrong)
    wrong = 3
    refuses("label is 3; wanted a name", lp.LabelUnder, wrong, frozenset())


def test_made_of_a_constraint() -> None:
    wrong: Any
    for wrong in (None, "ud", [lp.Span(1, 2)], lp.Span):
        refuses(r"Soft is made of a constraint .*, got ", lp.Soft, wrong, 1.0)
        refuses(r"Only is made of a constraint .*, got ", lp.Only, wrong, frozenset({"a"}))


def test_conjunctions_in_lower_case() -> None:
    here = words("x AND y", "N C N")
    for forms in (lp.Coordination(symmetric=frozenset({"And"})), lp.Coordination(asymmetric=frozenset({"aNd"}))):
        assert len(whys(forms, here, [2, 0, 1], ["a"] * 3)) > 0
    assert lp.Coordination(others=frozenset({"AND"})).others == {"and"}
    assert lp.Coordination(commas=frozenset({"AND"})).commas == {"AND"}


def test_one_and_many() -> None:
    here = words("x y", "N V")
    found = {
        next(lp.Children(least, most).rows(here)).why
        for least, most in ((2, None), (1, None), (0, 1), (0, 2), (1, 1), (0, 0), (1, 2))
    }
    counts = {"at least 2 children", "at least 1 child", "at most 1 child", "at most 2 children"}
    counts |= {"1 child", "no children", "1 to 2 children"}
    assert found == {f"{count} under word 1 ('x')" for count in counts}
    refuses(r"tags: 2 for 1 word$", lp.Words.of, ["x"], ["N", "V"])
    refuses(r"in a sentence of 1 word$", lp.Span(1, 2).check, lp.Words.of(["x"]))


def test_one_written_by_a_user() -> None:
    @dataclass(frozen=True)
    class Short(lp.Constraint):
        longest: int

        def rows(self, words: lp.Words) -> Iterator[lp.Row]:
            for m in words.words:
                far = frozenset(h for h in words.words if abs(h - m) > self.longest)
                yield lp.Row((lp.Box(far, frozenset({m})),), 0, 0, f"no far head of {words.name(m)}")

    here = words("x y z", "N V N")
    assert whys(Short(1), here, [3, 3, 0], ["a"] * 3) == ["no far head of word 1 ('x')"]
    assert not whys(lp.LabelUnder("none", frozenset()), here, [3, 3, 0], ["a"] * 3)
