"""Oracles over trees of a grammar: constituents with ``tags`` [B, n, T], head-lexicalised ones with ``arcs`` too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float64, Int64
from torch import Tensor

from gpuparse.decoding.dual.agreement import Found
from gpuparse.decoding.dual.oracles import OfTensors, arc_indicators, tag_indicators
from gpuparse.distributions import ConstituencyTrees, LexicalizedTrees
from gpuparse.structures.constituents import score_of, tags_of
from gpuparse.structures.grammars import Grammar


@dataclass(frozen=True)
class Constituents(OfTensors):
    """The best tree of a context-free grammar (CKY, O(n^3 R)); ``structures["tree"]``.

    Args:
        grammar: in float64.
        tags: scores [B, n, T] of the words' tags, float64.
        lengths: words of each sentence [B].

    Example:
        >>> import torch, gpuparse as gp
        >>> from gpuparse import dual
        >>> rule = [torch.tensor([x]) for x in (1, 0, 0, 0)]  # S -> T T, the head on the left
        >>> grammar = gp.Grammar(("T", "S"), 1, *rule, torch.zeros(1).double(), torch.zeros(2).double())
        >>> found = dual.Constituents(grammar, torch.ones(1, 2, 1).double(), torch.tensor([2])).best({})
        >>> found.value, found.structures["tree"].shape
        (tensor([2.], dtype=torch.float64), torch.Size([1, 3, 4]))
    """

    grammar: Grammar
    tags: Float64[Tensor, "B n T"]
    lengths: Int64[Tensor, " B"]

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"tags": tuple(self.tags.shape)}

    def best(self, penalties: Mapping[str, Tensor]) -> Found:
        tags = self.tags + penalties["tags"] if penalties else self.tags
        tree = ConstituencyTrees(self.grammar, tags, self.lengths, validate_args=False).argmax
        value = score_of(tree, self.grammar, tags, self.lengths)
        own = tag_indicators(tags_of(tree), tags.shape[2])
        return Found(value, {"tags": own}, {"tree": tree})

    def score(self, tree: Int64[Tensor, "B M 4"]) -> Float64[Tensor, " B"]:
        """Scores of trees, without penalties."""
        return score_of(tree, self.grammar, self.tags, self.lengths)


@dataclass(frozen=True)
class Lexicalized(OfTensors):
    """The best head-lexicalised tree (O(n^4 R)); ``structures["tree"]`` and ``structures["heads"]``.

    Args:
        grammar, tags, lengths: as of ``Constituents``.
        arcs: scores [B, N, N] of head words and their modifiers, float64.

    Example:
        >>> import torch, gpuparse as gp
        >>> from gpuparse import dual
        >>> rule = [torch.tensor([x]) for x in (1, 0, 0, 0)]  # S -> T T, the head on the left
        >>> grammar = gp.Grammar(("T", "S"), 1, *rule, torch.zeros(1).double(), torch.zeros(2).double())
        >>> tags, arcs = torch.ones(1, 2, 1).double(), torch.zeros(1, 3, 3).double()
        >>> dual.Lexicalized(grammar, tags, arcs, torch.tensor([2])).best({}).structures["heads"]
        tensor([[-1,  0,  1]])
    """

    grammar: Grammar
    tags: Float64[Tensor, "B n T"]
    arcs: Float64[Tensor, "B N N"]
    lengths: Int64[Tensor, " B"]

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"tags": tuple(self.tags.shape), "arcs": tuple(self.arcs.shape)}

    def _trees(self, penalties: Mapping[str, Tensor]) -> LexicalizedTrees:
        tags = self.tags + penalties["tags"] if "tags" in penalties else self.tags
        arcs = self.arcs + penalties["arcs"] if "arcs" in penalties else self.arcs
        return LexicalizedTrees(self.grammar, tags, arcs, self.lengths, validate_args=False)

    def best(self, penalties: Mapping[str, Tensor]) -> Found:
        trees = self._trees(penalties)
        tree = trees.argmax
        heads = LexicalizedTrees.heads_of(tree)
        indicators = {
            "tags": tag_indicators(LexicalizedTrees.tags_of(tree), self.tags.shape[2]),
            "arcs": arc_indicators(heads),
        }
        return Found(trees.score(tree).double(), indicators, {"tree": tree, "heads": heads})

    def score(self, tree: Int64[Tensor, "B M 5"]) -> Float64[Tensor, " B"]:
        """Scores of trees, without penalties."""
        return self._trees({}).score(tree).double()
