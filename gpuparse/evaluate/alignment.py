"""The words of two files, matched by the characters they cover."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from gpuparse.data.conllu import ConlluError, Sentence, check_tree, name_of, read_conllu

Source: TypeAlias = "str | os.PathLike[str] | IO[Any] | Iterable[Sentence]"
Indices: TypeAlias = NDArray[np.int64]

# Features that count: those of every language, without layers such as Number[psor].
_FEATURES = (
    "PronType NumType Poss Reflex Foreign Abbr Gender Animacy Number Case Definite Degree VerbForm Mood Tense Aspect "
    "Voice Evident Polarity Person Polite"
)
UNIVERSAL_FEATURES = frozenset(_FEATURES.split())
# Spaces (Unicode category Zs) are no part of the text: "10 000" is one token or two.
SPACES = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_WITHOUT_SPACES = str.maketrans("", "", SPACES)
_RANGE = re.compile(r"^\ufeff?([0-9]+)-([0-9]+)\t([^\t]*)", re.MULTILINE)
ROOT = -1  # the head of a word under the root
_SHOWN = 20  # characters of a text that an error shows


@dataclass
class AlignedWords:
    """A file for evaluation: its words a column a list, and where they, the tokens and the sentences lie in the text.

    The text is all tokens' characters without spaces. A token is a word or, where words are written as one (ID
    ``1-2``), all of these; its words then lie where it does.
    """

    source: str
    text: str = ""
    parts: list[str] = field(default_factory=list)  # the tokens' parts of the text
    tokens: list[tuple[int, int]] = field(default_factory=list)
    token_lines: list[int] = field(default_factory=list)
    sentences: list[tuple[int, int]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # words of each sentence
    start: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    joined: list[bool] = field(default_factory=list)  # whether the word is one of several in a token
    form: list[str] = field(default_factory=list)
    lemma: list[str] = field(default_factory=list)
    upos: list[str] = field(default_factory=list)
    xpos: list[str] = field(default_factory=list)
    feats: list[str] = field(default_factory=list)  # universal ones only, sorted
    deprel: list[str] = field(default_factory=list)  # without subtypes
    head: list[int] = field(default_factory=list)  # counted through the file from 0, or ROOT

    def __len__(self) -> int:
        return len(self.form)

    @classmethod
    def read(cls, source: Source, *, single_root: bool = True) -> AlignedWords:
        """Read a file or take sentences; ``ConlluError`` where one is not a tree."""
        if isinstance(source, (str, os.PathLike)) or hasattr(source, "read"):
            file = cast("str | os.PathLike[str] | IO[Any]", source)
            sentences: Iterable[Sentence] = read_conllu(file)
            words = cls(name_of(file))
        else:
            sentences = cast(Iterable[Sentence], source)
            words = cls("<sentences>")
        for index, sentence in enumerate(sentences):
            if index == 0:
                words.source = sentence.source
            check_tree(sentence, single_root=single_root)
            if len(sentence):
                words._add(sentence)
        if not len(words):
            raise ConlluError(f"{words.source}: no words; give a file that has sentences")
        words.text = "".join(words.parts)
        return words

    def _add(self, sentence: Sentence) -> None:
        """Add one sentence's columns and tokens."""
        begin, first = self.tokens[-1][1] if self.tokens else 0, len(self)
        forms, ranges = sentence.words, _ranges(sentence.text)
        word = 1
        while word <= len(forms):
            last, form = ranges.get(word, (word, forms[word - 1]))
            form = form.translate(_WITHOUT_SPACES)
            line = sentence.line_of(word)
            if not form:
                raise ConlluError(f"{sentence.source}:{line}: a FORM of spaces only; write a word there")
            start = self.tokens[-1][1] if self.tokens else 0
            self.parts.append(form)
            self.tokens.append((start, start + len(form)))
            self.token_lines.append(line)
            joined = word in ranges
            self.form.extend(forms[word - 1 : last] if joined else [form])
            size = last - word + 1
            self.start.extend([start] * size)
            self.end.extend([start + len(form)] * size)
            self.joined.extend([joined] * size)
            word = last + 1
        self.lemma.extend(sentence.lemmas)
        self.upos.extend(sentence.upos)
        self.xpos.extend(sentence.xpos)
        self.feats.extend(map(_universal, sentence.feats))
        self.deprel.extend(map(base_label, sentence.deprels))
        self.head.extend(head + first - 1 if head else ROOT for head in sentence.heads)
        self.sentences.append((begin, self.tokens[-1][1]))
        self.sizes.append(len(forms))

    def sentence_of(self) -> Indices:
        """The index of each word's sentence."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def _ranges(text: str) -> dict[int, tuple[int, str]]:
    """The tokens of several words: by their first word the last one and the FORM."""
    return {int(first): (int(last), form) for first, last, form in _RANGE.findall(text)}


def base_label(deprel: str) -> str:
    """The universal relation of a DEPREL: ``acl`` of ``acl:relcl``."""
    return deprel.partition(":")[0]


@lru_cache(maxsize=1 << 16)
def _universal(feats: str) -> str:
    return "|".join(sorted(f for f in feats.split("|") if f.partition("=")[0] in UNIVERSAL_FEATURES))


def check_texts(gold: AlignedWords, system: AlignedWords) -> None:
    """Raise ``ValueError``, naming the lines, unless both files hold the same text."""
    if gold.text == system.text:
        return
    pairs = enumerate(zip(gold.text, system.text, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(gold.text), len(system.text)))
    raise ValueError(
        f"{_place(gold, at)} against {_place(system, at)}: the texts differ; "
        "the system's file has to hold the gold file's text, however it is cut into words"
    )


def _place(words: AlignedWords, at: int) -> str:
    if at == len(words.text):
        return f"the end of {words.source}"
    token = int(np.searchsorted([end for _, end in words.tokens], at, side="right"))
    return f"{words.source}:{words.token_lines[token]} ({words.text[at : at + _SHOWN]!r})"


def align(gold: AlignedWords, system: AlignedWords) -> tuple[Indices, Indices]:
    """The words that correspond: their indices in ``gold`` and in ``system``, both rising.

    AlignedWords that are tokens correspond where they cover the same characters. Where tokens of several words are
    involved on either side, the words of the whole region that these tokens cover correspond by the longest common
    subsequence of their forms, whatever the case of letters. One pass over both files.
    """
    pairs: list[tuple[int, int]] = []
    here, there = _Cursor(gold), _Cursor(system)
    gold_start, gold_end, gold_joined = here.start, here.end, here.joined
    system_start, system_end, system_joined = there.start, there.end, there.joined
    g, s, gold_size, system_size = 0, 0, len(gold), len(system)
    while g < gold_size and s < system_size:
        if gold_joined[g] or system_joined[s]:
            here.at, there.at = g, s
            first_g, first_s = _take_region(here, there)
            g, s = here.at, there.at
            forms = [form.lower() for form in gold.form[first_g:g]], [form.lower() for form in system.form[first_s:s]]
            pairs.extend((first_g + i, first_s + j) for i, j in common_subsequence(*forms))
        elif gold_start[g] == system_start[s] and gold_end[g] == system_end[s]:
            pairs.append((g, s))
            g += 1
            s += 1
        elif gold_start[g] <= system_start[s]:
            g += 1
        else:
            s += 1
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


class _Cursor:
    """A place among the words of one file; past the last, a word that starts at infinity."""

    def __init__(self, words: AlignedWords) -> None:
        self.start = [*words.start, math.inf]
        self.end = [*words.end, math.inf]
        self.joined = [*words.joined, False]
        self.at = 0

    def is_inside(self, end: float) -> bool:
        """Whether the word belongs to a region that goes to ``end``; a token of several may stick out, a word not."""
        return self.start[self.at] < end if self.joined[self.at] else self.end[self.at] <= end

    def step(self, end: float) -> float:
        """Go on by one word; the region's end after it."""
        end = max(end, self.end[self.at]) if self.joined[self.at] else end
        self.at += 1
        return end


def _take_region(gold: _Cursor, system: _Cursor) -> tuple[int, int]:
    """Move both to the end of the region that begins at a token of several words; where it begins in each.

    The region is the smallest that no such token sticks out of.
    """
    leader, other = (gold, system) if gold.joined[gold.at] else (system, gold)
    end = leader.end[leader.at]
    # A plain word that begins before the token cannot be one of the region. (Only one is left out, as the official
    # evaluation has it, even where several wait there.)
    if not other.joined[other.at] and other.start[other.at] < leader.start[leader.at]:
        other.at += 1
    first = gold.at, system.at
    while gold.is_inside(end) or system.is_inside(end):
        nearer = gold if gold.start[gold.at] <= system.start[system.at] else system
        end = nearer.step(end)
    return first


def common_subsequence(first: list[str], second: list[str]) -> list[tuple[int, int]]:
    """Index pairs of a longest common subsequence; of several, one that skips in ``first`` rather than ``second``."""
    if first == second:
        return [(i, i) for i in range(len(first))]
    rows, columns = len(first), len(second)
    # longest[i][j]: the length for first[i:] and second[j:]
    longest = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        row, below = longest[i], longest[i + 1]
        for j in range(columns - 1, -1, -1):
            row[j] = 1 + below[j + 1] if first[i] == second[j] else max(below[j], row[j + 1])
    pairs = []
    i = j = 0
    while i < rows and j < columns:
        if first[i] == second[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif longest[i][j] == longest[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs
