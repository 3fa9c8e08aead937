"""Head-lexicalised binary trees of projective dependency trees, and back.

A head word takes its dependents one at a time: those on its right first, from the inside outwards, then those on its
left. So a verb has its objects before its subject and a noun what modifies it before its determiner, as phrases have it
(VP in S, a noun with its complements under the determiner), and the order is that of Collins (2003) and of
``gpuparse.data.binary``. The phrase of a head is named after its tag: ``NOUN>`` while it has taken words on its right
only, ``NOUN*`` from the first word on its left on. As no rule gives ``NOUN*`` a word on its right, a dependency tree
has one binary tree and not one for every order of attachment: no tree is tied with itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from gpuparse.data.brackets import Constituent
from gpuparse.data.sentence import Sentence

RIGHT_ONLY = ">"
PHRASE = "*"


class TreeRow(NamedTuple):
    """A node of a binary tree."""

    i: int
    """The first word, from 0."""
    j: int
    """The last word."""
    symbol: str
    """A tag, where i = j; else the name of a phrase."""
    split: int
    """The last word of the left child; -1 of a word."""
    head: int
    """The node of the head word: words from 1; 0 where it is not known."""


@dataclass(frozen=True)
class Lexicalised:
    """A binary tree with heads."""

    rows: list[TreeRow]
    """2n - 1 of them, a parent before its children and the left child before the right one."""
    tree: Constituent
    """The same, each phrase with its head child."""
    heads: list[int]
    """The head of each word; not those that were given, where they were lifted."""


def lexicalise(
    words: Sequence[str],
    tags: Sequence[str],
    heads: Sequence[int],
    deprels: Sequence[str] | None = None,
    *,
    relations: bool = False,
    sides: bool = True,
    nonprojective: Literal["lift", "skip", "error"] = "lift",
) -> Lexicalised | None:
    """The binary tree of a dependency tree.

    Args:
        heads: of each word its head's number, from 1, or 0 for the one root.
        relations: name phrases after their relation to their own head as well, without its subtype: ``NOUN*:nsubj``.
            Tags stay tags.
        sides: whether ``NOUN>`` and ``NOUN*`` differ; else both are ``NOUN*``.
        nonprojective: lift heads until the tree is projective, return None, or raise ``ValueError``.
    """
    n = len(words)
    if n == 0:
        raise ValueError("words: there are none; leave empty sentences out")
    for name, column in (("tags", tags), ("heads", heads), ("deprels", deprels)):
        if column is not None and len(column) != n:
            raise ValueError(f"{name}: {len(column)} for {n} words")
    if relations and deprels is None:
        raise ValueError("deprels: relations are wanted and none are given; give them or set relations=False")
    order = _top_down(heads)
    if not _contiguous(heads, order):
        if nonprojective == "skip":
            return None
        if nonprojective == "error":
            raise ValueError("heads: not a projective tree; lift or skip it")
        heads = lift(heads)
        order = _top_down(heads)
    left: list[list[int]] = [[] for _ in range(n + 1)]
    right: list[list[int]] = [[] for _ in range(n + 1)]
    for word, head in enumerate(heads, 1):
        (left if word < head else right)[head].append(word)
    phrases: dict[int, Constituent] = {}
    for head in reversed(order):
        tag = tags[head - 1]
        after = f":{deprels[head - 1].partition(':')[0]}" if relations and deprels is not None else ""
        node = Constituent(tag, word=words[head - 1])
        for child in right[head]:
            name = f"{tag}{RIGHT_ONLY if sides else PHRASE}{after}"
            node = Constituent(name, (node, phrases.pop(child)), head=0)
        for child in reversed(left[head]):
            node = Constituent(f"{tag}{PHRASE}{after}", (phrases.pop(child), node), head=1)
        phrases[head] = node
    tree = phrases[order[0]]
    return Lexicalised(rows_of(tree), tree, list(heads))


def lexicalise_sentence(
    sentence: Sentence, *, tags: Literal["upos", "xpos"] = "upos", **options: Any
) -> Lexicalised | None:
    """The same, with the same options, of a sentence of a treebank, with the tags of a column; the message of an error
    names file and line."""
    try:
        return lexicalise(sentence.words, tags_of(sentence, tags), sentence.heads, sentence.deprels, **options)
    except ValueError as error:
        raise ValueError(f"{sentence.source}:{sentence.line}: {error}") from None


def tags_of(sentence: Sentence, tags: Literal["upos", "xpos"]) -> list[str]:
    """The column of tags of this name."""
    if tags not in ("upos", "xpos"):
        raise ValueError(f"tags: {tags!r} is neither 'upos' nor 'xpos'")
    return sentence.upos if tags == "upos" else sentence.xpos


def rows_of(tree: Constituent) -> list[TreeRow]:
    """The nodes of a binary tree whose phrases know their heads."""

    def measure(node: Constituent, some: Sequence[int]) -> int:
        sizes[id(node)] = sum(some) if some else 1
        return sizes[id(node)]

    sizes: dict[int, int] = {}  # of nodes that the tree keeps alive
    tree.fold(measure)
    nodes, starts = [tree], [0]
    order: list[tuple[Constituent, int]] = []
    while nodes:
        node, i = nodes.pop(), starts.pop()
        order.append((node, i))
        if node.word is not None:
            continue
        if len(node.children) != 2 or node.head not in (0, 1):
            raise ValueError(f"tree: {node.label!r} is not of two children, one of them the head; binarise it first")
        nodes.extend(reversed(node.children))
        starts.extend((i + sizes[id(node.children[0])], i))
    rows: list[TreeRow] = []
    head_of: dict[tuple[int, int], int] = {}
    for node, i in reversed(order):
        j = i + sizes[id(node)] - 1
        k = -1 if node.word is not None else i + sizes[id(node.children[0])] - 1
        head = i + 1 if k < 0 else head_of[(i, k) if node.head == 0 else (k + 1, j)]
        head_of[i, j] = head
        rows.append(TreeRow(i, j, node.label, k, head))
    return rows[::-1]


def number_rows(rows: Iterable[TreeRow], symbols: Sequence[str]) -> Int64[Tensor, "M 5"]:
    """Rows (i, j, symbol, split, head) with symbols as numbers, -1 for those that are not in the list."""
    index = {symbol: number for number, symbol in enumerate(symbols)}
    table = [(row.i, row.j, index.get(row.symbol, -1), row.split, row.head) for row in rows]
    return torch.tensor(table, dtype=torch.int64).reshape(-1, 5)


def name_rows(rows: Int64[Tensor, "M width"], symbols: Sequence[str]) -> list[TreeRow]:
    """The opposite of ``number_rows``, of rows with heads or without; rows of -1 past a sentence's end are left out."""
    table = [(*row, 0)[:5] for row in rows.tolist() if row[0] >= 0]
    return [TreeRow(i, j, symbols[symbol], k, head) for i, j, symbol, k, head in table]


def tree_of(rows: Iterable[TreeRow], words: Sequence[str]) -> Constituent:
    """The tree of rows in any order."""
    spans = {(row.i, row.j): row for row in rows}
    made: dict[tuple[int, int], Constituent] = {}
    for (i, j), row in sorted(spans.items(), key=lambda item: item[0][1] - item[0][0]):
        if i == j:
            made[i, j] = Constituent(row.symbol, word=words[i])
            continue
        parts = (i, row.split), (row.split + 1, j)
        if not all(part in made for part in parts):
            raise ValueError(f"rows: ({i}, {j}) is split at {row.split}, and a half of it is missing")
        side = (0 if spans[parts[0]].head == row.head else 1) if row.head else None
        made[i, j] = Constituent(row.symbol, (made[parts[0]], made[parts[1]]), head=side)
    if (0, len(words) - 1) not in made:
        raise ValueError(f"rows: none is that of all {len(words)} words")
    return made[0, len(words) - 1]


def heads_of(rows: Iterable[TreeRow] | Int64[Tensor, "M 5"]) -> list[int]:
    """The head of each word, 0 for the root, from the rows of a binary tree in any order."""
    table = rows.tolist() if isinstance(rows, Tensor) else rows
    spans = {(i, j): (k, head) for i, j, _, k, head in table if i >= 0}
    n = max((j for _, j in spans), default=-1) + 1
    heads = [0] * n
    for (i, j), (k, head) in spans.items():
        if i == j:
            continue
        try:
            children = spans[i, k][1], spans[k + 1, j][1]
        except KeyError:
            raise ValueError(f"rows: ({i}, {j}) is split at {k}, and a half of it is missing") from None
        if head not in children:
            raise ValueError(
                f"rows: ({i}, {j}) has the head {head}, and its halves have {children[0]} and {children[1]}"
            )
        other = children[1] if children[0] == head else children[0]
        heads[other - 1] = head
    return heads


def is_projective(heads: Sequence[int]) -> bool:
    """Whether the words under each word stand together; ``ValueError`` where heads are not a tree of one root."""
    return _contiguous(heads, _top_down(heads))


def lift(heads: Sequence[int]) -> list[int]:
    """A projective tree: while one is not projective, the shortest such arc is moved to the head's own head.

    That is the transformation of Nivre and Nilsson (2005), of equally short arcs the leftmost first.
    """
    lifted = list(heads)
    while True:
        order = _top_down(lifted)
        if _contiguous(lifted, order):
            return lifted
        first, last = _intervals(lifted, order)
        arcs = sorted((abs(word - head), min(word, head), word) for word, head in enumerate(lifted, 1) if head)
        for _, _, word in arcs:
            head = lifted[word - 1]
            between = range(min(word, head) + 1, max(word, head))
            if not all(first[head] <= first[other] < last[head] for other in between):
                lifted[word - 1] = lifted[head - 1]  # not 0: all words are under the root's one word
                break


def _top_down(heads: Sequence[int]) -> list[int]:
    """All words, a head before its dependents."""
    n = len(heads)
    children: list[list[int]] = [[] for _ in range(n + 1)]
    for word, head in enumerate(heads, 1):
        if not 0 <= head <= n:
            raise ValueError(f"heads: word {word} has head {head}, not in 0..{n}")
        children[head].append(word)
    if len(children[0]) != 1:
        raise ValueError(f"heads: {len(children[0])} words are under the root and there must be one")
    order = children[0]
    for word in order:  # grows as it goes
        order.extend(children[word])
    if len(order) != n:
        raise ValueError(f"heads: a cycle that word {min(set(range(1, n + 1)) - set(order))} is in or under")
    return order


def _contiguous(heads: Sequence[int], order: Sequence[int]) -> bool:
    n = len(heads)
    low, high, size = list(range(n + 1)), list(range(n + 1)), [1] * (n + 1)
    for word in reversed(order):
        if high[word] - low[word] + 1 != size[word]:
            return False
        head = heads[word - 1]
        if head:
            low[head], high[head] = min(low[head], low[word]), max(high[head], high[word])
            size[head] += size[word]
    return True


def _intervals(heads: Sequence[int], order: Sequence[int]) -> tuple[list[int], list[int]]:
    """Of each word the places, in a walk down from the root, of itself and after the last word under it."""
    n = len(heads)
    size = [1] * (n + 1)
    for word in reversed(order):
        if heads[word - 1]:
            size[heads[word - 1]] += size[word]
    first, free = [0] * (n + 1), [0] * (n + 1)
    for word in order:
        head = heads[word - 1]
        first[word] = free[head] if head else 0
        if head:
            free[head] += size[word]
        free[word] = first[word] + 1
    return first, [start + count for start, count in zip(first, size, strict=True)]
