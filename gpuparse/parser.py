"""The parser: a vocabulary, a scorer and the way to decode, loaded from and saved to a directory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn

from gpuparse import __version__
from gpuparse.config import Config
from gpuparse.data.batches import Batch, batches_by_length, collate
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import Sentence
from gpuparse.data.vocab import Vocabulary
from gpuparse.decode import decode
from gpuparse.devices import as_device
from gpuparse.distributions import NonProjectiveTrees, ProjectiveTrees
from gpuparse.files import json_bytes, read_json, write_together
from gpuparse.nn.build import build_scorer, save_files
from gpuparse.scores import Scores

FORMAT = 1  # of the model's directory
BATCH_WORDS = 4000

Words = Sequence[str] | Sequence[tuple[str, str]]


class Parser:
    """Parses sentences. ``Parser.load(path)`` for one that was trained; ``gpuparse.train.train`` trains one.

    A model's directory holds ``model.json`` (versions and results), ``config.toml``, ``vocabulary.json`` and
    ``model.safetensors``.
    """

    FILES: ClassVar = ("model.json", "config.toml", "vocabulary.json", "model.safetensors")

    def __init__(self, config: Config, vocabulary: Vocabulary, scorer: nn.Module) -> None:
        self.config = config
        self.vocabulary = vocabulary
        self.scorer = scorer
        self.results: dict[str, Any] = {}  # what is known of it, such as its scores on the dev data
        self.seconds = dict.fromkeys(("batch", "encode", "decode", "labels"), 0.0)  # spent in predict()

    @classmethod
    def new(cls, config: Config, vocabulary: Vocabulary) -> Parser:
        """An untrained parser; its weights depend on ``training.seed``."""
        torch.manual_seed(config.training.seed)
        return cls(config, vocabulary, build_scorer(config.scorer, vocabulary))

    @classmethod
    def load(cls, path: Path | str, device: torch.device | str = "cpu") -> Parser:
        """Load a parser from its directory."""
        path = Path(path)
        device = as_device(device)
        if not (path / "model.json").is_file():
            raise ValueError(f"{path}: no model here (there is no model.json); gpuparse train makes one")
        about = read_json(path / "model.json")
        found = about.get("format") if isinstance(about, dict) else None
        if found != FORMAT:
            raise ValueError(
                f"{path}: a model of format {found}, written by gpuparse {_writer(about)}; "
                f"gpuparse {__version__} reads format {FORMAT}: train it anew"
            )
        for name in cls.FILES:
            if not (path / name).is_file():
                raise ValueError(f"{path}: {name} is missing; the model is not whole")
        config = Config.load(path / "config.toml")
        saved = read_json(path / "vocabulary.json")
        try:
            vocabulary = Vocabulary.from_json(saved)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path / 'vocabulary.json'}: not a vocabulary of this version: {error!r}") from None
        parser = cls(config, vocabulary, build_scorer(config.scorer, vocabulary, path))
        parser.results = about.get("results", {})
        parser.load_weights(path / "model.safetensors")
        parser.scorer.to(device).eval()
        return parser

    def load_weights(self, path: Path) -> None:
        """Take the weights from a file, all of them."""
        try:
            self.scorer.load_state_dict(load_file(path))
        except (SafetensorError, RuntimeError) as error:
            raise ValueError(f"{path}: not the weights of this model: {' '.join(str(error).split())}") from None

    def save(self, path: Path | str) -> None:
        """Save the parser to a directory, each file whole or not at all."""
        path = Path(path)
        about = {"format": FORMAT, "gpuparse": __version__, "results": self.results}
        contents = {
            path / "config.toml": self.config.to_toml().encode(),
            path / "vocabulary.json": json_bytes(self.vocabulary.to_json()),
            path / "model.safetensors": to_safetensors(_contiguous(self.scorer.state_dict())),
            path / "model.json": json_bytes(about),
        }
        # Over another model: without model.json there is none, until all of this one is there.
        same = all(_holds(path / name, contents[path / name]) for name in ("config.toml", "vocabulary.json"))
        save_files(self.scorer, path)
        write_together(contents, first_remove=None if same else path / "model.json")

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
        if isinstance(sentences, Sentence):
            raise ValueError("sentences: one sentence; wanted a list of them")
        given = [
            sentence if isinstance(sentence, Sentence) else _sentence(sentence, i)
            for i, sentence in enumerate(sentences)
        ]
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
        batch_words: int = BATCH_WORDS,
    ) -> list[Prediction]:
        """Heads and labels of sentences, in their order.

        Args:
            method: how to decode (see ``gpuparse.decode``).
            projective: want projective trees; by default as in training.
            single_root: want one word under the root; by default as in training.
            confidence: also give the probability of each word's arc, under the exact distribution over trees.
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
                for index, prediction in zip(
                    indices, self._predict(batch, method, projective, single_root, confidence), strict=True
                ):
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
        self, batch: Batch, method: str, projective: bool, single_root: bool, confidence: bool
    ) -> list[Prediction]:
        with self._timed("encode"):
            scored = self.scorer(batch)
        with self._timed("decode"):
            heads = decode(scored.scores, method, projective=projective, single_root=single_root).heads
            sure = (
                _confidence(scored.scores, heads, projective or method == "eisner", single_root) if confidence else None
            )
        with self._timed("encode"):
            label_scores = scored.label_scores(heads)
        with self._timed("labels"):
            labels = self._labels(label_scores, heads).tolist()
            names = self.vocabulary.labels.names
            predictions = []
            for row, (length, head) in enumerate(zip(batch.lengths.tolist(), heads.tolist(), strict=True)):
                words = slice(1, length + 1)
                deprels = [names[label] for label in labels[row][words]]
                predictions.append(Prediction(head[words], deprels, None if sure is None else sure[row][words]))
        return predictions

    def _labels(self, scores: Float[Tensor, "B N L"], heads: Int64[Tensor, "B N"]) -> Int64[Tensor, "B N"]:
        """The best label of each word; one that training saw only on arcs from the root, or never, stays so."""
        of_root, of_others = torch.tensor(self.vocabulary.root_labels, device=scores.device).T
        allowed = torch.where((heads == 0)[..., None], of_root, of_others)
        allowed = allowed | ~allowed.any(-1, keepdim=True)
        return scores.masked_fill(~allowed, -torch.inf).argmax(-1)

    def _timed(self, what: str) -> _Timed:
        return _Timed(self.seconds, what)


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


def _sentence(words: Any, index: int) -> Sentence:
    """A CoNLL-U sentence of words or (word, tag) pairs; one that is such a sentence stays as it is."""
    if isinstance(words, Sentence):
        return words
    if isinstance(words, str):
        raise ValueError(f"sentences: sentence {index} is a string; wanted a list of words")
    words = list(words) if isinstance(words, Iterable) else [words]
    tags = None
    if not all(isinstance(word, str) for word in words):
        if not all(isinstance(w, (tuple, list)) and len(w) == 2 and all(isinstance(x, str) for x in w) for w in words):
            raise ValueError(f"sentences: sentence {index} is neither words nor (word, tag) pairs")
        words, tags = [word for word, _ in words], [tag for _, tag in words]
    try:
        return Sentence.from_words(words, tags)
    except ValueError as error:
        raise ValueError(f"sentences: sentence {index}: {error}") from None


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _contiguous(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in state.items()}


def _writer(about: Any) -> str:
    return str(about.get("gpuparse", "?")) if isinstance(about, dict) else "?"
