"""Values in messages."""

from __future__ import annotations

import datetime
import time

import pytest

from gpuparse.system.quote import MOST, quoted, shown


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", ["abc", "it's", "a\nb", "\x1b[31m", b"a\x00", 12, -3, True, None, 2.5, [1, "a"], (), (1,), (1, "a"), {}]
)
def test_short_values_are_as_python_writes_them(value):
    assert quoted(value) == repr(value)


def test_others():
    assert quoted({"a": [None, {"b": 1.5}]}) == "{'a': [None, {'b': 1.5}]}"
    assert quoted(datetime.date(2012, 6, 1)) == "2012-06-01"
    assert quoted(10**5000) == "a number of 16610 bits"
    assert quoted(-(2**600)) == "a number of 601 bits"


@pytest.mark.parametrize(
    "value",
    [
        *("a" * 10**7, "\x00" * 10**6, "'\"" * 1000, "\u202e\ud800" * 500, b"\xff" * 10**6, 10**10**5, float("-inf")),
        *(
            nested(10**5),
            [nested(50)] * 1000,
            {"x" * 1000: "y" * 1000},
            list(range(10**6)),
            dict.fromkeys(range(10**5)),
        ),
    ],
    ids=range(12),
)
def test_bounded_and_printable(value):
    began = time.perf_counter()
    for most in (MOST, 20):
        text = quoted(value, most)
        assert 0 < len(text) <= most
        assert text.isprintable()
    assert time.perf_counter() - began < 1


def test_shown():
    assert shown("a name") == "a name"
    assert shown(" two\n\tlines ") == "two lines"
    assert shown("\x1b[31m\ud800") == "\\x1b[31m\\ud800"
    assert len(shown("x" * 10**6)) == MOST
    assert shown("x" * 300).endswith("x…")
    assert len(shown("\x00" * 10**6)) == MOST
