"""The parser as a server has it: loaded once, asked by one thread."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from gpuparse.data.partial import Partial
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import ConlluError, Sentence
from gpuparse.lp import Constraint
from gpuparse.lp import load_constraints as load
from gpuparse.models.pipeline import Pipeline
from gpuparse.serve.remembered import RememberedScores
from gpuparse.serve.settings import ParseOptions, Refused, ServerLimits
from gpuparse.system.defaults import TIME_LIMIT, ready
from gpuparse.system.quote import shown

_ON_CPU = 500  # nodes of a batch on a CPU, padding counted: larger ones have more padding, and are no faster


class Engine:
    """A pipeline, and what is known of it.

    Args:
        pipeline: its parser remembers scores from now on.
        name: what the model is called.
    """

    def __init__(self, pipeline: Pipeline, limits: ServerLimits, name: str = "gpuparse") -> None:
        self.pipeline, self.limits, self.name = pipeline, limits, name
        if not isinstance(pipeline.parser.scorer, RememberedScores):
            pipeline.parser.scorer = RememberedScores(pipeline.parser.scorer).eval()
        self.labels = tuple(pipeline.parser.vocabulary.labels.names)
        # What was gathered is sorted by length and parsed in smaller pieces where that is faster.
        most = limits.batch_words
        self._batch_words = min(most, _ON_CPU) if pipeline.parser.device.type == "cpu" else most
        training = pipeline.parser.config.training
        self.single_root, self.projective = training.single_root, training.projective

    @property
    def tagger_columns(self) -> tuple[str, ...]:
        """The columns that the tagger fills; none without one."""
        tagger = self.pipeline.tagger
        return () if tagger is None else tagger.vocabulary.tag_set.columns

    def wants_tags(self, sentence: Sentence) -> bool:
        """Whether there is a tagger, and the sentence has none of the tags that it gives."""
        return bool(self.tagger_columns) and all(
            tag == "_" for name in self.tagger_columns for tag in getattr(sentence, name)
        )

    def check(self, options: ParseOptions, name: str, known: Partial) -> None:
        """Refuse what no tree can have, or nobody can ask for; ``name`` is what messages call the sentence."""
        projective = self.projective if options.projective is None else options.projective
        why = None if known.is_open else known.impossible(single_root=self.single_root, projective=projective)
        if why is not None:
            raise Refused(422, f"{name}: {why}")
        if options.nbest and options.constraints:
            raise Refused(422, "nbest gives trees without regard to constraints; leave one of them out")

    def run(
        self, options: ParseOptions, sentences: list[Sentence], known: list[Partial]
    ) -> list[Prediction | Exception]:
        """What is said of each sentence; where one is refused, the others are parsed without it."""
        try:
            return [*self._predict(options, sentences, known)]
        except ValueError as error:
            if len(sentences) == 1:
                return [error]
        return [self.run(options, [sentence], [some])[0] for sentence, some in zip(sentences, known, strict=True)]

    def _predict(self, options: ParseOptions, sentences: list[Sentence], known: list[Partial]) -> list[Prediction]:
        settings: dict[str, Any] = {
            "projective": options.projective,
            "confidence": options.probabilities,
            "probabilities": options.probabilities,
            "marginals": options.marginals,
            "nbest": options.nbest,
            "constraints": [one for name in options.constraints for one in _included(name)],
            # Under constraints a batch may take what a request may.
            "time_limit": min(TIME_LIMIT, self.limits.time_limit / len(sentences)),
            "batch_words": self._batch_words,
        }
        if not all(one.is_open for one in known):
            settings["partial"] = known
        asked = self.pipeline if options.tag else self.pipeline.parser
        return list(asked.predict(sentences, **settings))


@cache
def _included(name: str) -> list[Constraint]:
    """The constraints of a file that comes with the package; no other file is opened."""
    if name not in ready():
        raise ConlluError(f"constraints: {shown(name)} is none of {', '.join(ready())}")
    return load(name)


def model_name(path: Path) -> str:
    """What a model in a directory is called."""
    return shown(path.resolve().name) or "gpuparse"
