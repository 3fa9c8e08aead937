"""How far to go along the subgradient: per-sentence step sizes of dual decomposition.

A rule is told, at every iteration, the value of the dual of each sentence and what is best so far, and says how long
the step is; it keeps what it needs to know of each sentence, and forgets sentences that leave.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

Each = Float64[Tensor, " B"]


class Step(Protocol):
    """A rule for the size of steps."""

    def begin(self, sentences: int, device: torch.device) -> Step:
        """A fresh one, for a batch."""

    def size(self, dual: Each, bound: Each, primal: Each, norm: Each) -> Each:
        """The next step.

        Args:
            dual: L(u) now; bound: the least so far; primal: the best score of a structure so far, -inf at first.
            norm: the square of the subgradient's length.
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
class Rises(ABC):
    """Steps that shrink with t, how often L(u) rose from one iteration to the next."""

    first: float
    rises: Each = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    last: Each = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))

    def begin(self, sentences: int, device: torch.device) -> Step:
        zero = torch.zeros(sentences, dtype=torch.float64, device=device)
        return type(self)(self.first, zero, zero + torch.inf)

    def take(self, rows: Int64[Tensor, " K"]) -> Step:
        return type(self)(self.first, self.rises[rows], self.last[rows])

    def size(self, dual: Each, bound: Each, primal: Each, norm: Each) -> Each:
        self.rises.add_((dual > self.last).double())
        self.last.copy_(dual)
        return 2 * self.first * self.shrink(self.rises)  # of two oracles each goes half of the way

    @abstractmethod
    def shrink(self, rises: Each) -> Each:
        """The share of the first step."""


@dataclass(frozen=True)
class Halving(Rises):
    """The paper's (Appendix B): first / 2^t, t being how often the dual rose.

    Example:
        >>> import torch
        >>> from gpuparse import dual
        >>> step = dual.Halving(1.0).begin(1, torch.device("cpu"))
        >>> [round(step.size(x, x, x, x).item(), 2) for x in torch.tensor([[3.0], [5.0], [4.0], [6.0]]).double()]
        [2.0, 1.0, 1.0, 0.5]
    """

    first: float = 0.5

    def shrink(self, rises: Each) -> Each:
        return 2.0**-rises


@dataclass(frozen=True)
class Decreasing(Rises):
    """That of Koo et al. (2010), less aggressive: first / (1 + t), t being how often the dual rose.

    Example:
        >>> import torch
        >>> from gpuparse import dual
        >>> step = dual.Decreasing(1.0).begin(1, torch.device("cpu"))
        >>> [round(step.size(x, x, x, x).item(), 2) for x in torch.tensor([[3.0], [5.0], [4.0], [6.0]]).double()]
        [2.0, 1.0, 1.0, 0.67]
    """

    first: float = 0.5

    def shrink(self, rises: Each) -> Each:
        return 1 / (1 + rises)


@dataclass(frozen=True)
class Polyak:
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

    factor: float = 2.0
    patience: int = 20
    shrink: float = 0.9
    guess: float = 0.1
    factors: Each = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    waited: Each = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    least: Each = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    start: Each = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))

    def _with(self, factors: Each, waited: Each, least: Each, start: Each) -> Polyak:
        return Polyak(self.factor, self.patience, self.shrink, self.guess, factors, waited, least, start)

    def begin(self, sentences: int, device: torch.device) -> Polyak:
        zero = torch.zeros(sentences, dtype=torch.float64, device=device)
        return self._with(zero + self.factor, zero.clone(), zero + torch.inf, zero + torch.inf)

    def take(self, rows: Int64[Tensor, " K"]) -> Polyak:
        return self._with(*(x[rows] for x in (self.factors, self.waited, self.least, self.start)))

    def size(self, dual: Each, bound: Each, primal: Each, norm: Each) -> Each:
        self.start.copy_(torch.where(self.start == torch.inf, dual, self.start))
        fell = bound < self.least
        self.least.copy_(torch.minimum(self.least, bound))
        self.waited.copy_(torch.where(fell, 0.0, self.waited + 1))
        cut = (self.waited >= self.patience) | (dual > self.start)
        self.factors.mul_(torch.where(cut, self.shrink, 1.0))
        self.waited.mul_((~cut).double())
        gap = torch.where(primal > -torch.inf, dual - primal, self.guess * torch.where(dual == 0, 1.0, dual.abs()))
        moves = (norm > 0) & gap.isfinite()  # else there is nowhere to go, or nothing to find
        return torch.where(moves, self.factors * gap.clamp(min=0) / norm, 0.0)
