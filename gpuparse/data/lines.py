"""The lines of a sentence of CoNLL-U: which are words, and whether their IDs are right."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpuparse.system.quote import quoted

COLUMNS = 10
BLANK = " \t\r\n"
NUMBERS = [str(number) for number in range(1024)]
_ID = re.compile(r"([1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?|(0|[1-9][0-9]{0,8})\.([1-9][0-9]{0,8})")


def rows_of_words(lines: list[str], error: Callable[[int, str], ValueError]) -> list[int]:
    """The rows that are words, after a look at every line; ``error`` of a row and what is wrong is raised."""
    rows: list[int] = []
    empty = (0, 0)  # the last empty node
    until = 0  # the end of the last range
    for row, line in enumerate(lines):
        columns = line.count("\t") + 1
        if not line.strip(BLANK):
            raise error(row, "a blank line inside a sentence; read several sentences with read_conllu")
        if line.startswith("#"):
            raise error(row, "a comment between words; move it before the first word")
        if columns != COLUMNS:
            what = "column" if columns == 1 else "columns"
            raise error(row, f"{columns} {what} where CoNLL-U has {COLUMNS}; separate columns by one tab")
        name = line[: line.index("\t")]
        match = _ID.fullmatch(name)
        last = len(rows)
        if match is None:
            raise error(row, f"the ID {quoted(name, 40)} is not a number, range or empty node; number words from 1")
        first, final, whole, part = (int(group) if group else -1 for group in match.groups())
        if part > 0:
            expected = empty[1] + 1 if empty[0] == last else 1
            if (whole, part) != (last, expected):
                raise error(row, f"the ID {name} where {last}.{expected} is due; number empty nodes in order")
            empty = (whole, part)
        elif final > 0:
            if first != last + 1 or final < first or first <= until:
                raise error(row, f"the range {name} before word {last + 1}; begin it there, without overlap")
            until = final
        elif first != last + 1:
            raise error(row, f"the ID {first} where {last + 1} is due; number the words from 1")
        else:
            rows.append(row)
    if until > len(rows):
        what = f"a range ends at word {until} but the sentence at word {len(rows)}"
        raise error(len(lines) - 1, f"{what}; correct the range")
    return rows


def first_line_of_words(text: str) -> int:
    """Where the first line begins that is neither a comment nor blank; the text's length if there is none."""
    at = 1 if text.startswith("\ufeff") else 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end + 1
        if text[at] != "#" and text[at:end].strip(BLANK):
            return at
        at = end
    return len(text)


def numbers_to(count: int) -> list[str]:
    """``["1", ..., str(count)]``"""
    while len(NUMBERS) <= count:
        NUMBERS.extend(map(str, range(len(NUMBERS), 2 * len(NUMBERS))))
    return NUMBERS[1 : count + 1]
