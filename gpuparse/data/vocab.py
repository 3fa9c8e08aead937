"""Vocabularies: the numbers that stand for words, prefixes, tags, features, characters and labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuparse.data.conllu import Sentence
from gpuparse.system.quote import quoted

PAD, UNKNOWN, ROOT = 0, 1, 2
RESERVED = ("<pad>", "<unknown>", "<root>")
PREFIX = 5  # characters of a prefix, as in McDonald's features
LONGEST_FORM = 32  # characters of a word that are looked at: half of them its first, half its last

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

Ints = npt.NDArray[np.int64]


def saved_names(saved: Any, what: str) -> list[str]:
    """What a file has for a list of names; ``ValueError``, which begins with ``what``, where it is none.

    A name may be anything that stands in a treebank, but not there twice.
    """
    if not isinstance(saved, list):
        raise ValueError(f"{what} is {quoted(saved)}; wanted a list of strings")
    if not set(map(type, saved)) <= {str}:
        number = next(number for number, name in enumerate(saved) if type(name) is not str)
        raise ValueError(f"{what}[{number}] is {quoted(saved[number])}; wanted a string")
    try:
        "".join(saved).encode()
    except UnicodeEncodeError:
        wrong = next(name for name in saved if any("\ud800" <= char <= "\udfff" for char in name))
        raise ValueError(f"{what}: {quoted(wrong)} has half a surrogate pair") from None
    if len(set(saved)) < len(saved):
        twice, times = Counter(saved).most_common(1)[0]
        raise ValueError(f"{what}: {quoted(twice)} is there {times} times")
    return saved


def saved_entry(saved: Any, name: str) -> Any:
    """An entry of an object of a file; ``ValueError`` where there is none."""
    if not isinstance(saved, Mapping):
        raise ValueError(f"{quoted(saved)}; wanted an object")
    if name not in saved:
        raise ValueError(f"{name} is missing")
    return saved[name]


def check_columns(names: Iterable[str], what: str, columns: int = 1) -> None:
    """Refuse names that could not be written as so many columns, with tabs between, or would control a terminal."""
    for name in names:
        values = name.split("\t")
        if len(values) != columns or "" in values or any(map(_CONTROL.search, values)):
            wanted = "a value of a column" if columns == 1 else f"the values of {columns} columns, a tab between them"
            raise ValueError(f"{what}: {quoted(name)} is not {wanted}, without control characters")


class Index:
    """Names and their numbers. ``reserved`` names come first; a name that is not there is ``UNKNOWN``."""

    def __init__(self, names: Iterable[str], reserved: Sequence[str] = RESERVED) -> None:
        self._reserved = len(reserved)
        self.names = [*reserved, *names]
        # A word may look like a reserved name; it is not one.
        self._number = {name: number for number, name in enumerate(self.names) if number >= self._reserved}

    @classmethod
    def count(cls, counted: Counter[str], min_count: int = 1, reserved: Sequence[str] = RESERVED) -> Index:
        """The names that occur ``min_count`` times or more, the commonest first, ties in alphabetical order."""
        names = [name for name, times in counted.items() if times >= min_count]
        return cls(sorted(names, key=lambda name: (-counted[name], name)), reserved)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._number

    def __getitem__(self, name: str) -> int:
        return self._number.get(name, UNKNOWN)

    def numbers(self, names: Iterable[str], missing: int = UNKNOWN) -> list[int]:
        get = self._number.get
        return [get(name, missing) for name in names]

    def to_json(self) -> list[str]:
        return self.names[self._reserved :]


class Example(NamedTuple):
    """One sentence in numbers, the root first."""

    words: Ints  # [N]
    prefixes: Ints  # [N]
    tags: Ints  # [N]
    feats: list[list[int]]  # N bags
    forms: list[str]  # N forms, the root's empty
    heads: Ints | None  # [N], −1 at the root
    labels: Ints | None  # [N], −1 at the root and where training never saw the label

    @property
    def length(self) -> int:
        """Words, without the root."""
        return len(self.forms) - 1


def split_feats(feats: str) -> list[str]:
    """``Case=Nom|Number=Sing`` as a list; ``_`` is none."""
    return [] if feats == "_" else feats.split("|")


def form_characters(form: str) -> str:
    """The characters of a form that are looked at."""
    half = LONGEST_FORM // 2
    return form if len(form) <= LONGEST_FORM else form[:half] + form[-half:]


class Vocabulary:
    """All the indices of one model, and which labels an arc from the root may have.

    Args:
        root_labels: for each label whether training had it on an arc from the root, and on any other arc.
    """

    def __init__(
        self,
        *,
        words: Index,
        prefixes: Index,
        tags: Index,
        feats: Index,
        chars: Index,
        labels: Index,
        root_labels: Sequence[Sequence[bool]],
    ) -> None:
        self.words, self.prefixes, self.tags = words, prefixes, tags
        self.feats, self.chars, self.labels = feats, chars, labels
        self.root_labels = [(bool(root), bool(other)) for root, other in root_labels]
        check_columns(labels.names, "labels")
        if len(self.root_labels) != len(labels):
            raise ValueError(f"root_labels: {len(self.root_labels)} for {len(labels)} labels")
        self._bags: dict[str, list[int]] = {}

    @classmethod
    def build(cls, sentences: Iterable[Sentence], *, min_count: int = 2) -> Vocabulary:
        """Count a treebank. Words rarer than ``min_count`` are unknown; their characters and tags remain."""
        words: Counter[str] = Counter()
        tags: Counter[str] = Counter()
        bags: Counter[str] = Counter()
        arcs: Counter[tuple[str, bool]] = Counter()  # label, and whether the head is the root
        for sentence in sentences:
            words.update(sentence.words)
            tags.update(sentence.upos)
            bags.update(sentence.feats)
            arcs.update((label, head == 0) for label, head in zip(sentence.deprels, sentence.heads, strict=True))
        prefixes: Counter[str] = Counter()
        chars: Counter[str] = Counter()
        feats: Counter[str] = Counter()
        labels: Counter[str] = Counter()
        for word, times in words.items():
            prefixes[word[:PREFIX]] += times
            for char in word:
                chars[char] += times
        for bag, times in bags.items():
            for feat in split_feats(bag):
                feats[feat] += times
        for (label, _), times in arcs.items():
            labels[label] += times
        index = Index.count(labels, reserved=())
        return cls(
            words=Index.count(words, min_count),
            prefixes=Index.count(prefixes, min_count),
            tags=Index.count(tags),
            feats=Index.count(feats),
            chars=Index.count(chars, min_count),
            labels=index,
            root_labels=[(arcs[label, True] > 0, arcs[label, False] > 0) for label in index.names],
        )

    def encode(self, sentence: Sentence, *, tree: bool = False) -> Example:
        """A sentence in numbers, with its heads and labels where ``tree``."""
        words = sentence.words
        heads = labels = None
        if tree:
            heads = np.array([-1, *sentence.heads], dtype=np.int64)
            labels = np.array([-1, *self.labels.numbers(sentence.deprels, missing=-1)], dtype=np.int64)
        return Example(
            words=np.array([ROOT, *self.words.numbers(words)], dtype=np.int64),
            prefixes=np.array([ROOT, *self.prefixes.numbers([word[:PREFIX] for word in words])], dtype=np.int64),
            tags=np.array([ROOT, *self.tags.numbers(sentence.upos)], dtype=np.int64),
            feats=[[ROOT], *map(self._bag, sentence.feats)],
            forms=["", *words],
            heads=heads,
            labels=labels,
        )

    def _bag(self, feats: str) -> list[int]:
        bag = self._bags.get(feats)
        if bag is None:
            bag = self.feats.numbers(split_feats(feats))
            if len(self._bags) < 100_000:  # a file may have any number of different ones
                self._bags[feats] = bag
        return bag

    def to_json(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).to_json() for name in _INDICES}
        return {**parts, "root_labels": [list(pair) for pair in self.root_labels]}

    @classmethod
    def from_json(cls, saved: Any) -> Vocabulary:
        """The vocabulary that ``to_json`` gave; ``ValueError``, in one line, where it is none."""
        names = {name: saved_names(saved_entry(saved, name), name) for name in _INDICES}
        if not names["labels"]:
            raise ValueError("labels: there are none")
        indices = {name: Index(names[name], () if name == "labels" else RESERVED) for name in _INDICES}
        root_labels = saved_entry(saved, "root_labels")
        if not isinstance(root_labels, list):
            raise ValueError(f"root_labels is {quoted(root_labels)}; wanted a list")
        for number, pair in enumerate(root_labels):
            if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(each, bool) for each in pair):
                raise ValueError(f"root_labels[{number}] is {quoted(pair)}; wanted two of true and false")
        return cls(**indices, root_labels=root_labels)


_INDICES = ("words", "prefixes", "tags", "feats", "chars", "labels")
