"""How far to go along the subgradient: per-sentence step sizes of dual decomposition.

A rule is told, at every iteration, the value of the dual of each sentence and what is best so far, and says how long
the step is; it keeps what it needs to know of each sentence, and forgets sentences that leave. Kernels know the rules
that are here, by their ``kind`` and ``state``; any other is asked for its ``size``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from gpuparse.ops.plain import multipliers
from gpuparse.ops.plain.multipliers import Each

if TYPE_CHECKING:
    from typing_extensions import Self


class Step(Protocol):
    """A rule for the size of steps."""

    def begin(self, sentences: int, device: torch.device) -> Step:
        """A fresh one, for a batch."""

    def size(self, dual: Each, bound: Each, primal: Each, norm: Each) -> Each:
        """The next step.

        Args:
            dual: L(u) now; bound: the least so far; primal: the best score of a structure so far, -inf at first.
            norm: the square of the subgradient's length.

        Sentences that are done may be among them; what is said of these does not matter.
        """

    def take(self, rows: Int64[Tensor, " K"]) -> Step:
        """What is known of some of the sentences."""


def check_step(step: object) -> None:
    """A ``ValueError`` where it is no rule."""
    if step is not None and (
        isinstance(step, type) or not all(hasattr(step, name) for name in ("begin", "size", "take"))
    ):
        found = step.__name__ if isinstance(step, type) else repr(step)
        raise ValueError(
            f"step must be a rule of gpuparse.decoding.dual, such as Polyak() or Halving(0.5), got {found}"
        )


@dataclass(frozen=True)
class OfKernels(ABC):
    """A rule that kernels know."""

    kind: ClassVar[int]
    state: Float64[Tensor, "B 7"] = field(
        default_factory=lambda: torch.zeros(0, multipliers.RULE, dtype=torch.float64), kw_only=True, repr=False
    )

    @abstractmethod
    def first_state(self) -> tuple[float, ...]:
        """That of every sentence."""

    def begin(self, sentences: int, device: torch.device) -> Self:
        state = torch.zeros(sentences, multipliers.RULE, dtype=torch.float64, device=device)
        for column, number in zip(state.unbind(1), self.first_state(), strict=False):
            column.fill_(number)
        return replace(self, state=state)

    def take(self, rows: Int64[Tensor, " K"]) -> Self:
        return replace(self, state=self.state[rows])

    def size(self, dual: Each, bound: Each, primal: Each, norm: Each) -> Each:
        return multipliers.step_size(self.kind, self.state, dual, bound, primal, norm)


@final
@dataclass(frozen=True)
class Halving(OfKernels):
    """The paper's (Appendix B): first / 2^t, t being how often the dual rose.

    Example:
        >>> import torch
        >>> from gpuparse import dual
        >>> step = dual.Halving(1.0).begin(1, torch.device("cpu"))
        >>> [round(step.size(x, x, x, x).item(), 2) for x in torch.tensor([[3.0], [5.0], [4.0], [6.0]]).double()]
        [2.0, 1.0, 1.0, 0.5]
    """

    kind = multipliers.HALVING
    first: float = 0.5

    def first_state(self) -> tuple[float, ...]:
        return 0.0, torch.inf, self.first


@final
@dataclass(frozen=True)
class Decreasing(OfKernels):
    """That of Koo et al. (2010), less aggressive: first / (1 + t), t being how often the dual rose.

    Example:
        >>> import torch
        >>> from gpuparse import dual
        >>> step = dual.Decreasing(1.0).begin(1, torch.device("cpu"))
        >>> [round(step.size(x, x, x, x).item(), 2) for x in torch.tensor([[3.0], [5.0], [4.0], [6.0]]).double()]
        [2.0, 1.0, 1.0, 0.67]
    """

    kind = multipliers.DECREASING
    first: float = 0.5

    def first_state(self) -> tuple[float, ...]:
        return 0.0, torch.inf, self.first


@final
@dataclass(frozen=True)
class Polyak(OfKernels):
    """The running gap over the squared length of the subgradient, times a factor that shrinks where the bound has not
    fallen for some iterations, or the dual rises above where it began.

    Args:
        factor: 1 would go to the primal score if the dual were linear.
        patience: iterations without a lower bound, after which the factor is multiplied by ``shrink``.
        guess: the gap, as a share of the dual's size, where no structure is known yet.

    Example:
        >>> import torch, gpuparse as gp
        >>> from gpuparse import dual
        >>> scores = gp.Scores(torch.zeros(1, 4, 4), siblings=torch.ones(1, 4, 4, 4))
        >>> dual.second_order(scores, step=dual.Polyak(factor=1.0)).run().certified
        tensor([True])
    """

    kind = multipliers.POLYAK
    factor: float = 2.0
    patience: int = 20
    shrink: float = 0.9
    guess: float = 0.1

    def first_state(self) -> tuple[float, ...]:
        return self.factor, 0.0, torch.inf, torch.inf, self.patience, self.shrink, self.guess
