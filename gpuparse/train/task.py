"""What the loop trains: a model, how it learns from batches, and how good it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

from gpuparse.config import Config
from gpuparse.data.batches import Batch, collate
from gpuparse.data.sentence import Sentence
from gpuparse.data.vocab import Vocabulary
from gpuparse.evaluate import attachment_scores
from gpuparse.models.parser import Parser
from gpuparse.models.tagger import Tagger
from gpuparse.nn.saved import vocabulary_bytes
from gpuparse.nn.templates import TemplateScorer
from gpuparse.train.distributed import Processes
from gpuparse.train.gradient import GradientLearner
from gpuparse.train.learner import Learner
from gpuparse.train.online import OnlineLearner


class Task(ABC):
    """One kind of model. ``Task(config, sentences, device, group)`` makes one that is untrained.

    Attributes:
        scores: names of the scores on dev data; the last one says which epoch was best.
        done: what is done to a sentence.
        collate: makes a batch of examples.
        model, learner: what is trained, and by what.
        device, examples: where, and the sentences in numbers.
    """

    scores: ClassVar[tuple[str, ...]]
    done: ClassVar[str]
    collate: ClassVar[Callable[..., Any]]
    device: torch.device
    examples: Sequence[Any]
    model: Parser | Tagger
    learner: Learner[Any]

    @abstractmethod
    def __init__(self, config: Config, sentences: Sequence[Sentence], device: torch.device, group: Processes) -> None:
        """The model and its learner, and the sentences in numbers."""

    @classmethod  # noqa: B027
    def check(cls, config: Config) -> None:
        """Raise ``ValueError`` for settings that the configuration allows and that cannot be trained."""

    def batch(self, indices: Sequence[int]) -> Any:
        """A batch of these sentences; ``None`` of none."""
        some = [self.examples[index] for index in indices]
        return type(self).collate(some, self.model.vocabulary.chars).to(self.device) if some else None

    @abstractmethod
    def evaluate(self, dev: Sequence[Sentence]) -> tuple[float, ...]:
        """The scores, with the weights as they are."""


class Parsing(Task):
    """Trees and labels; the best LAS counts."""

    scores = ("uas", "las")
    done = "parsed"
    collate = staticmethod(collate)

    def __init__(self, config: Config, sentences: Sequence[Sentence], device: torch.device, group: Processes) -> None:
        self.config, self.device = config, device
        vocabulary = Vocabulary.build(sentences, min_count=config.data.min_count)
        vocabulary_bytes(vocabulary.to_json())  # one that could not be saved is refused now
        self.model: Parser = Parser.new(config, vocabulary).to(device)
        self.learner = _learner(self.model, config, group)
        self.examples = [vocabulary.encode(sentence, tree=True) for sentence in sentences]

    @classmethod
    def check(cls, config: Config) -> None:
        """Pairs of arcs are learned by exact sums and maxima, which there are over projective trees, or by belief
        propagation. What only a tagger has was meant for one."""
        for section, name in (("data", "tags"), ("training", "transition_l1"), ("training", "transition_l2")):
            value = getattr(getattr(config, section), name)
            if value != getattr(getattr(Config(), section), name):
                raise ValueError(f"{section}.{name} is {value!r}, and a parser has none; --task tag trains a tagger")
        objective = config.training.objective
        if objective == "dd" and not config.training.projective:
            raise ValueError("training.objective 'dd' is over projective trees; set training.projective = true")
        for name in ("grandparents", "siblings"):
            if not getattr(config.scorer, name) or objective in ("bp", "bp_l2"):
                continue
            if objective == "local":
                raise ValueError(
                    f"scorer.{name}: training.objective 'local' is first order; take nll, hinge, bp, bp_l2 or dd"
                )
            if not config.training.projective:
                raise ValueError(
                    f"scorer.{name}: training.objective {objective!r} learns them over projective trees; "
                    "set training.projective = true, or the objective to bp or bp_l2"
                )

    def evaluate(self, dev: Sequence[Sentence]) -> tuple[float, ...]:
        training = self.config.training
        predictions = self.model.predict(dev, projective=training.projective, single_root=training.single_root)
        return attachment_scores(dev, predictions)


def _learner(parser: Parser, config: Config, group: Processes) -> Learner[Batch]:
    training = config.training
    if training.objective in ("perceptron", "mira"):
        assert isinstance(parser.scorer, TemplateScorer)
        return OnlineLearner(
            parser.scorer,
            algorithm="mira" if training.objective == "mira" else "perceptron",
            C=training.aggressiveness,
            projective=training.projective,
            single_root=training.single_root,
            processes=group,
        )
    return GradientLearner(parser.scorer, training, group)
