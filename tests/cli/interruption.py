"""Commands that are stopped from the keyboard in the middle of a file."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from gpuparse.cli import stream
from gpuparse.cli.corpus import parse_corpus


@contextlib.contextmanager
def interruption(monkeypatch: pytest.MonkeyPatch, model: type, *, after: int) -> Iterator[None]:
    """Ctrl-C while a parser or a tagger has more than so many sentences; what is done is saved all the time."""
    real: Any = vars(model)["predict"]
    seen = 0

    def stops(self: Any, given: Sequence[Any], **settings: Any) -> Any:
        nonlocal seen
        seen += len(given)
        if seen > after:
            raise KeyboardInterrupt
        return real(self, given, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(model, "predict", stops)
        patch.setattr(stream, "parse_corpus", functools.partial(parse_corpus, save_seconds=0.0))
        yield
