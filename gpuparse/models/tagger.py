"""The tagger: a vocabulary and a scorer, loaded from and saved to a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpuparse.data.given import Words, as_sentences
from gpuparse.data.prediction import Results
from gpuparse.data.sentence import Sentence
from gpuparse.data.tagging import TagVocabulary, collate_tags
from gpuparse.decoding.viterbi import Transitions, viterbi
from gpuparse.models.directory import Model, timed
from gpuparse.nn.build import build_tag_scorer
from gpuparse.nn.tagging import TagScorer
from gpuparse.system.defaults import BATCH_WORDS, BEAM, TagMethod
from gpuparse.system.transfer import begin_to_host


class ScoredTags(NamedTuple):
    """The scores of some sentences' tags."""

    unary: Float[Tensor, "B n T"]
    lengths: Int64[Tensor, " B"]
    indices: list[int]  # which of the sentences that were given


class Tagger(Model[TagVocabulary, TagScorer]):
    """A vocabulary and a scorer: tags sentences by best chains.

    ``Tagger.load(directory)`` is one that was trained, ``gpuparse.train.train_tagger`` trains one, ``save(directory)``
    keeps it; ``tag`` gives sentences with new tags, ``predict`` the tags alone, ``score`` the scores of all tags.

    Example:
        >>> import gpuparse as gp
        >>> from gpuparse.config import Config
        >>> from gpuparse.data.artificial import artificial_treebank
        >>> from gpuparse.data.tagging import TagVocabulary
        >>> config = Config.load(overrides=["task=tag", "scorer.kind=templates", "training.objective=perceptron"])
        >>> vocabulary = TagVocabulary.build(list(artificial_treebank(5)), "upos", features=1000)
        >>> tagger = gp.Tagger.new(config, vocabulary)  # which has not learned yet
        >>> (sentence,) = tagger.tag([["We", "saw", "it"]])
        >>> len(sentence.upos)
        3
    """

    task = "tag"
    read_vocabulary = TagVocabulary.from_json
    build = staticmethod(build_tag_scorer)

    @property
    def tags(self) -> list[str]:
        """What a tag's number stands for; the values of several columns have a tab between them."""
        return self.vocabulary.tags.names

    @property
    def labels(self) -> list[str]:
        """The same; of a card, columns are parted by ``+``."""
        return [tag.replace("\t", "+") for tag in self.tags]

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
        method: TagMethod = "auto",
        beam: int = BEAM,
        batch_words: int | None = BATCH_WORDS,
    ) -> Results[list[str]]:
        """The tags of sentences, in their order.

        Args:
            method: how to find the best tags (see ``gpuparse.viterbi``).
            beam: tags of a word that a beam keeps.
            batch_words: the size of a batch, as of ``Parser.predict``.

        A malformed sentence is a ``ConlluError`` that names its file and line, and so is one that does not fit into
        memory. A batch that does not fit is halved.
        """
        given = as_sentences(sentences)
        names = self.tags
        done: Results[list[str]] = Results([] for _ in given)
        done.seconds = dict.fromkeys(("batch", "encode", "decode"), 0.0)
        transitions = Transitions(self.transitions)

        def run(some: Sequence[Sentence]) -> Callable[[], list[list[str]]]:
            unary, lengths, _ = self._score(some, list(range(len(some))), done.seconds)
            with timed(done.seconds, "decode"):
                get = begin_to_host(viterbi(unary, transitions, lengths, method=method, beam=beam).tags)

            def read() -> list[list[str]]:
                with timed(done.seconds, "decode"):
                    pairs = zip(get()[0].tolist(), some, strict=True)
                    return [[names[tag] for tag in row[: len(sentence)]] for row, sentence in pairs]

            return read

        for index, found in self.each(given, batch_words, self._need, run):
            done[index] = found
        return done

    def score(self, sentences: Iterable[Words | Sentence], *, batch_words: int = BATCH_WORDS) -> Iterator[ScoredTags]:
        """Batches of sentences of about one length with the scores of their tags. Sentences without words have none."""
        given = as_sentences(sentences)
        self.scorer.eval()
        for indices in self.batches(given, batch_words):
            yield self._score([given[index] for index in indices], indices, {})

    def _need(self, sentences: Sequence[Sentence]) -> int:
        """About how many bytes sentences take, besides the weights: scores of tags, and the vectors of words."""
        scorer = self.config.scorer
        words = scorer.word + scorer.chars + 8 * scorer.hidden if scorer.kind != "templates" else 0
        return len(sentences) * (1 + max(map(len, sentences))) * (48 * len(self.tags) + 16 * words)

    @torch.inference_mode()
    def _score(self, sentences: Sequence[Sentence], indices: list[int], seconds: dict[str, float]) -> ScoredTags:
        with timed(seconds, "batch"):
            examples = [self.vocabulary.encode(sentence) for sentence in sentences]
            batch = collate_tags(examples, self.vocabulary.chars).to(self.device)
        with timed(seconds, "encode"):
            unary = self.scorer(batch)
        return ScoredTags(unary, batch.lengths, indices)
