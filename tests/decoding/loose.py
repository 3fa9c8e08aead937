"""Pairs that are scored where someone asks, under bounds that may be loose; of any values, forbidden ones included."""

from __future__ import annotations

import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.decoding.parts import DenseParts, Parts


class LooseParts(Parts):
    """Scores of a tensor.

    Args:
        parts: the scores.
        slack: what bounds are above the greatest score, times numbers from 0 to 1.

    ``asked``: every triple that was scored, as often as it was.
    """

    def __init__(self, parts: DenseParts, slack: float, seed: int = 0) -> None:
        super().__init__(parts.kind, parts.lengths, parts.nodes, parts.dtype, parts.device)
        self.parts, self.slack, self.seed = parts, slack, seed
        self.asked: list[tuple[int, int, int, int]] = []

    def bound(self, axis: int) -> Tensor:
        most = self.parts.bound(axis)
        g = torch.Generator().manual_seed(self.seed + axis)
        more = self.slack * torch.rand(most.shape, generator=g).to(most)
        return torch.where(most.isneginf(), most, most + more)

    def to(self, device: torch.device | str) -> LooseParts:
        return LooseParts(self.parts.to(device), self.slack, self.seed)

    def _score(self, sentence: Tensor, i: Tensor, j: Tensor, k: Tensor) -> Tensor:
        self.asked += zip(*(x.tolist() for x in (sentence, i, j, k)), strict=True)
        return self.parts._score(sentence, i, j, k)

    def _dense(self) -> Tensor:
        raise AssertionError("every triple is asked for")


def loose(scores: gp.Scores, slack: float = 1.0, seed: int = 0) -> gp.Scores:
    """The same scores, their pairs under loose bounds."""
    made = {}
    for parts in scores.parts:
        assert isinstance(parts, DenseParts)
        made[parts.kind] = LooseParts(parts, slack, seed)
    return scores.with_parts(made.get("siblings"), made.get("grandparents"))
