"""What a model says about sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from gpuparse.data.sentence import Sentence

_REMARK, _PROBABILITY = "constraints", "tree_probability"  # keys of comments
T = TypeVar("T")


@dataclass(frozen=True)
class Alternative:
    """One of the best trees of a sentence."""

    heads: list[int]
    """The number of each word's head, 0 for the root."""
    deprels: list[str]
    """The label of each word's arc: the best one."""
    score: float
    """Of the tree."""
    probability: float
    """Of the tree, among all."""


@dataclass(frozen=True)
class Prediction:
    """The parse of one sentence: an entry for each word, in order; and what the decoder knows of it.

    Two are equal if their parses, confidences and remarks on constraints are.
    """

    heads: list[int]
    """The number of each word's head, 0 for the root."""
    deprels: list[str]
    """The label of each word's arc."""
    confidence: list[float] | None = None
    """The probability of each word's arc, where it was asked for."""
    constraints: str | None = None
    """What constraints could not be kept to, or not with a proof; None where there is nothing to say."""
    score: float = field(default=math.nan, compare=False)
    """Of the tree, less what soft constraints cost. An arc's best label costs nothing, others what they fall short."""
    bound: float = field(default=math.inf, compare=False)
    """No tree scores more."""
    certified: bool = field(default=False, compare=False)
    """Whether the tree is proven best, under the constraints if there are any."""
    iterations: int = field(default=0, compare=False)
    """How many the method took."""
    stats: Mapping[str, float] = field(default_factory=dict, compare=False)
    """What else the method counts."""
    remark: str | None = field(default=None, compare=False)
    """Why nothing was proven, or constraints cannot be satisfied, in full."""
    tagged: Sentence | None = field(default=None, compare=False)
    """The sentence with the tags that it was parsed with, where it was tagged first."""
    label_confidence: list[float] | None = None
    """The probability of each word's label, given its arc."""
    probability: float | None = None
    """Of the tree, its labels aside."""
    entropy: float | None = None
    """Of the distribution over trees, in nats: 0 where only one is possible."""
    estimated: str | None = None
    """How probabilities were estimated, "bp" (belief propagation); None where they are exact."""
    marginals: list[list[float]] | None = field(default=None, repr=False)
    """The probability of each arc, [head][word], node 0 being the root."""
    alternatives: list[Alternative] = field(default_factory=list)
    """The best trees, the best first."""

    def fill(self, sentence: Sentence, confidence: bool = False) -> Sentence:
        """The sentence with this parse, and the tags it was made with: confidence, where wanted, in MISC; as comments
        the tree's probability, where it is known, and a remark on constraints.

        A remark on the parse that the sentence had goes.
        """
        misc = None
        if confidence:
            if self.confidence is None:
                raise RuntimeError("a prediction without confidence")
            misc = {"Confidence": _written(self.confidence)}
            if self.label_confidence is not None:
                misc["LabelConfidence"] = _written(self.label_confidence)
        filled = (self.tagged or sentence).with_parse(self.heads, self.deprels, misc)
        if self.probability is not None or f"# {_PROBABILITY} =" in filled.text:  # or of the parse that it had
            how = f" ({self.estimated})" if self.estimated else ""
            for key, value in ((_PROBABILITY, self.probability), ("entropy", self.entropy)):
                filled = filled.with_comment(key, None if value is None else f"{value:.4g}{how}")
        return filled.with_comment(_REMARK, self.constraints)

    def each_filled(self, sentence: Sentence, confidence: bool = False) -> list[Sentence]:
        """The sentence with each of the alternatives, the best first, and comments that say which it is and how
        probable; without alternatives as ``fill`` gives it."""
        if not self.alternatives:
            return [self.fill(sentence, confidence)]
        whole = replace(self, confidence=None, label_confidence=None, probability=None)
        count, found = len(self.alternatives), []
        for rank, one in enumerate(self.alternatives, 1):
            alone = replace(whole, heads=one.heads, deprels=one.deprels, probability=one.probability)
            found.append(alone.fill(sentence).with_comment("nbest", f"{rank}/{count}"))
        return found

    def record(self, sentence: Sentence) -> dict[str, Any]:
        """The sentence with all that is known of its parse, as JSON has it."""
        given = self.tagged or sentence
        found: dict[str, Any] = {"sent_id": sentence.sent_id, "words": given.words}
        for name in ("upos", "feats"):
            if any(value != "_" for value in getattr(given, name)):
                found[name] = getattr(given, name)
        found |= {"heads": self.heads, "deprels": self.deprels}
        more: dict[str, Any] = {"confidence": self.confidence, "label_confidence": self.label_confidence}
        more |= {"tree_probability": self.probability, "entropy": self.entropy, "estimated": self.estimated}
        more |= {"marginals": self.marginals, "constraints": self.constraints}
        found |= {name: value for name, value in more.items() if value is not None}
        if self.alternatives:
            found["trees"] = [asdict(tree) for tree in self.alternatives]
        return found


def _written(probabilities: Iterable[float]) -> list[str]:
    return [f"{probability:.4f}" for probability in probabilities]


class Results(list[T]):
    """What a model says of each of some sentences, in their order.

    Attributes:
        seconds: where the time went, by what was done. On a GPU that is the time to launch the work, not to do it.
        counts: of sentences, by what came of them.
    """

    def __init__(self, each: Iterable[T] = ()) -> None:
        super().__init__(each)
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}
