"""From numbers on the host to what a parser says of a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpuparse.data.prediction import Alternative, Prediction

_SHOWN = 6  # constraints that cannot hold together, in a remark


class Reader(NamedTuple):
    """Of a batch.

    Attributes:
        labels: their names.
        more: what comes behind the numbers that every sentence has, by name; and then ``stats``.
        estimated: how probabilities are.
    """

    labels: Sequence[str]
    more: Sequence[str]
    stats: Sequence[str]
    estimated: str | None

    def read(
        self, length: int, row: Sequence[Any], given: Sequence[str | None] | None, remark: str | None
    ) -> tuple[Prediction, bool]:
        """What is said of a sentence, given the labels that were; and whether it was solved anew under constraints."""
        heads, labels, score, bound, certified, iterations, wrong, *rest = row
        words, found = slice(1, length + 1), dict(zip(self.more, rest, strict=False))
        ranks = (found.get(f"best {name}", []) for name in ("heads", "labels", "score", "probability"))
        best = [
            Alternative(own[words], self._told(of_words[words], given), value, share)
            for own, of_words, value, share in zip(*ranks, strict=True)
            if own[1] >= 0
        ]
        square = found.get("marginals")
        prediction = Prediction(
            heads[words],
            self._told(labels[words], given),
            found["confidence"][words] if "confidence" in found else None,
            _shortened(remark) if wrong else None,
            score,
            bound,
            certified,
            iterations,
            dict(zip(self.stats, rest[len(self.more) :], strict=True)),
            remark,
            label_confidence=found["label_confidence"][words] if "label_confidence" in found else None,
            probability=found.get("probability"),
            entropy=found.get("entropy"),
            estimated=self.estimated,
            marginals=None if square is None else [line[: length + 1] for line in square[: length + 1]],
            alternatives=best,
        )
        return prediction, wrong

    def _told(self, numbers: Sequence[int], given: Sequence[str | None] | None) -> list[str]:
        names = [self.labels[number] for number in numbers]
        if given is None:
            return names
        return [name if own is None else own for name, own in zip(names, given, strict=True)]


def _shortened(remark: str | None) -> str | None:
    """A remark fit for a comment: of many constraints that cannot hold together the first."""
    kind, _, why = (remark or "").partition(": ")
    named = why.split("; ")
    if kind != "infeasible" or len(named) <= _SHOWN:
        return remark
    return f"{kind}: {'; '.join(named[:_SHOWN])}; and {len(named) - _SHOWN} more"
