"""The tagger: a vocabulary and a scorer, loaded from and saved to a directory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpuparse.chain.viterbi import BEAM, Method, Transitions, viterbi
from gpuparse.config import Config
from gpuparse.data.batches import batches_by_length
from gpuparse.data.given import Words, as_sentences, unfit
from gpuparse.data.sentence import Sentence
from gpuparse.data.tagging import TagVocabulary, collate_tags
from gpuparse.devices import as_device
from gpuparse.nn.build import build_tag_scorer
from gpuparse.nn.saved import load_scorer, no_vocabulary, read_model, write_model
from gpuparse.nn.tagging import TagScorer
from gpuparse.room import NoRoom, in_parts

BATCH_WORDS = 4000


class ScoredTags(NamedTuple):
    """The scores of some sentences' tags."""

    unary: Float[Tensor, "B n T"]
    lengths: Int64[Tensor, " B"]
    indices: list[int]  # which of the sentences that were given


class Tagger:
    """Tags sentences. ``Tagger.load(path)`` for one that was trained; ``gpuparse.train.train_tagger`` trains one.

    Its directory holds the same files as a parser's.
    """

    def __init__(self, config: Config, vocabulary: TagVocabulary, scorer: TagScorer) -> None:
        self.config = config
        self.vocabulary = vocabulary
        self.scorer = scorer
        self.results: dict[str, Any] = {}  # what is known of it, such as its accuracy on the dev data
        self.seconds = dict.fromkeys(("batch", "encode", "decode"), 0.0)  # spent in predict()

    @classmethod
    def new(cls, config: Config, vocabulary: TagVocabulary) -> Tagger:
        """An untrained tagger; its weights depend on ``training.seed``."""
        torch.manual_seed(config.training.seed)
        return cls(config, vocabulary, build_tag_scorer(config.scorer, vocabulary))

    @classmethod
    def load(cls, path: Path | str, device: torch.device | str = "cpu") -> Tagger:
        """Load a tagger from its directory, which may be anybody's, as ``Parser.load``."""
        path, device = Path(path), as_device(device)
        config, saved, results = read_model(path, "tag")
        try:
            vocabulary = TagVocabulary.from_json(saved)
        except ValueError as error:
            raise no_vocabulary(path, error) from None
        tagger = cls(config, vocabulary, load_scorer(lambda: build_tag_scorer(config.scorer, vocabulary, path), path))
        tagger.results = results
        tagger.scorer.to(device).eval()
        return tagger

    def save(self, path: Path | str) -> None:
        """Save the tagger to a directory, each file whole or not at all."""
        write_model(Path(path), self.config, self.vocabulary.to_json(), self.scorer, self.results)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.scorer.parameters()).device

    def to(self, device: torch.device | str) -> Tagger:
        """Move the weights."""
        self.scorer.to(as_device(device))
        return self

    @property
    def tags(self) -> list[str]:
        """What a tag's number stands for; the values of several columns have a tab between them."""
        return self.vocabulary.tags.names

    @property
    def transitions(self) -> Float[Tensor, "T T"]:
        """The score of each tag after each."""
        return self.scorer.pair_scores().detach()

    def tag(self, sentences: Iterable[Words | Sentence], **options: Any) -> list[Sentence]:
        """Tag sentences given as lists of words, of (word, tag) pairs, or as CoNLL-U sentences.

        The columns of the tag set (UPOS, XPOS, or UPOS and FEATS) are filled, all else stays as it is. Options are
        those of ``predict``.
        """
        given = as_sentences(sentences)
        fill = self.vocabulary.tag_set.fill
        return [fill(*pair) for pair in zip(given, self.predict(given, **options), strict=True)]

    def predict(
        self,
        sentences: Iterable[Words | Sentence],
        *,
        method: Method = "auto",
        beam: int = BEAM,
        batch_words: int = BATCH_WORDS,
    ) -> list[list[str]]:
        """The tags of sentences, in their order.

        Args:
            method: how to find the best tags (see ``gpuparse.viterbi``).
            beam: tags of a word that a beam keeps.
            batch_words: words of a batch, padding counted.

        A malformed sentence is a ``ConlluError`` that names its file and line, and so is one that does not fit into
        memory. A batch that does not fit is halved.
        """
        given = as_sentences(sentences)
        names = self.tags
        done: list[list[str]] = [[] for _ in given]
        transitions = Transitions(self.transitions)
        self.scorer.eval()

        def run(some: Sequence[Sentence]) -> list[list[str]]:
            unary, lengths, _ = self._score(some, list(range(len(some))))
            began = time.perf_counter()
            best = viterbi(unary, transitions, lengths, method=method, beam=beam).tags.tolist()
            found = [[names[tag] for tag in row[: len(sentence)]] for row, sentence in zip(best, some, strict=True)]
            self.seconds["decode"] += time.perf_counter() - began
            return found

        with torch.inference_mode():
            for indices in self._batches(given, batch_words):
                some = [given[index] for index in indices]
                parts = in_parts(some, self._need, run, self.device)
                for index, found in zip(indices, parts, strict=True):
                    if isinstance(found, NoRoom):
                        raise unfit(given[index], found)
                    done[index] = found
        return done

    def score(self, sentences: Iterable[Words | Sentence], *, batch_words: int = BATCH_WORDS) -> Iterator[ScoredTags]:
        """Batches of sentences of about one length with the scores of their tags. Sentences without words have none."""
        given = as_sentences(sentences)
        self.scorer.eval()
        for indices in self._batches(given, batch_words):
            yield self._score([given[index] for index in indices], indices)

    def _batches(self, sentences: Sequence[Sentence], batch_words: int) -> Iterator[list[int]]:
        """The indices of sentences with words, in batches."""
        wanted = [index for index, sentence in enumerate(sentences) if len(sentence)]
        for places in batches_by_length([len(sentences[index]) for index in wanted], batch_words):
            yield [wanted[place] for place in places]

    def _need(self, sentences: Sequence[Sentence]) -> int:
        """About how many bytes sentences take, besides the weights: scores of tags, and the vectors of words."""
        scorer = self.config.scorer
        words = scorer.word + scorer.chars + 8 * scorer.hidden if scorer.kind != "templates" else 0
        return len(sentences) * (1 + max(map(len, sentences))) * (48 * len(self.tags) + 16 * words)

    @torch.inference_mode()
    def _score(self, sentences: Sequence[Sentence], indices: list[int]) -> ScoredTags:
        began = time.perf_counter()
        examples = [self.vocabulary.encode(sentence) for sentence in sentences]
        batch = collate_tags(examples, self.vocabulary.chars).to(self.device)
        batched = time.perf_counter()
        unary = self.scorer(batch)
        self.seconds["batch"] += batched - began
        self.seconds["encode"] += time.perf_counter() - batched
        return ScoredTags(unary, batch.lengths, indices)
