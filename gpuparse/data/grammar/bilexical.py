"""Probabilities of modifiers given their heads: arc scores of pairs of words, by counting with back-off.

P(tag, word of the modifier | tag, word of the head, direction) is P(t | head) P(w | t, head), and each of the two is a
relative frequency that leans on one with less before the bar, as if that were worth k counts:

    P(t | th, wh, d)     on P(t | th, d)      on P(t | d)
    P(w | t, th, wh, d)  on P(w | t, th, d)   on P(w | t), the emissions

That says which modifiers a head has, but not how many, and a determiner that once had one would be as good a head as a
verb. Where heads have numbers of modifiers by Poisson's law, each arc brings the head's expected number in the
direction, and nothing else in a sentence's probability depends on the tree. The distance from head to modifier is a
third factor, P(distance | t, th, d).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from gpuparse.data.grammar.emissions import Emissions


class Counts:
    """Numbers by keys, any of which may be asked for.

    Args:
        keys: sorted, all different.
        values: of each key; that of other keys is 0.
    """

    def __init__(self, keys: Int64[Tensor, " K"], values: Int64[Tensor, " K"]) -> None:
        self.keys, self.values = keys, values

    @classmethod
    def of(cls, keys: Int64[Tensor, " M"]) -> Counts:
        """How often each key occurs."""
        return cls(*torch.unique(keys, return_counts=True))

    def __getitem__(self, keys: Int64[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
        if not len(self.keys):
            return torch.zeros(keys.shape, dtype=torch.float64)
        place = torch.searchsorted(self.keys, keys.contiguous()).clamp(max=len(self.keys) - 1)
        return torch.where(self.keys[place] == keys, self.values[place], 0).double()


NAMES = (
    *("side", "side_tag", "head_tag", "head_tag_tag", "head", "head_tag_of", "head_tag_word", "head_word"),
    *("tag_alone", "word_alone", "side_distance", "distance"),
)
_UP_TO = (1, 2, 3, 5, 9)  # distances of a class; a last one has all that are longer
_SIZES = (1, 1, 1, 2, 4, 10)  # how many distances are in a class, the last of them by agreement


class Bilexical:
    """Log-probabilities of modifiers given their heads.

    Args:
        emissions: give words their numbers, the tags theirs, and P(w | t).
        priors: log P(t), to guess tags by where none are given.
        counts: by ``NAMES``.
        strength: k above.
    """

    def __init__(
        self, emissions: Emissions, priors: Float[Tensor, " T"], counts: Mapping[str, Counts], strength: float = 5.0
    ) -> None:
        if not strength > 0:
            raise ValueError(f"strength: {strength} is not above 0")
        if set(counts) != set(NAMES):
            raise ValueError(f"counts: wanted {', '.join(NAMES)}")
        self.emissions, self.priors, self.counts, self.strength = emissions, priors, dict(counts), strength
        self._index = {tag: number for number, tag in enumerate(emissions.tags)}

    @classmethod
    def count(
        cls,
        sentences: Iterable[tuple[Sequence[str], Sequence[str], Sequence[int]]],
        emissions: Emissions,
        *,
        strength: float = 5.0,
    ) -> Bilexical:
        """Of sentences as words, tags and heads (from 1, 0 for the root)."""
        index = {tag: number for number, tag in enumerate(emissions.tags)}
        T, V = len(emissions.tags), emissions.scores.shape[0]
        columns: list[Tensor] = []
        alone: list[Tensor] = []
        for words, tags, heads in sentences:
            item = torch.cat([torch.tensor([V]), emissions.items(words)])  # the root is a tag and a word of its own
            tag = torch.tensor([T, *(index[name] for name in tags)], dtype=torch.int64)
            head, word = torch.tensor(heads, dtype=torch.int64), torch.arange(1, len(heads) + 1)
            columns.append(_table(tag, item, head, word))
            alone.append(torch.stack([tag, item]))
        if not columns:
            raise ValueError("sentences: there are none")
        table = torch.cat(columns, 1)
        tag, item = torch.cat(alone, 1)
        keys = {**_keys(table[:5], T, V), "tag_alone": tag, "word_alone": tag * (V + 1) + item}
        inside = table[:, table[0] < T]  # the root is at no distance
        keys |= {"side_distance": inside[2] * len(_SIZES) + inside[5]}
        keys |= {"distance": ((inside[0] * 2 + inside[2]) * T + inside[3]) * len(_SIZES) + inside[5]}
        counts = {name: Counts.of(some) for name, some in keys.items()}
        priors = (torch.bincount(table[3], minlength=T).double() + 1).log()
        return cls(emissions, priors - priors.logsumexp(0), counts, strength)

    def score(
        self, words: Sequence[str], tags: Sequence[str] | None = None, *, numbers: bool = True, distances: bool = True
    ) -> Float[Tensor, "N N"]:
        """Arc scores of a sentence; column 0 and the diagonal are -inf.

        Args:
            tags: of the words; where they are None, each word's likeliest, looked at alone.
            numbers: add the logarithm of how many modifiers the head is expected to have on this side.
            distances: add the log-probability of the distance.
        """
        if tags is None:
            indices = (self.emissions.score(words).double() + self.priors).argmax(1)
        else:
            if len(tags) != len(words):
                raise ValueError(f"tags: {len(tags)} for {len(words)} words")
            unknown = [tag for tag in tags if tag not in self._index]
            if unknown:
                raise ValueError(f"tags: {unknown[0]!r} was never seen in training")
            indices = torch.tensor([self._index[tag] for tag in tags], dtype=torch.int64)
        T, V = len(self.emissions.tags), self.emissions.scores.shape[0]
        item = torch.cat([torch.tensor([V]), self.emissions.items(words)])
        tag = torch.cat([torch.tensor([T]), indices])
        N = len(words) + 1
        head, word = torch.arange(N)[:, None].expand(N, N - 1), torch.arange(1, N).expand(N, N - 1)
        table = _table(tag, item, head, word)
        arcs = torch.full((N, N), -torch.inf, dtype=torch.float64)
        arcs[:, 1:] = self.log_probability(table[:5])
        if numbers:
            arcs[:, 1:] += self.log_number(table[:3])
        if distances:
            arcs[1:, 1:] += self.log_distance(table[[0, 2, 3, 5]][:, 1:])
        arcs.fill_diagonal_(-torch.inf)
        return arcs.to(self.emissions.scores.dtype)

    def log_probability(self, table: Int64[Tensor, " five *shape"]) -> Float64[Tensor, "*shape"]:
        """Of arcs as the head's tag and item (T and V for the root), 1 for a modifier on its right and 0 on its left,
        the modifier's tag and item; items as in ``Emissions.items``."""
        T, V = len(self.emissions.tags), self.emissions.scores.shape[0]
        count = {name: self.counts[name][keys] for name, keys in _keys(table, T, V).items()}
        k = self.strength
        tag = (count["side_tag"] + k / T) / (count["side"] + k)
        tag = (count["head_tag_tag"] + k * tag) / (count["head_tag"] + k)
        tag = (count["head_tag_of"] + k * tag) / (count["head"] + k)
        word = self.emissions.scores[table[4], table[3]].double().exp()
        word = (count["head_tag_word"] + k * word) / (count["head_tag_tag"] + k)
        word = (count["head_word"] + k * word) / (count["head_tag_of"] + k)
        return tag.log() + word.log()

    def log_number(self, table: Int64[Tensor, " three *shape"]) -> Float64[Tensor, "*shape"]:
        """Of heads, as above, and directions: how many modifiers there are, on average."""
        head_tag, head_item, side = table
        V, k = self.emissions.scores.shape[0], self.strength
        rough = head_tag * 2 + side
        rate = (self.counts["head_tag"][rough] + 0.5) / (self.counts["tag_alone"][head_tag] + 0.5)
        own = self.counts["head"][rough * (V + 1) + head_item] + k * rate
        return (own / (self.counts["word_alone"][head_tag * (V + 1) + head_item] + k)).log()

    def log_distance(self, table: Int64[Tensor, " four *shape"]) -> Float64[Tensor, "*shape"]:
        """Of the head's tag, the direction, the modifier's tag and the class of the distance: P of one distance."""
        head_tag, side, tag, distance = table
        T, D, k = len(self.emissions.tags), len(_SIZES), self.strength
        both = self.counts["side_distance"][torch.arange(2 * D)].view(2, D) + 1
        general = (both / both.sum(1, keepdim=True))[side, distance]
        fine = ((head_tag * 2 + side) * T + tag) * D
        total = sum(self.counts["distance"][fine + one] for one in range(D))
        own = (self.counts["distance"][fine + distance] + k * general) / (total + k)
        return (own / torch.tensor(_SIZES)[distance]).log()


def _table(tag: Tensor, item: Tensor, head: Tensor, word: Tensor) -> Int64[Tensor, " six *shape"]:
    """Of arcs: tag and item of the head, direction, tag and item of the modifier, class of the distance."""
    distance = torch.bucketize((word - head).abs(), torch.tensor(_UP_TO))
    return torch.stack([tag[head], item[head], (word > head).long(), tag[word], item[word], distance])


def _keys(table: Int64[Tensor, " five *shape"], T: int, V: int) -> dict[str, Int64[Tensor, "*shape"]]:
    """What is counted of arcs, each as one number."""
    head_tag, head_item, side, tag, item = table
    rough = head_tag * 2 + side
    fine = rough * (V + 1) + head_item
    return {
        "side": side,
        "side_tag": side * T + tag,
        "head_tag": rough,
        "head_tag_tag": rough * T + tag,
        "head": fine,
        "head_tag_of": fine * T + tag,
        "head_tag_word": (rough * T + tag) * V + item,
        "head_word": (fine * T + tag) * V + item,
    }
