"""Where the words and arcs of a drawing go.

Words stand in one line. An arc goes up from its head, along a level and down to its modifier; or the other way round,
below the words. Arcs that overlap are on different levels, the inner one nearer to the words, so that only arcs of
the tree that cross do so in the drawing, one's upright over the other's level.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

PORT = 8.0  # between two arcs at a word
RADIUS = 7.0
GAP = 14.0  # between words, at least
_ROUNDING = 1e-6
_CLEAR = 9.0  # between a label and an upright
_NEAR = 170.0  # how far from its modifier a label may be, so that a long arc's is seen with the word it belongs to


@dataclass
class Arc:
    """An arc to place: from ``head`` (0: the root) to ``modifier``, with a label ``room`` pixels wide (0: none)."""

    head: int
    modifier: int
    room: float = 0.0
    level: int = 0
    """From 1, the nearest to the words."""
    head_x: float = 0.0
    modifier_x: float = 0.0
    label_x: float = 0.0
    over: bool = False
    """Whether its upright crosses the level of another arc."""
    legs: list[tuple[int, float]] = field(default_factory=list)
    """Uprights of other arcs that cross its level: their words, and places at them."""

    @property
    def first(self) -> int:
        """The left one of its words; the root's arc has its word only."""
        return min(self.head, self.modifier) if self.head else self.modifier

    @property
    def last(self) -> int:
        return max(self.head, self.modifier)


@dataclass(frozen=True)
class Layout:
    """The middles of the words, the width of all, and how many levels there are over and under the words."""

    middles: list[float]
    width: float
    levels: tuple[int, int]


def arc_levels(arcs: Sequence[tuple[int, int]]) -> list[int]:
    """A level, from 1, for each (head, modifier); arcs that overlap have different ones, the longer the higher.

    An arc from the root (0) stands on its word alone, over every arc that touches or spans the word.
    """
    spans = [(min(head, modifier), max(head, modifier)) for head, modifier in arcs]
    top = [0] * (1 + max((last for _, last in spans), default=0))  # the highest level between word i and i + 1
    levels = [0] * len(arcs)
    for i in sorted((i for i, (first, _) in enumerate(spans) if first), key=lambda i: spans[i][1] - spans[i][0]):
        first, last = spans[i]
        levels[i] = 1 + max(top[first:last])
        top[first:last] = [levels[i]] * (last - first)
    for i, (first, word) in enumerate(spans):
        if first == 0:
            levels[i] = 1 + max(top[max(word - 1, 0) : word + 1])
    return levels


def place(widths: Sequence[float], over: Sequence[Arc], under: Sequence[Arc] = (), *, margin: float = 10.0) -> Layout:
    """Place words of these widths and the arcs over and under them (whose fields are filled in)."""
    count = len(widths)
    halves = [0.0, *(width / 2 for width in widths)]
    # How far a word's uprights, and the label of the root's arc, are from its middle; whether it has such a label.
    reach: list[list[float]] = [[0.0, 0.0] for _ in range(count + 1)]
    labelled = [[False, False] for _ in range(count + 1)]
    ports: dict[int, tuple[float, float]] = {}  # by id(arc): the places at its head and modifier, off the middle
    ending: list[list[Arc]] = [[] for _ in range(count + 1)]
    for side, arcs in enumerate((over, under)):
        for arc, level in zip(arcs, arc_levels([(arc.head, arc.modifier) for arc in arcs]), strict=True):
            arc.level = level
            ending[arc.last].append(arc)
        for word, met in enumerate(_set_ports(arcs, count, ports)):
            reach[word][side] = met * PORT / 2
            halves[word] = max(halves[word], met * PORT / 2)
        for arc in arcs:
            if arc.head == 0 and arc.room:
                word = arc.modifier
                reach[word][side] = max(reach[word][side], arc.room / 2 + abs(ports[id(arc)][1]))
                labelled[word][side] = True
        _find_crossings(arcs, ports)

    middles: list[float] = []
    for word in range(1, count + 1):
        x = margin + max(halves[word], *reach[word])
        if word > 1:
            x = middles[-1] + halves[word - 1] + halves[word] + GAP
            for side in (0, 1):
                if labelled[word - 1][side] or labelled[word][side]:  # a label beside the next word's uprights
                    x = max(x, middles[-1] + reach[word - 1][side] + reach[word][side] + _CLEAR)
        middles.append(x)
        for arc in ending[word]:
            if arc.head and arc.room:
                _make_room(arc, middles, ports[id(arc)])
    for arc in (*over, *under):
        _fix(arc, middles, ports[id(arc)])
    right = max((x + max(halves[word], *reach[word]) for word, x in enumerate(middles, 1)), default=0.0)
    levels = tuple(max((arc.level for arc in arcs), default=0) for arcs in (over, under))
    return Layout(middles, right + margin, (levels[0], levels[1]))


def _set_ports(arcs: Sequence[Arc], count: int, ports: dict[int, tuple[float, float]]) -> list[int]:
    """Spread the arcs that meet at a word: the outer ones in its middle, so that none crosses another there.

    Returns how many meet at each node.
    """
    at: list[list[tuple[int, int, Arc]]] = [[] for _ in range(count + 1)]
    for arc in arcs:
        if arc.head == 0:
            at[arc.modifier].append((0, 0, arc))
            continue
        at[arc.first].append((1, -arc.level, arc))
        at[arc.last].append((-1, arc.level, arc))
    for word, met in enumerate(at):
        met.sort(key=itemgetter(0, 1))
        for rank, (_, _, arc) in enumerate(met):
            offset = (rank - (len(met) - 1) / 2) * PORT
            from_head, to_modifier = ports.get(id(arc), (0.0, 0.0))
            ports[id(arc)] = (from_head, offset) if word == arc.modifier else (offset, to_modifier)
    return [len(met) for met in at]


def _find_crossings(arcs: Sequence[Arc], ports: dict[int, tuple[float, float]]) -> None:
    """Tell each arc the uprights that cross its level: those of higher arcs, of one word inside its span."""
    spans = [(arc.first, arc.last, arc) for arc in arcs]
    for first, last, arc in spans:
        if last - first < 2:
            continue
        for one, two, other in spans:
            # Over this arc's level, and with one end strictly inside its span. (The root's arc has one end.)
            inside = (first < one < last) + (first < two < last and other.head != 0)
            if inside == 1 and other.level > arc.level:
                word = one if first < one < last else two
                from_head, to_modifier = ports[id(other)]
                insort(arc.legs, (word, to_modifier if word == other.modifier else from_head))
                other.over = True


def _free(arc: Arc, middles: list[float], left: float, right: float) -> list[tuple[float, float]]:
    """The stretches of an arc's level that no upright crosses and a label may lie on."""
    crossed = [middles[word - 1] + offset for word, offset in arc.legs]
    ends = [left + RADIUS, *(x for leg in crossed for x in (leg - _CLEAR, leg + _CLEAR)), right - RADIUS]
    return list(zip(ends[::2], ends[1::2], strict=True))


def _make_room(arc: Arc, middles: list[float], ports: tuple[float, float]) -> None:
    """Move the last word to the right until the label has a place on its arc."""
    left, right = _ends(arc, middles, ports)
    free = _free(arc, middles, left, right)
    if not any(end - begin >= arc.room for begin, end in free):
        begin, end = free[-1]
        middles[-1] += arc.room - (end - begin)


def _ends(arc: Arc, middles: list[float], ports: tuple[float, float]) -> tuple[float, float]:
    from_head, to_modifier = middles[arc.head - 1] + ports[0], middles[arc.modifier - 1] + ports[1]
    return min(from_head, to_modifier), max(from_head, to_modifier)


def _fix(arc: Arc, middles: list[float], ports: tuple[float, float]) -> None:
    arc.modifier_x = middles[arc.modifier - 1] + ports[1]
    if arc.head == 0:
        arc.head_x = arc.label_x = arc.modifier_x
        return
    arc.head_x = middles[arc.head - 1] + ports[0]
    left, right = _ends(arc, middles, ports)
    wanted = (left + right) / 2
    wanted = min(max(wanted, arc.modifier_x - _NEAR), arc.modifier_x + _NEAR)
    half = arc.room / 2
    fits = [
        (begin + half, end - half)
        for begin, end in _free(arc, middles, left, right)
        if end - begin >= arc.room - _ROUNDING
    ]
    places = [max(min(wanted, end), begin) for begin, end in fits] or [wanted]
    arc.label_x = min(places, key=lambda x: abs(x - wanted))
