"""Labelled brackets: how many phrases of constituent trees are right, and how many whole trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuparse.data.binary import is_part, split_chain
from gpuparse.data.brackets import Constituent
from gpuparse.evaluate.metrics import Score


@dataclass(frozen=True)
class BracketScores:
    """Precision, recall and F1 of phrases, and the share of trees that are right."""

    labelled: Score
    """Of phrases (first word, last word, label)."""
    unlabelled: Score
    """The same without labels."""
    exact: Score
    """Of whole trees, tags aside; a sentence without a parse is none of the system's."""
    tags: Score
    """Of the words' tags."""

    def to_json(self) -> dict[str, Any]:
        """As ``json.dumps`` takes it."""
        return {name: getattr(self, name).to_json() for name in ("labelled", "unlabelled", "exact", "tags")}


def bracket_scores(gold: Iterable[Constituent], system: Iterable[Constituent | None]) -> BracketScores:
    """Compare trees of the same sentences, binary ones or others; None is a sentence without a parse.

    Tags of words are no phrases, nor are parts of phrases (``@NP``). A chain ``S+VP`` is two phrases of one span.

    Example:
        >>> import io
        >>> from gpuparse.data.brackets import read_brackets
        >>> from gpuparse.evaluate import bracket_scores
        >>> gold, system = ([*read_brackets(io.StringIO(text))] for text in (
        ...     "(S (NP (D the) (N rain)) (VP (V falls)))", "(S (D the) (NP (N rain)) (VP (V falls)))"))
        >>> round(bracket_scores(gold, system).labelled.f1, 3)  # S and VP of three phrases
        0.667
    """
    expected, given = list(gold), list(system)
    if len(expected) != len(given):
        raise ValueError(f"system: {len(given)} trees for {len(expected)} sentences")
    totals = {name: [0, 0, 0] for name in ("labelled", "unlabelled", "exact", "tags")}

    def add(name: str, right: int, wanted: int, found: int) -> None:
        totals[name] = [old + new for old, new in zip(totals[name], (right, wanted, found), strict=True)]

    for index, (tree, other) in enumerate(zip(expected, given, strict=True)):
        size = len(tree.words)
        if other is not None and len(other.words) != size:
            raise ValueError(f"system: sentence {index} has {len(other.words)} words and {size} are wanted")
        wanted, found = phrases(tree), phrases(other) if other is not None else Counter[tuple[int, int, str]]()
        add("labelled", (wanted & found).total(), wanted.total(), found.total())
        bare, bare_found = _without_labels(wanted), _without_labels(found)
        add("unlabelled", (bare & bare_found).total(), bare.total(), bare_found.total())
        add("exact", int(other is not None and wanted == found), 1, int(other is not None))
        tags, tags_found = _tags(tree), _tags(other) if other is not None else []
        add("tags", sum(map(str.__eq__, tags, tags_found)), len(tags), len(tags_found))
    return BracketScores(**{name: Score(*numbers) for name, numbers in totals.items()})


def phrases(tree: Constituent) -> Counter[tuple[int, int, str]]:
    """The phrases of a tree: first and last word, from 0, and label."""
    found: Counter[tuple[int, int, str]] = Counter()
    count = 0

    def make(node: Constituent, some: Sequence[tuple[int, int]]) -> tuple[int, int]:
        nonlocal count
        if node.word is not None:
            span = count, count
            count += 1
            labels = split_chain(node.label)[:-1]
        else:
            span = some[0][0], some[-1][1]
            labels = [] if is_part(node.label) else split_chain(node.label)
        found.update((*span, label) for label in labels)
        return span

    tree.fold(make)
    return found


def _without_labels(found: Counter[tuple[int, int, str]]) -> Counter[tuple[int, int]]:
    bare: Counter[tuple[int, int]] = Counter()
    for (i, j, _), times in found.items():
        bare[i, j] += times
    return bare


def _tags(tree: Constituent) -> list[str]:
    return [split_chain(tag)[-1] for tag in tree.tags]
