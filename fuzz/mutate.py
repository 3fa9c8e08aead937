"""What targets share: bytes and JSON changed at random, texts of every kind, and what a refusal must look like."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

LONGEST = 1000  # characters of a refusal
MANY = 40_000  # bytes that a piece is repeated up to

# Pieces that readers have stumbled over, somewhere.
ODD = [
    *("", " ", "\t", "\n", "\r", "\r\n", "\n\n", "\x00", "\x1b[31m", "\x7f", "\x85", "\x9b31m", "\x0b", "\x0c", "\x1c"),
    *("\u2028", "\u2029", "\u202e", "\u2066", "\u200d", "\ufeff", "\ufffe", "\uffff", "\ufdd0", "\xa0", "\u3000"),
    *("\U0010ffff", "\U0001f468\u200d\U0001f469", "e\u0301", "\u0301", "שלום", "語", "İ", "ß", "ﬁ", "½", "٣", "²"),
    *("0", "-0", "-1", "1e400", "nan", "inf", "9" * 30, "1" * 5000, "00", "1_0", "0x10", "1.5", "+1", "true", "None"),
    *("<", ">", "&", "&lt;", '"', "'", "\\", "</script>", "<script>alert(1)</script>", "<!--", "-->", "]]>", "{{"),
    *("%s", "javascript:alert(1)", "' onload='x", '" onload="x', "](x)", "[bold]", "#", "=", "|", "_", ":", ";"),
    *("../..", "/"),
]
BAD_UTF8 = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82", b"\xf4\x90\x80\x80", b"\x80", b"\xff\xfe"]


def piece(rng: random.Random) -> str:
    """A piece of text: odd, a random character, or several of them."""
    kind = rng.random()
    if kind < 0.6:
        return rng.choice(ODD)
    if kind < 0.8:
        return character(rng)
    return "".join(rng.choice(ODD) if rng.random() < 0.5 else character(rng) for _ in range(rng.randint(2, 6)))


def character(rng: random.Random) -> str:
    """Any character that UTF-8 can hold."""
    while True:
        code = rng.choice([rng.randrange(0x80), rng.randrange(0x3000), rng.randrange(0x110000)])
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def field(rng: random.Random) -> str:
    """A text without tabs and line ends that is not empty: what can stand in a column."""
    text = "".join(char for char in piece(rng) if char not in "\t\r\n")
    return text or "x"


def mutated(rng: random.Random, data: bytes, words: Sequence[bytes] = ()) -> bytes:
    """The bytes with a few changes; ``words`` are pieces that mean something in the format."""
    changes = 0 if rng.random() < 0.05 else min(1 + int(rng.expovariate(0.5)), 12)
    for _ in range(changes):
        data = rng.choice(_CHANGES)(rng, data, words)
    return data


def _span(rng: random.Random, data: bytes, most: int = 40) -> tuple[int, int]:
    start = rng.randint(0, len(data))
    return start, min(len(data), start + rng.randint(0, most))


def _flip(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _delete(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + data[end:]


def _insert(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start, _ = _span(rng, data)
    return data[:start] + _new(rng, words) + data[start:]


def _replace(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data, 8)
    return data[:start] + _new(rng, words) + data[end:]


def _copy(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data, 200)
    at, _ = _span(rng, data)
    return data[:at] + data[start:end] + data[at:]


def _repeat(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data, 20)
    some = data[start:end] if rng.random() < 0.5 else _new(rng, words)
    times = rng.choice([2, 10, 100, MANY // max(1, len(some))])
    return data[:start] + some[:MANY] * min(times, MANY // max(1, len(some)) + 1) + data[start:]


def _cut(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    return data[: rng.randint(0, len(data))]


def _lines(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """Two lines change places, or one goes, or comes twice, or all line ends change."""
    lines = data.split(b"\n")
    one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        lines[one], lines[two] = lines[two], lines[one]
    elif kind == 1:
        del lines[one]
    elif kind == 2:
        lines.insert(two, lines[one])
    else:
        return data.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\n", b" \n"]))
    return b"\n".join(lines)


def _new(rng: random.Random, words: Sequence[bytes]) -> bytes:
    kind = rng.random()
    if words and kind < 0.5:
        return rng.choice(words)
    return rng.choice(BAD_UTF8) if kind > 0.95 else piece(rng).encode("utf-8", "surrogatepass")


_CHANGES: list[Callable[[random.Random, bytes, Sequence[bytes]], bytes]] = [
    *(_flip, _delete, _insert, _insert, _replace, _replace, _copy, _repeat, _cut, _lines)
]


def refusal(error: Exception) -> str:
    """Check that a refusal is one short line without control characters; the word for it."""
    message = str(error)
    assert message.strip(), f"{type(error).__name__} says nothing"
    assert len(message) <= LONGEST, f"a message of {len(message)} characters: {message[:200]!r}"
    bad = [char for char in message if unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}]
    assert not bad, f"a message with {bad[0]!r}: {message[:200]!r}"
    return "refused"


_RAW = "\u2020raw\u2020"  # a string that stands for text that json.dumps would not write
_TEXTS = (
    *("[" * 100_000, "[" * 40 + "]" * 40, '{"a":' * 3000 + "1" + "}" * 3000, "NaN", "Infinity", "1e999", "-", "tru"),
    *("1" + "0" * 5000, "9223372036854775808", "-1", "1e308", '"\\ud800"', '"\\u0000"', '{"a":1,"a":2}', "[[[]]]"),
)


def extreme(rng: random.Random) -> Any:
    """A value of JSON that nobody expects."""
    plain = (None, True, False, 0, 1, -1, 2**63, 10**50, 0.5, -1e308, "", "x", "\x00", "\t", "\n", "a\tb", "\x1b[31m")
    made = ([], {}, [None], [[]], [{}], ["x"], ["x", "x"], [[True, False]], {"a": 1}, "x" * 5000, list(range(2000)))
    what = rng.randrange(4)
    if what == 0:
        return _RAW + str(rng.randrange(len(_TEXTS)))
    return rng.choice(made if what == 1 else plain)


def _nodes(value: Any) -> list[tuple[Any, Any]]:
    """Containers and keys of some of the values in a value."""
    found: list[tuple[Any, Any]] = []
    level = [value]
    while level and len(found) < 5000:
        inner = level.pop(0)
        keys = list(inner) if isinstance(inner, dict) else range(min(len(inner), 300))
        found += [(inner, key) for key in keys]
        level += [inner[key] for key in keys if isinstance(inner[key], dict | list)]
    return found


def changed_json(rng: random.Random, content: bytes) -> bytes:
    """JSON with a value changed, gone, or there several times; what is none, as it is."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if not isinstance(value, dict | list) or not value or rng.random() < 0.03:
        return dumped(extreme(rng))
    nodes = _nodes(value)
    holder, key = rng.choice(nodes[:12] if rng.random() < 0.5 else nodes)  # of the few near the top, or of all
    what = rng.randrange(7)
    if what < 3:
        holder[key] = extreme(rng)
    elif what == 3:
        del holder[key]
    elif what == 4 and isinstance(holder, dict):
        holder[rng.choice(("", "x", "\x00", "y" * 3000))] = extreme(rng)
    elif isinstance(holder, list):
        many = rng.choice((1, 1, 2, 1000, 100_000))
        holder.extend([holder[key]] * many if what == 5 else [f"new{number}" for number in range(many)])
    elif isinstance(holder[key], list):
        rng.shuffle(holder[key])
    return dumped(value)


def dumped(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(f'"{_RAW}(\\d+)"', lambda found: _TEXTS[int(found[1])], text).encode("utf-8", "surrogatepass")
