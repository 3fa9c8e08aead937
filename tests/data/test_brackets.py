"""Brackets and Chomsky normal form: what is read, what is written, and the way there and back."""

from __future__ import annotations

import gzip
import io
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuparse.data.binary import binarise, head_child, unbinarise
from gpuparse.data.brackets import BracketError, Constituent, read_brackets, write_brackets

PENN = """
( (S
    (NP-SBJ-1 (DT The) (NN cat) )
    (VP (VBZ seems)
      (S (NP-SBJ (-NONE- *-1) )
        (VP (TO to) (VP (VB sleep) ))))
    (-LRB- -LRB-) (NP=2 (NN here)) (-RRB- -RRB-) (. .) ))
(S1 (NP (NN yes))) ((X (FW no)))
"""

LABELS = st.sampled_from(["S", "NP", "VP", "PP", "ADVP", "X"])
WORDS = st.sampled_from(["a", "the", "Zürich", "%", "-", "=", "*", "10\u00a0000"])
LEAVES = st.builds(Constituent, st.sampled_from(["DT", "NN", "VB", "-LRB-", ","]), word=WORDS)
TREES = st.recursive(
    LEAVES,
    lambda some: st.builds(Constituent, LABELS, st.lists(some, min_size=1, max_size=5).map(tuple)),
    max_leaves=20,
)


def read(text, **options):
    return list(read_brackets(io.StringIO(text), **options))


def test_penn():
    first, second, third = read(PENN)
    assert str(first) == (
        "(S (NP (DT The) (NN cat)) (VP (VBZ seems) (S (VP (TO to) (VP (VB sleep))))) "
        "(-LRB- -LRB-) (NP (NN here)) (-RRB- -RRB-) (. .))"
    )
    assert str(second) == "(S1 (NP (NN yes)))"
    assert str(third) == "(X (FW no))"
    kept = str(read(PENN, traces=True, functions=True)[0])
    for part in ("(NP-SBJ-1 (DT The) (NN cat))", "(NP-SBJ (-NONE- *-1))", "(NP=2 (NN here))"):
        assert part in kept
    assert read("(S (NP (-NONE- *))) (S (VB go))") == [Constituent("S", (Constituent("VB", word="go"),))]
    assert first.words == ["The", "cat", "seems", "to", "sleep", "-LRB-", "here", "-RRB-", "."]
    assert first.tags == ["DT", "NN", "VBZ", "TO", "VB", "-LRB-", "NN", "-RRB-", "."]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(TREES, max_size=4))
def test_round_trip(trees):
    text = "".join(f"{tree}\n" for tree in trees)
    assert read(text, functions=True) == trees
    assert read(text.replace(" ", "\n  "), functions=True) == trees
    assert read("".join(f"( {tree})" for tree in trees), functions=True) == trees


def test_files(tmp_path):
    trees = read(PENN)
    path = tmp_path / "some" / "trees.mrg"
    write_brackets(trees, path)
    assert list(read_brackets(path)) == trees
    assert os.listdir(path.parent) == ["trees.mrg"]
    packed = tmp_path / "trees.mrg.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert list(read_brackets(packed)) == trees

    def broken():
        yield trees[0]
        raise KeyError("broken")

    with pytest.raises(KeyError):
        write_brackets(broken(), path)
    assert list(read_brackets(path)) == trees
    assert os.listdir(path.parent) == ["trees.mrg"]


def test_streams():
    def lines():
        yield "(S (NN one))\n"
        yield "(S (NN two)\n"
        raise RuntimeError("read too far")

    trees = read_brackets(lines())
    assert next(trees).words == ["one"]
    with pytest.raises(RuntimeError):
        next(trees)


def test_escapes():
    tree = Constituent("NP", (Constituent("NN", word="a(b)"), Constituent("CD", word="10 000")))
    assert str(tree) == "(NP (NN a-LRB-b-RRB-) (CD 10\u00a0000))"
    with pytest.raises(ValueError, match=r"^label: '\(' is empty or has a bracket"):
        str(Constituent("(", word="("))


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("(S (NN a))\n\n(S (NN b)\n", 3, "lacks 1 closing"),
        ("(S (NN a))\n)", 2, "closes that was not opened"),
        ("(S (NN a))\nword (S (NN b))", 2, "'word' is outside"),
        ("(S\n(NN a b))", 2, "'b' beside the word 'a'"),
        ("(S\n(NN a) b)", 2, "'b' beside a phrase"),
        ("(S\n(NN a (NN b)))", 2, "a phrase beside the word 'a'"),
        ("(S\n(NN))", 2, r"\(NN\) has neither"),
        ("(S\n())", 2, "without a label is no phrase"),
        ("(S\n((NN a)))", 2, "without a label is no phrase"),
        ("(\n)", 2, "without a label is no phrase"),
        ("((S (NN a))\n(S (NN b)))", 2, "without a label has 2 trees"),
        ("((S (NN a)) b)", 1, "'b' beside a phrase"),
    ],
)
def test_errors(text, line, what, tmp_path):
    path = tmp_path / "bad.mrg"
    path.write_text(text)
    with pytest.raises(BracketError, match=rf"^{path}:{line}: .*{what}.*; ") as caught:
        list(read_brackets(path))
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("bad.mrg", b"(S (NN a))\n(S (NN \xff))\n", r"bad\.mrg:2: not UTF-8"),
        ("bad.gz", gzip.compress(b"(S (NN a))\n" * 100, mtime=0)[:-12], "breaks off"),
        ("bad.gz", b"(S (NN a))", r"bad\.gz:1: not gzip data"),
    ],
)
def test_bad_bytes(tmp_path, name, content, what):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BracketError, match=what):
        list(read_brackets(tmp_path / name))


def test_any_depth():
    text = "(S " * 5000 + "(NN a)" + ")" * 5000
    (tree,) = read(text)
    assert str(tree) == text
    assert str(unbinarise(binarise(tree))) == text
    assert binarise(tree).label == "S+" * 5000 + "NN"


def test_binarise():
    (tree,) = read(
        "(S (NP (DT the) (JJ big) (NN cat) (PP (IN on) (NP (NN top)))) (VP (VBZ is) (RB not) (ADJP (JJ asleep))))"
    )
    made = binarise(tree)
    assert str(made) == (
        "(S (NP (DT the) (@NP (JJ big) (@NP (NN cat) (PP (IN on) (NP+NN top))))) "
        "(VP (@VP (VBZ is) (RB not)) (ADJP+JJ asleep)))"
    )
    assert (made.head, made.children[0].head, made.children[1].head) == (1, 1, 0)
    assert "(@NP|PP (NN cat)" in str(binarise(tree, markov=1))
    assert "(@NP|PP|JJ (JJ big)" in str(binarise(tree, markov=2))
    assert "(@NP|JJ (JJ big)" in str(binarise(tree, markov=1))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(TREES, st.integers(0, 3), st.sampled_from(["left", "right"]))
def test_there_and_back(tree, markov, default):
    made = binarise(tree, markov=markov, default=default)
    assert unbinarise(made) == tree
    todo = [made]
    while todo:
        node = todo.pop()
        assert (node.word is None) == (len(node.children) == 2) == (node.head in (0, 1))
        todo.extend(node.children)


@pytest.mark.parametrize(
    ("label", "children", "head"),
    [
        *(("NP", "DT NN PP", 1), ("NP", "NP PP", 0), ("NP", "NNP POS", 1), ("NP", "DT , .", 0), ("S", "NP VP .", 1)),
        *(("VP", "MD VP", 0), ("PP", "ADVP IN NP", 1), ("SBAR", "IN S", 0), ("FRAG", "NP NP .", 1)),
        *(("UNHEARD", "A B", 1), ("UNHEARD", ", .", 1)),
    ],
)
def test_heads(label, children, head):
    assert head_child(label, children.split()) == head


def test_wrong_use():
    a, b = (Constituent("NN", word=word) for word in "ab")
    assert head_child("UNHEARD", [",", "A", "B"], default="left") == 1
    for what, run in (
        (r"^label: .* begins with @ or has a \+", lambda: binarise(Constituent("@NP", word="a"))),
        (r"^label: .* begins with @ or has a \+", lambda: binarise(Constituent("S+VP", word="a"))),
        ("^markov: -1 is below 0", lambda: binarise(a, markov=-1)),
        ("^tree: the root '@NP' is a part", lambda: unbinarise(Constituent("@NP", (a, b)))),
    ):
        with pytest.raises(ValueError, match=what):
            run()
