"""What a model says about sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from gpuparse.data.sentence import Sentence

_REMARK = "constraints"  # the comment's key
T = TypeVar("T")


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

    def fill(self, sentence: Sentence, confidence: bool = False) -> Sentence:
        """The sentence with this parse, and the tags it was made with: confidence, where wanted, in MISC, and a remark
        on constraints as a comment.

        A remark on the parse that the sentence had goes.
        """
        misc = None
        if confidence:
            if self.confidence is None:
                raise RuntimeError("a prediction without confidence")
            misc = {"Confidence": [f"{probability:.4f}" for probability in self.confidence]}
        filled = (self.tagged or sentence).with_parse(self.heads, self.deprels, misc)
        return filled.with_comment(_REMARK, self.constraints)


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
