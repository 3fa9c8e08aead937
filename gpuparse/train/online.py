"""Error-driven training of template scorers: averaged perceptron and single-best MIRA."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from gpuparse.data.batches import Batch
from gpuparse.decoding.methods import decode
from gpuparse.decoding.scores import Scores
from gpuparse.nn.templates import TemplateScorer
from gpuparse.structures.masks import word_mask
from gpuparse.system.stopwatch import Stopwatch
from gpuparse.train.averaged import AveragedLearner, Update
from gpuparse.train.distributed import Processes
from gpuparse.train.learner import Stats
from gpuparse.train.objectives import augmented


class OnlineLearner(AveragedLearner):
    """Learns by parsing: where the best tree is wrong, weights move from its features to the right tree's.

    A sentence's step is τ × (features of the right tree − features of the predicted one). The perceptron has τ = 1.
    MIRA takes the least step after which the right tree scores more by the number of wrong heads, at most ``C``:
    τ = min(C, max(0, (wrong heads − margin) / |difference of features|²)). Labels are learned in the same way, given
    the right heads, with the number of wrong labels as loss and without cost-augmented prediction.

    All sentences of a batch are parsed with the weights from before it, each has its own τ, and the steps are added
    up. Batches of one sentence are the classical algorithm; small batches learn almost the same faster, large ones
    step too far where sentences share features.

    The weights to evaluate are the mean over all steps of the weights after each. A step waits for the device.

    Args:
        model: what is trained; its weights change in place.
        algorithm: "perceptron" or "mira".
        C: the most that τ can be (MIRA).
        projective: predict trees without crossing arcs.
        single_root: predict trees with one word under the root.
        cost_augmented: predict the tree whose score + wrong heads is highest, not the best one; by default for MIRA,
            whose margin it is that matters.
        processes: others that train on parts of the same batches.
    """

    def __init__(
        self,
        model: TemplateScorer,
        *,
        algorithm: Literal["perceptron", "mira"] = "mira",
        C: float = 0.1,
        projective: bool = False,
        single_root: bool = True,
        cost_augmented: bool | None = None,
        processes: Processes | None = None,
    ) -> None:
        if algorithm not in ("perceptron", "mira"):
            raise ValueError(f"algorithm is {algorithm!r}; wanted 'perceptron' or 'mira'")
        if not C > 0:
            raise ValueError(f"C is {C}; wanted a number above 0")
        if not isinstance(model, TemplateScorer):
            raise ValueError(f"model is a {type(model).__name__}; {algorithm} trains a TemplateScorer")
        weights = {"weights": model.weights, "label_weights": model.label_weights}
        super().__init__(model, weights, processes)
        self.scorer = model
        self.algorithm = algorithm
        self.C = C
        self.projective = projective
        self.single_root = single_root
        self.cost_augmented = algorithm == "mira" if cost_augmented is None else cost_augmented

    @torch.no_grad()
    def step(self, batch: Batch | None, *, words: int | None = None, progress: float = 0.0) -> Stats:
        """One update (see ``Learner``); the loss is the share of wrong heads in the predicted trees."""
        device = self.scorer.weights.device
        counts = torch.zeros(2, dtype=torch.float64, device=device)  # wrong heads, wrong labels
        trees, labels, inference = None, None, Stopwatch(device)
        if batch is not None:
            trees, labels, inference = self._learn(batch, counts)
            words = int(batch.lengths.sum()) if words is None else words
        self.processes.sum_([counts])
        self._change("weights", trees)
        self._change("label_weights", labels)
        self.steps += 1
        wrong, wrong_labels = counts / max(1, words or 0)
        return {"loss": wrong, "wrong_labels": wrong_labels, "seconds_inference": inference}

    def _learn(self, batch: Batch, counts: Float64[Tensor, " two"]) -> tuple[Update, Update | None, Stopwatch]:
        """What to change for a batch, and the time of tree inference; adds up the wrong heads and labels."""
        gold = batch.heads
        if gold is None:
            raise ValueError("batch has no heads; training needs sentences with trees")
        nodes = self.scorer.nodes(batch)
        scores = self.scorer.score(nodes)
        clock = Stopwatch(gold.device)
        predicted = self._predict(scores, gold)
        clock.stop()
        right, found = (self.scorer.relatives(heads, batch.lengths) for heads in (gold, predicted))
        wrong = ((gold != predicted) & word_mask(batch.lengths, gold.shape[1])).sum(-1)
        # Words with the same relatives in both trees have the same features, which cancel.
        sentence, word = (right != found).any(-1).nonzero().unbind(-1)
        more, less = (
            self.scorer.features_at(nodes, sentence, word, relatives[sentence, word]) for relatives in (right, found)
        )
        trees = self._update(self.scorer.weights, sentence, more, less, wrong)
        counts[0] += wrong.sum()
        if batch.labels is None:
            return trees, None, clock
        best = self.scorer.score_labels(nodes, gold).argmax(-1)
        missed = (best != batch.labels) & (batch.labels >= 0)
        sentence, word = missed.nonzero().unbind(-1)
        rows = self.scorer.label_features_at(nodes, sentence, word, gold[sentence, word])
        count = self.scorer.label_weights.shape[1]
        more, less = (
            torch.where(rows >= 0, rows * count + labels[sentence, word][:, None], -1)
            for labels in (batch.labels, best)
        )
        counts[1] += missed.sum()
        return trees, self._update(self.scorer.label_weights, sentence, more, less, missed.sum(-1)), clock

    def _predict(self, scores: Scores, gold: Int64[Tensor, "B N"]) -> Int64[Tensor, "B N"]:
        if self.cost_augmented:
            scores = augmented(scores, gold, 1.0)
        return decode(scores, projective=self.projective, single_root=self.single_root).heads

    def _update(
        self,
        weights: Float[Tensor, "rows ..."],
        sentence: Int64[Tensor, " T"],
        more: Int64[Tensor, "T S"],
        less: Int64[Tensor, "T S"],
        loss: Int64[Tensor, " B"],
    ) -> Update:
        """The steps of all sentences, given the features of some words in the right tree and in the predicted one."""
        size = weights.numel()
        entries = torch.cat((more.flatten(), less.flatten()))
        signs = torch.cat((torch.ones_like(more), -torch.ones_like(less))).flatten().double()
        owner = torch.cat((sentence, sentence))[:, None].expand(-1, more.shape[1]).flatten()
        fires = entries >= 0
        # The same feature of several words of a sentence counts once, with the sum of its signs.
        keys, place = torch.unique(owner[fires] * size + entries[fires], return_inverse=True)
        amounts = signs.new_zeros(len(keys)).index_put_((place,), signs[fires], accumulate=True)
        owner, entries = keys // size, keys % size
        if self.algorithm == "mira":
            squares, margins = signs.new_zeros(2, len(loss))
            squares.index_put_((owner,), amounts.square(), accumulate=True)
            margins.index_put_((owner,), amounts * weights.view(-1)[entries].double(), accumulate=True)
            steps = ((loss - margins) / squares.clamp(min=1)).clamp(0, self.C)
            amounts = amounts * steps[owner]
        changed = amounts != 0
        return Update(entries[changed], amounts[changed])
