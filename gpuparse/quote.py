"""Values in messages: short, on one line, and whatever they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
        return "[" + (_joined((_written(item, most, deep - 1) for item in value), most) if deep else "…") + "]"
    return shown(str(value), most)


def _joined(parts: Iterable[str], most: int) -> str:
    taken: list[str] = []
    for part in parts:
        taken.append(part)
        most -= len(part) + 2
        if most < 0:  # the rest would be cut off
            break
    return ", ".join(taken)
