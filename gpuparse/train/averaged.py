"""What error-driven learners share: sparse updates, and weights that are the mean over all steps."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn

from gpuparse.train.distributed import Processes
from gpuparse.train.learner import holding


class Update(NamedTuple):
    """A sparse change of weights: to each entry add its amount; an entry may be there several times."""

    entries: Int64[Tensor, " D"]
    amounts: Float64[Tensor, " D"]


class AveragedLearner:
    """Changes weights in place and keeps their mean.

    The weights to evaluate are the mean over all steps of the weights after each, kept as w − u / steps, where u has
    each change times the steps before it: exact, and no work for weights that do not change.

    Args:
        model: what is trained.
        weights: its weights by name.
        processes: others that train on parts of the same batches.
    """

    def __init__(self, model: nn.Module, weights: Mapping[str, Tensor], processes: Processes | None = None) -> None:
        self.model = model
        self.processes = processes or Processes()
        self.steps = 0
        self._weights = weights
        self._sums = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in weights.items()}

    def state(self) -> dict[str, Tensor]:
        """The sums for averaging and the number of steps."""
        return {"steps": torch.tensor(self.steps), **{f"sum.{name}": value for name, value in self._sums.items()}}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Put back what ``state()`` gave."""
        self.steps = int(state["steps"])
        for name, value in self._sums.items():
            value.copy_(state[f"sum.{name}"])

    def evaluation_weights(self) -> AbstractContextManager[None]:
        """Within it the model has the averaged weights."""
        with torch.no_grad():
            means = [p.double() - self._sums[name] / max(1, self.steps) for name, p in self._weights.items()]
        return holding(list(self._weights.values()), means)

    def _change(self, name: str, update: Update | None) -> None:
        """Add an update to the weights, and to their sum times the steps before this one."""
        weights, total = self._weights[name].view(-1), self._sums[name].view(-1)
        none = Update(total.new_zeros(0, dtype=torch.int64), total[:0])
        entries, amounts = self._of_all(none if update is None else update)
        # What is added to the sum has to be what the weights in their precision really change by.
        entries, place = torch.unique(entries, return_inverse=True)
        amounts = amounts.new_zeros(len(entries)).index_put_((place,), amounts, accumulate=True)
        before = weights[entries]
        after = (before.double() + amounts).to(weights.dtype)
        weights[entries] = after
        total[entries] += self.steps * (after.double() - before.double())

    def _of_all(self, update: Update) -> Update:
        """The updates of all the processes, one after the other: each is added to zeros in a place of its own."""
        rank, world = self.processes.rank, self.processes.world
        if world == 1:
            return update
        counts = update.entries.new_zeros(world)
        counts[rank] = len(update.entries)
        self.processes.sum_([counts])
        sizes = counts.tolist()
        begin, end = sum(sizes[:rank]), sum(sizes[: rank + 1])
        every = Update(*(value.new_zeros(sum(sizes)) for value in update))
        for whole, own in zip(every, update, strict=True):
            whole[begin:end] = own
        if sum(sizes):
            self.processes.sum_(every)
        return every
