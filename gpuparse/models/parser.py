"""The parser: a vocabulary, a scorer and the way to decode, loaded from and saved to a directory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from gpuparse.data.batches import Batch, collate
from gpuparse.data.given import Words, as_sentences
from gpuparse.data.partial import Partial
from gpuparse.data.prediction import Prediction, Results
from gpuparse.data.sentence import ConlluError, Sentence
from gpuparse.data.vocab import Vocabulary
from gpuparse.decoding.ilp.check import as_constraints
from gpuparse.decoding.methods import decode
from gpuparse.decoding.nbest import k_best
from gpuparse.decoding.parse import Parse
from gpuparse.decoding.scores import Scores
from gpuparse.distributions.common import MAX_K
from gpuparse.lp import Constraint, Projective, violates
from gpuparse.lp import Words as Seen
from gpuparse.models.certainty import Certainty
from gpuparse.models.directory import Model, timed
from gpuparse.models.known import Known, partials_of
from gpuparse.models.reading import Reader
from gpuparse.nn.build import build_scorer
from gpuparse.nn.scorer import Scored
from gpuparse.system.defaults import BATCH_WORDS, TIME_LIMIT
from gpuparse.system.quote import quoted
from gpuparse.system.transfer import begin_to_host

_TABLE = 1 << 24  # scores of labelled arcs at a time


class Parser(Model[Vocabulary, nn.Module]):
    """A vocabulary, a scorer and the way to decode: parses sentences.

    ``Parser.load(directory)`` is one that was trained, ``gpuparse.train.train`` trains one, ``save(directory)`` keeps
    it; ``parse`` gives sentences with new heads and labels, ``predict`` what the decoder knows of them.

    Example:
        >>> import gpuparse as gp
        >>> from gpuparse.config import Config
        >>> from gpuparse.data.artificial import artificial_treebank
        >>> from gpuparse.data.vocab import Vocabulary
        >>> small = ["word", "char", "chars", "tag", "feats", "hidden", "arc", "label"]
        >>> config = Config.load(overrides=[f"scorer.{name}=4" for name in small])
        >>> parser = gp.Parser.new(config, Vocabulary.build(list(artificial_treebank(5))))  # which has not learned yet
        >>> (tree,) = parser.parse([[("We", "PRON"), ("saw", "VERB"), ("it", "PRON")]])
        >>> len(tree.heads), parser.predict([tree])[0].certified
        (3, True)
    """

    task = "parse"
    read_vocabulary = Vocabulary.from_json
    build = staticmethod(build_scorer)

    @property
    def labels(self) -> list[str]:
        """Those of arcs."""
        return self.vocabulary.labels.names

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads of a sentence, besides the words."""
        scorer = self.config.scorer
        if scorer.kind == "templates":
            return ("upos",)
        return tuple(name for name, size in (("upos", scorer.tag), ("feats", scorer.feats)) if size)

    def parse(self, sentences: Iterable[Words | Sentence], **options: Any) -> list[Sentence]:
        """Parse sentences given as lists of words, of (word, tag) pairs, or as CoNLL-U sentences.

        Options are those of ``predict``. With ``confidence=True`` the probability of each word's arc stands in MISC;
        with ``probabilities=True`` that of its label too, and in comments that of the tree and the entropy. A sentence
        for which constraints do not hold, or not with a proof, has a comment ``# constraints = ...``. One whose scores
        do not fit into memory is left as it is, and a warning names it.
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
        probabilities: bool = False,
        marginals: bool = False,
        nbest: int = 0,
        partial: bool | Sequence[Partial] = False,
        constraints: Iterable[Constraint] = (),
        time_limit: float = TIME_LIMIT,
        batch_words: int | None = BATCH_WORDS,
        on_unfit: Callable[[int, ConlluError], None] | None = None,
    ) -> Results[Prediction]:
        """Heads and labels of sentences, in their order, with what the decoder knows of them.

        Args:
            method: how to decode (see ``gpuparse.decode``); "auto" is "bp" for a parser that was trained by it.
            options: of the method, such as ``{"exact": True}`` for "ppc".
            projective: want projective trees; by default as in training.
            single_root: want one word under the root; by default as in training.
            confidence: also give the probability of each word's arc, under the distribution over trees: exactly, but
                for trees that may cross under scores of pairs of arcs, where belief propagation estimates it.
            probabilities: also that of each word's label and of the whole tree, and the entropy.
            marginals: also that of every arc.
            nbest: also give so many of the best trees (64 at most), each with its best labels and its probability.
                Exact; without constraints.
            partial: keep what is given, and predict the rest given that: True: what stands in the columns HEAD and
                DEPREL, where they are not ``_``, and the heads that ``Heads=2,5-7`` in MISC allows; or a ``Partial`` of
                each sentence. A start that no tree has is a ConlluError that says why. Probabilities are conditional.
            constraints: on heads and labels (see ``gpuparse.lp``); tags are UPOS. A sentence whose tree violates them
                is parsed anew under them, by integer programs; it keeps its tree where nothing satisfies them, or
                nothing was found in time. ``Prediction.constraints`` says so, and ``counts`` of what is returned has
                how many were "solved" anew, are "infeasible", and "not proven" best.
            time_limit: seconds for one sentence under constraints.
            batch_words: the size of a batch: its sentences times the nodes (words and root) of the longest. None: all
                sentences are one batch.
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
        trees: dict[str, bool] = {"projective": projective, "single_root": single_root}
        decoding = {**(options or {}), "method": method, **trees}
        constraints, labels = as_constraints(constraints), self.vocabulary.labels
        if not isinstance(nbest, int) or isinstance(nbest, bool) or not 0 <= nbest <= MAX_K:
            raise ValueError(f"nbest must be a whole number from 0 to {MAX_K}, got {quoted(nbest)}")
        if nbest and constraints:
            raise ValueError("nbest gives trees without regard to constraints; leave one of them out")
        sentences, known = partials_of(sentences, partial)
        confidence = confidence or probabilities
        wanted = Wanted(confidence, probabilities, marginals, nbest)
        done = Results([Prediction([], [], [] if confidence else None) for _ in sentences])
        done.seconds = dict.fromkeys(("batch", "encode", "decode", "labels"), 0.0)
        if constraints:
            done.counts = dict.fromkeys(("solved", "infeasible", "not proven"), 0)

        def need(some: Sequence[Sentence]) -> int:
            nodes = 1 + max(map(len, some))
            return len(some) * self._need(nodes, method, projective, wanted, bool(constraints))

        def run(some: Sequence[Sentence]) -> Callable[[], list[tuple[Prediction, bool]]]:
            limits = self._limits(some, constraints, time_limit)
            with timed(done.seconds, "batch"):
                own = None if known is None else Known.of(some, [known[id(x)] for x in some], labels, **trees)
                batch = self._batch(some)
            return self._predict(batch, decoding, wanted, limits, own, done.seconds)

        for index, (prediction, solved) in self.each(sentences, batch_words, need, run, on_unfit):
            done[index] = prediction
            if solved:
                done.counts["solved"] += 1
                done.counts["infeasible"] += bool(prediction.stats["infeasible"])
                done.counts["not proven"] += not (prediction.certified or prediction.stats["infeasible"])
        return done

    def _batch(self, sentences: Sequence[Sentence]) -> Batch:
        examples = [self.vocabulary.encode(sentence) for sentence in sentences]
        return collate(examples, self.vocabulary.chars).to(self.device)

    def _need(self, nodes: int, method: str, projective: bool, wanted: Wanted, constraints: bool) -> int:
        """About how many bytes a sentence takes, besides the weights: measured, and rather too much.

        Scores of arcs and what is made of them in decoding, those of pairs, the vectors of words.
        """
        scorer = self.config.scorer
        arcs = (40 if projective else 24) + (wanted.confidence and (80 if projective else 40)) + 40 * wanted.nbest
        if constraints:
            arcs += 40 * len(self.vocabulary.labels)
        pairs = (72 if method == "bp" else 30) * (bool(scorer.grandparents) + bool(scorer.siblings))
        words = scorer.word + scorer.chars + scorer.tag + scorer.feats + 8 * scorer.hidden
        vectors = 16 * (words + 2 * (scorer.arc + scorer.label)) if scorer.kind == "biaffine" else 0
        return nodes * (vectors + nodes * (arcs + nodes * pairs))

    def _limits(self, sentences: Sequence[Sentence], constraints: Sequence[Constraint], seconds: float) -> _Limits:
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
        return _Limits(words, constraints, seconds)

    def _predict(
        self,
        batch: Batch,
        decoding: Mapping[str, Any],
        wanted: Wanted,
        limits: _Limits,
        known: Known | None,
        seconds: dict[str, float],
    ) -> Callable[[], list[tuple[Prediction, bool]]]:
        """What reads off what is said of each sentence, and whether it was solved anew under constraints."""
        trees = {name: decoding[name] for name in ("projective", "single_root")}
        names = self.vocabulary.labels
        known = None if known is None else known.to(self.device)
        with timed(seconds, "encode"):
            scored = self.scorer(batch)
            if known is not None:
                scored = scored._replace(scores=known.restrict(scored, len(names)))
        with timed(seconds, "decode"):
            found = decode(scored.scores, **decoding)
        found = replace(found, labels=self._labels(scored, found.heads, known, seconds))
        with timed(seconds, "decode"):
            wrong = torch.zeros_like(found.certified)
            if limits.constraints:
                found, wrong = self._constrain(scored, found, limits, known, **trees)
            sure = Certainty(scored.scores, **trees) if any(wanted) else None
        assert found.labels is not None
        more = (
            {} if sure is None else self._more(scored, found.heads, found.labels, sure, known, wanted, trees, seconds)
        )
        each = (found.heads, found.labels, found.score, found.bound, found.certified, found.iterations, wrong)
        get = begin_to_host(*each, *more.values(), *found.stats.values())
        lengths, remarks = [len(text) - 1 for text in batch.texts], found.remarks
        reader = Reader(names.names, [*more], [*found.stats], None if sure is None else sure.estimated)

        def read() -> list[tuple[Prediction, bool]]:
            with timed(seconds, "labels"):
                rows = zip(*(x.tolist() for x in get()), strict=True)
                each_given = [None] * len(lengths) if known is None else known.given
                each = zip(lengths, each_given, rows, strict=True)
                return [reader.read(n, row, given, remarks.get(b)) for b, (n, given, row) in enumerate(each)]

        return read

    def _labels(
        self, scored: Scored, heads: Int64[Tensor, "*k B N"], known: Known | None, seconds: dict[str, float]
    ) -> Int64[Tensor, "*k B N"]:
        """The best labels of trees, or those given."""
        with timed(seconds, "encode"):
            each = [scored.label_scores(one) for one in heads.reshape(-1, *heads.shape[-2:])]
            label_scores = torch.stack(each).view(*heads.shape, -1)
        with timed(seconds, "labels"):
            labels = self._allowed(label_scores, heads).argmax(-1)
            return labels if known is None else known.keep_labels(labels)

    def _more(
        self,
        scored: Scored,
        heads: Int64[Tensor, "B N"],
        labels: Int64[Tensor, "B N"],
        sure: Certainty,
        known: Known | None,
        wanted: Wanted,
        trees: Mapping[str, bool],
        seconds: dict[str, float],
    ) -> dict[str, Tensor]:
        """What else is wanted of trees, by name, each [B, ...]."""
        more: dict[str, Tensor] = {}
        if wanted.confidence:
            more["confidence"] = sure.of_arcs(heads)
        if wanted.probabilities:
            of_labels = self._allowed(scored.label_scores(heads), heads).softmax(-1)
            own = of_labels.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
            more["label_confidence"] = own if known is None else known.sure_of(own)
            more["probability"] = sure.of_trees(heads, scored.scores.total(heads))
            more["entropy"] = sure.entropy
        if wanted.marginals:
            more["marginals"] = sure.marginals
        if wanted.nbest:
            with timed(seconds, "decode"):
                best, score = k_best(scored.scores, wanted.nbest, **trees)
            of_best = self._labels(scored, best, known, seconds)
            ranks = {"heads": best, "labels": of_best, "score": score, "probability": sure.of_trees(best, score)}
            more |= {f"best {name}": x.movedim(0, 1) for name, x in ranks.items()}
        return more

    def _allowed(self, scores: Float[Tensor, "*arcs L"], heads: Int64[Tensor, "*arcs"]) -> Float[Tensor, "*arcs L"]:
        """Without labels that training saw only on arcs from the root, or never, elsewhere."""
        of_root, of_others = _root_table(tuple(self.vocabulary.root_labels), scores.device)
        allowed = torch.where((heads == 0)[..., None], of_root, of_others)
        allowed = allowed | ~allowed.any(-1, keepdim=True)
        return scores.masked_fill(~allowed, -torch.inf)

    def _constrain(
        self,
        scored: Scored,
        found: Parse,
        limits: _Limits,
        known: Known | None,
        *,
        projective: bool,
        single_root: bool,
    ) -> tuple[Parse, Bool[Tensor, " B"]]:
        """The same under constraints, and which trees violated them: these sentences are decoded anew.

        An arc's best label costs nothing, so that without constraints nothing would change.
        """
        asked = [*limits.constraints, *([Projective()] if projective else [])]
        wrong = violates(asked, limits.words, found.heads, found.labels)
        N, L = found.heads.shape[1], len(self.vocabulary.labels)
        for rows in wrong.nonzero()[:, 0].split(max(1, _TABLE // (N * N * L))):
            if not len(rows):
                break
            some = scored.scores.take(rows)
            parts: dict[str, Any] = {kind: getattr(some, kind) for kind in some.kinds}
            head = torch.arange(N, device=rows.device)[:, None].expand(len(rows), N, N)
            allowed = self._allowed(scored.all_labels(rows), head).double()
            if known is not None:
                allowed = known.only_given(allowed, rows)
            less = allowed - allowed.amax(-1, keepdim=True)  # what a label falls short of the arc's best
            labelled = Scores(some.arcs, some.lengths, labels=less, **parts)
            again = decode(
                labelled,
                "ilp",
                projective=projective,
                single_root=single_root,
                constraints=limits.constraints,
                words=[limits.words[b] for b in rows.tolist()],
                time_limit=limits.seconds,
                start=found.take(rows),
            )
            found = found.put(rows, again)
        return found, wrong


class Wanted(NamedTuple):
    """What is wanted of each sentence besides its tree."""

    confidence: bool = False
    probabilities: bool = False
    marginals: bool = False
    nbest: int = 0


class _Limits(NamedTuple):
    """Constraints on the sentences of a batch."""

    words: list[Seen]
    constraints: Sequence[Constraint]
    seconds: float


@lru_cache(maxsize=8)
def _root_table(labels: tuple[tuple[bool, bool], ...], device: torch.device) -> Bool[Tensor, "two L"]:
    """Whether each label may be a root's, and another word's: moved to a device once, not for every batch."""
    return torch.tensor(labels).T.to(device)
