"""Dependency trees as binary trees with heads, and back."""

from __future__ import annotations

import itertools

import pytest
import torch

from gpuparse.data import read_conllu
from gpuparse.data.artificial import builtin_treebank
from gpuparse.data.binary import binarise, unbinarise
from gpuparse.data.brackets import Constituent
from gpuparse.data.constituents import (
    TreeRow,
    heads_of,
    is_projective,
    lexicalise,
    lexicalise_sentence,
    lift,
    name_rows,
    number_rows,
    rows_of,
    tree_of,
)
from gpuparse.structures.trees import is_tree
from tests.treebanks import NAMES, treebank

WORDS = ["the", "old", "man", "with", "boats"]
TAGS = ["DET", "ADJ", "NOUN", "ADP", "NOUN"]
HEADS = [3, 3, 0, 5, 3]
RELATIONS = ["det", "amod", "root", "case", "nmod:with"]


def all_trees(n):
    """Heads of all trees with one root, by what is_tree says: those without crossing arcs, and the others."""
    every = torch.tensor([(-1, *heads) for heads in itertools.product(range(n + 1), repeat=n)])
    lengths = torch.full((len(every),), n)
    trees = is_tree(every, lengths, projective=False, single_root=True)
    good = is_tree(every, lengths, projective=True, single_root=True)
    return every[good][:, 1:].tolist(), every[trees & ~good][:, 1:].tolist()


def check(words, tags, heads, made):
    """What must hold of any binary tree that was made."""
    n = len(words)
    assert len(made.rows) == 2 * n - 1
    assert heads_of(made.rows) == made.heads == list(heads)
    assert rows_of(made.tree) == made.rows
    assert tree_of(made.rows, words) == made.tree
    assert tree_of(reversed(made.rows), words).head == made.tree.head
    assert made.tree.words == list(words)
    assert made.tree.tags == list(tags)


@pytest.mark.parametrize("n", range(1, 6))
def test_all_trees(n):
    projective, crossing = all_trees(n)
    assert len(projective) == [1, 2, 7, 30, 143][n - 1]
    seen = set()
    for heads in projective:
        assert is_projective(heads)
        assert lift(heads) == heads
        made = lexicalise(WORDS[:n], TAGS[:n], heads)
        check(WORDS[:n], TAGS[:n], heads, made)
        seen.add(tuple(made.rows))
    assert len(seen) == len(projective)
    for heads in crossing:
        assert not is_projective(heads)
        lifted = lift(heads)
        assert is_projective(lifted)
        check(WORDS[:n], TAGS[:n], lifted, lexicalise(WORDS[:n], TAGS[:n], heads))
        for old, new in zip(heads, lifted, strict=True):
            while old != new:  # what a head was lifted to is above it in the old tree
                assert old
                old = heads[old - 1]


def test_one_tree():
    made = lexicalise(WORDS, TAGS, HEADS, RELATIONS)
    assert str(made.tree) == "(NOUN* (DET the) (NOUN* (ADJ old) (NOUN> (NOUN man) (NOUN* (ADP with) (NOUN boats)))))"
    assert made.rows[:3] == [TreeRow(0, 4, "NOUN*", 0, 3), TreeRow(0, 0, "DET", -1, 1), TreeRow(1, 4, "NOUN*", 1, 3)]
    alike = lexicalise(WORDS, TAGS, HEADS, sides=False)
    assert str(alike.tree) == str(made.tree).replace(">", "*")
    named = lexicalise(WORDS, TAGS, HEADS, RELATIONS, relations=True)
    assert str(named.tree) == (
        "(NOUN*:root (DET the) (NOUN*:root (ADJ old) (NOUN>:root (NOUN man) (NOUN*:nmod (ADP with) (NOUN boats)))))"
    )


def test_one_binary_tree_each():
    """No two binary trees by the rules seen have the same words, tags and heads."""
    rules, found = set(), {}
    for heads in all_trees(4)[0]:
        todo = [lexicalise("abcd", "XXXX", heads).tree]
        while todo:
            node = todo.pop()
            if node.children:
                rules.add((node.label, *(child.label for child in node.children), node.head))
                todo.extend(node.children)

    def trees(i, j):
        if i == j:
            yield Constituent("X", word="abcd"[i])
        for k in range(i, j):
            for left, right in itertools.product(trees(i, k), trees(k + 1, j)):
                for label, one, other, head in rules:
                    if (one, other) == (left.label, right.label):
                        yield Constituent(label, (left, right), head=head)

    for tree in trees(0, 3):
        heads = tuple(heads_of(rows_of(tree)))
        assert heads not in found
        found[heads] = tree
    assert len(found) == 30


def test_numbers():
    made = lexicalise(WORDS, TAGS, HEADS)
    symbols = ["ADJ", "ADP", "DET", "NOUN", "NOUN*", "NOUN>"]
    rows = number_rows(made.rows, symbols)
    assert rows.dtype == torch.int64
    assert rows.shape == (9, 5)
    padded = torch.cat([rows, torch.full((2, 5), -1)])
    assert name_rows(padded, symbols) == made.rows
    assert heads_of(padded) == HEADS
    bare = tree_of(name_rows(padded[:, :4], symbols), WORDS)
    assert bare == made.tree
    assert bare.head is None
    assert number_rows(made.rows, symbols[:-1])[:, 2].tolist().count(-1) == 1
    long = list(range(3000))  # a chain, deeper than Python's stack
    assert heads_of(lexicalise(["a"] * 3000, ["X"] * 3000, long).rows) == long


def test_treebank():
    """The built-in treebank: heads come back, of a lifted tree as they were lifted."""
    crossing = 0
    for sentence in builtin_treebank("dev"):
        made = lexicalise_sentence(sentence, relations=True)
        projective = is_projective(sentence.heads)
        crossing += not projective
        check(sentence.words, sentence.upos, sentence.heads if projective else lift(sentence.heads), made)
        assert (lexicalise_sentence(sentence, nonprojective="skip") is None) == (not projective)
        assert binarise(made.tree) == made.tree
        assert unbinarise(made.tree) == made.tree
    assert crossing > 0


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-dev")])
def test_real_treebanks(name):
    for sentence in itertools.islice(read_conllu(treebank(name)), 200):
        made = lexicalise_sentence(sentence)
        check(sentence.words, sentence.upos, lift(sentence.heads), made)


@pytest.mark.parametrize(
    ("heads", "what"),
    [
        ([0, 0], "heads: 2 words are under the root"),
        ([2, 1], "heads: 0 words are under the root"),
        ([0, 3], r"heads: word 2 has head 3, not in 0\.\.2"),
        ([0, 2], "heads: a cycle that word 2 is in"),
        ([0], "heads: 1 for 2 words"),
    ],
)
def test_no_tree(heads, what):
    with pytest.raises(ValueError, match=f"^{what}"):
        lexicalise(["a", "b"], ["X", "X"], heads)


def test_wrong_use():
    leaf = TreeRow(0, 0, "X", -1, 1)
    for what, run in (
        ("words: there are none", lambda: lexicalise([], [], [])),
        ("deprels: relations are wanted", lambda: lexicalise(["a"], ["X"], [0], relations=True)),
        ("heads: not a projective tree", lambda: lexicalise("abcd", "XXXX", [3, 0, 2, 1], nonprojective="error")),
        (r"rows: \(0, 1\) is split at 0", lambda: heads_of([TreeRow(0, 1, "X*", 0, 1), leaf])),
        (
            r"rows: \(0, 1\) has the head 3",
            lambda: heads_of([TreeRow(0, 1, "X*", 0, 3), leaf, TreeRow(1, 1, "X", -1, 2)]),
        ),
        ("rows: none is that of all 2 words", lambda: tree_of([leaf], ["a", "b"])),
        ("tree: 'S' is not of two children", lambda: rows_of(Constituent("S", (Constituent("X", word="a"),)))),
        (
            "<artificial .*:1: tags: 'feats' is neither",
            lambda: lexicalise_sentence(builtin_treebank("dev")[0], tags="feats"),
        ),
    ):
        with pytest.raises(ValueError, match=f"^{what}"):
            run()
