"""The parser: a vocabulary, a scorer and the way to decode, loaded from and saved to a directory."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from gpuparse.config import Config
from gpuparse.data.batches import Batch, batches_by_length, collate
from gpuparse.data.given import Words, as_sentences, unfit
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import ConlluError, Sentence
from gpuparse.data.vocab import Vocabulary
from gpuparse.decode import decode
from gpuparse.devices import as_device
from gpuparse.lp import Constrained, Constraint, Projective, best_constrained, violates
from gpuparse.lp import Words as Seen
from gpuparse.lp.check import as_constraints
from gpuparse.lp.second_order import SecondOrder, hopeful
from gpuparse.nn.build import build_scorer
from gpuparse.nn.saved import load_scorer, load_weights, no_vocabulary, read_model, write_model
from gpuparse.nn.scorer import Scored
from gpuparse.room import NoRoom, in_parts
from gpuparse.scores import Scores

BATCH_WORDS = 4000
TIME_LIMIT = 10.0  # seconds for a sentence under constraints
_TABLE = 1 << 24  # scores of labelled arcs at a time
_SHOWN = 6  # constraints that cannot hold together, in a remark


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
        """Load a parser from its directory; ``ValueError``, in one line, where there is none that is whole.

        The directory may be anybody's: nothing in it is run, no link is followed out of it, and nothing is allocated
        before settings, vocabulary and weights are seen to fit one another.
        """
        path, device = Path(path), as_device(device)
        config, saved, results = read_model(path, "parse")
        try:
            vocabulary = Vocabulary.from_json(saved)
        except ValueError as error:
            raise no_vocabulary(path, error) from None
        parser = cls(config, vocabulary, load_scorer(lambda: build_scorer(config.scorer, vocabulary, path), path))
        parser.results = results
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

        Options are those of ``predict``. With ``confidence=True`` the probability of each word's arc stands in MISC. A
        sentence for which constraints do not hold, or not with a proof, has a comment ``# constraints = ...``. One
        whose scores do not fit into memory is left as it is, and a warning names it.
        """
        given = as_sentences(sentences)
        left: dict[int, ConlluError] = {}
        predictions = self.predict(given, **{"on_unfit": left.__setitem__, **options})
        for index, error in left.items():
            warnings.warn(f"sentence {index}: {error}; left unparsed", stacklevel=2)
        return [
            sentence if index in left else prediction.fill(sentence, prediction.confidence is not None)
            for index, (sentence, prediction) in enumerate(zip(given, predictions, strict=True))
        ]

    def predict(
        self,
        sentences: Sequence[Sentence],
        *,
        method: str = "auto",
        options: Mapping[str, Any] | None = None,
        projective: bool | None = None,
        single_root: bool | None = None,
        confidence: bool = False,
        constraints: Iterable[Constraint] = (),
        time_limit: float = TIME_LIMIT,
        batch_words: int = BATCH_WORDS,
        on_unfit: Callable[[int, ConlluError], None] | None = None,
    ) -> list[Prediction]:
        """Heads and labels of sentences, in their order.

        Args:
            method: how to decode (see ``gpuparse.decode``); "auto" is "bp" for a parser that was trained by it.
            options: of the method, such as ``{"exact": True}`` for "ppc".
            projective: want projective trees; by default as in training.
            single_root: want one word under the root; by default as in training.
            confidence: also give the probability of each word's arc, under the exact distribution over trees.
            constraints: on heads and labels (see ``gpuparse.lp``); tags are UPOS. A sentence whose tree violates them
                is parsed anew under them, by integer programs; it keeps its tree where nothing satisfies them, or
                nothing was found in time. ``Prediction.constraints`` says so, and ``constrained`` counts these.
            time_limit: seconds for one sentence under constraints.
            batch_words: nodes of a batch, padding counted.
            on_unfit: called with the index of a sentence that does not fit into memory, and what there is to say of it,
                in place of an error; its prediction is empty.

        A malformed sentence is a ``ConlluError`` that names its file and line, and so is one whose scores do not fit
        into memory, by an estimate or, where that was too low, by a trial. A batch that does not fit is halved.
        """
        training = self.config.training
        projective = (training.projective if projective is None else projective) or method == "eisner"
        single_root = training.single_root if single_root is None else single_root
        if method == "auto" and training.objective in ("bp", "bp_l2"):
            method = "bp"
        decoding = {**(options or {}), "method": method, "projective": projective, "single_root": single_root}
        constraints = as_constraints(constraints)
        self.scorer.eval()
        done = [Prediction([], [], [] if confidence else None) for _ in sentences]

        def need(some: Sequence[Sentence]) -> int:
            nodes = 1 + max(map(len, some))
            return len(some) * self._need(nodes, method, projective, confidence, bool(constraints))

        def run(some: Sequence[Sentence]) -> list[Prediction]:
            limits = self._limits(some, constraints, projective, time_limit)
            return self._predict(self._batch(some), decoding, confidence, limits)

        wanted = [index for index, sentence in enumerate(sentences) if len(sentence)]
        with torch.inference_mode():
            for places in batches_by_length([len(sentences[index]) for index in wanted], batch_words):
                indices = [wanted[place] for place in places]
                found = in_parts([sentences[index] for index in indices], need, run, self.device)
                for index, result in zip(indices, found, strict=True):
                    if not isinstance(result, NoRoom):
                        done[index] = result
                    elif on_unfit is None:
                        raise unfit(sentences[index], result)
                    else:
                        on_unfit(index, unfit(sentences[index], result))
        return done

    def _batch(self, sentences: Sequence[Sentence]) -> Batch:
        with self._timed("batch"):
            examples = [self.vocabulary.encode(sentence) for sentence in sentences]
            return collate(examples, self.vocabulary.chars).to(self.device)

    def _need(self, nodes: int, method: str, projective: bool, confidence: bool, constraints: bool) -> int:
        """About how many bytes a sentence takes, besides the weights: measured, and rather too much.

        Scores of arcs and what is made of them in decoding, those of pairs, the vectors of words.
        """
        scorer = self.config.scorer
        arcs = (40 if projective else 24) + (confidence and (80 if projective else 40))
        if constraints:
            arcs += 40 * len(self.vocabulary.labels)
        pairs = (72 if method == "bp" else 30) * (bool(scorer.grandparents) + bool(scorer.siblings))
        words = scorer.word + scorer.chars + scorer.tag + scorer.feats + 8 * scorer.hidden
        vectors = 16 * (words + 2 * (scorer.arc + scorer.label)) if scorer.kind == "biaffine" else 0
        return nodes * (vectors + nodes * (arcs + nodes * pairs))

    def _limits(
        self, sentences: Sequence[Sentence], constraints: Sequence[Constraint], projective: bool, seconds: float
    ) -> _Limits:
        if not constraints:
            return _Limits([], (), seconds)
        numbers = {name: number for number, name in enumerate(self.vocabulary.labels.names)}
        words = [Seen(("", *s.words), ("", *s.upos), numbers, s.sent_id) for s in sentences]
        for sentence, given in zip(sentences, words, strict=True):
            for constraint in constraints:
                try:
                    constraint.check(given)
                except ValueError as error:
                    raise ConlluError(f"{sentence.source}:{sentence.line}: constraints: {error}") from None
        return _Limits(words, [*constraints, *([Projective()] if projective else [])], seconds)

    def _predict(
        self, batch: Batch, decoding: Mapping[str, Any], confidence: bool, limits: _Limits
    ) -> list[Prediction]:
        projective, single_root = decoding["projective"], decoding["single_root"]
        with self._timed("encode"):
            scored = self.scorer(batch)
        with self._timed("decode"):
            heads = decode(scored.scores, **decoding).heads
        with self._timed("encode"):
            label_scores = scored.label_scores(heads)
        with self._timed("labels"):
            found = self._labels(label_scores, heads)
        remarks: list[str | None] = [None] * len(heads)
        with self._timed("decode"):
            if limits.constraints:
                heads, found, remarks = self._constrain(scored, heads, found, limits, single_root)
            sure = _confidence(scored.scores, heads, projective, single_root) if confidence else None
        with self._timed("labels"):
            labels = found.tolist()
            names = self.vocabulary.labels.names
            predictions = []
            for row, (length, head) in enumerate(zip(batch.lengths.tolist(), heads.tolist(), strict=True)):
                words = slice(1, length + 1)
                deprels = [names[label] for label in labels[row][words]]
                likely = None if sure is None else sure[row][words]
                predictions.append(Prediction(head[words], deprels, likely, remarks[row]))
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
        single_root: bool,
    ) -> tuple[Int64[Tensor, "B N"], Int64[Tensor, "B N"], list[str | None]]:
        """Heads and labels under constraints, and remarks where these do not hold, or not with a proof.

        An arc's best label costs nothing, so that without constraints nothing would change.
        """
        remarks: list[str | None] = [None] * len(heads)
        wrong = violates(limits.constraints, limits.words, heads, labels).nonzero()[:, 0]
        if not len(wrong):
            return heads, labels, remarks
        heads, labels = heads.clone(), labels.clone()
        parts = [each for each in (scored.scores.grandparents, scored.scores.siblings) if each is not None]
        most = [hopeful(each) for each in parts]
        arcs = sum(most, scored.scores.arcs.double())
        N, L = heads.shape[1], len(self.vocabulary.labels)
        for some in wrong.split(max(1, _TABLE // (N * N * L))):
            tables = arcs[some, :, :, None] + self._less(scored.all_labels(some))
            for b, table in zip(some.tolist(), tables, strict=True):
                nodes = slice(len(limits.words[b].forms))
                second = [
                    SecondOrder(each, b, best[b, nodes, nodes].cpu().numpy())
                    for each, best in zip(parts, most, strict=True)
                ]
                answer = best_constrained(
                    table[nodes, nodes].cpu().numpy(),
                    limits.words[b],
                    limits.constraints,
                    parts=second,
                    single_root=single_root,
                    seconds=limits.seconds,
                    start=(heads[b, nodes].tolist(), labels[b, nodes].tolist()),
                )
                remarks[b] = _remark(answer)
                self.constrained["solved"] += 1
                self.constrained["infeasible"] += answer.heads is None and answer.certified
                self.constrained["not proven"] += not answer.certified
                if answer.heads is not None and answer.labels is not None:
                    heads[b, nodes] = torch.tensor(answer.heads, device=heads.device)
                    labels[b, nodes] = torch.tensor(answer.labels, device=labels.device)
        return heads, labels, remarks

    def _less(self, scores: Float[Tensor, "K N N L"]) -> Float64[Tensor, "K N N L"]:
        """What each label of each arc falls short of the arc's best."""
        heads = torch.arange(scores.shape[1], device=scores.device)[:, None].expand(scores.shape[:-1])
        allowed = self._allowed(scores, heads).double()
        return allowed - allowed.amax(-1, keepdim=True)

    def _timed(self, what: str) -> _Timed:
        return _Timed(self.seconds, what)


class _Limits(NamedTuple):
    """Constraints on the sentences of a batch."""

    words: list[Seen]
    constraints: Sequence[Constraint]
    seconds: float


def _remark(answer: Constrained) -> str | None:
    """What to say of a sentence under constraints; nothing where its tree is proven best."""
    if answer.heads is None:
        if not answer.certified:
            return "not proven: no tree found in time that satisfies them"
        shown = "; ".join(answer.conflict[:_SHOWN])
        more = len(answer.conflict) - _SHOWN
        return f"infeasible: {shown}" + (f"; and {more} more" if more > 0 else "")
    return None if answer.certified else f"not proven: score {answer.score:.4f}, bound {answer.bound:.4f}"


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
    trees = scores.trees(projective=projective, single_root=single_root)
    chosen = trees.marginals.gather(1, heads.clamp(min=0)[:, None])[:, 0]
    return [row[: length + 1] for row, length in zip(chosen.tolist(), scores.lengths.tolist(), strict=True)]
