"""The vocabulary of a tagger: its tags, and the words, characters or features that it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuparse.data.sentence import Sentence
from gpuparse.data.tagging.features import Features
from gpuparse.data.tagging.tagset import TagSet
from gpuparse.data.vocab import ROOT, Index, Ints, check_columns, saved_entry, saved_names


class TagExample(NamedTuple):
    """One sentence in numbers. Words and forms begin with a root, as everywhere; features and tags do not."""

    words: Ints  # [n + 1]
    forms: list[str]  # n + 1 forms, the root's empty
    features: npt.NDArray[np.int32] | None  # [n, F] rows, where the tagger has templates
    gold: Ints | None  # [n], −1 where training never saw the tag

    @property
    def length(self) -> int:
        """Words, without the root."""
        return len(self.forms) - 1


class TagVocabulary:
    """All the indices of one tagger. ``tags`` are what it gives; it reads none, nor any features of CoNLL-U.

    Args:
        features: of the templates; ``None`` where the tagger has none.
    """

    def __init__(self, tag_set: str, *, tags: Index, words: Index, chars: Index, features: Features | None) -> None:
        self.tag_set = TagSet(tag_set)
        self.tags, self.words, self.chars, self.features = tags, words, chars, features
        if not len(tags):
            raise ValueError("tags: there are none")
        check_columns(tags.names, "tags", len(self.tag_set.columns))

    @classmethod
    def build(
        cls,
        sentences: Sequence[Sentence],
        tag_set: str,
        *,
        min_count: int = 2,
        words: bool = True,
        features: int = 0,
    ) -> TagVocabulary:
        """Count a treebank.

        Args:
            min_count: words and features that are rarer are unknown.
            words: index words and characters.
            features: index at most so many features of templates.
        """
        own = TagSet(tag_set)
        tags: Counter[str] = Counter()
        counted: Counter[str] = Counter()
        chars: Counter[str] = Counter()
        for sentence in sentences:
            tags.update(own.tags(sentence))
            if words:
                counted.update(sentence.words)
        for word, times in counted.items():
            for char in word:
                chars[char] += times
        forms = (sentence.words for sentence in sentences)
        return cls(
            tag_set,
            tags=Index.count(tags, reserved=()),
            words=Index.count(counted, min_count),
            chars=Index.count(chars, min_count),
            features=Features.build(forms, min_count=min_count, most=features) if features else None,
        )

    def encode(self, sentence: Sentence, *, gold: bool = False) -> TagExample:
        """A sentence in numbers, with its tags where ``gold``."""
        words = sentence.words
        return TagExample(
            words=np.array([ROOT, *self.words.numbers(words)], dtype=np.int64),
            forms=["", *words],
            features=None if self.features is None else self.features(words),
            gold=np.array(self.tags.numbers(self.tag_set.tags(sentence), missing=-1), dtype=np.int64) if gold else None,
        )

    def to_json(self) -> dict[str, Any]:
        indices = {name: getattr(self, name).to_json() for name in ("tags", "words", "chars")}
        features = None if self.features is None else self.features.to_json()
        return {"tag_set": self.tag_set.name, **indices, "features": features}

    @classmethod
    def from_json(cls, saved: Any) -> TagVocabulary:
        """The vocabulary that ``to_json`` gave; ``ValueError``, in one line, where it is none."""
        names = {name: saved_names(saved_entry(saved, name), name) for name in ("tags", "words", "chars")}
        features = saved_entry(saved, "features")
        return cls(
            saved_entry(saved, "tag_set"),
            tags=Index(names["tags"], ()),
            words=Index(names["words"]),
            chars=Index(names["chars"]),
            features=None if features is None else Features.from_json(features),
        )
