"""The parser: a vocabulary, a scorer and the way to decode, loaded from and saved to a directory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from gpuparse.config import Config
from gpuparse.data.batches import Batch, batches_by_length, collate
from gpuparse.data.given import Words, as_sentences
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import Sentence
from gpuparse.data.vocab import Vocabulary
from gpuparse.decode import decode
from gpuparse.devices import as_device
from gpuparse.distributions import NonProjectiveTrees, ProjectiveTrees
from gpuparse.lp import Constraint, Projective, best_constrained
from gpuparse.lp import Words as Seen
from gpuparse.nn.build import build_scorer
from gpuparse.nn.saved import load_weights, no_vocabulary, read_model, write_model
from gpuparse.nn.scorer import Scored
from gpuparse.scores import Scores

BATCH_WORDS = 4000
TIME_LIMIT = 10.0  # seconds for a sentence under constraints


class Parser:
    """Parses sentences. ``Parser.load(path)`` for one that was trained; ``gpuparse.train.train`` trains one.

    A model's directory holds ``model.json`` (versions and results), ``config.toml``, ``vocabulary.json`` and
    ``model.safetensors``.
    """

    def __init__(self, config: Config, vocabulary: Vocabulary, scorer: nn.Module) -> None:
        self.config = config
        self.vocabulary = vocabulary
        self.scorer = scorer
        self.results: dict[str, Any] = {}  # what is known of it, such as its scores on the dev data
        self.seconds = dict.fromkeys(("batch", "encode", "decode", "labels"), 0.0)  # spent in predict()
        # Sentences that predict() parsed anew under constraints, without any solution, without a proof.
        self.constrained = dict.fromkeys(("solved", "infeasible", "not proven"), 0)

    @classmethod
    def new(cls, config: Config, vocabulary: Vocabulary) -> Parser:
        """An untrained parser; its weights depend on ``training.seed``."""
        torch.manual_seed(config.training.seed)
        return cls(config, vocabulary, build_scorer(config.scorer, vocabulary))

    @classmethod
    def load(cls, path: Path | str, device: torch.device | str = "cpu") -> Parser:
        """Load a parser from its directory."""
        path, device = Path(path), as_device(device)
        config, saved, results = read_model(path, "parse")
        try:
            vocabulary = Vocabulary.from_json(saved)
        except (KeyError, TypeError, ValueError) as error:
            raise no_vocabulary(path, error) from None
        parser = cls(config, vocabulary, build_scorer(config.scorer, vocabulary, path))
        parser.results = results
        parser.load_weights(path / "model.safetensors")
        parser.scorer.to(device).eval()
        return parser

    def load_weights(self, path: Path) -> None:
        """Take the weights from a file, all of them."""
        load_weights(self.scorer, path)

    def save(self, path: Path | str) -> None:
        """Save the parser to a directory, each file whole or not at all."""
        write_model(Path(path), self.config, self.vocabulary.to_json(), self.scorer, self.results)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads of a sentence, besides the words."""
        scorer = self.config.scorer
        if scorer.kind == "templates":
            return ("upos",)
        return tuple(name for name, size in (("upos", scorer.tag), ("feats", scorer.feats)) if size)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.scorer.parameters()).device

    def to(self, device: torch.device | str) -> Parser:
        """Move the weights."""
        self.scorer.to(as_device(device))
        return self

    def parse(self, sentences: Iterable[Words | Sentence], **options: Any) -> list[Sentence]:
        """Parse sentences given as lists of words, of (word, tag) pairs, or as CoNLL-U sentences.

        Options are those of ``predict``. With ``confidence=True`` the probability of each word's arc stands in MISC.
        """
        given = as_sentences(sentences)
        return [
            sentence.with_parse(
                prediction.heads,
                prediction.deprels,
                None if prediction.confidence is None else {"Confidence": [f"{p:.4f}" for p in prediction.confidence]},
            )
            for sentence, prediction in zip(given, self.predict(given, **options), strict=True)
        ]

    def predict(
        self,
        sentences: Sequence[Sentence],
        *,
        method: str = "auto",
        projective: bool | None = None,
        single_root: bool | None = None,
        confidence: bool = False,
        constraints: Sequence[Constraint] = (),
        time_limit: float = TIME_LIMIT,
        batch_words: int = BATCH_WORDS,
    ) -> list[Prediction]:
        """Heads and labels of sentences, in their order.

        Args:
            method: how to decode (see ``gpuparse.decode``).
            projective: want projective trees; by default as in training.
            single_root: want one word under the root; by default as in training.
            confidence: also give the probability of each word's arc, under the exact distribution over trees.
            constraints: on heads and labels (see ``gpuparse.lp``). A sentence whose tree violates them is parsed anew
                under them, by integer programs; it keeps its tree where nothing satisfies them, or nothing was found in
                time (``constrained`` counts these).
            time_limit: seconds for one sentence under constraints.
            batch_words: nodes of a batch, padding counted.

        A malformed sentence is a ``ConlluError`` that names its file and line.
        """
        training = self.config.training
        projective = training.projective if projective is None else projective
        single_root = training.single_root if single_root is None else single_root
        self.scorer.eval()
        done = [Prediction([], [], [] if confidence else None) for _ in sentences]
        with torch.inference_mode():
            for indices, batch in self._batches(sentences, batch_words):
                limits = _Limits([sentences[index] for index in indices], constraints, time_limit)
                predictions = self._predict(batch, method, projective, single_root, confidence, limits)
                for index, prediction in zip(indices, predictions, strict=True):
                    done[index] = prediction
        return done

    def _batches(self, sentences: Sequence[Sentence], budget: int) -> Iterator[tuple[list[int], Batch]]:
        wanted = [index for index, sentence in enumerate(sentences) if len(sentence)]
        for places in batches_by_length([len(sentences[index]) for index in wanted], budget):
            with self._timed("batch"):
                indices = [wanted[place] for place in places]
                examples = [self.vocabulary.encode(sentences[index]) for index in indices]
                batch = collate(examples, self.vocabulary.chars).to(self.device)
            yield indices, batch

    def _predict(
        self, batch: Batch, method: str, projective: bool, single_root: bool, confidence: bool, limits: _Limits
    ) -> list[Prediction]:
        with self._timed("encode"):
            scored = self.scorer(batch)
        projective = projective or method == "eisner"
        with self._timed("decode"):
            heads = decode(scored.scores, method, projective=projective, single_root=single_root).heads
        with self._timed("encode"):
            label_scores = scored.label_scores(heads)
        with self._timed("labels"):
            found = self._labels(label_scores, heads)
        with self._timed("decode"):
            if limits.constraints:
                heads, found = self._constrain(scored, heads, found, limits, projective, single_root)
            sure = _confidence(scored.scores, heads, projective, single_root) if confidence else None
        with self._timed("labels"):
            labels = found.tolist()
            names = self.vocabulary.labels.names
            predictions = []
            for row, (length, head) in enumerate(zip(batch.lengths.tolist(), heads.tolist(), strict=True)):
                words = slice(1, length + 1)
                deprels = [names[label] for label in labels[row][words]]
                predictions.append(Prediction(head[words], deprels, None if sure is None else sure[row][words]))
        return predictions

    def _labels(self, scores: Float[Tensor, "B N L"], heads: Int64[Tensor, "B N"]) -> Int64[Tensor, "B N"]:
        """The best label of each word."""
        return self._allowed(scores, heads).argmax(-1)

    def _allowed(self, scores: Float[Tensor, "*arcs L"], heads: Int64[Tensor, "*arcs"]) -> Float[Tensor, "*arcs L"]:
        """Without labels that training saw only on arcs from the root, or never, elsewhere."""
        of_root, of_others = torch.tensor(self.vocabulary.root_labels, device=scores.device).T
        allowed = torch.where((heads == 0)[..., None], of_root, of_others)
        allowed = allowed | ~allowed.any(-1, keepdim=True)
        return scores.masked_fill(~allowed, -torch.inf)

    def _constrain(
        self,
        scored: Scored,
        heads: Int64[Tensor, "B N"],
        labels: Int64[Tensor, "B N"],
        limits: _Limits,
        projective: bool,
        single_root: bool,
    ) -> tuple[Int64[Tensor, "B N"], Int64[Tensor, "B N"]]:
        """Heads and labels under constraints. An arc's best label costs nothing: without them nothing would change."""
        asked = [*limits.constraints, *([Projective()] if projective else [])]
        lengths, names = scored.scores.lengths.tolist(), self.vocabulary.labels.names
        words = [Seen.of(s.words, s.upos, names) for s in limits.sentences]
        wrong = [
            b
            for b, n in enumerate(lengths)
            if any(
                True
                for constraint in asked
                for _ in constraint.violated(words[b], heads[b, : n + 1].tolist(), labels[b, : n + 1].tolist())
            )
        ]
        if not wrong:
            return heads, labels
        heads, labels = heads.clone(), labels.clone()
        # The labels of every arc, of these sentences alone.
        examples = [self.vocabulary.encode(limits.sentences[b]) for b in wrong]
        few = collate(examples, self.vocabulary.chars).to(self.device)
        for b, table in zip(wrong, self.scorer(few).all_labels(), strict=True):
            n = lengths[b]
            shown = self._allowed(table[: n + 1, : n + 1], torch.arange(n + 1, device=table.device)[:, None]).double()
            joint = scored.scores.arcs[b, : n + 1, : n + 1, None].double() + shown - shown.amax(-1, keepdim=True)
            answer = best_constrained(
                joint.cpu().numpy(), words[b], asked, single_root=single_root, seconds=limits.seconds
            )
            self.constrained["solved"] += 1
            self.constrained["infeasible"] += answer.heads is None and answer.certified
            self.constrained["not proven"] += not answer.certified
            if answer.heads is not None and answer.labels is not None:
                heads[b, : n + 1] = torch.tensor(answer.heads)
                labels[b, : n + 1] = torch.tensor(answer.labels)
        return heads, labels

    def _timed(self, what: str) -> _Timed:
        return _Timed(self.seconds, what)


class _Limits(NamedTuple):
    """Constraints on the sentences of a batch."""

    sentences: list[Sentence]
    constraints: Sequence[Constraint]
    seconds: float


class _Timed:
    """Adds the time within it to an entry. On a GPU that is the time to launch the work, not to do it."""

    def __init__(self, seconds: dict[str, float], what: str) -> None:
        self.seconds, self.what = seconds, what

    def __enter__(self) -> None:
        self.begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.what] += time.perf_counter() - self.begin


def _confidence(scores: Scores, heads: Int64[Tensor, "B N"], projective: bool, single_root: bool) -> list[list[float]]:
    """The marginal probability of each word's arc."""
    trees = (ProjectiveTrees if projective else NonProjectiveTrees)(
        scores.arcs, scores.lengths, single_root=single_root, validate_args=False
    )
    chosen = trees.marginals.gather(1, heads.clamp(min=0)[:, None])[:, 0]
    return [row[: length + 1] for row, length in zip(chosen.tolist(), scores.lengths.tolist(), strict=True)]
