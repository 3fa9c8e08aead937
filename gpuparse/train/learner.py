"""What the training loop drives: one update a batch, and the state that the next one depends on."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from torch import Tensor, nn

from gpuparse.data.batches import Tokens

AnyBatch = TypeVar("AnyBatch", bound=Tokens, contravariant=True)


class Learner(Protocol[AnyBatch]):
    """A way to learn from batches."""

    model: nn.Module

    def step(self, batch: AnyBatch | None, *, words: int, progress: float) -> dict[str, float]:
        """One update.

        Args:
            batch: this process' part of the batch, with the right answers; ``None`` if it has none.
            words: words of the whole batch, all processes together.
            progress: how far training is, in [0, 1).

        Returns statistics: ``loss`` (per word, of the whole batch), ``seconds_inference`` and others by name.
        """

    def state(self) -> dict[str, Tensor]:
        """Everything beyond the model's own weights that the next step depends on, by name."""

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Put back what ``state()`` gave."""

    def evaluation_weights(self) -> AbstractContextManager[None]:
        """Within it the model holds the weights to evaluate and keep, then those in training again."""
