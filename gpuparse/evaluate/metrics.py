"""Scores of aligned words: the metrics of the CoNLL 2018 shared task, roots and whole trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpuparse.evaluate.alignment import ROOT, AlignedWords, Indices, align

Flags: TypeAlias = NDArray[np.bool_]

OFFICIAL = (
    *("Tokens", "Sentences", "Words", "UPOS", "XPOS", "UFeats", "AllTags", "Lemmas"),
    *("UAS", "LAS", "CLAS", "MLAS", "BLEX"),
)
_CONTENT = (
    "nsubj obj iobj csubj ccomp xcomp obl vocative expl dislocated advcl advmod discourse nmod appos nummod acl amod "
    "conj fixed flat compound list parataxis orphan goeswith reparandum root dep"
)
CONTENT_LABELS = frozenset(_CONTENT.split())
FUNCTION_LABELS = frozenset({"aux", "cop", "mark", "det", "clf", "case", "cc"})

NOT_ALIGNED = -2


@dataclass(frozen=True)
class Score:
    """How many of a kind there are in the gold file, in the system's, in both, and right; and the ratios of these."""

    correct: int
    gold: int
    system: int
    aligned: int | None = None  # None where alignment is what is scored

    @property
    def precision(self) -> float:
        return _ratio(self.correct, self.system)

    @property
    def recall(self) -> float:
        return _ratio(self.correct, self.gold)

    @property
    def f1(self) -> float:
        return _ratio(2 * self.correct, self.gold + self.system)

    @property
    def aligned_accuracy(self) -> float | None:
        return None if self.aligned is None else _ratio(self.correct, self.aligned)

    def to_json(self) -> dict[str, Any]:
        """As ``json.dumps`` takes it."""
        ratios = ("precision", "recall", "f1", "aligned_accuracy")
        return {name: getattr(self, name) for name in ratios} | asdict(self)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


class Comparison:
    """Two files with their words aligned: what every score is computed from.

    ``g`` and ``s`` are the indices of the aligned words; ``attached`` and ``labelled`` say of each such pair whether
    the head is right, and whether the head and the label are.
    """

    def __init__(self, gold: AlignedWords, system: AlignedWords) -> None:
        self.gold, self.system = gold, system
        self.g, self.s = align(gold, system)
        self.gold_head = np.array(gold.head, dtype=np.int64)
        self.system_head = np.array(system.head, dtype=np.int64)
        # The gold word of each system word; a last entry, which index −1 finds, for the root.
        gold_of = np.full(len(system) + 1, NOT_ALIGNED)
        gold_of[self.s] = self.g
        gold_of[ROOT] = ROOT
        self.attached: Flags = self.gold_head[self.g] == gold_of[self.system_head][self.s]
        self.labelled: Flags = self.attached & self.same(gold.deprel, system.deprel)

    def same(self, gold: Sequence[str], system: Sequence[str]) -> Flags:
        """Whether each pair of aligned words has the same in a column."""
        pairs = zip(self.g.tolist(), self.s.tolist(), strict=True)
        return np.fromiter((gold[g] == system[s] for g, s in pairs), dtype=np.bool_, count=len(self.g))

    def count(self, correct: Flags) -> Score:
        return Score(int(correct.sum()), len(self.gold), len(self.system), len(self.g))


def scores(comparison: Comparison) -> dict[str, Score]:
    """The official metrics by their names, then ``Root``, and ``UEM`` and ``LEM`` for whole trees."""
    gold, system, g, s = comparison.gold, comparison.system, comparison.g, comparison.s
    same = comparison.same
    upos, xpos, feats = same(gold.upos, system.upos), same(gold.xpos, system.xpos), same(gold.feats, system.feats)
    no_lemma = _where(gold.lemma, {"_"})[g]
    lemma = same(gold.lemma, system.lemma) | no_lemma
    gold_content, system_content = _where(gold.deprel, CONTENT_LABELS), _where(system.deprel, CONTENT_LABELS)
    content = gold_content[g]

    def content_score(correct: Flags) -> Score:
        return _sums(correct & content, gold_content, system_content, content)

    gold_roots, system_roots = comparison.gold_head == ROOT, comparison.system_head == ROOT
    same_morphology = upos & feats
    with_function_words = _function_words_right(comparison, same_morphology)
    return {
        "Tokens": _spans(gold.tokens, system.tokens),
        "Sentences": _spans(gold.sentences, system.sentences),
        "Words": Score(len(g), len(gold), len(system)),
        "UPOS": comparison.count(upos),
        "XPOS": comparison.count(xpos),
        "UFeats": comparison.count(feats),
        "AllTags": comparison.count(upos & xpos & feats),
        "Lemmas": comparison.count(lemma),
        "UAS": comparison.count(comparison.attached),
        "LAS": comparison.count(comparison.labelled),
        "CLAS": content_score(comparison.labelled),
        "MLAS": content_score(comparison.labelled & same_morphology & with_function_words),
        "BLEX": content_score(comparison.labelled & lemma),
        "Root": _sums(gold_roots[g] & system_roots[s], gold_roots, system_roots, gold_roots[g]),
        "UEM": _trees(comparison, comparison.attached),
        "LEM": _trees(comparison, comparison.labelled),
    }


def _sums(*flags: Flags) -> Score:
    return Score(*(int(each.sum()) for each in flags))


def _where(values: Sequence[str], wanted: set[str] | frozenset[str]) -> Flags:
    return np.fromiter((value in wanted for value in values), dtype=np.bool_, count=len(values))


def _spans(gold: list[tuple[int, int]], system: list[tuple[int, int]]) -> Score:
    return Score(len(set(gold) & set(system)), len(gold), len(system))


def _function_words_right(comparison: Comparison, same_morphology: Flags) -> Flags:
    """Whether the function words under each pair are the same, with the same labels, tags and features.

    As words are aligned in order, they are the same where there are as many in both files as there are right ones.
    """
    g, s = comparison.g, comparison.s

    def below(head: Indices, counted: Flags) -> Indices:
        return np.bincount(head[counted & (head != ROOT)], minlength=len(head))

    gold_function = _where(comparison.gold.deprel, FUNCTION_LABELS)
    system_function = _where(comparison.system.deprel, FUNCTION_LABELS)
    right = np.zeros(len(gold_function), dtype=np.bool_)
    right[g[comparison.labelled & same_morphology]] = True
    wanted = below(comparison.gold_head, gold_function)[g]
    found = below(comparison.system_head, system_function)[s]
    found_right = below(comparison.gold_head, gold_function & right)[g]
    return (wanted == found) & (wanted == found_right)


def exact_trees(comparison: Comparison, correct: Flags) -> Flags:
    """Of each gold sentence, whether the system has it as one sentence of the same words, all of them correct."""
    gold, system = comparison.gold, comparison.system
    system_size = dict(zip(system.sentences, system.sizes, strict=True))
    expected = np.array([system_size.get(span, -1) for span in gold.sentences])
    right = np.bincount(gold.sentence_of()[comparison.g[correct]], minlength=len(gold.sizes))
    return (expected == gold.sizes) & (right == gold.sizes)


def _trees(comparison: Comparison, correct: Flags) -> Score:
    exact = exact_trees(comparison, correct)
    return Score(int(exact.sum()), len(comparison.gold.sizes), len(comparison.system.sizes))
