"""Oracles over trees: spanning arborescences, Eisner's, second-order projective ones, head automata, and taggers.

Indicators: ``arcs`` [B, N, N], 1 where word m hangs from h, at [h, m]; of head automata ``arcs`` is what each node says
of its children and ``heads`` [B, N, N] what each says of its own head; ``tags`` [B, n, T].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from gpuparse.decoding.dual.agreement import Found
from gpuparse.decoding.dual.priced import Pairs, PricedParts, hoped, price_stars
from gpuparse.distributions import SecondOrderTrees, TrigramChains
from gpuparse.ops import EISNER, MATRIX_TREE
from gpuparse.ops.automata import automata, third_order_automata
from gpuparse.structures.masks import word_mask
from gpuparse.structures.trees import tree_scores

if TYPE_CHECKING:
    from typing_extensions import Self

Rows = Int64[Tensor, " K"]


def arc_indicators(heads: Int64[Tensor, "B N"]) -> Float64[Tensor, "B N N"]:
    """1 where word m hangs from h, at [h, m]."""
    N = heads.shape[1]
    return (heads[:, None] == torch.arange(N, device=heads.device)[:, None]).double()


@dataclass(frozen=True)
class OfTensors:
    """An oracle that is made of tensors over the batch, and of what all sentences share (``shared``)."""

    shared: ClassVar[tuple[str, ...]] = ()

    @property
    def device(self) -> torch.device:
        lengths: Tensor = self.lengths  # type: ignore[attr-defined]
        return lengths.device

    def take(self, rows: Rows) -> Self:
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in self.shared}
        return replace(
            self,
            **{name: x[rows] for name, x in given.items() if isinstance(x, Tensor)},
            **{name: x.take(rows) for name, x in given.items() if isinstance(x, PricedParts)},
        )


@dataclass(frozen=True)
class TreeOracle(OfTensors):
    """First-order trees: the best arborescence (O(n^2)), or the best projective tree (O(n^3)).

    Args:
        arcs: scores [B, N, N], float64.
        names: by which its arcs are known to other oracles.

    Example:
        >>> import torch
        >>> from gpuparse import dual
        >>> dual.TreeOracle(torch.eye(4).roll(1, 1)[None].double(), torch.tensor([3])).best({}).structures["heads"]
        tensor([[-1,  0,  1,  2]])
    """

    arcs: Float64[Tensor, "B N N"]
    lengths: Int64[Tensor, " B"]
    projective: bool = False
    single_root: bool = True
    names: tuple[str, ...] = ("arcs",)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return dict.fromkeys(self.names, tuple(self.arcs.shape))

    def best(self, penalties: Mapping[str, Tensor]) -> Found:
        scores = self.arcs
        for u in penalties.values():
            scores = scores + u
        heads = (EISNER if self.projective else MATRIX_TREE).argmax((scores,), self.lengths, self.single_root)
        value = torch.where(heads[:, 1] < 0, -torch.inf, tree_scores(scores, heads, self.lengths))  # -1: no tree
        indicators = arc_indicators(heads)
        return Found(value, dict.fromkeys(self.names, indicators), {"heads": heads})


@dataclass(frozen=True)
class SecondOrderOracle(OfTensors):
    """Projective trees with siblings, grandparents, or both (O(n^3) or O(n^4)); scores are float64.

    Example:
        >>> import torch
        >>> from gpuparse import dual
        >>> some = torch.zeros(1, 3, 3).double(), torch.tensor([2])
        >>> dual.SecondOrderOracle(*some, grandparents=torch.ones(1, 3, 3, 3).double()).best({}).value
        tensor([1.], dtype=torch.float64)
    """

    arcs: Float64[Tensor, "B N N"]
    lengths: Int64[Tensor, " B"]
    siblings: Float64[Tensor, "B N N N"] | None = None
    grandparents: Float64[Tensor, "B N N N"] | None = None
    single_root: bool = True

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"arcs": tuple(self.arcs.shape)}

    def trees(self, arcs: Tensor, siblings: Tensor | None, grandparents: Tensor | None) -> SecondOrderTrees:
        """The distribution over its trees."""
        given: dict[str, Any] = {"single_root": self.single_root, "validate_args": False}
        return SecondOrderTrees(arcs, self.lengths, siblings=siblings, grandparents=grandparents, **given)

    def best(self, penalties: Mapping[str, Tensor]) -> Found:
        trees = self.trees(self.arcs + penalties["arcs"] if penalties else self.arcs, self.siblings, self.grandparents)
        heads = trees.argmax
        value = trees._score(heads).double()
        value = torch.where((word_mask(self.lengths, heads.shape[1]) & (heads < 0)).any(-1), -torch.inf, value)
        return Found(value, {"arcs": arc_indicators(heads)}, {"heads": heads})


@dataclass(frozen=True)
class HeadAutomata(OfTensors):
    """Every node chooses its children and, where there are grandparents, its own head (Koo et al. 2010); nodes need not
    agree with each other. With grandparents alone these are stars, O(n^3) in all; with siblings O(n^3), with both
    O(n^4).

    Args:
        arcs: scores [B, N, N] of children.
        siblings, grandparents: scores [B, N, N, N], or parts that are priced: what the best stars have of them is
            scored, which waits for the device.
        under: scores [B, N, N, N, N] of grandsiblings, with siblings and grandparents in them, which are then not
            given: O(n^4) as well.

    Example:
        >>> import torch
        >>> from gpuparse import dual
        >>> arcs, siblings = torch.ones(1, 3, 3).double(), torch.zeros(1, 3, 3, 3).double()
        >>> automata = dual.HeadAutomata(arcs, torch.tensor([2]), siblings)
        >>> automata.best({}).value  # the root chooses one child, each word the other
        tensor([3.], dtype=torch.float64)
    """

    arcs: Float64[Tensor, "B N N"]
    lengths: Int64[Tensor, " B"]
    siblings: Pairs = None
    grandparents: Pairs = None
    single_root: bool = True
    up: Float64[Tensor, "B N N"] | None = None
    under: Float64[Tensor, "B N N N N"] | None = None

    @property
    def _choose_heads(self) -> bool:
        return self.grandparents is not None or self.under is not None

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        names = ("arcs", "heads") if self._choose_heads else ("arcs",)
        return dict.fromkeys(names, tuple(self.arcs.shape))

    def best(self, penalties: Mapping[str, Tensor]) -> Found:
        down, up = self.arcs, self.up
        if "arcs" in penalties:
            down = down + penalties["arcs"]
        if self._choose_heads:
            up = torch.zeros_like(down) if up is None else up
            up = up + penalties["heads"] if "heads" in penalties else up
        if up is not None and self.under is not None:
            found = third_order_automata(down, up, self.under, self.lengths, single_root=self.single_root)
        else:
            pairs = self.siblings, self.grandparents
            given = hoped(self.siblings), hoped(self.grandparents), self.lengths
            found = price_stars(lambda: automata(down, up, *given, single_root=self.single_root), pairs)
        indicators = {"arcs": found.children.double()}
        if self._choose_heads:
            indicators["heads"] = arc_indicators(found.heads)
        return Found(found.values.sum(-1), indicators)


@dataclass(frozen=True)
class TaggerOracle(OfTensors):
    """Chains of tags with trigrams.

    Args:
        unary: scores [B, n, T]; trigrams: [T, T, T].

    Example:
        >>> import torch
        >>> from gpuparse import dual
        >>> tagger = dual.TaggerOracle(torch.eye(3)[None].double(), torch.zeros(3, 3, 3).double(), torch.tensor([3]))
        >>> tagger.best({}).structures["tags"]
        tensor([[0, 1, 2]])
    """

    shared = ("trigrams",)
    unary: Float64[Tensor, "B n T"]
    trigrams: Float64[Tensor, "T T T"]
    lengths: Int64[Tensor, " B"]

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"tags": tuple(self.unary.shape)}

    def best(self, penalties: Mapping[str, Tensor]) -> Found:
        unary = self.unary + penalties["tags"] if penalties else self.unary
        chains = TrigramChains(unary, self.trigrams, self.lengths, validate_args=False)
        tags = chains.argmax
        value = chains._chain_scores(tags.clamp(min=0))
        value = torch.where(tags[:, 0] < 0, -torch.inf, value)
        return Found(value, {"tags": tag_indicators(tags, unary.shape[2])}, {"tags": tags})


def tag_indicators(tags: Int64[Tensor, "B n"], T: int) -> Float64[Tensor, "B n T"]:
    """1 where word i has tag t; 0 past the end."""
    return (tags[..., None] == torch.arange(T, device=tags.device)).double()
