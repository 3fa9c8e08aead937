"""What distributions over the binary trees of a grammar have in common."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from gpuparse.distributions.base import StructuredDistribution
from gpuparse.structures.constituents import as_trees
from gpuparse.structures.grammars import Grammar
from gpuparse.structures.trees import as_scores


class GrammarTrees(StructuredDistribution):
    """A tree has a tag for each word, rules above them and a symbol at its root, all with scores."""

    exists = False
    columns: ClassVar[int]
    """Numbers that say what a span of a tree is."""
    grammar: Grammar
    tags: Float[Tensor, "B n T"]

    @staticmethod
    def _as_tags(tags: Tensor, grammar: Grammar) -> Float[Tensor, "B n T"]:
        if not isinstance(grammar, Grammar):
            raise ValueError(f"grammar must be a gpuparse.Grammar, got {type(grammar).__name__}")
        tags = as_scores(tags, "tags")
        if tags.dim() != 3 or tags.shape[1] < 1 or tags.shape[2] != grammar.tags:
            raise ValueError(
                f"tags must have shape [B, n, T] with a word at least and T = {grammar.tags} as in the grammar, "
                f"got {list(tags.shape)}"
            )
        return tags

    def _event(self, tags: Tensor) -> tuple[int, int]:
        return 2 * tags.shape[1] - 1, self.columns

    def _sizes(self) -> str:
        return f"words: {self.tags.shape[1]}, {self.grammar!r}"

    def _greatest(self) -> int:
        return max(self.tags.shape[1], len(self.grammar.symbols) - 1)

    def _as_structures(self, value: Tensor) -> Int[Tensor, "*S B M columns"]:
        return as_trees(value, self.tags, self.columns)

    @property
    def tag_marginals(self) -> Float[Tensor, "B n T"]:
        """Probability of each tag of each word."""
        return self._sums("tags")

    @property
    def rule_marginals(self) -> Float[Tensor, "B R"]:
        """Expected number of times that each rule is used."""
        return self._sums("rules")

    @property
    def root_marginals(self) -> Float[Tensor, "B S"]:
        """Probability of each symbol at the root."""
        return self._sums("roots")
