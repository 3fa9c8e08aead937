"""Requests that arrive together are one batch: a queue before the one thread that parses."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import itemgetter

from gpuparse.data.partial import Partial
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import Sentence
from gpuparse.serve.settings import ParseOptions, Refused, ServerLimits

_NEAREST = 64  # sentences of a request that are looked at for a batch
Run = Callable[[ParseOptions, list[Sentence], list[Partial]], Sequence[Prediction | Exception]]


@dataclass(eq=False)
class _Waiting:
    """The sentences of a request; ``open`` has those that the parser has not been given, by length, then in order."""

    options: ParseOptions
    sentences: list[Sentence]
    known: list[Partial]
    future: asyncio.Future[list[Prediction]]
    open: list[tuple[int, int]] = field(default_factory=list)
    found: dict[int, Prediction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.open = sorted((len(one), index) for index, one in enumerate(self.sentences))


class Batcher:
    """Gives sentences to ``run``, in a thread of its own, many at a time.

    While a batch is parsed, what arrives is gathered. The next one has a sentence of the request that waited longest,
    and those that are nearest to it in length, of all requests with the same options: so many as fit. A request that
    does not fit goes in pieces, between which others have their turn.

    Args:
        run: says of each sentence what was found, or what is wrong with it.
        batch_words: nodes of a batch, padding counted; by default as the limits say.
    """

    def __init__(self, run: Run, limits: ServerLimits, batch_words: int | None = None) -> None:
        self.batches = self.parsed = 0
        self._run, self._limits, self._batch_words = run, limits, batch_words or limits.batch_words
        self._waiting: deque[_Waiting] = deque()
        self._thread: ThreadPoolExecutor | None = None
        self._worker: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many requests have sentences that the parser has not been given."""
        return len(self._waiting)

    async def parse(self, options: ParseOptions, sentences: list[Sentence], known: list[Partial]) -> list[Prediction]:
        """What the parser says of sentences; ``Refused`` where too much waits, or it takes too long."""
        if not sentences:
            return []
        if len(self._waiting) >= self._limits.max_waiting:
            raise Refused(503, "too many requests are waiting; try again", {"Retry-After": "1"})
        loop = asyncio.get_running_loop()
        request: _Waiting = _Waiting(options, sentences, known, loop.create_future())
        self._waiting.append(request)
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        try:
            return await asyncio.wait_for(request.future, self._limits.time_limit)
        except asyncio.TimeoutError:
            said = f"not done within {self._limits.time_limit:g} seconds; send less, or try again"
            raise Refused(503, said, {"Retry-After": "5"}) from None
        finally:
            if request in self._waiting:
                self._waiting.remove(request)

    async def close(self) -> None:
        """Wait for what has been begun, and end the thread; what comes later begins another."""
        if self._worker is not None:
            await self._worker
        if self._thread is not None:
            self._thread.shutdown()
        self._worker = self._thread = None

    async def _work(self) -> None:
        """Parse until nothing waits."""
        loop = asyncio.get_running_loop()
        self._thread = self._thread or ThreadPoolExecutor(1, "parser")
        while self._waiting:
            options, taken = self._take()
            sentences = [request.sentences[index] for request, index in taken]
            known = [request.known[index] for request, index in taken]
            self.batches += 1
            self.parsed += len(taken)
            found: Sequence[Prediction | Exception]
            try:
                found = await loop.run_in_executor(self._thread, self._run, options, sentences, known)
            except Exception as error:
                found = [error] * len(taken)
            for (request, index), one in zip(taken, found, strict=True):
                self._give(request, index, one)

    def _take(self) -> tuple[ParseOptions, list[tuple[_Waiting, int]]]:
        """A sentence of the first request, and what goes with it."""
        first = self._waiting[0]
        wanted, anchor = first.open[0]
        near: list[tuple[bool, int, int, int, _Waiting]] = []
        for place, request in enumerate(self._waiting):
            if request.options == first.options:
                at = bisect_left(request.open, (wanted, 0))
                for length, index in request.open[max(0, at - _NEAREST) : at + _NEAREST]:
                    is_other = request is not first or index != anchor
                    near.append((is_other, abs(length - wanted), place, index, request))
        near.sort(key=itemgetter(0, 1, 2, 3))
        taken: list[tuple[_Waiting, int]] = []
        longest = 0
        for _, _, _, index, request in near:
            nodes = max(longest, 1 + len(request.sentences[index]))
            if taken and (len(taken) + 1) * nodes > self._batch_words:
                break
            taken.append((request, index))
            longest = nodes
        for request, index in taken:
            request.open.remove((len(request.sentences[index]), index))
            if not request.open:
                self._waiting.remove(request)
        if self._waiting and self._waiting[0] is first:
            self._waiting.rotate(-1)
        return first.options, taken

    def _give(self, request: _Waiting, index: int, one: Prediction | Exception) -> None:
        if request.future.done():  # it was wrong elsewhere, or took too long
            return
        if isinstance(one, Exception):
            if request in self._waiting:
                self._waiting.remove(request)
            request.future.set_exception(one)
            return
        request.found[index] = one
        if len(request.found) == len(request.sentences):
            request.future.set_result([request.found[place] for place in range(len(request.sentences))])
