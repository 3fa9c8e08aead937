"""What is known of a tree: columns, what is required and forbidden, and why there is no such tree."""

from __future__ import annotations

import pytest

from gpuparse.data import ConlluError, Sentence
from gpuparse.data.partial import Partial


def sentence(heads, deprels=None, misc=None):
    words = [f"w{word}" for word in range(1, len(heads) + 1)]
    return Sentence.from_words(words, heads=heads, deprels=deprels, misc=misc, source="f.conllu", line=5)


def test_columns():
    known = Partial.of(sentence([None, 0, None], ["_", "root", "obj"], ["A=b|Heads=2-3", "_", "Heads=1,2,3"]))
    assert known.heads == (frozenset({2, 3}), frozenset({0}), frozenset({1, 2}))  # no word is its own head
    assert known.labels == (None, "root", "obj")
    assert not known.is_open
    assert Partial.of(sentence([None, None])).is_open
    assert Partial.of(Sentence("# only a comment\n\n")) == Partial.nothing(0)
    assert Partial.of(sentence([2, None], misc=["Heads=0-2", "_"])).heads[0] == {2}


@pytest.mark.parametrize(
    ("heads", "misc", "line"),
    [
        ([2, 7], None, "f.conllu:6: word 2 has HEAD 7 in a sentence of 2; write 0 to 2"),
        ([2, 2], None, "f.conllu:6: word 2: HEAD 2 is the word itself; write another, or _ to leave it open"),
        ([None, 0], ["Heads=3", "_"], "f.conllu:5: word 1: 'Heads=3' in MISC; wanted numbers from 0 to 2, such as "),
        ([None, 0], ["Heads=2-1", "_"], "f.conllu:5: word 1: 'Heads=2-1' in MISC; wanted numbers"),
        ([None, 0], ["Heads=", "_"], "f.conllu:5: word 1: 'Heads=' in MISC; wanted numbers"),
        ([None, 0], ["Heads=x", "_"], "f.conllu:5: word 1: 'Heads=x' in MISC; wanted numbers"),
        ([None, 0], ["Heads=1", "_"], "f.conllu:5: word 1: 'Heads=1' in MISC names the word alone"),
        ([2, 0], ["Heads=0", "_"], "f.conllu:5: word 1: HEAD 2 is not among its Heads in MISC; correct one of them"),
    ],
)
def test_what_cannot_be_read(heads, misc, line):
    with pytest.raises(ConlluError) as caught:
        Partial.of(sentence(heads, misc=misc))
    assert str(caught.value).startswith(line)


def test_copies_that_know_more():
    nothing = Partial.nothing(3)
    known = nothing.require(2, 1).label(1, "obj").forbid(0, 3).forbid(1, 3)
    assert known.heads == (frozenset({2}), None, frozenset({2}))
    assert known.labels == ("obj", None, None) and nothing.is_open
    for wrong in (lambda: nothing.require(4, 1), lambda: nothing.require(1, 1), lambda: nothing.forbid(-1, 2)):
        with pytest.raises(ValueError, match=r"head: .* is not another word"):
            wrong()
    for wrong in (lambda: nothing.require(1, 0), lambda: nothing.label(4, "x")):
        with pytest.raises(ValueError, match=r"word: . is not between 1 and 3"):
            wrong()


def test_why_there_is_no_tree():
    five = Partial.nothing(5)

    def why(known, projective=False, single_root=True):
        return known.impossible(single_root=single_root, projective=projective)

    assert why(five) is None and why(five.require(2, 1).require(3, 2)) is None
    cycle = five.require(2, 1).require(4, 2).require(1, 4)
    assert why(cycle) == "heads of words 1, 2 and 4 make a cycle: 1 -> 4 -> 2 -> 1"
    two = five.require(0, 2).require(0, 5)
    assert why(two) == "words 2 and 5 both hang on the root, which has one word"
    assert why(two, single_root=False) is None
    crossing = five.require(3, 1).require(4, 2)
    assert why(crossing) is None
    assert "cross, as those of projective trees do not" in why(crossing, projective=True)
    assert why(Partial.nothing(1).forbid(0, 1)) == "every head of word 1 is forbidden"
    assert why(Partial.nothing(2).forbid(0, 1).forbid(0, 2)) == "heads of words 1 and 2 make a cycle: 1 -> 2 -> 1"
    some = Partial((frozenset({2, 3}), frozenset({1, 3}), frozenset({1, 2})), (None,) * 3)
    assert why(some) == "no tree has the heads that are given; leave some of them open"
    assert Partial.nothing(0).impossible(single_root=True, projective=True) is None
    ring = Partial.nothing(20)
    for word in range(1, 21):
        ring = ring.require(word % 20 + 1, word)
    assert why(ring).startswith("heads of words 1, 2, 3, 4, 5, 6, 7, 8 and 12 more make a cycle: 1 -> 20 -> 19 -> ")
