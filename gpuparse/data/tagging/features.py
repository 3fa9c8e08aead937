"""Features of words for linear taggers: forms, affixes and shapes of a word and its neighbours, and pairs of them.

A template is one or two atoms, each of the word at some distance; a feature is a template and the value of its atoms.
Features that training saw often enough have a row of weights each; row 0 stands for all others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuparse.data.vocab import saved_names
from gpuparse.system.quote import quoted

OUTSIDE = ""  # the form of what lies before and after a sentence; no word is empty
_CACHED = 100_000  # forms; a corpus may have any number of them
_RUNS = re.compile(r"(.)\1+")


class Part(NamedTuple):
    """An atom of the word at a distance."""

    atom: int
    offset: int

    def __str__(self) -> str:
        return f"{ATOMS[self.atom]}{self.offset:+d}" if self.offset else ATOMS[self.atom]


def shape(form: str) -> str:
    """``Xx-d`` of ``McDonald-2012``: kinds of characters, repetitions left out."""
    kinds = "".join(
        "X" if char.isupper() else "x" if char.isalpha() else "d" if char.isdigit() else char for char in form
    )
    return _RUNS.sub(r"\1", kinds)


def _kind(form: str) -> str:
    """Digits, hyphens, capitals, and about how long."""
    has = (any(map(str.isdigit, form)), "-" in form, any(map(str.isupper, form[1:])), form[:1].isupper())
    return "".join("01"[flag] for flag in has) + str(min(len(form), 8))


ATOMS = ("form", "lower", *(f"prefix{k}" for k in range(1, 6)), *(f"suffix{k}" for k in range(1, 6)), "shape", "kind")


def atoms(form: str) -> tuple[str, ...]:
    """The atoms of a form, in the order of ``ATOMS``. An affix is shorter than its word, or there is none."""
    lower = form.lower()
    size = len(lower)
    prefixes = (lower[:k] if size > k else OUTSIDE for k in range(1, 6))
    suffixes = (lower[-k:] if size > k else OUTSIDE for k in range(1, 6))
    return (form, lower, *prefixes, *suffixes, shape(form), _kind(form))


def _template(text: str) -> tuple[Part, ...]:
    parts = []
    for word in text.split():
        name, sign, distance = re.fullmatch(r"([a-z]+[0-9]?)(?:([+-])([0-9]))?", word).groups()  # type: ignore[union-attr]
        parts.append(Part(ATOMS.index(name), int(f"{sign}{distance}") if sign else 0))
    return tuple(parts)


SINGLE = tuple(
    _template(text)
    for text in (
        *ATOMS,
        *("lower-2", "lower-1", "lower+1", "lower+2"),
        *("suffix2-1", "suffix3-1", "suffix2+1", "suffix3+1", "prefix3+1", "shape-1", "shape+1"),
    )
)
PAIRS = tuple(
    _template(text)
    for text in (
        *("lower-1 lower", "lower lower+1", "lower-1 lower+1", "lower-2 lower-1", "lower+1 lower+2"),
        *("suffix3-1 suffix3", "suffix3 suffix3+1", "suffix2-1 suffix2+1", "lower-1 suffix3", "suffix3 lower+1"),
        *("shape-1 shape", "shape shape+1", "suffix3 shape"),
    )
)
REACH = max(abs(part.offset) for template in (*SINGLE, *PAIRS) for part in template)
NAMES = tuple(" ".join(map(str, template)) for template in (*SINGLE, *PAIRS))


class Features:
    """The features that have weights, each with its row.

    Args:
        values: of each template, in the order of their rows, which are numbered from 1 through all templates.
    """

    def __init__(self, values: Sequence[Sequence[str]]) -> None:
        self.values = [list(some) for some in values]
        if len(self.values) != len(NAMES):
            raise ValueError(f"features: {len(self.values)} templates where there are {len(NAMES)}")
        self._rows: list[dict[str, int]] = []
        count = 1
        for some in self.values:
            self._rows.append({value: row for row, value in enumerate(some, count)})
            count += len(some)
        self.count = count  # rows, with row 0
        # Templates of one atom by the distance of its word: where their columns are.
        self._offsets = sorted({template[0].offset for template in SINGLE})
        self._columns = {
            offset: [number for number, (part,) in enumerate(SINGLE) if part.offset == offset]
            for offset in self._offsets
        }
        self._atoms: dict[str, tuple[str, ...]] = {}
        self._single: dict[int, dict[str, list[int]]] = {offset: {} for offset in self._offsets}

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], *, min_count: int = 2, most: int = 1 << 18) -> Features:
        """Those that occur ``min_count`` times or more in sentences given as forms; the commonest ``most`` of them."""
        counted: list[Counter[str]] = [Counter() for _ in NAMES]
        known: dict[str, tuple[str, ...]] = {}
        for words in sentences:
            for form in words:
                if form not in known:
                    known[form] = atoms(form)
            for counts, some in zip(counted, _values(words, known), strict=True):
                counts.update(some)
        kept = sorted(
            (-times, number, value)
            for number, counts in enumerate(counted)
            for value, times in counts.items()
            if times >= min_count
        )
        values: list[list[str]] = [[] for _ in NAMES]
        for _, number, value in kept[: most - 1]:
            values[number].append(value)
        return cls(values)

    def __call__(self, words: Sequence[str]) -> npt.NDArray[np.int32]:
        """Rows [words, templates] of a sentence given as its forms."""
        if len(self._atoms) > _CACHED:
            self._atoms.clear()
            for cache in self._single.values():
                cache.clear()
        for form in words:
            if form not in self._atoms:
                self._atoms[form] = atoms(form)
        around = [*[OUTSIDE] * REACH, *words, *[OUTSIDE] * REACH]
        out = np.zeros((len(words), len(NAMES)), dtype=np.int32)
        for offset in self._offsets:
            cache, columns = self._single[offset], self._columns[offset]
            seen = around[REACH + offset : REACH + offset + len(words)]
            for form in seen:
                if form not in cache:
                    has = self._atoms[form] if form else _NOTHING
                    cache[form] = [self._rows[number].get(has[SINGLE[number][0].atom], 0) for number in columns]
            out[:, columns] = [cache[form] for form in seen]
        known = self._atoms
        for number, template in enumerate(PAIRS, len(SINGLE)):
            get = self._rows[number].get
            out[:, number] = [get(value, 0) for value in _pair(template, around, len(words), known)]
        return out

    def to_json(self) -> dict[str, Any]:
        return dict(zip(NAMES, self.values, strict=True))

    @classmethod
    def from_json(cls, saved: Any) -> Features:
        """The features that ``to_json`` gave; ``ValueError``, in one line, where they are none."""
        if not isinstance(saved, dict):
            raise ValueError(f"features is {quoted(saved)}; wanted an object of templates")
        if tuple(saved) != NAMES:
            raise ValueError("features: other templates")
        return cls([saved_names(some, f"features[{quoted(name)}]") for name, some in saved.items()])


_NOTHING = ("",) * len(ATOMS)


def _values(words: Sequence[str], known: dict[str, tuple[str, ...]]) -> list[list[str]]:
    """The value of every template at every word."""
    around = [*[OUTSIDE] * REACH, *words, *[OUTSIDE] * REACH]
    size = len(words)
    single = [_atoms_at(part, around, size, known) for (part,) in SINGLE]
    return [*single, *(_pair(template, around, size, known) for template in PAIRS)]


def _pair(template: Sequence[Part], around: Sequence[str], size: int, known: dict[str, tuple[str, ...]]) -> list[str]:
    left, right = (_atoms_at(part, around, size, known) for part in template)
    return list(map("\t".join, zip(left, right, strict=True)))


def _atoms_at(part: Part, around: Sequence[str], size: int, known: dict[str, tuple[str, ...]]) -> list[str]:
    """An atom of the word at some distance from each word."""
    atom, start = part.atom, REACH + part.offset
    return [known[form][atom] if form else OUTSIDE for form in around[start : start + size]]
