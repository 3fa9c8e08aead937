"""What a server allows, and how it says no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gpuparse.data.sentence import Sentence
from gpuparse.system.defaults import BATCH_WORDS, SERVE_BYTES, SERVE_SECONDS, SERVE_SENTENCES, SERVE_WORDS

MOST_TREES = 64  # alternatives of a sentence
MOST_WAITING = 256  # requests
_LONGEST = 1000  # characters of a word


@dataclass(frozen=True)
class ServerLimits:
    """What a request may have and take.

    Attributes:
        max_words: of a sentence.
        max_sentences: of a request.
        max_bytes: of a request.
        time_limit: seconds for a request, those that it waits included.
        batch_words: nodes (words and root) of a batch, padding counted.
        max_waiting: requests that wait at a time; further ones are refused.
    """

    max_words: int = SERVE_WORDS
    max_sentences: int = SERVE_SENTENCES
    max_bytes: int = SERVE_BYTES
    time_limit: float = SERVE_SECONDS
    batch_words: int = BATCH_WORDS
    max_waiting: int = MOST_WAITING

    def check(self, sentences: list[Sentence], names: list[str]) -> None:
        """Refuse what is too much; ``names`` is what messages call the sentences."""
        if len(sentences) > self.max_sentences:
            raise Refused(413, f"{len(sentences):,} sentences; at most {self.max_sentences:,} a request")
        for sentence, name in zip(sentences, names, strict=True):
            if len(sentence) > self.max_words:
                raise Refused(413, f"{name} has {len(sentence):,} words; at most {self.max_words:,} a sentence")
            for word, text in enumerate(sentence.words, 1):
                if len(text) > _LONGEST:
                    raise Refused(413, f"{name}: word {word} has {len(text):,} characters; at most {_LONGEST:,}")

    def as_json(self) -> dict[str, Any]:
        """Those that clients can keep to."""
        return {name: value for name, value in asdict(self).items() if name.startswith(("max_", "time_"))}


@dataclass(frozen=True)
class ParseOptions:
    """How sentences are to be parsed; those with the same options may share a batch.

    Attributes:
        nbest: so many of the best trees.
        probabilities: of arcs, labels and the tree.
        marginals: the probability of every possible arc.
        constraints: names of files that come with the package.
        projective: want projective trees; None as in training.
        tag: let the tagger fill the tags first.
    """

    nbest: int = 0
    probabilities: bool = False
    marginals: bool = False
    constraints: tuple[str, ...] = ()
    projective: bool | None = None
    tag: bool = False


@dataclass
class Refused(Exception):
    """A request that is not answered: the status, and why, in a line."""

    status: int
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.detail
