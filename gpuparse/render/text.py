"""Dependency trees drawn in text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from rich.cells import cell_len

from gpuparse.system.quote import visible

ROOT = "ROOT"
_one_line = partial(visible, keep="")  # what would break a line, or do worse to a terminal, is escaped

# Box characters by the sides they join: up, down, left, right.
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_BOX = {
    _DOWN | _RIGHT: "╭",
    _UP | _RIGHT: "╰",
    _UP | _DOWN | _RIGHT: "├",
    _DOWN | _LEFT | _RIGHT: "┬",
    _UP | _LEFT | _RIGHT: "┴",
    _UP | _DOWN | _LEFT | _RIGHT: "┼",
}


class _Arc(NamedTuple):
    head: int
    modifier: int

    @property
    def top(self) -> int:
        return min(self)

    @property
    def bottom(self) -> int:
        return max(self)


def tree_text(heads: Iterable[int], words: Sequence[str], labels: Sequence[str] | None = None) -> str:
    """Draw one tree, a word a line, its arcs in columns at the left of the words.

    Args:
        heads: the head of every node, −1 at node 0 (the root); −1 past the sentence's end is allowed.
        words: the words, without the root.
        labels: the label of the arc into each word, drawn at its right.

    An arc leaves its head's line and ends in ``►`` at its modifier's. Non-projective trees are drawn too:
    where two arcs cross without meeting, the upright one goes over the other. Raises ``ValueError`` where
    the arguments are not one tree.

    >>> print(tree_text([-1, 2, 0, 2], ["We", "saw", "it"]))
    ╭──── ROOT
    │ ╭─► We
    ╰►├── saw
      ╰─► it
    """
    arcs = _arcs(heads, words, labels)
    column = _columns(arcs)
    left = _drawing(arcs, column)
    shown = [ROOT, *map(_one_line, words)]
    if labels is None:
        lines = [f"{drawn}{word}" for drawn, word in zip(left, shown, strict=True)]
    else:
        width = max(map(cell_len, shown))
        notes = ["", *map(_one_line, labels)]
        lines = [
            f"{drawn}{word}{' ' * (width - cell_len(word))}  {note}"
            for drawn, word, note in zip(left, shown, notes, strict=True)
        ]
    return "\n".join(line.rstrip() for line in lines)


def _arcs(heads: Iterable[int], words: Sequence[str], labels: Sequence[str] | None) -> list[_Arc]:
    """The arcs of a tree that is checked to be one, in the order of their modifiers."""
    n = len(words)
    given = [int(head) for head in heads]
    if len(given) < n + 1 or any(head != -1 for head in given[n + 1 :]):
        raise ValueError(f"heads: {len(given)} nodes for {n} words; wanted {n + 1}, the root first")
    if labels is not None and len(labels) != n:
        raise ValueError(f"labels: {len(labels)} labels for {n} words")
    if given[0] != -1:
        raise ValueError(f"heads: node 0 is the root and has head -1, not {given[0]}")
    for modifier in range(1, n + 1):
        if not 0 <= given[modifier] <= n:
            raise ValueError(f"heads: the head of word {modifier} is {given[modifier]}, not in 0..{n}")
    done = {0}
    for modifier in range(1, n + 1):
        path: dict[int, None] = {}
        node = modifier
        while node not in done:
            if node in path:
                raise ValueError(f"heads: word {node} is on a cycle")
            path[node] = None
            node = given[node]
        done.update(path)
    return [_Arc(given[modifier], modifier) for modifier in range(1, n + 1)]


def _columns(arcs: list[_Arc]) -> dict[_Arc, int]:
    """A column for each arc, 0 the nearest to the words.

    The arc into a word lies outside every arc out of it, so that its arrow ends before they begin. An arc
    also lies outside those it spans: in a projective tree nothing crosses then. In other trees the two can
    contradict each other, and the first wins.
    """
    out_of: dict[int, list[_Arc]] = {}
    for arc in arcs:
        out_of.setdefault(arc.head, []).append(arc)
    spanned = {arc: [a for a in arcs if a != arc and arc.top <= a.top and a.bottom <= arc.bottom] for arc in arcs}
    column: dict[_Arc, int] = {}
    waiting = sorted(arcs, key=lambda arc: arc.bottom - arc.top)
    while waiting:
        ready = [arc for arc in waiting if all(a in column for a in out_of.get(arc.modifier, ()))]
        arc = next((arc for arc in ready if all(a in column for a in spanned[arc])), ready[0])
        waiting.remove(arc)
        inside = [column[a] for a in (*out_of.get(arc.modifier, ()), *spanned[arc]) if a in column]
        place = 1 + max(inside, default=-1)
        while any(column[a] == place and _collide(a, arc) for a in column):
            place += 1
        column[arc] = place
    return column


def _collide(a: _Arc, b: _Arc) -> bool:
    """Whether two arcs cannot share a column: they overlap, or touch at a word not the head of both."""
    if a.bottom < b.top or b.bottom < a.top:
        return False
    touch = a.bottom == b.top or b.bottom == a.top
    return not (touch and a.head == b.head)


def _drawing(arcs: list[_Arc], column: dict[_Arc, int]) -> list[str]:
    """What stands at the left of each line, the root's first: two characters a column, and one more."""
    if not arcs:
        return [""]
    nodes = len(arcs) + 1
    width = 2 * (1 + max(column.values())) + 1
    canvas = [[" "] * width for _ in range(nodes)]
    x = {arc: width - 3 - 2 * column[arc] for arc in arcs}

    # The lines from the arcs to the words; then the uprights over them; then the corners where they meet.
    corner: dict[tuple[int, int], int] = {}
    for node in range(nodes):
        out = [x[arc] for arc in arcs if arc.head == node]
        begin = min(out, default=width)
        canvas[node][begin:] = "─" * (width - begin)
        if node > 0:
            entry = x[arcs[node - 1]]
            canvas[node][entry:begin] = "─" * (begin - entry - 1) + "►"
    for arc in arcs:
        for row in range(arc.top + 1, arc.bottom):
            canvas[row][x[arc]] = "│"
        for row, side in ((arc.top, _DOWN), (arc.bottom, _UP)):
            at = (row, x[arc])
            outermost = row == arc.modifier or x[arc] == min(x[a] for a in arcs if a.head == row)
            corner[at] = corner.get(at, 0) | side | _RIGHT | (0 if outermost else _LEFT)
    for (row, column_at), sides in corner.items():
        canvas[row][column_at] = _BOX[sides]
    return ["".join(row) + " " for row in canvas]
