"""How good parses are: the CoNLL 2018 shared task's metrics, where a parser errs, and labelled brackets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpuparse.data.conllu import Sentence
from gpuparse.data.prediction import Prediction
from gpuparse.evaluate.alignment import AlignedWords, Source, base_label, check_texts
from gpuparse.evaluate.brackets import BracketScores, bracket_scores
from gpuparse.evaluate.breakdown import ArcLengthRow, Breakdown, Confusion, LabelRow, SentenceLengthRow, break_down
from gpuparse.evaluate.metrics import OFFICIAL, Comparison, Score, scores

__all__ = [
    "OFFICIAL",
    "ArcLengthRow",
    "BracketScores",
    "Breakdown",
    "Confusion",
    "Evaluation",
    "LabelRow",
    "Score",
    "SentenceLengthRow",
    "attachment_scores",
    "bracket_scores",
    "evaluate",
]


@dataclass(frozen=True)
class Evaluation:
    """Scores by name; ``breakdown`` is computed when first asked for.

    ``metrics`` has the official ones (``OFFICIAL``, such as ``LAS``) and ``Root`` (the word under the root), ``UEM``
    and ``LEM`` (whole trees, without and with labels). Ratios are from 0 to 1.
    """

    metrics: dict[str, Score]
    comparison: Comparison

    @cached_property
    def breakdown(self) -> Breakdown:
        return break_down(self.comparison)

    def to_json(self) -> dict[str, Any]:
        """Everything, as ``json.dumps`` takes it."""
        return {
            "metrics": {name: score.to_json() for name, score in self.metrics.items()},
            "breakdown": self.breakdown.to_json(),
        }


def evaluate(gold: Source, system: Source, *, single_root: bool = True) -> Evaluation:
    """Compare a system's parses with the gold ones, as the CoNLL 2018 shared task does.

    Args:
        gold: a CoNLL-U file (path, ``"-"``, ``.gz`` or open file) or its sentences.
        system: the same text parsed; words and sentences may be cut differently.
        single_root: whether a sentence with several roots is an error, as it officially is.

    Words are aligned by the characters they cover. Features and labels count as far as they are universal: without
    subtypes and without language-specific features. Enhanced dependencies and empty nodes do not count. Raises
    ``ValueError``, naming file and line, where the texts differ and where a sentence is not a tree.

    Example:
        >>> from gpuparse.data import Sentence
        >>> from gpuparse.evaluate import evaluate
        >>> gold = Sentence.from_words(["She", "sleeps"], heads=[2, 0], deprels=["nsubj", "root"])
        >>> system = Sentence.from_words(["She", "sleeps"], heads=[2, 0], deprels=["obj", "root"])
        >>> found = evaluate([gold], [system])
        >>> found.metrics["UAS"].f1, found.metrics["LAS"].f1, found.breakdown.confusions[0].system
        (1.0, 0.5, 'obj')
    """
    gold_words = AlignedWords.read(gold, single_root=single_root)
    system_words = AlignedWords.read(system, single_root=single_root)
    check_texts(gold_words, system_words)
    comparison = Comparison(gold_words, system_words)
    return Evaluation(scores(comparison), comparison)


def attachment_scores(
    gold: Iterable[Sentence], predictions: Iterable[Sentence | Prediction | tuple[Sequence[int], Sequence[str]]]
) -> tuple[float, float]:
    """UAS and LAS, from 0 to 1, of parses of the same words: the official figures, quickly.

    Args:
        gold: sentences with heads and labels.
        predictions: for each a parsed sentence, a ``Prediction``, or the heads and the labels of its n words (0 is
            the root).

    Nothing is checked but the numbers of sentences and words (``ValueError``): predictions need not be trees.

    Example:
        >>> from gpuparse.data import Sentence
        >>> from gpuparse.evaluate import attachment_scores
        >>> gold = Sentence.from_words(["She", "sleeps"], heads=[2, 0], deprels=["nsubj", "root"])
        >>> attachment_scores([gold], [([2, 0], ["obj", "root"])])
        (1.0, 0.5)
    """
    words = attached = labelled = 0
    expected, given = list(gold), list(predictions)
    if len(expected) != len(given):
        raise ValueError(f"predictions: {len(given)} parses for {len(expected)} sentences")
    for index, (sentence, prediction) in enumerate(zip(expected, given, strict=True)):
        if isinstance(prediction, (Sentence, Prediction)):
            prediction = prediction.heads, prediction.deprels
        heads, labels = prediction
        n = len(sentence)
        if len(heads) != n or len(labels) != n:
            raise ValueError(
                f"predictions: {len(heads)} heads and {len(labels)} labels for the {n} words of sentence {index}"
            )
        words += n
        rows = zip(sentence.heads, sentence.deprels, heads, labels, strict=True)
        for gold_head, gold_label, head, label in rows:
            if gold_head == head:
                attached += 1
                labelled += gold_label == label or base_label(gold_label) == base_label(label)
    return (attached / words, labelled / words) if words else (0.0, 0.0)
