"""Values in messages: short, on one line, and whatever they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from unicodedata import category

MOST = 200  # characters of a value in a message
_DEEP = 4  # lists in lists that are written out
_BITS = 512  # of a whole number that is written out


def quoted(value: object, most: int = MOST) -> str:
    """A value as Python writes it, in at most ``most`` characters, none of them a control character.

    It is quick, and fails for nothing: strings and lists of any size, whole numbers of any length, any nesting.
    """
    return _cut(_written(value, most + 1, _DEEP), most)


def shown(text: str, most: int = MOST) -> str:
    """A text without quotation marks, such as a name or another library's message, in the same way.

    Line breaks and tabs become spaces; what else cannot be printed is escaped.
    """
    text = " ".join(text.split())
    return _cut("".join(char if char.isprintable() else repr(char)[1:-1] for char in text[: most + 1]), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _written(value: object, most: int, deep: int) -> str:
    """``repr``, of about ``most`` characters."""
    if isinstance(value, str | bytes):
        return repr(value[:most])
    if isinstance(value, int) and value.bit_length() > _BITS:
        return f"a number of {value.bit_length()} bits"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = (f"{_written(k, most, deep - 1)}: {_written(v, most, deep - 1)}" for k, v in value.items())
        return "{" + (_joined(pairs, most) if deep else "…") + "}"
    if isinstance(value, list | tuple):
        items = _joined((_written(item, most, deep - 1) for item in value), most) if deep else "…"
        return f"[{items}]" if isinstance(value, list) else f"({items},)" if len(value) == 1 else f"({items})"
    return shown(str(value), most)


def _joined(parts: Iterable[str], most: int) -> str:
    taken: list[str] = []
    for part in parts:
        taken.append(part)
        most -= len(part) + 2
        if most < 0:  # the rest would be cut off
            break
    return ", ".join(taken)


# What changes the direction of the text around it, and with it what a line seems to say.
_TURNING = {"\u061c", "\u200e", "\u200f", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
_HIDDEN = {"Cc", "Cs", "Zl", "Zp"}


def visible(text: str, keep: str = "\t\n") -> str:
    """A text of any length with what must not reach a terminal escaped: ``\\x1b`` for an escape character.

    Control characters but for those in ``keep``, line and paragraph separators, marks that turn the direction of
    writing, and bytes that were no UTF-8. All else stays: letters of any script, and what joins them.
    """
    if text.isprintable():  # which is quick, and most often so
        return text
    return "".join(
        _escaped(char) if char not in keep and (category(char) in _HIDDEN or char in _TURNING) else char
        for char in text
    )


def _escaped(char: str) -> str:
    """As Python writes it; a byte that was no UTF-8 as that byte."""
    return f"\\x{ord(char) - 0xDC00:02x}" if "\udc80" <= char <= "\udcff" else repr(char)[1:-1]
