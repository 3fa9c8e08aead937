"""What is known of a batch's trees, put into their scores: arcs that may not be score -inf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gpuparse.data.partial import Partial
from gpuparse.data.sentence import ConlluError, Sentence
from gpuparse.data.vocab import Index
from gpuparse.decoding.scores import Scores
from gpuparse.nn.scorer import Scored
from gpuparse.ops import EISNER, MATRIX_TREE
from gpuparse.system.quote import quoted

_TABLE = 1 << 24  # scores of labelled arcs at a time


class Known(NamedTuple):
    """Of a batch: the arcs that may be, and the numbers of the labels that are given, -1 where they are open, or where
    the parser does not know them."""

    allowed: Bool[Tensor, "B N N"]
    labels: Int64[Tensor, "B N"]
    asked: Int64[Tensor, " K"]
    """The sentences in which a word has a label that is given, and several heads that may be."""

    given: Sequence[Sequence[str | None]]
    """The names of the labels that are given."""

    @classmethod
    def of(
        cls,
        sentences: Sequence[Sentence],
        partials: Sequence[Partial],
        names: Index,
        *,
        projective: bool,
        single_root: bool,
    ) -> Known | None:
        """Of partial trees; None where nothing is known of any. A ConlluError names a sentence without such a tree."""
        if all(known.is_open for known in partials):
            return None
        trees = {"projective": projective, "single_root": single_root}
        nodes = 1 + max(len(known.heads) for known in partials)
        allowed = torch.ones(len(partials), nodes, nodes, dtype=torch.bool)
        labels = torch.full((len(partials), nodes), -1)
        for b, known in enumerate(partials):
            own = slice(len(known.heads) + 1)
            allowed[b, own, own] = known.allowed
            for word, label in enumerate(known.labels, 1):
                if label is not None:
                    labels[b, word] = names.numbers([label], missing=-1)[0]
        lengths = torch.tensor([len(known.heads) for known in partials])
        arcs = torch.where(allowed, 0.0, -torch.inf)
        found = (EISNER if projective else MATRIX_TREE).argmax((arcs,), lengths, single_root)
        for b in (found[:, 1] < 0).nonzero()[:, 0].tolist():
            raise ConlluError(f"{sentences[b].source}:{sentences[b].line}: {partials[b].impossible(**trees)}")
        asked = ((labels >= 0) & (allowed.sum(1) > 1)).any(1).nonzero()[:, 0]
        return cls(allowed, labels, asked, [known.labels for known in partials])

    def to(self, device: torch.device) -> Known:
        """The same on a device."""
        return self._replace(
            allowed=self.allowed.to(device), labels=self.labels.to(device), asked=self.asked.to(device)
        )

    def restrict(self, scored: Scored, names: int) -> Scores:
        """The scores under what is known, given how many labels there are.

        Where a label is given and the head is not, the label's log-probability on each arc is added to that arc: the
        trees have the probabilities then that they have given the labels.
        """
        scores = scored.scores
        arcs = scores.arcs.masked_fill(~self.allowed, -torch.inf)
        N = arcs.shape[1]
        for rows in self.asked.split(max(1, _TABLE // (N * N * names))) if len(self.asked) else ():
            every = scored.all_labels(rows).log_softmax(-1)
            number, several = self.labels[rows], self.allowed[rows].sum(1) > 1
            own = every.gather(-1, number.clamp(min=0)[:, None, :, None].expand(-1, N, -1, 1))[..., 0]
            arcs = arcs.index_add(0, rows, torch.where(((number >= 0) & several)[:, None], own, 0.0).to(arcs.dtype))
        return scores.with_arcs(arcs)

    def keep_labels(self, labels: Int64[Tensor, "*k B N"]) -> Int64[Tensor, "*k B N"]:
        """The labels that are given, and these elsewhere."""
        return torch.where(self.labels >= 0, self.labels, labels)

    def sure_of(self, confidence: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        """Probabilities of labels, 1 for those given."""
        return torch.where(self.labels >= 0, 1.0, confidence)

    def only_given(self, scores: Float[Tensor, "K N N L"], sentences: Int64[Tensor, " K"]) -> Float[Tensor, "K N N L"]:
        """Scores of labels in some sentences; where one is given, -inf for the others, and 0 for it."""
        number = self.labels[sentences][:, None, :, None]
        own = torch.arange(scores.shape[-1], device=scores.device) == number
        return torch.where(number < 0, scores, torch.where(own, 0.0, -torch.inf).to(scores.dtype))


def partials_of(
    sentences: Sequence[Sentence], partial: bool | Sequence[Partial]
) -> tuple[Sequence[Sentence], dict[int, Partial] | None]:
    """What is known of each sentence, by its id: of copies, for one may be there twice."""
    if partial is False:
        return sentences, None
    if partial is True:
        return sentences, {id(sentence): Partial.of(sentence) for sentence in sentences}
    if not isinstance(partial, Sequence) or len(partial) != len(sentences):
        count = len(partial) if isinstance(partial, Sequence) else quoted(partial)
        raise ValueError(
            f"partial must be True, False or a Partial for each of {len(sentences)} sentences, got {count}"
        )
    sentences = [Sentence(sentence.text, sentence.source, sentence.line) for sentence in sentences]
    for index, (sentence, own) in enumerate(zip(sentences, partial, strict=True)):
        if not isinstance(own, Partial) or len(own.heads) != len(sentence) or len(own.labels) != len(sentence):
            raise ValueError(f"partial[{index}] must be a Partial of {len(sentence)} words, got {quoted(own)}")
    return sentences, {id(sentence): own for sentence, own in zip(sentences, partial, strict=True)}
