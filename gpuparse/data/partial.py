"""What is known of a sentence's tree before it is parsed: heads and labels that are given, heads that may be."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool
from torch import Tensor

from gpuparse.data.sentence import ConlluError, Sentence
from gpuparse.ops import EISNER, MATRIX_TREE
from gpuparse.structures.conditions import impossible_start
from gpuparse.system.quote import quoted

OPEN = "_"
_PIECE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@dataclass(frozen=True)
class Partial:
    """The heads that each word of a sentence may have, and the labels that are given.

    Attributes:
        heads: of each word, in order, the heads it may have (0: the root); None: any.
        labels: of each word; None: open.

    Example:
        >>> from gpuparse.data.partial import Partial
        >>> known = Partial.nothing(3).require(2, 1).forbid(0, 3).label(1, "nsubj")
        >>> [None if heads is None else sorted(heads) for heads in known.heads]
        [[2], None, [1, 2]]
        >>> known.require(1, 2).impossible(single_root=True, projective=False)
        'heads of words 1 and 2 make a cycle: 1 -> 2 -> 1'
    """

    heads: tuple[frozenset[int] | None, ...]
    labels: tuple[str | None, ...]

    @classmethod
    def nothing(cls, words: int) -> Partial:
        """Of a sentence of which nothing is known."""
        return cls((None,) * words, (None,) * words)

    @classmethod
    def of(cls, sentence: Sentence) -> Partial:
        """What a sentence's columns say: HEAD and DEPREL where they are not ``_``, and ``Heads=2,5-7`` in MISC, the
        heads that a word may have. A ConlluError names the file and the line of what cannot be."""
        count = len(sentence)
        heads: list[frozenset[int] | None] = []
        for word, (head, misc) in enumerate(zip(sentence.given_heads, sentence.misc, strict=True), 1):
            some = _heads_of(misc, word, sentence)
            if head is not None and some is not None and head not in some:
                raise _error(sentence, word, f"HEAD {head} is not among its Heads in MISC; correct one of them")
            if head == word:
                raise _error(sentence, word, f"HEAD {head} is the word itself; write another, or _ to leave it open")
            heads.append(some if head is None else frozenset([head]))
        labels = tuple(None if label == OPEN else label for label in sentence.deprels)
        return cls(tuple(heads), labels) if count else cls.nothing(0)

    @property
    def is_open(self) -> bool:
        """Whether nothing is known."""
        return not any(x is not None for x in (*self.heads, *self.labels))

    def require(self, head: int, word: int) -> Partial:
        """The same, and the word has this head."""
        self._check(head, word)
        return self._with(word, frozenset([head]))

    def forbid(self, head: int, word: int) -> Partial:
        """The same, and the word has another head."""
        self._check(head, word)
        own = self.heads[word - 1]
        before = frozenset(range(len(self.heads) + 1)) - {word} if own is None else own
        return self._with(word, before - {head})

    def label(self, word: int, name: str) -> Partial:
        """The same, and the word's arc has this label."""
        self._check(0, word)
        return replace(self, labels=(*self.labels[: word - 1], name, *self.labels[word:]))

    def _with(self, word: int, heads: frozenset[int]) -> Partial:
        return replace(self, heads=(*self.heads[: word - 1], heads, *self.heads[word:]))

    def _check(self, head: int, word: int) -> None:
        count = len(self.heads)
        if not 1 <= word <= count:
            raise ValueError(f"word: {quoted(word)} is not between 1 and {count}")
        if not 0 <= head <= count or head == word:
            raise ValueError(f"head: {quoted(head)} of word {word} is not another word (1 to {count}) or the root (0)")

    @property
    def allowed(self) -> Bool[Tensor, "N N"]:
        """The arcs that may be, head first."""
        nodes = len(self.heads) + 1
        found = torch.ones(nodes, nodes, dtype=torch.bool)
        for word, heads in enumerate(self.heads, 1):
            if heads is not None:
                found[:, word] = False
                found[sorted(heads), word] = True
        return found

    def impossible(self, *, single_root: bool, projective: bool) -> str | None:
        """Why no tree has the heads that are given; None where one has."""
        if not self.heads:
            return None
        allowed, lengths = self.allowed[None], torch.tensor([len(self.heads)])
        found = impossible_start(allowed, lengths, projective=projective, single_root=single_root)
        if found is not None:
            return found[2]
        arcs = torch.where(allowed, 0.0, -torch.inf)
        tree = (EISNER if projective else MATRIX_TREE).argmax((arcs,), lengths, single_root)
        return "no tree has the heads that are given; leave some of them open" if bool(tree[0, 1] < 0) else None


def _heads_of(misc: str, word: int, sentence: Sentence) -> frozenset[int] | None:
    """What ``Heads=`` in a word's MISC says."""
    values = [part.partition("=")[2] for part in misc.split("|") if part.startswith("Heads=")]
    if not values:
        return None
    count, found = len(sentence), set[int]()
    for piece in values[0].split(","):
        match = _PIECE.fullmatch(piece.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not 0 <= first <= last <= count:
            wanted = f"wanted numbers from 0 to {count}, such as Heads=2,5-7"
            raise _error(sentence, word, f"{quoted(f'Heads={values[0]}', 60)} in MISC; {wanted}")
        found.update(range(first, last + 1))
    if not found - {word}:
        raise _error(sentence, word, f"{quoted(f'Heads={values[0]}', 60)} in MISC names the word alone")
    return frozenset(found - {word})


def _error(sentence: Sentence, word: int, what: str) -> ConlluError:
    return ConlluError(f"{sentence.source}:{sentence.line_of(word)}: word {word}: {what}")
