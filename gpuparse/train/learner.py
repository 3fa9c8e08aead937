"""What the training loop drives: one update a batch, and the state that the next one depends on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from gpuparse.data.batches import Tokens
from gpuparse.system.stopwatch import Stopwatch

AnyBatch = TypeVar("AnyBatch", bound=Tokens, contravariant=True)


Stats = Mapping[str, float | Tensor | Stopwatch]


def read_stats(stats: Sequence[Stats]) -> list[dict[str, float]]:
    """Statistics of steps as numbers: all by one copy, which waits for the device."""
    values = [value for each in stats for value in each.values() if isinstance(value, Tensor)]
    numbers = iter(torch.stack([value.detach().double() for value in values]).tolist() if values else [])
    return [
        {name: next(numbers) if isinstance(value, Tensor) else float(value) for name, value in each.items()}
        for each in stats
    ]


class Learner(Protocol[AnyBatch]):
    """A way to learn from batches."""

    model: nn.Module

    def step(self, batch: AnyBatch | None, *, words: int, progress: float) -> Stats:
        """One update.

        Args:
            batch: this process' part of the batch, with the right answers; ``None`` if it has none.
            words: words of the whole batch, all processes together.
            progress: how far training is, in [0, 1).

        Returns statistics: ``loss`` (per word, of the whole batch), ``seconds_inference`` and others by name. They may
        be on the device still: ``read_stats`` makes numbers of them.
        """

    def state(self) -> dict[str, Tensor]:
        """Everything beyond the model's own weights that the next step depends on, by name."""

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Put back what ``state()`` gave."""

    def evaluation_weights(self) -> AbstractContextManager[None]:
        """Within it the model holds the weights to evaluate and keep, then those in training again."""


@contextmanager
def holding(weights: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[None]:
    """Within it weights have these values, then their own again."""
    kept = [own.detach().clone() for own in weights]
    try:
        put(weights, values)
        yield
    finally:
        put(weights, kept)


@torch.no_grad()
def put(weights: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Give weights these values."""
    torch._foreach_copy_(list(weights), list(values))
