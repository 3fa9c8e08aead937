"""What a call that is refused says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refusal(
    call: Callable[..., Any], *given: Any, error: type[ValueError] = ValueError, longest: int = 400, **options: Any
) -> str:
    """The message of the error: one line, without control characters, shorter than `longest`."""
    with pytest.raises(error) as caught:
        call(*given, **options)
    line = str(caught.value)
    assert line.isprintable() and line.strip() == line and 0 < len(line) < longest
    return line
