"""Non-projective parsing of second order: a spanning tree and head automata that must agree (Koo et al. 2010)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from gpuparse.decoding.dual.agreement import Found, Rounding, Rows, Said, Structures
from gpuparse.decoding.dual.decomposition import DualDecomposition
from gpuparse.decoding.dual.oracles import HeadAutomata, TreeOracle
from gpuparse.decoding.dual.priced import PricedParts, Used, hoped, known
from gpuparse.decoding.dual.steps import Step
from gpuparse.decoding.parts import Parts, legal_quadruples, legal_triples
from gpuparse.decoding.scores import Scores
from gpuparse.ops import MATRIX_TREE
from gpuparse.ops.automata import Before, Stars, automata
from gpuparse.ops.multipliers import readings
from gpuparse.structures.trees import can_validate

SHARE = 0.5  # of the arcs' scores that the automata have
ROUNDS = 1  # of pricing in an iteration: what is still not exact then is scored in a later one
REST = 8  # iterations, at most, after which it is looked whether there is anything to price


def second_order(
    scores: Scores,
    *,
    single_root: bool = True,
    share: float = SHARE,
    step: Step | None = None,
    iterations: int = 500,
    rounding: Rounding | None = None,
    keep: bool = False,
) -> DualDecomposition:
    """The best trees, crossing or not, under arcs with siblings, grandparents, or both; ``structures["heads"]`` [B, N].
    With grandsiblings, too: then all pairs are scored.

    Args:
        scores: of arcs and pairs; of labels the best of each arc counts.
        single_root: one word hangs on the root (default), or any number.
        share: of the arcs' scores that the automata have at first.
        step, iterations, rounding, keep: as of ``DualDecomposition``.

    Example:
        >>> import torch, gpuparse as gp
        >>> from gpuparse import dual
        >>> scores = gp.Scores(torch.eye(4).roll(1, 1)[None], grandparents=torch.zeros(1, 4, 4, 4))
        >>> dual.second_order(scores).run().structures["heads"]
        tensor([[-1,  0,  1,  2]])
    """
    arcs, lengths = scores.fold_labels().arcs.detach().double(), scores.lengths
    third = scores.grandsiblings
    names = ("arcs",) if scores.grandparents is None and third is None else ("arcs", "heads")
    if not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise ValueError(f"share must be a number from 0 to 1, got {share!r}")
    trees = TreeOracle(scaled(arcs, 1 - share), lengths, single_root=single_root, names=names)
    siblings, grandparents = (
        None if parts is None else as_pairs(parts, arcs, lengths, priced=third is None)
        for parts in (scores.siblings, scores.grandparents)
    )
    own = scaled(arcs, share)
    if third is None:
        stars = HeadAutomata(own, lengths, siblings, grandparents, single_root)
    else:
        assert not isinstance(siblings, PricedParts) and not isinstance(grandparents, PricedParts)
        under = _under(third.detach(), siblings, grandparents, lengths)
        stars = HeadAutomata(own, lengths, single_root=single_root, under=under)
    pairs: dict[str, Any] = {"siblings": siblings, "grandparents": grandparents, "grandsiblings": third}
    detached = Scores(arcs, lengths, **pairs, validate_args=False)

    def primal(found: Sequence[Found], rows: Int64[Tensor, " K"]) -> tuple[Structures, Float64[Tensor, " K"]]:
        heads = found[0].structures["heads"]
        return {"heads": heads}, detached.take(rows).total(heads)

    options: dict[str, Any] = {"step": step, "iterations": iterations, "rounding": rounding, "keep": keep}
    together = TreesAndStars(trees, stars, arcs) if third is None else None
    return DualDecomposition([trees, stars], primal=primal, together=together, **options)


@dataclass
class TreesAndStars:
    """Spanning trees and head automata, asked at once; and the scores of arcs that both have together. Stars whose
    penalties are those of the last call are not looked for again.

    What they use of lazily scored pairs is scored at once where that waits for nothing, else at the next look; until
    then the score of a tree that has such a part is not known.
    """

    trees: TreeOracle
    stars: HeadAutomata
    arcs: Float64[Tensor, "B N N"]
    before: Before | None = None

    def __post_init__(self) -> None:
        self.used = Used(self.stars.siblings, self.stars.grandparents)
        self.rest, self.pause = 1, 0

    def ask(self, u: Float64[Tensor, "B T"]) -> Said:
        trees, stars = self.trees, self.stars
        lengths, root = trees.lengths, trees.single_root
        penalties = u.unflatten(1, (len(trees.names), 2, *self.arcs.shape[1:]))
        scores, down, up = trees.arcs + penalties[:, 0, 0], stars.arcs + penalties[:, 0, 1], stars.up
        if stars.grandparents is not None:
            scores += penalties[:, 1, 0]
            own = penalties[:, 1, 1]  # of one sentence it lies side by side already, and will change
            up = own.clone(memory_format=torch.contiguous_format) if up is None else up + own
        heads = MATRIX_TREE.argmax((scores,), lengths, root)
        pairs = hoped(stars.siblings), hoped(stars.grandparents)
        for again in range(1 + ROUNDS):
            found = automata(down, up, *pairs, lengths, single_root=root, before=self.before)
            self.before = Before(down, up, found)
            if again == ROUNDS or not self._price_now(found):
                break
        exact = known(stars.siblings), known(stars.grandparents)
        says, values, score = readings(scores, self.arcs, *exact, lengths, heads, found)
        if self.used.families and (not can_validate(heads, None) or bool(score.isneginf().any())):
            self.used.trees.append(heads)
            if can_validate(heads, None) and self._price():
                says, values, score = readings(scores, self.arcs, *exact, lengths, heads, found)
        return Said(values, says, {"heads": heads}, score)

    def look(self) -> None:
        if not can_validate(self.arcs, None):
            self._price()

    def _price_now(self, found: Stars) -> bool:
        """Whether stars are to be looked for again, now that what they have is scored; where there was nothing to score
        lately, that is left for some iterations."""
        if not self.used.families:
            return False
        self.used.stars.append(found)
        if not can_validate(self.arcs, None):
            return False
        self.pause -= 1
        if self.pause > 0:
            return False
        again = self._price()
        self.rest = 1 if again else min(2 * self.rest, REST)
        self.pause = 0 if again else self.rest
        return again

    def _price(self) -> bool:
        """Score what was used; whether stars may be others by that, which are to be looked for again."""
        changed = self.used.price()
        if changed is not None and self.before is not None:
            down = self.before.down.clone()
            down[changed] = torch.nan  # as nothing is
            self.before = self.before._replace(down=down)
        return changed is not None

    def take(self, rows: Rows) -> TreesAndStars:
        return TreesAndStars(self.trees.take(rows), self.stars.take(rows), self.arcs[rows])


def _under(
    grandsiblings: Tensor, siblings: Tensor | None, grandparents: Tensor | None, lengths: Tensor
) -> Float64[Tensor, "B N N N N"]:
    """Grandsiblings [g, h, s, m] with the siblings and grandparents that go with them; siblings of the root's children
    at [0, 0, s, m]. 0 where there is none."""
    found = torch.where(legal_quadruples(lengths, grandsiblings.shape[1]), grandsiblings.double(), 0.0)
    if siblings is not None:
        found += siblings[:, None]
    if grandparents is not None:
        found += grandparents[:, :, :, None]
    return found


def scaled(scores: Tensor, by: float) -> Tensor:
    """Scores times a number; what is forbidden stays so."""
    return torch.where(scores.isneginf(), scores, by * scores)


def as_pairs(
    parts: Parts, arcs: Float64[Tensor, "B N N"], lengths: Int64[Tensor, " B"], *, priced: bool = True
) -> Float64[Tensor, "B N N N"] | PricedParts:
    """Scores of pairs as head automata take them; another device would be waited for to score some of them.
    ``priced``: whether that may be left for later."""
    if priced and isinstance(parts, PricedParts):
        return parts
    if priced and parts.lazy and parts.device.type == "cpu":
        return PricedParts.of(parts, arcs.isneginf())
    return dense_parts(parts, lengths)


def dense_parts(parts: Parts, lengths: Int64[Tensor, " B"]) -> Float64[Tensor, "B N N N"]:
    """All of them, 0 where there is none."""
    dense = parts.dense().detach().double()
    return torch.where(legal_triples(parts.kind, lengths, dense.shape[1]), dense, 0.0)
