"""The queue before the parser: what arrives together is one batch, and nobody waits for others' faults."""

from __future__ import annotations

import asyncio
import threading
from itertools import chain

import pytest

from gpuparse.data.partial import Partial
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import ConlluError, Sentence
from gpuparse.serve.batcher import Batcher
from gpuparse.serve.engine import Engine
from gpuparse.serve.settings import ParseOptions, Refused, ServerLimits
from tests.serve.serving import WORDS, tiny_pipeline

PLAIN = ParseOptions()


def sentence(words: int, name: str = "a") -> Sentence:
    return Sentence.from_words([name] * words)


class Parsing:
    """Notes what it is given; holds until it may go on."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.options: list[ParseOptions] = []
        self.may = threading.Event()
        self.may.set()

    def __call__(self, options, sentences, known):
        self.batches.append([one.words[0] for one in sentences])
        self.options.append(options)
        assert self.may.wait(20)
        return [
            ConlluError(f"{one.words[0]} is wrong") if "wrong" in one.words[0] else Prediction([len(one)], ["x"])
            for one in sentences
        ]


def batcher(run, **limits) -> Batcher:
    return Batcher(run, ServerLimits(**{"batch_words": 100, "time_limit": 20.0, **limits}))


async def ask(queue: Batcher, *sentences: Sentence, options: ParseOptions = PLAIN):
    return await queue.parse(options, list(sentences), [Partial.nothing(len(one)) for one in sentences])


async def until(condition) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came")


async def held(run: Parsing, queue: Batcher) -> asyncio.Task:
    """The parser is busy with a first request."""
    run.may.clear()
    first = asyncio.create_task(ask(queue, sentence(1, "first")))
    await until(lambda: run.batches)
    return first


def test_what_arrives_meanwhile_is_one_batch():
    run = Parsing()

    async def main():
        queue = batcher(run)
        first = await held(run, queue)
        some = [asyncio.create_task(ask(queue, sentence(4, f"s{i}"))) for i in range(8)]
        other = asyncio.create_task(ask(queue, sentence(2, "other"), options=ParseOptions(nbest=3)))
        await until(lambda: queue.waiting == 9)
        run.may.set()
        answers = await asyncio.gather(first, *some, other)
        assert [answer[0].heads for answer in answers] == [[1], *[[4]] * 8, [2]]
        await queue.close()
        assert queue.batches == 3 and queue.parsed == 10

    asyncio.run(main())
    assert run.batches == [["first"], [f"s{i}" for i in range(8)], ["other"]]
    assert run.options[2].nbest == 3


def test_a_long_request_goes_in_pieces_and_others_have_their_turn():
    run = Parsing()

    async def main():
        queue = batcher(run)
        first = await held(run, queue)
        long = asyncio.create_task(ask(queue, *(sentence(9, f"l{i}") for i in range(25))))
        short = asyncio.create_task(ask(queue, sentence(9, "short")))
        await until(lambda: queue.waiting == 2)
        run.may.set()
        await asyncio.gather(first, short)
        assert [one.heads for one in await long] == [[9]] * 25
        await queue.close()

    asyncio.run(main())
    assert [len(batch) for batch in run.batches] == [1, 10, 10, 6]  # of ten nodes each, a hundred a batch
    assert "short" in run.batches[2] and [*chain(*run.batches)].count("short") == 1


def test_a_fault_is_the_request_s_own():
    run = Parsing()

    async def main():
        queue = batcher(run)
        first = await held(run, queue)
        bad = asyncio.create_task(ask(queue, sentence(1, "fine"), sentence(1, "wrong")))
        good = asyncio.create_task(ask(queue, sentence(3, "good")))
        await until(lambda: queue.waiting == 2)
        run.may.set()
        await first
        with pytest.raises(ConlluError, match="wrong is wrong"):
            await bad
        assert (await good)[0].heads == [3]
        await queue.close()

    asyncio.run(main())


def test_a_parser_that_breaks_answers_everybody():
    def run(*_):
        raise MemoryError("no room")

    async def main():
        queue = batcher(run)
        for _ in range(2):  # and goes on
            with pytest.raises(MemoryError):
                await ask(queue, sentence(1))
        await queue.close()

    asyncio.run(main())


def test_too_many_and_too_long():
    run = Parsing()

    async def main():
        queue = batcher(run, max_waiting=2, time_limit=0.3)
        first = await held(run, queue)
        some = [asyncio.create_task(ask(queue, sentence(1, "late"))) for _ in range(2)]
        await until(lambda: queue.waiting == 2)
        with pytest.raises(Refused, match="too many") as caught:
            await ask(queue, sentence(1))
        assert caught.value.status == 503 and caught.value.headers["Retry-After"]
        for task in (first, *some):
            with pytest.raises(Refused, match=r"not done within 0.3 seconds") as caught:
                await task
            assert caught.value.status == 503
        assert queue.waiting == 0
        run.may.set()
        assert (await ask(queue, sentence(2)))[0].heads == [2]
        await queue.close()

    asyncio.run(main())
    assert ["late"] not in run.batches  # what nobody waits for is not parsed


def test_closing_finishes_what_came():
    run = Parsing()

    async def main():
        queue = batcher(run)
        first = await held(run, queue)
        second = asyncio.create_task(ask(queue, sentence(2)))
        await until(lambda: queue.waiting == 1)
        closing = asyncio.create_task(queue.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        run.may.set()
        await closing
        assert (await first)[0].heads == [1] and (await second)[0].heads == [2]

    asyncio.run(main())


def test_scores_of_a_sentence_are_remembered():
    pipeline = tiny_pipeline()
    one = Sentence.from_words(WORDS)
    (before,) = pipeline.parser.predict([one], probabilities=True)
    engine = Engine(pipeline, ServerLimits())
    remembered = pipeline.parser.scorer
    options, known = ParseOptions(probabilities=True), Partial.nothing(5)
    for hits in (0, 1, 2):
        (found,) = engine.run(options, [one], [known])
        assert (found, remembered.hits) == (before, hits)
    (forced,) = engine.run(options, [one], [known.require(0, 4)])
    assert forced.heads[3] == 0 and remembered.hits == 3
    (free,) = engine.run(options, [one], [known])
    assert free == before
    engine.run(options, [Sentence.from_words(WORDS, ["NOUN"] * 5)], [known])
    assert remembered.hits == 4  # other tags, other scores
    for number in range(40):
        engine.run(options, [Sentence.from_words([f"w{number}"])], [Partial.nothing(1)])
    assert len(remembered._kept) <= 16


def test_one_bad_sentence_of_a_batch():
    engine = Engine(tiny_pipeline(), ServerLimits())
    good, known = Sentence.from_words(WORDS), Partial.nothing(5)
    bad = known.require(1, 2).require(2, 1)
    first, second, third = engine.run(ParseOptions(), [good, good, good], [known, bad, known])
    assert first == third and isinstance(second, ConlluError)
