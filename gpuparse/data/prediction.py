"""What a parser says about one sentence."""

from __future__ import annotations

from typing import NamedTuple

from gpuparse.data.sentence import Sentence

_REMARK = "constraints"  # the comment's key


class Prediction(NamedTuple):
    """The parse of one sentence: an entry for each word, in order."""

    heads: list[int]
    """The number of each word's head, 0 for the root."""
    deprels: list[str]
    """The label of each word's arc."""
    confidence: list[float] | None = None
    """The probability of each word's arc, where it was asked for."""
    constraints: str | None = None
    """What constraints could not be kept to, or not with a proof; None where there is nothing to say."""

    def fill(self, sentence: Sentence, confidence: bool = False) -> Sentence:
        """The sentence with this parse: confidence, where wanted, in MISC, and a remark on constraints as a comment.

        A remark on the parse that the sentence had goes.
        """
        misc = None
        if confidence:
            if self.confidence is None:
                raise RuntimeError("a prediction without confidence")
            misc = {"Confidence": [f"{probability:.4f}" for probability in self.confidence]}
        return sentence.with_parse(self.heads, self.deprels, misc).with_comment(_REMARK, self.constraints)
