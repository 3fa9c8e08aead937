"""Tag, then parse: a tagger and a parser as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from gpuparse.data.batches import WINDOW
from gpuparse.data.given import Words, as_sentences
from gpuparse.data.prediction import Prediction, Results
from gpuparse.data.sentence import Sentence
from gpuparse.models.parser import Parser
from gpuparse.models.tagger import Tagger
from gpuparse.system.defaults import BATCH_WORDS


class Pipeline:
    """A parser, and a tagger that fills the columns it reads, in place of what they hold; or a parser alone.

    Args:
        tagger: None: sentences are parsed with the tags that they have.
        parser: options of ``parse``, ``pipe`` and ``predict`` are those of its ``predict``.

    A tagger that gives none of the columns that the parser reads is a ValueError: it would change nothing.

    Example:
        >>> from gpuparse import Parser
        >>> from gpuparse.config import Config
        >>> from gpuparse.data.artificial import artificial_treebank
        >>> from gpuparse.data.vocab import Vocabulary
        >>> from gpuparse.models.pipeline import Pipeline
        >>> small = ["word", "char", "chars", "tag", "feats", "hidden", "arc", "label"]
        >>> config = Config.load(overrides=[f"scorer.{name}=4" for name in small])
        >>> pipeline = Pipeline(None, Parser.new(config, Vocabulary.build(list(artificial_treebank(5)))))
        >>> pipeline.missing
        ('upos', 'feats')
        >>> sum(1 for _ in pipeline.pipe(artificial_treebank(3), window=2))
        3
    """

    def __init__(self, tagger: Tagger | None, parser: Parser) -> None:
        self.tagger, self.parser = tagger, parser
        if tagger is not None and len(self.missing) == len(parser.columns):  # it would change nothing
            reads, gives = (listed(names) for names in (parser.columns, tagger.vocabulary.tag_set.columns))
            raise ValueError(f"the tagger gives {gives}, and the parser reads {reads}; train one of what it reads")

    @classmethod
    def load(cls, tagger: Path | str | None, parser: Path | str, device: torch.device | str = "cpu") -> Pipeline:
        """Load both from their directories."""
        both = None if tagger is None else Tagger.load(tagger, device), Parser.load(parser, device)
        try:
            return cls(*both)
        except ValueError as error:
            raise ValueError(f"{tagger}, {parser}: {error}") from None

    @property
    def missing(self) -> tuple[str, ...]:
        """Columns that the parser reads and the tagger does not fill: they are taken as they are."""
        given = () if self.tagger is None else self.tagger.vocabulary.tag_set.columns
        return tuple(name for name in self.parser.columns if name not in given)

    def parse(self, sentences: Iterable[Words | Sentence], **options: Any) -> list[Sentence]:
        """Tag and parse sentences, as ``Parser.parse``."""
        given = as_sentences(sentences)
        if self.tagger is not None:
            given = self.tagger.tag(given, batch_words=options.get("batch_words", BATCH_WORDS))
        return self.parser.parse(given, **options)

    def pipe(
        self, sentences: Iterable[Words | Sentence], *, window: int = WINDOW, **options: Any
    ) -> Iterator[Sentence]:
        """Tag and parse a stream of sentences of any length, in order; ``window`` of them are held at a time."""
        if window < 1:
            raise ValueError(f"window: {window} is not positive")
        stream = iter(sentences)
        while some := list(islice(stream, window)):
            yield from self.parse(some, **options)

    def predict(
        self, sentences: Sequence[Sentence], *, batch_words: int | None = BATCH_WORDS, **options: Any
    ) -> Results[Prediction]:
        """What ``Parser.predict`` says of sentences that are tagged first; ``Prediction.tagged`` has their tags."""
        if self.tagger is None:
            return self.parser.predict(sentences, batch_words=batch_words, **options)
        tags = self.tagger.predict(sentences, batch_words=batch_words)
        fill = self.tagger.vocabulary.tag_set.fill
        tagged = [fill(*pair) for pair in zip(sentences, tags, strict=True)]
        found = self.parser.predict(tagged, batch_words=batch_words, **options)
        for index, sentence in enumerate(tagged):
            found[index] = replace(found[index], tagged=sentence)
        for what, spent in tags.seconds.items():
            found.seconds[what] += spent
        return found


def listed(columns: Iterable[str]) -> str:
    """Columns for a message."""
    return " and ".join(map(str.upper, columns)) or "words alone"
