"""Which trees of a batch violate constraints: looked at on their device, all at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64
from torch import Tensor

if TYPE_CHECKING:
    from gpuparse.decoding.ilp.constraints.base import Constraint, Words


def violates(
    constraints: Sequence[Constraint],
    words: Sequence[Words],
    heads: Int[Tensor, "B N"],
    labels: Int[Tensor, "B N"] | None = None,
) -> Bool[Tensor, " B"]:
    """Which trees break any of the constraints, soft ones too; of no meaning where there is no tree.

    Waits for the device only for constraints without a ``breaks`` of their own. A constraint that cannot be asked of a
    sentence is a ValueError that names the sentence's index.

    Args:
        constraints: any.
        words: of each sentence.
        heads, labels: of the trees, -1 at node 0 and past the end; None: there are no labels.

    Example:
        >>> import torch
        >>> from gpuparse import lp
        >>> words = [lp.Words.of(["a", "b", "c", "d"])] * 2
        >>> lp.violates([lp.Projective()], words, torch.tensor([[-1, 3, 4, 0, 3], [-1, 0, 1, 2, 3]]))
        tensor([ True, False])
    """
    check_words(constraints, words)
    trees = CheckedTrees(words, heads, labels)
    broken = trees.none()
    for constraint in constraints:
        broken = broken | constraint.breaks(trees)
    return broken


def as_constraints(constraints: Iterable[Constraint] | None) -> list[Constraint]:
    """A list of constraints, whatever gives them; None is none."""
    if isinstance(constraints, str):
        raise ValueError(f"constraints is {constraints!r}; read files of them by lp.load_constraints")
    if constraints is not None and not isinstance(constraints, Iterable):
        raise ValueError(f"constraints must be a list of them, got {type(constraints).__name__}")
    given = list(constraints or ())
    for place, each in enumerate(given):
        if not hasattr(each, "violated"):
            raise ValueError(
                f"constraints[{place}] must be a constraint (see gpuparse.decoding.ilp), got {type(each).__name__}"
            )
    return given


def check_words(constraints: Sequence[Constraint], words: Sequence[Words]) -> None:
    """A ValueError where a constraint names what a sentence does not have."""
    for b, given in enumerate(words):
        for constraint in constraints:
            try:
                constraint.check(given)
            except ValueError as error:
                raise ValueError(f"constraints on sentence {b}: {error}") from None


class CheckedTrees:
    """Labelled trees of a batch, and what constraints ask of them: True or False of every node [B, N]."""

    def __init__(
        self, words: Sequence[Words], heads: Int[Tensor, "B N"], labels: Int[Tensor, "B N"] | None = None
    ) -> None:
        if len(words) != heads.shape[0]:
            raise ValueError(f"words: {len(words)} for {heads.shape[0]} sentences")
        self.words, self.heads, self.labels = words, heads, labels
        self._places = heads.clamp(min=0).long()
        lengths = torch.tensor([len(each.forms) for each in words], dtype=torch.int64, device=heads.device)
        place = torch.arange(heads.shape[1], device=heads.device)
        self.is_word: Bool[Tensor, "B N"] = (place > 0) & (place < lengths[:, None])
        self.known_tags, self.tags = self._numbered([each.tags for each in words])
        """The different tags, and the place of each node's among them."""
        self._forms: tuple[list[str], Int64[Tensor, "B N"]] | None = None
        self._labelled: dict[frozenset[str], Bool[Tensor, "B N"]] = {}
        self._tagged: dict[frozenset[str], Bool[Tensor, "B N"]] = {}

    def _numbered(self, given: Sequence[Sequence[str]]) -> tuple[list[str], Int64[Tensor, "B N"]]:
        numbers: dict[str, int] = {"": 0}
        out = np.zeros(tuple(self.heads.shape), dtype=np.int64)
        for row, each in zip(out, given, strict=True):
            row[: len(each)] = [numbers.setdefault(text, len(numbers)) for text in each]
        return list(numbers), torch.tensor(out, device=self.heads.device)

    def _are(self, known: Sequence[str], numbers: Int64[Tensor, "B N"], wanted: Collection[str]) -> Bool[Tensor, "B N"]:
        table = torch.tensor([text in wanted for text in known], device=self.heads.device)
        return table[numbers] & self.is_word

    def tagged(self, tags: frozenset[str] | None) -> Bool[Tensor, "B N"]:
        """Words with one of these tags; all of them where ``None``."""
        if tags is None:
            return self.is_word
        if tags not in self._tagged:
            self._tagged[tags] = self._are(self.known_tags, self.tags, tags - {""})
        return self._tagged[tags]

    def heads_tagged(self, tags: frozenset[str] | None) -> Bool[Tensor, "B N"]:
        """The same, and the root if "" is among the tags."""
        root = torch.arange(self.heads.shape[1], device=self.heads.device) == 0
        return self.tagged(tags) | root if tags is not None and "" in tags else self.tagged(tags)

    def formed(self, forms: Collection[str], lower: bool = True) -> Bool[Tensor, "B N"]:
        """Words with one of these forms, in lower case or as they stand."""
        if self._forms is None:
            self._forms = self._numbered([each.forms for each in self.words])
        known, numbers = self._forms
        return self._are([form.lower() for form in known] if lower else known, numbers, forms)

    def different_labels(self) -> list[Words]:
        """One sentence for each numbering of labels; most often that is one."""
        return list({id(each.labels): each for each in self.words}.values())

    def knows(self, names: Collection[str] | None) -> Bool[Tensor, " B"]:
        """Whether a sentence's labels have one of these names; True for ``None``."""
        if names is None:
            return ~self.none()
        known = {id(each.labels): bool(each.named(names)) for each in self.different_labels()}
        return torch.tensor([known[id(each.labels)] for each in self.words], device=self.heads.device)

    def labelled(self, names: Collection[str] | None) -> Bool[Tensor, "B N"]:
        """Words with one of these labels; all of them where ``None``."""
        if names is None:
            return self.is_word
        key = frozenset(names)
        if key not in self._labelled:
            self._labelled[key] = self._find_labelled(key)
        return self._labelled[key]

    def _find_labelled(self, names: frozenset[str]) -> Bool[Tensor, "B N"]:
        wanted = {id(each.labels): each.named(names).values() for each in self.different_labels()}
        last = max((number for numbers in wanted.values() for number in numbers), default=-1)
        labels = torch.zeros_like(self.heads) if self.labels is None else self.labels
        rows = {key: [number in numbers for number in range(last + 1)] + [False] for key, numbers in wanted.items()}
        places = labels.clamp(0, last + 1).long()
        if len(rows) == 1:
            (only,) = rows.values()
            return torch.tensor(only, device=self.heads.device)[places] & self.is_word
        table = torch.tensor([rows[id(each.labels)] for each in self.words], device=self.heads.device)
        return table.gather(1, places) & self.is_word

    def of_head(self, nodes: Bool[Tensor, "B N"]) -> Bool[Tensor, "B N"]:
        """Words whose head is one of these."""
        return nodes.gather(1, self._places) & self.is_word

    def children(self, which: Bool[Tensor, "B N"]) -> Int64[Tensor, "B N"]:
        """How many of these words each node has as children."""
        return torch.zeros_like(self._places).scatter_add_(1, self._places, (which & self.is_word).long())

    def none(self) -> Bool[Tensor, " B"]:
        """False for every sentence."""
        return torch.zeros(len(self.words), dtype=torch.bool, device=self.heads.device)

    def each(self) -> Iterator[tuple[Words, list[int], list[int]]]:
        """One sentence after the other, as ``Constraint.violated`` takes them."""
        heads = self.heads.tolist()
        labels = [[0] * len(row) for row in heads] if self.labels is None else self.labels.tolist()
        for words, row, named in zip(self.words, heads, labels, strict=True):
            yield words, row[: len(words.forms)], named[: len(words.forms)]
