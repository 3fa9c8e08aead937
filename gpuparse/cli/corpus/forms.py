"""What is written of a sentence: CoNLL-U, several trees of it, or an object of JSON on a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gpuparse.cli.corpus.report import Failure
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import ConlluError, Sentence

Fill = Callable[[Sentence, Prediction], Sentence]
Unfilled = Callable[[Sentence, Failure | None], Sentence]


def writers(form: str, several: bool, confidence: bool) -> tuple[Fill | None, Unfilled | None]:
    """How to write a sentence with its parse, and one that was not parsed, for ``parse_corpus``; None: as always.

    Args:
        form: "conllu" or "jsonl".
        several: whether there are several trees of a sentence.
        confidence: whether CoNLL-U has the probabilities of arcs.
    """
    if form == "jsonl":
        return lambda sentence, found: _line(sentence, found.record(sentence)), _unparsed
    if not several:
        return None, None

    def each(sentence: Sentence, found: Prediction) -> Sentence:
        texts = [tree.text for tree in found.each_filled(sentence, confidence)]
        whole = "".join([*map(_ended, texts[:-1]), texts[-1]])
        return Sentence(whole, sentence.source, sentence.line)

    return each, None


def _ended(text: str) -> str:
    """A sentence that others follow: with a blank line behind it."""
    end = "\r\n" if "\r\n" in text else "\n"
    return text if text.endswith(2 * end) else text.rstrip("\r\n") + 2 * end


def _line(sentence: Sentence, record: dict[str, Any]) -> Sentence:
    return Sentence(json.dumps(record, ensure_ascii=False) + "\n", sentence.source, sentence.line)


def _unparsed(sentence: Sentence, failure: Failure | None) -> Sentence:
    """Its words, and why it was not parsed; a block of comments without words is nothing."""
    try:
        words = sentence.words
    except ConlluError:
        words = None
    if failure is None and not words:
        return Sentence("", sentence.source, sentence.line)
    record = {"sent_id": sentence.sent_id, "source": sentence.source, "line": sentence.line, "words": words}
    return _line(sentence, record | {"error": None if failure is None else failure.reason})
