"""Probabilities of three tags in a row, with a tag for what lies before and after a sentence.

``TrigramChains`` scores the tags x, y, z of three words in a row and nothing else. So that the first two tags and the
end have their probabilities too, a sentence gets two words before it and one after it, whose tag is the edge, number T;
then log P(t1 … tn, end) is the sum of n + 1 trigrams (* * t1), (* t1 t2), …, (t(n-1) tn *).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

BEFORE, AFTER = 2, 1
"""Words of the edge before and after a sentence."""


class Trigrams:
    """P(z | x, y) of tags in a row.

    Args:
        tags: the names of T tags.
        scores: log-probabilities [T + 1, T + 1, T + 1]; number T is the edge.
    """

    def __init__(self, tags: Sequence[str], scores: Float[Tensor, "E E E"]) -> None:
        self.tags, self.scores = tuple(tags), scores
        size = len(self.tags) + 1
        if scores.shape != (size, size, size):
            raise ValueError(f"scores: {list(scores.shape)} for {size - 1} tags and the edge")

    @classmethod
    def count(
        cls,
        sentences: Iterable[Sequence[str]],
        *,
        tags: Sequence[str] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Trigrams:
        """Of sentences as tags, by linear interpolation: l1 P(z) + l2 P(z | y) + l3 P(z | x, y).

        The weights are those of deleted interpolation (Brants, 2000), with one count of each order added. What was
        never seen before a tag is taken from the next lower order.

        Args:
            tags: all there are, in their order; default: those that are seen, sorted.
        """
        given = [list(sentence) for sentence in sentences if len(sentence)]
        if not given:
            raise ValueError("sentences: there are none with words")
        found = sorted({tag for sentence in given for tag in sentence})
        tags = found if tags is None else list(tags)
        if set(found) - set(tags):
            raise ValueError(f"tags: {sorted(set(found) - set(tags))[0]!r} is not among them")
        T = len(tags)
        index = {tag: number for number, tag in enumerate(tags)}
        triples = torch.zeros(T + 1, T + 1, T + 1, dtype=torch.float64)
        places: list[int] = []
        for sentence in given:
            row = [T, T, *(index[tag] for tag in sentence), T]
            places += [(x * (T + 1) + y) * (T + 1) + z for x, y, z in zip(row, row[1:], row[2:], strict=False)]
        triples.view(-1).index_add_(0, torch.tensor(places), torch.ones(len(places), dtype=torch.float64))
        pairs = triples.sum(0)
        single = pairs.sum(0) + 1e-3  # tags that were never seen are not impossible
        first = _divide(single, single)
        second = _divide(pairs, first.expand(T + 1, T + 1))
        third = _divide(triples, second.expand(T + 1, T + 1, T + 1))
        weights = _weights(triples, pairs, pairs.sum(0))
        mixed = weights[0] * first + weights[1] * second + weights[2] * third
        mixed[T, T, T] = 0.0  # no sentence is empty
        mixed[:T, T] = 0.0  # nothing follows the end
        sums = mixed.sum(-1, keepdim=True)
        return cls(tags, torch.where(sums > 0, mixed / sums.clamp(min=1e-300), 0.0).log().to(dtype))

    def pad(
        self, unary: Float[Tensor, "B n T"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B n+3 T+1"], Int[Tensor, " B"]]:
        """Scores of tags and lengths with the edge around each sentence: what ``TrigramChains`` takes.

        Word i is at place i + 2. Its scores stay as they are, so that they may change from call to call and have
        gradients.
        """
        _, n, T = unary.shape
        place = torch.arange(n + BEFORE + AFTER, device=unary.device)
        ends = lengths.to(unary.device)[:, None] + BEFORE
        edge = (place < BEFORE) | (place >= ends)
        inside = torch.nn.functional.pad(unary, (0, 1, BEFORE, AFTER), value=-torch.inf)
        only_edge = torch.full((T + 1,), -torch.inf, dtype=unary.dtype, device=unary.device)
        only_edge[T] = 0.0
        return torch.where(edge[..., None], only_edge, inside), lengths + BEFORE + AFTER

    def strip(self, tags: Int[Tensor, "*S B n+3"], lengths: Int[Tensor, " B"]) -> Int[Tensor, "*S B n"]:
        """The tags of the words themselves, -1 past the sentence's end; ``lengths`` are those without the edge."""
        inner = tags[..., BEFORE : tags.shape[-1] - AFTER]
        return torch.where(
            torch.arange(inner.shape[-1], device=tags.device) < lengths[:, None].to(tags.device), inner, -1
        )


def _divide(counts: Tensor, lower: Tensor) -> Tensor:
    """Relative frequencies along the last dimension, the lower order where nothing was counted."""
    sums = counts.sum(-1, keepdim=True)
    return torch.where(sums > 0, counts / sums.clamp(min=1e-300), lower)


def _weights(triples: Tensor, pairs: Tensor, single: Tensor) -> Tensor:
    """Of the orders 1, 2 and 3: each trigram votes, with its count, for the order that foretells it best without it."""
    x, y, z = triples.nonzero(as_tuple=True)
    count = triples[x, y, z]

    def without(part: Tensor, whole: Tensor) -> Tensor:
        return torch.where(whole > 1, (part - 1) / (whole - 1).clamp(min=1), 0.0)

    orders = [
        without(single[z], single.sum().expand_as(count)),
        without(pairs[y, z], pairs.sum(-1)[y]),
        without(count, triples.sum(-1)[x, y]),
    ]
    best = torch.stack(orders).flip(0).argmax(0)  # of equals the longest
    votes = torch.ones(3, dtype=torch.float64).index_add_(0, 2 - best, count)
    return votes / votes.sum()
