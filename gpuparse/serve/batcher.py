"""Requests that arrive together are one batch: a queue before the one thread that parses."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gpuparse.data.partial import Partial
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import Sentence
from gpuparse.serve.settings import ParseOptions, Refused, ServerLimits

_GATHERING = 0.03  # seconds at most
Run = Callable[[ParseOptions, list[Sentence], list[Partial]], Sequence[Prediction | Exception]]


@dataclass(eq=False)
class _Waiting:
    """The sentences of a request: those before ``begun`` have been given to the parser."""

    options: ParseOptions
    sentences: list[Sentence]
    known: list[Partial]
    future: asyncio.Future[list[Prediction]]
    begun: int = 0
    found: dict[int, Prediction] = field(default_factory=dict)


class Batcher:
    """Gives sentences to ``run``, in a thread of its own, many at a time.

    While a batch is parsed, what arrives is gathered. The next one takes sentences of all requests that wait and have
    the same options, so many as fit. A request that does not fit goes in pieces, between which others have their turn.

    Args:
        run: says of each sentence what was found, or what is wrong with it.
    """

    def __init__(self, run: Run, limits: ServerLimits) -> None:
        self.batches = self.parsed = 0
        self._run, self._limits = run, limits
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
            begun = loop.time()
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
            await self._gather(len({id(request) for request, _ in taken}), loop.time() - begun)

    async def _gather(self, answered: int, spent: float) -> None:
        """Where several were answered at once, let them ask again: a short while, of what the batch took."""
        loop = asyncio.get_running_loop()
        end = loop.time() + min(_GATHERING, spent / 4)
        while answered > 1 and len(self._waiting) < answered and loop.time() < end:
            await asyncio.sleep(0.001)

    def _take(self) -> tuple[ParseOptions, list[tuple[_Waiting, int]]]:
        """Sentences of the first request, and of those that go with it."""
        first = self._waiting[0]
        taken: list[tuple[_Waiting, int]] = []
        longest, full = 0, False
        for request in [request for request in self._waiting if request.options == first.options]:
            while not full and request.begun < len(request.sentences):
                nodes = max(longest, 1 + len(request.sentences[request.begun]))
                full = bool(taken) and (len(taken) + 1) * nodes > self._limits.batch_words
                if not full:
                    taken.append((request, request.begun))
                    request.begun += 1
                    longest = nodes
            if request.begun == len(request.sentences):
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
