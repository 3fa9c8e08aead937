"""What is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refuses(match: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """A call is refused by one line that says so."""
    __tracebackhide__ = True
    with pytest.raises(ValueError, match=match) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
