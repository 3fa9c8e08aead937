"""What all scorers of tags are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpuparse.data.tagging import TagBatch


class TagScorer(nn.Module, ABC):
    """A batch in, the scores of every tag at every word out, [B, n, T] in float32; of no meaning past a sentence's end.

    The first and the last tag need no scores of their own: what lies outside a sentence is a feature of its words.
    """

    @abstractmethod
    def forward(self, batch: TagBatch) -> Float[Tensor, "B n T"]:
        """Scores of tags."""

    @abstractmethod
    def pair_scores(self) -> Float[Tensor, "T T"]:
        """The score of each tag after each."""

    @abstractmethod
    def experts(self) -> list[ChainScorer]:
        """The parts that learn the tags each by itself; most often the scorer is the only one."""


class ChainScorer(TagScorer):
    """Has a weight for each pair of neighbouring tags."""

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(tags, tags))

    def pair_scores(self) -> Float[Tensor, "T T"]:
        return self.transitions

    def experts(self) -> list[ChainScorer]:
        return [self]


class MeanScorer(TagScorer):
    """The mean of several scorers. Each learns by itself: together, the first that knows the training data would leave
    nothing for the others to learn."""

    def __init__(self, members: Sequence[ChainScorer]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, batch: TagBatch) -> Float[Tensor, "B n T"]:
        return torch.stack([member(batch) for member in self.members]).mean(0)

    def pair_scores(self) -> Float[Tensor, "T T"]:
        return torch.stack([member.transitions for member in self.experts()]).mean(0)

    def experts(self) -> list[ChainScorer]:
        return [member for member in self.members if isinstance(member, ChainScorer)]
