"""Training by gradients: AdamW with warm-up and decay, clipping, averaged weights."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Generic

import torch
from torch import Tensor, nn

from gpuparse.config import TrainingConfig
from gpuparse.data.batches import Batch
from gpuparse.decoding.scores import Scores
from gpuparse.system.devices import takes_bf16
from gpuparse.system.stopwatch import Stopwatch
from gpuparse.train.distributed import Processes
from gpuparse.train.learner import AnyBatch, Stats, holding
from gpuparse.train.objectives import label_loss, tree_objective


class LossLearner(ABC, Generic[AnyBatch]):
    """Learns a scorer by the gradient of a loss.

    The scores are cut from the scorer's graph: the loss of a structure is taken and differentiated by itself, then
    its gradient is sent on into the scorer. So the time of the inference, forward and backward, is known. A step waits
    for nothing: its statistics are read by who wants them.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig, processes: Processes | None = None) -> None:
        if config.objective not in ("nll", "local", "hinge", "bp", "bp_l2", "dd"):
            raise ValueError(f"training.objective: {config.objective!r} is not trained by gradients")
        self.model = model
        self.config = config
        self.processes = processes or Processes()
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        pretrained = [p for name, p in self.parameters.items() if "pretrained.model." in name]
        others = [p for name, p in self.parameters.items() if "pretrained.model." not in name]
        groups = [{"params": others, "share": 1.0}, {"params": pretrained, "share": config.pretrained_rate}]
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.average = [p.detach().clone() for p in self.parameters.values()] if config.average else None
        self.bf16 = config.bf16 and takes_bf16(next(model.parameters()).device)
        self.steps = 0

    def step(self, batch: AnyBatch | None, *, words: int, progress: float) -> Stats:
        """One update. See ``Learner``."""
        config = self.config
        parameters = list(self.parameters.values())
        self.model.train()
        torch.manual_seed(_mix(config.seed, self.steps, self.processes.rank))  # so a resumed run drops the same
        self.optimizer.zero_grad(set_to_none=True)
        loss = parameters[0].new_zeros((), dtype=torch.float64)
        inference = Stopwatch(loss.device)
        if batch is not None:
            loss, inference = self._backward(batch, words)
        grads = []
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            grads.append(parameter.grad)
        self.processes.sum_([*grads, loss])
        norm = nn.utils.get_total_norm(grads)
        if config.clip:
            nn.utils.clip_grads_with_norm_(parameters, config.clip, norm)
        rate = config.learning_rate * rate_at(progress, config)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"]
        self.optimizer.step()
        self._after(rate)
        self.steps += 1
        if self.average is not None:
            # A short average at first, so that the beginning is forgotten.
            keep = min(config.average, (1 + self.steps) / (10 + self.steps))
            torch._foreach_lerp_(self.average, [p.detach() for p in parameters], 1 - keep)
        return {"loss": loss, "gradient_norm": norm, "learning_rate": rate, "seconds_inference": inference}

    @abstractmethod
    def _backward(self, batch: AnyBatch, words: int) -> tuple[Tensor, Stopwatch]:
        """Gradients of the loss per word of the whole batch; the loss, and the time in inference."""

    def _after(self, rate: float) -> None:
        """What is done to the weights after a step at this rate."""

    def state(self) -> dict[str, Tensor]:
        """Moments, averages and the count of steps."""
        state = {"steps": torch.tensor(self.steps)}
        for number, (name, parameter) in enumerate(self.parameters.items()):
            for key, value in self.optimizer.state[parameter].items():
                state[f"optimizer.{key}.{name}"] = value
            if self.average is not None:
                state[f"average.{name}"] = self.average[number]
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Put back what ``state()`` gave."""
        self.steps = int(state["steps"])
        for number, (name, parameter) in enumerate(self.parameters.items()):
            prefix, suffix = "optimizer.", f".{name}"
            moments = {
                key[len(prefix) : -len(suffix)]: value.to(parameter.device)
                for key, value in state.items()
                if key.startswith(prefix) and key.endswith(suffix) and "." not in key[len(prefix) : -len(suffix)]
            }
            shapes = {"step": (), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
            if moments and {key: value.shape for key, value in moments.items()} != shapes:
                raise ValueError(f"the optimizer's moments of {name!r} have other names or shapes than its weights")
            self.optimizer.state[parameter] = moments
            if self.average is not None:
                self.average[number].copy_(state[f"average.{name}"])

    def evaluation_weights(self) -> AbstractContextManager[None]:
        """The averaged weights, where there is an average."""
        return nullcontext() if self.average is None else holding(list(self.parameters.values()), self.average)


class GradientLearner(LossLearner[Batch]):
    """The same for parsers: trees, and labels given the right heads."""

    def __init__(self, model: nn.Module, config: TrainingConfig, processes: Processes | None = None) -> None:
        super().__init__(model, config, processes)
        self.objective = tree_objective(
            config.objective,  # type: ignore[arg-type]
            projective=config.projective,
            single_root=config.single_root,
            margin=config.margin,
            iterations=config.bp_iterations,
            dd_iterations=config.dd_iterations,
        )

    def _backward(self, batch: Batch, words: int) -> tuple[Tensor, Stopwatch]:
        assert batch.heads is not None and batch.labels is not None
        device = batch.heads.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.bf16):
            scored = self.model(batch)
            labels = label_loss(scored.label_scores(batch.heads), batch.labels).sum() / words
            given = {"arcs": scored.scores.arcs, **scored.scores.tensors()}
        clock = Stopwatch(device)
        cut = {name: each.detach().requires_grad_() for name, each in given.items()}
        scores = Scores(**cut, lengths=batch.lengths, validate_args=False)
        trees = self.objective(scores, batch.heads).sum() / words
        gradients = torch.autograd.grad(trees, list(cut.values()))
        clock.stop()
        torch.autograd.backward([*given.values(), labels], [*gradients, None])
        return (trees.detach() + labels.detach()).double(), clock


def rate_at(progress: float, config: TrainingConfig) -> float:
    """The learning rate as a share of its highest: it rises over ``warmup``, then decays to zero at the end."""
    if progress < config.warmup:
        return (progress + 1e-3) / (config.warmup + 1e-3)
    left = (1 - progress) / (1 - config.warmup)
    if config.decay == "linear":
        return left
    if config.decay == "cosine":
        return 0.5 - 0.5 * math.cos(math.pi * left)
    return 1.0


def _mix(*numbers: int) -> int:
    """One seed of several numbers, each of which matters."""
    mixed = 0
    for number in numbers:
        mixed = (mixed * 6364136223846793005 + number + 1442695040888963407) % 2**63
    return mixed
