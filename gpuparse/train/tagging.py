"""Training taggers: the averaged perceptron, and chains by gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpuparse.config import Config, TrainingConfig
from gpuparse.data.sentence import Sentence
from gpuparse.data.tagging import TagBatch, TagVocabulary, collate_tags
from gpuparse.decoding.viterbi import viterbi
from gpuparse.distributions import TagChains
from gpuparse.models.tagger import Tagger
from gpuparse.nn.saved import vocabulary_bytes
from gpuparse.nn.tagging import TagScorer, TemplateTagScorer
from gpuparse.structures.masks import is_position
from gpuparse.structures.tags import chain_scores
from gpuparse.system.stopwatch import Stopwatch
from gpuparse.train.averaged import AveragedLearner, Update
from gpuparse.train.distributed import Processes
from gpuparse.train.gradient import LossLearner
from gpuparse.train.learner import Learner, Stats
from gpuparse.train.objectives import label_loss
from gpuparse.train.task import Task


class TaggingTask(Task):
    """Tags; the share of right ones counts."""

    scores = ("accuracy",)
    done = "tagged"
    collate = staticmethod(collate_tags)

    def __init__(self, config: Config, sentences: Sequence[Sentence], device: torch.device, group: Processes) -> None:
        self.device = device
        vocabulary = tag_vocabulary(config, sentences)
        vocabulary_bytes(vocabulary.to_json())  # one that could not be saved is refused now
        self.model: Tagger = Tagger.new(config, vocabulary).to(device)
        self.learner: Learner[TagBatch]
        if isinstance(self.model.scorer, TemplateTagScorer) and config.training.objective == "perceptron":
            self.learner = TagPerceptron(self.model.scorer, config.training, group)
        else:
            self.learner = TagDescent(self.model.scorer, config.training, group)
        self.examples = [vocabulary.encode(sentence, gold=True) for sentence in sentences]

    def evaluate(self, dev: Sequence[Sentence]) -> tuple[float, ...]:
        tags = self.model.vocabulary.tag_set.tags
        right = words = 0
        for sentence, found in zip(dev, self.model.predict(dev), strict=True):
            right += sum(one == other for one, other in zip(tags(sentence), found, strict=True))
            words += len(found)
        return (right / max(1, words),)


def tag_vocabulary(config: Config, sentences: Sequence[Sentence]) -> TagVocabulary:
    """What a tagger of these settings knows of a treebank."""
    return TagVocabulary.build(
        sentences,
        config.data.tags,
        min_count=config.data.min_count,
        words="bilstm" in config.scorer.kind,
        features=1 << config.scorer.bits if "templates" in config.scorer.kind else 0,
    )


def shrink_(weights: Tensor, l1: float, l2: float) -> None:
    """The proximal step of l1 |w| + l2/2 w² for each weight, in place."""
    if l1:
        weights.sub_(weights.clamp(-l1, l1))
    if l2:
        weights.div_(1 + l2)


class TagPerceptron(AveragedLearner):
    """Learns by tagging: where the best tags are wrong, weights move from their features to the right ones'.

    All sentences of a batch are tagged with the weights from before it, and their steps are added up. After it the
    transitions shrink by ``training.transition_l1`` and ``transition_l2`` for each word of the batch.
    """

    def __init__(self, model: TemplateTagScorer, config: TrainingConfig, processes: Processes | None = None) -> None:
        super().__init__(model, {"weights": model.weights, "transitions": model.transitions}, processes)
        self.scorer = model
        self.config = config

    @torch.no_grad()
    def step(self, batch: TagBatch | None, *, words: int, progress: float = 0.0) -> Stats:
        """One update (see ``Learner``); the loss is the share of wrong tags."""
        wrong = torch.zeros((), dtype=torch.float64, device=self.scorer.weights.device)
        weights, transitions, inference = None, None, Stopwatch(wrong.device)
        if batch is not None:
            weights, transitions, inference = self._learn(batch, wrong)
        self.processes.sum_([wrong])
        self._change("weights", weights)
        self._change("transitions", transitions)
        self._shrink(words)
        self.steps += 1
        return {"loss": wrong / words, "seconds_inference": inference}

    def _learn(self, batch: TagBatch, wrong: Tensor) -> tuple[Update, Update, Stopwatch]:
        """What to change for a batch, and the time of inference; adds up the wrong tags."""
        gold = batch.gold
        if gold is None:
            raise ValueError("batch has no right tags; training needs sentences with tags")
        unary = self.scorer(batch)
        clock = Stopwatch(unary.device)
        found = viterbi(unary, self.scorer.transitions, batch.lengths, validate_args=False).tags
        clock.stop()
        count = unary.shape[-1]
        missed = found != gold
        wrong += missed.sum()
        assert batch.features is not None
        rows = batch.features[missed]  # [wrong, F]
        rows = torch.where(rows > 0, rows * count, -1)
        more, less = (torch.where(rows >= 0, rows + tags[missed][:, None], -1).flatten() for tags in (gold, found))
        # A pair of neighbours that are both right has the same transition in both chains.
        pairs = (missed[:, :-1] | missed[:, 1:]) & (gold[:, 1:] >= 0)
        right, other = (tags[:, :-1][pairs] * count + tags[:, 1:][pairs] for tags in (gold, found))
        return _update(more[more >= 0], less[less >= 0]), _update(right, other), clock

    def _shrink(self, words: int) -> None:
        l1, l2 = self.config.transition_l1 * words, self.config.transition_l2 * words
        if not (l1 or l2):
            return
        transitions = self.scorer.transitions
        before = transitions.double()
        shrink_(transitions, l1, l2)
        self._sums["transitions"] += self.steps * (transitions.double() - before)


def _update(more: Int64[Tensor, " D"], less: Int64[Tensor, " E"]) -> Update:
    entries = torch.cat((more, less))
    amounts = torch.ones(len(entries), dtype=torch.float64, device=entries.device)
    amounts[len(more) :] = -1
    return Update(entries, amounts)


class TagDescent(LossLearner[TagBatch]):
    """Learns by gradients: of the likelihood of chains, of each tag by itself, or of the structured hinge. Each expert
    of the scorer has its own loss; what is told is their mean.

    After each step the transitions shrink by ``training.transition_l1`` and ``transition_l2`` times its rate.
    """

    def __init__(self, model: TagScorer, config: TrainingConfig, processes: Processes | None = None) -> None:
        super().__init__(model, config, processes)
        self.experts = model.experts()

    def _backward(self, batch: TagBatch, words: int) -> tuple[Tensor, Stopwatch]:
        assert batch.gold is not None
        device = batch.gold.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.bf16):
            scored = [expert(batch) for expert in self.experts]
        clock = Stopwatch(device)
        total = torch.zeros((), dtype=torch.float64, device=device)
        gradients = []
        for scores, expert in zip(scored, self.experts, strict=True):
            unary = scores.detach().requires_grad_()
            loss = tag_loss(unary, expert.transitions, batch.lengths, batch.gold, self.config).sum() / words
            gradient, expert.transitions.grad = torch.autograd.grad(
                loss, (unary, expert.transitions), allow_unused=True
            )
            gradients.append(gradient)
            total += loss.detach() / len(scored)
        clock.stop()
        torch.autograd.backward(scored, gradients)
        return total, clock

    @torch.no_grad()
    def _after(self, rate: float) -> None:
        for expert in self.experts:
            shrink_(expert.transitions, self.config.transition_l1 * rate, self.config.transition_l2 * rate)


def tag_loss(
    unary: Float[Tensor, "B n T"],
    transitions: Float[Tensor, "T T"],
    lengths: Int64[Tensor, " B"],
    gold: Int64[Tensor, "B n"],
    config: TrainingConfig,
) -> Float[Tensor, " B"]:
    """The loss of a sentence by the objective's name: nll −log p(tags); local the same without transitions; hinge the
    best score + ``margin`` × wrong tags, minus the score of the right ones."""
    if config.objective == "local":
        return label_loss(unary, gold)
    if config.objective == "hinge":
        cost = torch.full_like(unary, config.margin).scatter_(-1, gold.clamp(min=0)[..., None], 0.0)
        best = viterbi(unary.detach() + cost, transitions.detach(), lengths, validate_args=False).tags
        wrong = ((best != gold) & is_position(lengths, gold.shape[1])).sum(-1)
        found, right = (chain_scores(unary, transitions[None, None], tags, lengths) for tags in (best, gold))
        return (found - right + config.margin * wrong).clamp(min=0)
    return -TagChains(unary, transitions, lengths, validate_args=False).log_prob(gold)
