"""Where a parser is right and wrong: by the length of arcs and of sentences, and by label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gpuparse.evaluate.alignment import ROOT, Indices
from gpuparse.evaluate.metrics import Comparison, Score, exact_trees

# The first length of each bucket; the last bucket has no end.
ARC_LENGTHS = (1, 2, 3, 4, 6, 11, 21)
SENTENCE_LENGTHS = (1, 6, 11, 21, 31, 41, 51)


@dataclass(frozen=True)
class ArcLengthRow:
    """Arcs that span so many words: ``root``, ``1``, ``4–5``. Recall is over gold arcs, precision over the system's.

    A right arc counts under its length in the gold file, also where the system cuts the words between differently.
    """

    length: str
    unlabelled: Score
    labelled: Score

    def to_json(self) -> dict[str, Any]:
        """As ``json.dumps`` takes it."""
        return {"length": self.length, "UAS": self.unlabelled.to_json(), "LAS": self.labelled.to_json()}


@dataclass(frozen=True)
class SentenceLengthRow:
    """Gold sentences of so many words: the share of their words attached right, and of whole trees right."""

    length: str
    sentences: int
    words: int
    uas: float
    las: float
    uem: float
    lem: float


@dataclass(frozen=True)
class LabelRow:
    """One label: how well it is given at all, whatever the head, and given with the right head."""

    label: str
    given: Score
    attached: Score

    def to_json(self) -> dict[str, Any]:
        """As ``json.dumps`` takes it."""
        return {"label": self.label, "given": self.given.to_json(), "attached": self.attached.to_json()}


@dataclass(frozen=True)
class Confusion:
    """How many aligned words have one label in the gold file and another in the system's."""

    gold: str
    system: str
    words: int
    right_heads: int


@dataclass(frozen=True)
class Breakdown:
    """Where a parser is right and wrong, row by row; ``Evaluation.breakdown`` makes it."""

    arc_lengths: list[ArcLengthRow]
    sentence_lengths: list[SentenceLengthRow]
    labels: list[LabelRow]  # the most frequent in the gold file first
    confusions: list[Confusion]  # the most frequent first

    def to_json(self) -> dict[str, Any]:
        """As ``json.dumps`` takes it."""
        return {
            "arc_lengths": [row.to_json() for row in self.arc_lengths],
            "sentence_lengths": [asdict(row) for row in self.sentence_lengths],
            "labels": [row.to_json() for row in self.labels],
            "confusions": [asdict(row) for row in self.confusions],
        }


def break_down(comparison: Comparison) -> Breakdown:
    """Break the attachment scores of two files down. Rows that no word belongs to are left out."""
    return Breakdown(
        _by_arc_length(comparison), _by_sentence_length(comparison), _by_label(comparison), _confusions(comparison)
    )


def _by_arc_length(comparison: Comparison) -> list[ArcLengthRow]:
    names = ["root", *_names(ARC_LENGTHS)]
    gold = _arc_buckets(comparison.gold_head)
    system = _arc_buckets(comparison.system_head)
    attached, labelled = comparison.attached, comparison.labelled
    system[comparison.s[attached]] = gold[comparison.g[attached]]

    def rows(buckets: Indices) -> list[int]:
        return np.bincount(buckets, minlength=len(names)).tolist()

    aligned = rows(gold[comparison.g])
    totals = list(zip(rows(gold), rows(system), aligned, strict=True))
    unlabelled_right, labelled_right = rows(gold[comparison.g[attached]]), rows(gold[comparison.g[labelled]])
    return [
        ArcLengthRow(name, Score(unlabelled, *total), Score(with_label, *total))
        for name, unlabelled, with_label, total in zip(names, unlabelled_right, labelled_right, totals, strict=True)
        if any(total)
    ]


def _arc_buckets(head: Indices) -> Indices:
    """The bucket of each word's arc: 0 for the root's, then by length."""
    lengths = np.abs(head - np.arange(len(head)))
    return np.where(head == ROOT, 0, np.searchsorted(ARC_LENGTHS, lengths, side="right"))


def _names(starts: Sequence[int]) -> list[str]:
    """``1``, ``4–5``, ``21+``."""
    ends = [following - 1 for following in starts[1:]]
    return [f"{a}" if a == b else f"{a}–{b}" for a, b in zip(starts, ends, strict=False)] + [f"{starts[-1]}+"]


def _by_sentence_length(comparison: Comparison) -> list[SentenceLengthRow]:
    sizes = np.array(comparison.gold.sizes)
    bucket = np.searchsorted(SENTENCE_LENGTHS, sizes, side="right") - 1
    word_bucket = bucket[comparison.gold.sentence_of()]
    both = comparison.attached, comparison.labelled
    whole = [exact_trees(comparison, right) for right in both]
    rows = []
    for i, name in enumerate(_names(SENTENCE_LENGTHS)):
        here = bucket == i
        sentences, words = int(here.sum()), int(sizes[here].sum())
        if not sentences:
            continue
        right = (int((word_bucket[comparison.g[flags]] == i).sum()) for flags in both)
        trees = (int(exact[here].sum()) / sentences for exact in whole)
        rows.append(SentenceLengthRow(name, sentences, words, *(many / words for many in right), *trees))
    return rows


def _by_label(comparison: Comparison) -> list[LabelRow]:
    gold_total, system_total = Counter(comparison.gold.deprel), Counter(comparison.system.deprel)
    pairs = _label_pairs(comparison)
    aligned = Counter(label for label, _, _ in pairs)
    given = Counter(label for label, other, _ in pairs if label == other)
    attached = Counter(label for label, other, right in pairs if label == other and right)
    rows = []
    for label in sorted(gold_total | system_total, key=lambda label: (-gold_total[label], label)):
        totals = gold_total[label], system_total[label], aligned[label]
        rows.append(LabelRow(label, Score(given[label], *totals), Score(attached[label], *totals)))
    return rows


def _label_pairs(comparison: Comparison) -> list[tuple[str, str, bool]]:
    """Of aligned words: the gold label, the system's, and whether the head is right."""
    gold, system = comparison.gold.deprel, comparison.system.deprel
    aligned = zip(comparison.g.tolist(), comparison.s.tolist(), comparison.attached.tolist(), strict=True)
    return [(gold[g], system[s], right) for g, s, right in aligned]


def _confusions(comparison: Comparison) -> list[Confusion]:
    wrong = [pair for pair in _label_pairs(comparison) if pair[0] != pair[1]]
    words = Counter((gold, system) for gold, system, _ in wrong)
    right_heads = Counter((gold, system) for gold, system, right in wrong if right)
    ordered = sorted(words, key=lambda pair: (-words[pair], pair))
    return [Confusion(*pair, words=words[pair], right_heads=right_heads[pair]) for pair in ordered]
