"""One dependency tree as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import Literal, NamedTuple

from gpuparse.render.layout import RADIUS, Arc, place
from gpuparse.render.measure import drawable, is_right_to_left, isolated, shorten, text_width
from gpuparse.render.style import LABEL_SIZE, TAG_SIZE, WORD_SIZE, svg_style
from gpuparse.system.quote import quoted

Outcome = Literal["right", "subtype", "label", "head"]
"""How a word was parsed: right; with another subtype of the right label; with a wrong label; with a wrong head."""

_PITCH = 21.0  # from level to level
_BASE = 23.0  # from the words to the first level
_TOP = 11.0
_LINE = 17.0  # from the words to the tags, and so on
_LONGEST = 48  # characters of a word that are drawn
_FITTED = 200.0  # an estimate this long may be far off: the browser is told the width
ARROW = "l-3.6-7h7.2z"
ARROW_UP = "l-3.6 7h7.2z"
FAINTEST, _FAINTEST_LABEL = 0.35, 0.7  # what no confidence at all looks like


class Token(NamedTuple):
    """A token of several words, as ``1-2 della`` in CoNLL-U: its first and last word, and its form."""

    first: int
    last: int
    form: str


class Drawing(str):
    """An SVG element, as text, that knows its size in pixels and where between words it may be cut."""

    width: float
    height: float
    right_to_left: bool
    cuts: list[tuple[float, bool]]
    """Each gap between two words, from the left, and whether no label lies there."""


def outcomes(
    heads: Sequence[int], labels: Sequence[str], gold_heads: Sequence[int], gold_labels: Sequence[str]
) -> list[Outcome]:
    """How each word was parsed. As in the CoNLL shared task, a subtype (what follows ``:``) is no matter of score.

    Example:
        >>> from gpuparse.render import outcomes
        >>> outcomes([2, 0, 1], ["nsubj:pass", "root", "obj"], [2, 0, 2], ["nsubj", "root", "obj"])
        ['subtype', 'right', 'head']
    """
    found: list[Outcome] = []
    for head, label, gold_head, gold_label in zip(heads, labels, gold_heads, gold_labels, strict=True):
        if head != gold_head:
            found.append("head")
        elif label == gold_label:
            found.append("right")
        else:
            found.append("subtype" if label.partition(":")[0] == gold_label.partition(":")[0] else "label")
    return found


def tree_svg(
    heads: Iterable[int],
    words: Sequence[str],
    labels: Sequence[str] | None = None,
    *,
    tags: Sequence[str] | None = None,
    gold_heads: Iterable[int] | None = None,
    gold_labels: Sequence[str] | None = None,
    confidence: Sequence[float | None] | None = None,
    notes: Sequence[str] | None = None,
    tokens: Sequence[Token] = (),
    standalone: bool = True,
) -> Drawing:
    """Draw one tree as an SVG element: words and tags in a line, arcs with labels over them.

    Args:
        heads: the head of every node, −1 at node 0 (the root). −1 at a word: it has no head and no arc is drawn.
            The heads need not be a tree.
        words: the words, without the root.
        labels: the label of the arc into each word.
        tags: drawn under the words.
        gold_heads: the right heads, in the form of ``heads``. A wrong arc is then marked, and the right one drawn
            under the words, dashed.
        gold_labels: the right labels; a wrong label is then marked.
        confidence: the probability of each word's arc, drawn as opacity; None where it is not known.
        notes: what is shown when the mouse rests on a word.
        tokens: tokens of several words, drawn as brackets under them.
        standalone: with its own style, to be saved as a file. A page has the style once (``svg_style``).

    Raises ``ValueError`` where the arguments do not fit together.

    Example:
        >>> from gpuparse.render import tree_svg
        >>> drawing = tree_svg([-1, 2, 0], ["She", "sleeps"], ["nsubj", "root"])
        >>> drawing[:4], drawing.count("sleeps") > 0, drawing.width > 0
        ('<svg', True, True)
    """
    count = len(words)
    above = _given_heads("heads", heads, count)
    truth = above if gold_heads is None else _given_heads("gold_heads", gold_heads, count, lowest=0)
    columns = {"labels": labels, "tags": tags, "gold_labels": gold_labels, "confidence": confidence, "notes": notes}
    for name, column in columns.items():
        if column is not None and len(column) != count:
            raise ValueError(f"{name}: {len(column)} for {count} words")
    for first, last, form in tokens:
        if not 1 <= first <= last <= count:
            raise ValueError(f"tokens: {quoted(form)} is of words {first} to {last}, not within 1..{count}")
    shown_labels = [drawable(label) for label in labels or [""] * count]
    gold_shown = shown_labels if gold_labels is None else [drawable(label) for label in gold_labels]
    tree = _DrawnTree(
        words=[drawable(word) for word in words],
        tags=None if tags is None else [drawable(tag) for tag in tags],
        heads=above,
        labels=shown_labels,
        gold_heads=truth,
        gold_labels=gold_shown,
        outcomes=outcomes(above, shown_labels, truth, gold_shown),
        confidence=_given_confidence(confidence, count),
        notes=[drawable(note) for note in notes or [""] * count],
        tokens=[Token(first, last, drawable(form)) for first, last, form in tokens],
    )
    return _draw(tree, standalone)


class _DrawnTree(NamedTuple):
    words: list[str]
    tags: list[str] | None
    heads: list[int]
    labels: list[str]
    gold_heads: list[int]
    gold_labels: list[str]
    outcomes: list[Outcome]
    confidence: list[float | None]
    notes: list[str]
    tokens: list[Token]

    def word(self, node: int) -> str:
        return isolated(self.words[node - 1]) if node else "the root"


def _given_heads(name: str, heads: Iterable[int], count: int, lowest: int = -1) -> list[int]:
    given = [int(head) for head in heads]
    if len(given) < count + 1 or any(head != -1 for head in given[count + 1 :]):
        raise ValueError(f"{name}: {len(given)} nodes for {count} words; wanted {count + 1}, the root first")
    if given[0] != -1:
        raise ValueError(f"{name}: node 0 is the root and has head -1, not {given[0]}")
    for word, head in enumerate(given[1 : count + 1], 1):
        if not lowest <= head <= count or head == word:
            raise ValueError(f"{name}: the head of word {word} is {head}, not another word of 1..{count} or 0")
    return given[1 : count + 1]


def _given_confidence(confidence: Sequence[float | None] | None, count: int) -> list[float | None]:
    if confidence is None:
        return [None] * count
    for word, value in enumerate(confidence, 1):
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"confidence: that of word {word} is {value}, not between 0 and 1")
    return list(confidence)


def _number(value: float) -> str:
    """A coordinate in as few characters as are needed."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def _draw(tree: _DrawnTree, standalone: bool) -> Drawing:
    count = len(tree.words)
    rtl = is_right_to_left(tree.words)
    shown = [shorten(word, _LONGEST) for word in tree.words]
    widths = [text_width(word, WORD_SIZE) for word in shown]
    if tree.tags is not None:
        widths = [max(w, text_width(tag, TAG_SIZE)) for w, tag in zip(widths, tree.tags, strict=True)]
    texts = [_label(tree, word) for word in range(count)]
    over = [
        Arc(head, word, label_room(text))
        for word, (head, text) in enumerate(zip(tree.heads, texts, strict=True), 1)
        if head >= 0
    ]
    under = [
        Arc(head, word, label_room(tree.gold_labels[word - 1]))
        for word, head in enumerate(tree.gold_heads, 1)
        if head >= 0 and tree.outcomes[word - 1] == "head"
    ]
    layout = place(widths, over, under)
    width = max(layout.width, 40.0)
    turn = (lambda x: width - x) if rtl else (lambda x: x)

    words_top = _TOP + (_BASE + (layout.levels[0] - 1) * _PITCH if layout.levels[0] else 0)
    baseline = words_top + WORD_SIZE + 1.5
    bottom = baseline + (_LINE if tree.tags is not None else 0)
    lines = [_arc(tree, arc, words_top - 1, -1, turn) for arc in sorted(over, key=lambda arc: arc.level)]
    middles = [turn(x) for x in layout.middles]
    lines.append('<g direction="rtl">' if rtl else "<g>")
    for word in range(1, count + 1):
        lines.append(_word(tree, word, shown[word - 1], middles[word - 1], baseline))
    if tree.tokens:
        bottom += 5
        for token in tree.tokens:
            lines.append(_token(token, middles, widths, bottom))
        bottom += _LINE
    lines.append("</g>")
    if under:
        below = bottom + 8
        lines += [_arc(tree, arc, below, 1, turn) for arc in sorted(under, key=lambda arc: arc.level)]
        bottom = below + _BASE + (layout.levels[1] - 1) * _PITCH
    height = bottom + _TOP
    size = f'width="{_number(width)}" height="{_number(height)}" viewBox="0 0 {_number(width)} {_number(height)}"'
    name = f"Dependency tree of {count} word{'' if count == 1 else 's'}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="gp" {size} role="img" aria-label="{name}">'
    style = f"<style>{svg_style()}</style>" if standalone else ""
    said = f"<desc>{escape(_in_words(tree), quote=False)}</desc>"
    drawing = Drawing("\n".join([f"{head}{style}{said}", *lines, "</svg>"]))
    drawing.width, drawing.height, drawing.right_to_left = width, height, rtl
    edges = sorted((x - w / 2, x + w / 2) for x, w in zip(middles, widths, strict=True))
    gaps = [(before[1] + after[0]) / 2 for before, after in pairwise(edges)]
    labels = [(turn(arc.label_x), arc.room / 2) for arc in (*over, *under)]
    drawing.cuts = [(gap, all(abs(gap - x) > half for x, half in labels)) for gap in gaps]
    return drawing


def _label(tree: _DrawnTree, index: int) -> str:
    """What stands on the arc into a word."""
    label = tree.labels[index]
    outcome = tree.outcomes[index]
    if outcome == "head":
        return f"× {label}".rstrip()
    if outcome == "label":
        return f"× {label} ({tree.gold_labels[index]})"
    return f"{label} ({tree.gold_labels[index]})" if outcome == "subtype" else label


def label_room(label: str) -> float:
    return text_width(label, LABEL_SIZE) + 8 if label else 0.0


def _arc(tree: _DrawnTree, arc: Arc, start: float, sign: int, turn: Callable[[float], float]) -> str:
    """An arc over (−1) or under (+1) the words, from the height ``start``."""
    index = arc.modifier - 1
    missed = sign > 0
    outcome = tree.outcomes[index]
    text = tree.gold_labels[index] if missed else _label(tree, index)
    level = start + sign * (_BASE + (arc.level - 1) * _PITCH)
    from_x, to_x, label_x = turn(arc.head_x), turn(arc.modifier_x), turn(arc.label_x)
    tip = start
    end = tip + sign * 6  # the line ends inside the arrow
    if arc.head == 0:
        path = f"M{_number(from_x)} {_number(level - sign * (7 if text else 0))}V{_number(end)}"
    else:
        path = arc_path(from_x, to_x, label_x, arc.room, start, level, end, sign)
    arrow = f"M{_number(to_x)} {_number(tip)}{ARROW if sign < 0 else ARROW_UP}"
    sure = None if missed else tree.confidence[index]
    line = f'<path d="{path}"/><path class="h" d="{arrow}"/>'
    faint = ""
    if sure is not None:
        line = f'<g opacity="{_opacity(sure, FAINTEST)}">{line}</g>'
        faint = f' opacity="{_opacity(sure, _FAINTEST_LABEL)}"'
    halo = f'<path class="k" d="{path}"/>' if arc.over else ""
    kind = "a g" if missed else {"right": "a", "subtype": "a s", "label": "a l", "head": "a x"}[outcome]
    label = ""
    if text:
        at = f'x="{_number(label_x)}" y="{_number(level + 3.8)}"'
        label = f"<text {at}{faint}>{_marked(tree, index, text, missed)}</text>"
    title = escape(_explain(tree, index, missed), quote=False)
    return (
        f'<g class="{kind}" data-h="{arc.head}" data-m="{arc.modifier}"><title>{title}</title>{halo}{line}{label}</g>'
    )


def arc_path(
    from_x: float, to_x: float, label_x: float, room: float, start: float, level: float, end: float, sign: int
) -> str:
    """Up from the head, along the level with a gap for the label, and down to the modifier."""
    way = 1 if to_x > from_x else -1
    radius = min(RADIUS, abs(to_x - from_x) / 2)
    corner = level - sign * radius
    n = _number
    gap = f"H{n(label_x - way * room / 2)}M{n(label_x + way * room / 2)} {n(level)}" if room else ""
    return (
        f"M{n(from_x)} {n(start)}V{n(corner)}Q{n(from_x)} {n(level)} {n(from_x + way * radius)} {n(level)}{gap}"
        f"H{n(to_x - way * radius)}Q{n(to_x)} {n(level)} {n(to_x)} {n(corner)}V{n(end)}"
    )


def _opacity(sure: float, faintest: float) -> str:
    return f"{faintest + (1 - faintest) * sure:.2f}"


def _marked(tree: _DrawnTree, index: int, text: str, missed: bool) -> str:
    """The label, escaped, with the parts of a wrong one told apart."""
    if missed or tree.outcomes[index] not in {"label", "subtype"}:
        return escape(text, quote=False)
    ours, _, gold = text.rpartition(" (")
    return f'<tspan class="p">{escape(ours, quote=False)}</tspan> <tspan class="q">({escape(gold, quote=False)}</tspan>'


def _explain(tree: _DrawnTree, index: int, missed: bool = False) -> str:
    """An arc in words, a line for each thing to say."""
    word = tree.word(index + 1)
    head, label = tree.heads[index], tree.labels[index]
    gold_head, gold_label = tree.gold_heads[index], tree.gold_labels[index]
    gold = f"{word} ← {tree.word(gold_head)}{': ' if gold_label else ''}{isolated(gold_label)}"
    if missed:
        return f"missed: {gold}"
    lines = [f"{word} ← {tree.word(head)}{': ' if label else ''}{isolated(label)}"]
    sure = tree.confidence[index]
    if sure is not None:
        lines.append(f"confidence {sure:.4g}")
    if tree.outcomes[index] != "right":
        lines.append(f"right: {gold}")
    return "\n".join(lines)


def _word(tree: _DrawnTree, word: int, shown: str, x: float, baseline: float) -> str:
    wrong = tree.outcomes[word - 1] in {"head", "label"}
    width = text_width(shown, WORD_SIZE)
    fitted = f' textLength="{_number(width)}" lengthAdjust="spacingAndGlyphs"' if width > _FITTED else ""
    at = f'x="{_number(x)}"'
    note = "\n".join(part for part in (f"{word} {tree.word(word)}", tree.notes[word - 1]) if part)
    text = f'<text {at} y="{_number(baseline)}"{fitted}>{escape(shown, quote=False)}</text>'
    tag = ""
    if tree.tags is not None:
        tag_at = f'{at} y="{_number(baseline + _LINE - 2)}"'
        tag = f'<text class="t" {tag_at}>{escape(tree.tags[word - 1], quote=False)}</text>'
    kind = "w e" if wrong else "w"
    return f'<g class="{kind}" data-i="{word}"><title>{escape(note, quote=False)}</title>{text}{tag}</g>'


def _token(token: Token, middles: list[float], widths: list[float], y: float) -> str:
    ends = [(middles[i] - widths[i] / 2, middles[i] + widths[i] / 2) for i in (token.first - 1, token.last - 1)]
    left, right = min(begin for begin, _ in ends), max(end for _, end in ends)
    n = _number
    path = f"M{n(left)} {n(y - 3)}v4H{n(right)}v-4"
    at = f'x="{n((left + right) / 2)}" y="{n(y + 13)}"'
    return f'<g class="m"><path d="{path}"/><text {at}>{escape(shorten(token.form, _LONGEST), quote=False)}</text></g>'


def _in_words(tree: _DrawnTree) -> str:
    """The tree for those who do not see it."""
    parts = []
    for index, (head, label) in enumerate(zip(tree.heads, tree.labels, strict=True)):
        place_of = f"{index + 1} {tree.word(index + 1)}"
        label = isolated(label) or "dependent"
        if head < 0:
            said = f"{place_of}: no head"
        elif head == 0:
            said = f"{place_of}: {label}" if label == "root" else f"{place_of}: {label} of the root"
        else:
            said = f"{place_of}: {label} of {head} {tree.word(head)}"
        outcome = tree.outcomes[index]
        if outcome != "right":
            gold_head, gold_label = tree.gold_heads[index], isolated(tree.gold_labels[index]) or "dependent"
            truth = f"{gold_label} of {gold_head} {tree.word(gold_head)}" if gold_head > 0 else gold_label
            said += f" (wrong, right is {truth})" if outcome != "subtype" else f" (in full {truth})"
        parts.append(said)
    return "; ".join(parts) or "no words"
