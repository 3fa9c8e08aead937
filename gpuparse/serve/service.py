"""What all the ways to ask share: an engine, its queue, and parses for sentences of any origin."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from importlib import import_module
from typing import Annotated, cast

from fastapi import Depends, Request

from gpuparse.data.prediction import Prediction
from gpuparse.serve.batcher import Batcher
from gpuparse.serve.engine import Engine
from gpuparse.serve.sentences import AskedSentences, refusal
from gpuparse.serve.settings import ParseOptions

_HEAVY = 50_000  # bytes of a request that is read in a thread of its own


class Service:
    """An engine and the queue before it."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.limits = engine, engine.limits
        self.batcher = Batcher(engine.run, engine.limits, engine.batch_words)

    async def parse(self, given: AskedSentences, options: ParseOptions, tag: bool | None = None) -> list[Prediction]:
        """What the parser says of sentences, or ``Refused``.

        Args:
            tag: let the tagger fill the tags; None: of those that have none.
        """
        for name, known in zip(given.names, given.known, strict=True):
            self.engine.check(options, name, known)
        wanted = [self.engine.wants_tags(one) if tag is None else tag for one in given.sentences]
        found: dict[int, Prediction] = {}

        async def some(tagged: bool) -> None:
            places = [place for place, want in enumerate(wanted) if want == tagged]
            sentences = [given.sentences[place] for place in places]
            known = [given.known[place] for place in places]
            try:
                parsed = await self.batcher.parse(replace(options, tag=tagged), sentences, known)
            except ValueError as error:
                raise refusal(error, given.names[0] if len(given.names) == 1 else "a sentence") from None
            found.update(zip(places, parsed, strict=True))

        await asyncio.gather(*map(some, sorted(set(wanted))))
        return [found[place] for place in range(len(wanted))]


def _service(request: Request) -> Service:
    return cast(Service, request.app.state.service)


Served = Annotated[Service, Depends(_service)]


def version() -> str:
    return str(import_module("gpuparse").__version__)  # not imported before: it imports all that stands above


def is_heavy(request: Request) -> bool:
    """Whether reading a request takes so long that others should not wait for it."""
    length = request.headers.get("content-length", "")
    return not (length.isdigit() and int(length[:12]) < _HEAVY)
