from __future__ import annotations

import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuparse.render.layout import Arc, arc_levels, place
from tests.render.drawings import is_projective, trees


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether the spans of two arcs share a part."""
    return max(min(a), min(b)) < min(max(a), max(b))


def cross(a: Arc, b: Arc) -> bool:
    """Whether one arc has exactly one end strictly inside the other; the root's arc has one end."""
    inside = (a.first < b.first < a.last) + (a.first < b.last < a.last and b.head != 0)
    return inside == 1


def test_levels_of_small_trees():
    #       We saw the man on the hill: arcs by their spans, the longer the higher
    assert arc_levels([(2, 1), (4, 3), (2, 4), (4, 5), (7, 6), (5, 7)]) == [1, 1, 2, 1, 1, 2]
    assert arc_levels([(2, 1), (2, 3), (3, 4)]) == [1, 1, 1]  # neighbours share a level
    assert sorted(arc_levels([(1, 2), (2, 1)])) == [1, 2]  # a cycle
    assert arc_levels([]) == [] == place([], []).middles


@given(trees(14))
def test_arcs_that_overlap_are_on_different_levels(heads: list[int]):
    arcs = [(head, word) for word, head in enumerate(heads) if word]
    levels = arc_levels(arcs)
    for (a, level_a), (b, level_b) in combinations(zip(arcs, levels, strict=True), 2):
        if 0 not in (*a, *b) and overlap(a, b):
            assert level_a != level_b
            if level_a < level_b:  # the longer is never under the shorter
                assert abs(a[0] - a[1]) <= abs(b[0] - b[1])
    for (head, word), level in zip(arcs, levels, strict=True):
        if head == 0:
            touching = [lv for (h, m), lv in zip(arcs, levels, strict=True) if h and min(h, m) <= word <= max(h, m)]
            assert level > max(touching, default=0)


@st.composite
def placed(draw: st.DrawFn):
    heads = draw(trees(12))
    sizes = st.floats(0, 120)
    arcs = [Arc(head, word, draw(sizes)) for word, head in enumerate(heads) if word]
    words = [draw(sizes) for _ in arcs]
    return heads, words, arcs, place(words, arcs)


@given(placed())
def test_nothing_lies_on_anything(case):
    heads, words, arcs, layout = case
    for i in range(1, len(words)):
        assert layout.middles[i] - words[i] / 2 >= layout.middles[i - 1] + words[i - 1] / 2 + 5
    uprights = [(arc, x) for arc in arcs for x in ({arc.head_x, arc.modifier_x} if arc.head else {arc.modifier_x})]
    places = [x for _, x in uprights]
    assert len(set(places)) == len(places), "two arcs leave from one place"
    for arc in arcs:
        left, right = sorted((arc.head_x, arc.modifier_x))
        label = (arc.label_x - arc.room / 2, arc.label_x + arc.room / 2)
        if arc.head and arc.room:
            assert left < label[0] + 1e-3 and label[1] - 1e-3 < right
        assert label[0] >= 0 and label[1] <= layout.width
        for other, x in uprights:
            if other is arc or other.level < arc.level:
                continue
            assert not (arc.room and label[0] < x < label[1]), "an upright through a label"
            if left < x < right:
                assert other.level > arc.level and cross(arc, other) and other.over
        for other in arcs:
            if other is not arc and other.level == arc.level:
                ends = sorted((other.head_x, other.modifier_x))
                spread = min(ends[0], other.label_x - other.room / 2), max(ends[1], other.label_x + other.room / 2)
                assert spread[1] < min(left, label[0]) or spread[0] > max(right, label[1])
    if is_projective(heads):
        assert not any(arc.over for arc in arcs)


def test_over_and_under_are_placed_apart():
    over, under = [Arc(2, 1, 30), Arc(0, 2, 25)], [Arc(1, 2, 300), Arc(0, 1, 25)]
    layout = place([20, 20], over, under)
    assert layout.levels == (2, 2)
    assert layout.middles[1] - layout.middles[0] > 300
    assert over[0].level == under[0].level == 1


@pytest.mark.parametrize("shape", ["chain", "crossing"])
def test_a_long_sentence_takes_milliseconds(shape):
    n = 160
    heads = list(range(n)) if shape == "chain" else [0, *((i * 7919) % (i - 1) + 1 for i in range(2, n + 1))]
    pairs = [(head, word) for word, head in enumerate(heads, 1)]

    def seconds(work):
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    assert min(seconds(lambda: arc_levels(pairs)) for _ in range(5)) < 0.01
    assert min(seconds(lambda: place([40.0] * n, [Arc(*pair, 30.0) for pair in pairs])) for _ in range(5)) < 0.25
