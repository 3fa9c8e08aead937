"""The loop: read a window of sentences, parse them in batches of about one length, write them in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuparse.cli.corpus.inputs import Inputs, Item, sizes
from gpuparse.cli.corpus.output import State, begin, partial_of
from gpuparse.cli.corpus.report import CorpusReport, Failure
from gpuparse.data.batches import WINDOW, batches_by_length
from gpuparse.data.conllu import encode
from gpuparse.data.prediction import Results
from gpuparse.data.sentence import ConlluError, Sentence
from gpuparse.models.directory import timed
from gpuparse.system.defaults import BATCH_WORDS
from gpuparse.system.quote import shown

Predict = Callable[[list[Sentence]], list[Any]]
Fill = Callable[[Sentence, Any], Sentence]
Unfilled = Callable[[Sentence, Failure | None], Sentence]
_WINDOW_CHARACTERS = 4_000_000  # however long the sentences are
_HOPELESS = 100  # failures without a success that are no accident


def parse_corpus(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    predict: Predict,
    *,
    fill: Fill | None = None,
    unfilled: Unfilled | None = None,
    batch_words: int = BATCH_WORDS,
    window: int = WINDOW,
    confidence: bool = False,
    max_words: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    settings: Mapping[str, Any] | None = None,
    save_seconds: float = 2.0,
    on_failure: Callable[[Failure], None] | None = None,
    progress: Callable[[CorpusReport], None] | None = None,
) -> CorpusReport:
    """Parse CoNLL-U files of any size, in constant memory, to one file in the same order.

    HEAD and DEPREL are replaced (or what ``fill`` replaces), all else stays as it is to the byte, but for the comment
    ``# constraints = ...``, which is about a parse: it is of the new one, or goes with the old one. A sentence that is
    malformed, too long, or that ``predict`` fails on is written as it was read and reported. The output has its name
    once it is complete; a run that was killed goes on with ``resume`` and gives the same file as one that was not.

    Args:
        source: a path, ``-`` (stdin) or ``*.gz``, or several of them.
        target: a path, ``*.gz``, or ``-`` for stdout, where there is no resuming.
        predict: parses a batch of sentences, each of at least one word; gives a ``Prediction`` of each. What
            ``Results`` say of seconds and counts is added up in the report.
        fill: puts what ``predict`` gives into its sentence, where that is something else than a ``Prediction``, or the
            output has another form.
        unfilled: what is written of a sentence that was not parsed, given why (None: it has no words); by default it is
            written as it was.
        batch_words: the size of a batch: its sentences times the nodes (words and root) of the longest.
        window: sentences that are read, sorted by length and parsed before they are written.
        confidence: write the probability of each word's arc to MISC as ``Confidence``.
        max_words: leave longer sentences unparsed. A run may be resumed with another limit.
        resume: go on with an interrupted run, if there is one; a target that is complete is left alone.
        overwrite: forget an interrupted run; also allows the target to be one of the sources.
        settings: what else the output depends on (the model, the method), as JSON has it; a run is resumed with the
            same settings only.
        save_seconds: how often to save a place to resume from, at most.
        on_failure: called for every sentence that is written unparsed, in order.
        progress: called after every batch with the report so far.
    """
    paths = [os.fspath(source)] if isinstance(source, (str, os.PathLike)) else [os.fspath(path) for path in source]
    _check_arguments(paths, batch_words=batch_words, window=window, max_words=max_words)
    target = os.fspath(target)
    run = {"input sizes": sizes(paths), "batch_words": batch_words, "window": window, "confidence": confidence}
    run |= settings or {}
    if not overwrite:
        _check_apart(paths, target, resume)
    opened = begin(target, run, resume=resume, overwrite=overwrite, every=save_seconds)
    if opened is None:
        return CorpusReport(finished_before=True)
    output, state = opened
    report = CorpusReport(state.sentences, state.words, state.failed)
    report.earlier_sentences, report.earlier_words = state.sentences, state.words
    fill = fill or (lambda sentence, prediction: prediction.fill(sentence, confidence))
    parsing = _Parsing(predict, fill, unfilled, batch_words, max_words, report, progress)
    try:
        inputs = Inputs(paths, state.place)
        for items in _windows(iter(inputs), window, report):
            with timed(report.seconds, "read"):
                report.bytes = inputs.bytes
                place = inputs.advance(items)
            sentences, failures = parsing.window([item.sentence for item in items], inputs.bytes)
            with timed(report.seconds, "write"):
                output.write(encode(sentences))
                for failure in failures:
                    report.add(failure)
                    if on_failure is not None:
                        on_failure(failure)
                report.sentences += len(items)
                state = State(place, 0, report.sentences, report.words, report.failed)
                output.save(state)
        with timed(report.seconds, "write"):
            output.finish(state)
    except BaseException:
        output.close()
        raise
    return report


@dataclass
class _Parsing:
    """Parses windows."""

    predict: Predict
    fill: Fill
    unfilled: Unfilled | None
    batch_words: int
    max_words: int | None
    report: CorpusReport
    progress: Callable[[CorpusReport], None] | None

    def __post_init__(self) -> None:
        self.some_good = self.report.words > 0

    def window(self, sentences: list[Sentence], until: int) -> tuple[list[Sentence], list[Failure]]:
        """The sentences, which end at byte ``until``, parsed in order, and what failed, in order."""
        done = list(sentences)
        failures: dict[int, Failure] = {}
        lengths: dict[int, int] = {}
        with timed(self.report.seconds, "read"):
            for index, sentence in enumerate(sentences):
                try:
                    words = len(sentence)
                except ConlluError as error:
                    failures[index] = _failure(sentence, error)
                    continue
                if self.max_words is not None and words > self.max_words:
                    what = f"{words:,} words, more than the {self.max_words:,} allowed"
                    failures[index] = Failure(sentence.source, sentence.line, sentence.sent_id, what)
                elif words:
                    lengths[index] = words
                self.some_good |= words > 0
        if failures and not self.some_good:
            # Nothing so far is CoNLL-U: this is some other file, and to copy it would help nobody.
            first = failures[min(failures)]
            raise ConlluError(f"{first.source}:{first.line}: {first.reason}")
        good, bad, seen = 0, 0, 0
        start, total = self.report.bytes, sum(lengths.values())
        wanted = list(lengths)
        for places in batches_by_length([*lengths.values()], self.batch_words):
            batch = [wanted[place] for place in places]
            found = self._batch([sentences[index] for index in batch])
            for index, result in zip(batch, found, strict=True):
                if isinstance(result, Failure):
                    failures[index] = result
                    bad += 1
                else:
                    done[index] = result
                    good += 1
                    self.report.words += lengths[index]
                seen += lengths[index]
            self.report.bytes = start + (until - start) * seen // total
            if self.progress is not None:
                self.progress(self.report)
        self.report.bytes = until
        if bad >= _HOPELESS and not good:
            raise RuntimeError(f"all of {bad:,} sentences failed; the first: {failures[min(failures)]}")
        if self.unfilled is not None:
            for index, sentence in enumerate(sentences):
                if index in failures or index not in lengths:
                    done[index] = self.unfilled(sentence, failures.get(index))
        return done, [failures[index] for index in sorted(failures)]

    def _batch(self, sentences: list[Sentence]) -> list[Sentence | Failure]:
        try:
            return [*self._try(sentences)]
        except Exception as error:
            if len(sentences) == 1:
                return [_failure(sentences[0], error)]
        # One of them spoils the batch: find it by trying each alone.
        return [result for sentence in sentences for result in self._batch([sentence])]

    def _try(self, sentences: list[Sentence]) -> list[Sentence]:
        with timed(self.report.seconds, "predict"):
            predictions = self.predict(sentences)
        with timed(self.report.seconds, "write"):
            if len(predictions) != len(sentences):
                raise RuntimeError(f"{len(predictions)} predictions for {len(sentences)} sentences")
            filled = [self.fill(*pair) for pair in zip(sentences, predictions, strict=True)]
            if isinstance(predictions, Results):
                self.report.take(predictions)
            return filled


def _windows(items: Iterator[Item], count: int, report: CorpusReport) -> Iterator[list[Item]]:
    """Groups of items. Which item is in which group depends on the items alone, not on where reading began."""
    while True:
        window: list[Item] = []
        characters = 0
        with timed(report.seconds, "read"):
            for item in items:
                window.append(item)
                characters += len(item.raw)
                if len(window) == count or characters >= _WINDOW_CHARACTERS:
                    break
        if not window:
            return
        yield window


def _failure(sentence: Sentence, error: Exception) -> Failure:
    text = " ".join(str(error).split())
    line = sentence.line
    if isinstance(error, ConlluError) and text.startswith(f"{sentence.source}:"):
        number, _, text = text.removeprefix(f"{sentence.source}:").partition(": ")
        line = int(number)
    elif not isinstance(error, ValueError):
        text = f"{type(error).__name__}: {text}"
    return Failure(sentence.source, line, sentence.sent_id, shown(text, 300) or "no reason given")


def _check_arguments(paths: Sequence[str], *, batch_words: int, window: int, max_words: int | None) -> None:
    if not paths:
        raise ValueError("source: no input; give a file, or - for standard input")
    for name, value in (("batch_words", batch_words), ("window", window), ("max_words", max_words)):
        if value is not None and value < 1:
            raise ValueError(f"{name}: {value} is not positive")
    if paths.count("-") > 1:
        raise ValueError("source: - (standard input) more than once")


def _check_apart(paths: Sequence[str], target: str, resume: bool) -> None:
    """A slip of the hand must not replace an input; a run that was meant to is resumed."""
    if target == "-" or not os.path.isfile(target) or (resume and os.path.exists(partial_of(os.path.realpath(target)))):
        return
    for path in paths:
        if path != "-" and os.path.samefile(path, target):
            raise ValueError(f"{target}: an input and the output; name another output, or pass --overwrite")
