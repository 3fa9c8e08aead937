"""Probabilities of words given their tags, with classes of words that were never seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

_LONGEST = 4  # characters of a suffix
_BACKOFF = 3.0  # how many counts the tags of a shorter suffix are worth
_UNSEEN = 0.5  # counts of unknown words that each tag is given
_PENALTY = 1e-3  # counts of known words that each tag is given, shared out by their frequency


class Emissions:
    """P(word | tag) of known words, P(class | tag) of all others; together they sum to 1 for each tag.

    An unknown word's class is its kind (digits, capitals, a hyphen) and the longest suffix, of up to four characters,
    that was met often enough among rare words of that kind. What classes are given is counted from words that training
    saw once: half of each such count. Every tag gives every word some probability, if little.

    Args:
        tags: names, as in a grammar.
        words: that are known.
        classes: kinds and suffixes, ``kind:suffix``; every kind is there with the empty suffix.
        scores: log-probabilities of words, then classes.
    """

    def __init__(
        self, tags: Sequence[str], words: Sequence[str], classes: Sequence[str], scores: Float[Tensor, "V T"]
    ) -> None:
        self.tags, self.words, self.classes, self.scores = tuple(tags), tuple(words), tuple(classes), scores
        if scores.shape != (len(self.words) + len(self.classes), len(self.tags)):
            raise ValueError(
                f"scores: {list(scores.shape)} for {len(self.words)} words, {len(self.classes)} classes and "
                f"{len(self.tags)} tags"
            )
        missing = [kind for kind in _KINDS if f"{kind}:" not in self.classes]
        if missing:
            raise ValueError(f"classes: the kind {missing[0]!r} is missing")
        self._words = {word: item for item, word in enumerate(self.words)}
        self._classes = {name: item for item, name in enumerate(self.classes, len(self.words))}

    @classmethod
    def count(
        cls,
        sentences: Iterable[tuple[Sequence[str], Sequence[str]]],
        *,
        tags: Sequence[str] | None = None,
        min_suffix: int = 5,
        dtype: torch.dtype = torch.float32,
    ) -> Emissions:
        """Of sentences as words and their tags.

        Args:
            tags: all there are, in their order; default: those that are seen, sorted.
            min_suffix: how many of the words seen once must have a suffix that makes a class.
        """
        seen: Counter[tuple[str, str]] = Counter()
        for words, some in sentences:
            seen.update(zip(words, some, strict=True))
        if not seen:
            raise ValueError("sentences: there are no words")
        totals: Counter[str] = Counter()
        for (word, _), count in seen.items():
            totals[word] += count
        found = sorted({tag for _, tag in seen})
        tags = found if tags is None else list(tags)
        if set(found) - set(tags):
            raise ValueError(f"tags: {sorted(set(found) - set(tags))[0]!r} is not among them")
        rare = {word for word, count in totals.items() if count == 1}
        suffixes = Counter(name for word in rare for name in _chain(word))
        kinds = {f"{kind}:" for kind in _KINDS}
        classes = sorted(kinds | {name for name, count in suffixes.items() if count >= min_suffix})
        known = sorted(totals)
        column = {tag: number for number, tag in enumerate(tags)}
        rows = {word: number for number, word in enumerate(known)}
        class_rows = {name: number for number, name in enumerate(classes)}
        counts = torch.zeros(len(known), len(tags), dtype=torch.float64)
        mass = torch.zeros(len(tags), dtype=torch.float64)  # of what is not known
        within = torch.zeros(len(classes), len(tags), dtype=torch.float64)  # rare words with this suffix
        narrowest = torch.ones(len(classes), dtype=torch.float64)  # and without a longer one that makes a class
        for (word, tag), count in seen.items():
            share = 0.5 if word in rare else 0.0
            counts[rows[word], column[tag]] += count - share
            if share:
                has = [class_rows[name] for name in _chain(word) if name in class_rows]
                within[has, column[tag]] += share
                narrowest[has[0]] += share
                mass[column[tag]] += share
        # P(tag | class) leans on that of the next shorter suffix; P(class | tag) is by Bayes' rule.
        guesses = torch.empty_like(within)
        for row in sorted(range(len(classes)), key=lambda row: len(classes[row])):
            kind, _, suffix = classes[row].partition(":")
            shorter = guesses[class_rows[f"{kind}:{suffix[1:]}"]] if suffix else (mass + 0.1) / (mass + 0.1).sum()
            guesses[row] = (within[row] + _BACKOFF * shorter) / (within[row].sum() + _BACKOFF)
        joint = narrowest[:, None] * guesses
        of_unknown = joint / joint.sum(0) * (mass + _UNSEEN)
        of_known = counts + _PENALTY * (counts.sum(1, keepdim=True) / counts.sum())
        total = counts.sum(0) + mass + _UNSEEN + _PENALTY
        scores = (torch.cat([of_known, of_unknown]) / total).log()
        return cls(tags, known, classes, scores.to(dtype))

    def items(self, words: Sequence[str]) -> Int64[Tensor, " n"]:
        """The row of each word of a sentence: its own or that of its class.

        A first word that is known only without its capital is taken for that.
        """
        items = []
        for place, word in enumerate(words):
            item = self._words.get(word)
            if item is None and not place:
                item = self._words.get(word[:1].lower() + word[1:])
            if item is None:
                item = next(self._classes[name] for name in _chain(word) if name in self._classes)
            items.append(item)
        return torch.tensor(items, dtype=torch.int64)

    def score(self, words: Sequence[str]) -> Float[Tensor, "n T"]:
        """log P(word | tag) of a sentence's words."""
        return self.scores[self.items(words)]


_KINDS = ("lower", "capital", "capitals", "mixed", "hyphen", "digits", "number", "marks")


def _kind(word: str) -> str:
    if any(map(str.isdigit, word)):
        return "digits" if any(map(str.isalpha, word)) else "number"
    if not any(map(str.isalpha, word)):
        return "marks"
    if "-" in word:
        return "hyphen"
    if len(word) > 1 and word.isupper():
        return "capitals"
    if not any(map(str.isupper, word)):
        return "lower"
    return "capital" if word[0].isupper() and not any(map(str.isupper, word[1:])) else "mixed"


def _chain(word: str) -> list[str]:
    """The classes that a word may have, the narrowest first."""
    kind, lower = _kind(word), word.lower()
    longest = min(_LONGEST, len(lower) - 1)
    return [*(f"{kind}:{lower[-size:]}" for size in range(longest, 0, -1)), f"{kind}:"]
