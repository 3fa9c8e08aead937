"""A batch of sentences for every family that is declared in gpuparse.ops, made from its declaration."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gpuparse.ops import EISNER, MATRIX_TREE
from gpuparse.ops.cky import CKY
from gpuparse.ops.family import Family
from gpuparse.ops.lexical import LEXICAL
from gpuparse.ops.plain.cky import index_rules
from gpuparse.ops.plain.lexical import Rules
from gpuparse.ops.second_order import SECOND_ORDER, THIRD_ORDER


class Kind(NamedTuple):
    family: Family
    single_root: bool | None = None
    without: tuple[str, ...] = ()
    """Names of scores that there are not."""
    shared: tuple[str, ...] = ()
    """Names of scores that sentences share."""


class Example(NamedTuple):
    family: Family
    scores: list[Tensor | None]
    inputs: tuple[object, ...]

    def read(self, which: int) -> Tensor:
        """Which of the scores of a kind are read."""
        x = self.scores[which]
        mask = self.family.plain.masks(self.scores, self.lengths)[which]
        assert x is not None
        return (
            torch.ones_like(x, dtype=torch.bool) if mask is None else mask.reshape(mask.shape[-x.dim() :]).expand_as(x)
        )

    @property
    def lengths(self) -> Tensor:
        (found,) = (x for x in self.inputs if isinstance(x, Tensor) and x.dtype == torch.int64)
        return found


ARCS: dict[str, Kind] = {
    f"{s.name}{', many roots' * (not root)}": Kind(s, root) for s in (EISNER, MATRIX_TREE) for root in (True, False)
}
KINDS: dict[str, Kind] = {
    **ARCS,
    "siblings": Kind(SECOND_ORDER, True, ("grandparents?",)),
    "siblings, many roots": Kind(SECOND_ORDER, False, ("grandparents?",)),
    "grandparents": Kind(SECOND_ORDER, True, ("siblings?",)),
    "grandparents, many roots": Kind(SECOND_ORDER, False, ("siblings?",)),
    "grandsiblings": Kind(SECOND_ORDER, True),
    "grandsiblings, many roots": Kind(SECOND_ORDER, False),
    "third order": Kind(THIRD_ORDER, True),
    "third order, many roots": Kind(THIRD_ORDER, False, ("siblings?", "grandparents?")),
    "cky": Kind(CKY, without=("spans?",)),
    "cky, spans": Kind(CKY),
    "lexical": Kind(LEXICAL, shared=("rules", "roots")),
    "lexical, own rules": Kind(LEXICAL, shared=("roots",)),
}


def example(
    name: str, dtype: torch.dtype = torch.float64, words: int = 5, *, symbols: int = 7, tags: int = 3, rules: int = 60
) -> Example:
    """Of five sentences: one as it comes, one with forbidden parts, one that needs the wide numbers, one of one word
    with NaN where nothing is read, and one without any structure. Words 2 and 3 want each other."""
    kind, g = KINDS[name], torch.Generator().manual_seed(words)
    lengths = torch.tensor([words, 3, words - 1, 1, 4])
    every = torch.cartesian_prod(*map(torch.arange, (symbols - tags, symbols, symbols, 2)))
    chosen = every[torch.randperm(len(every), generator=g)[: rules - 2]]
    needed = torch.tensor([[0, 0, 0, 0], [0, 0, tags, 1]])  # trees of any length
    chosen = torch.cat([chosen, needed]).unique(dim=0)
    if kind.family is CKY:
        chosen = chosen[:, :3].unique(dim=0)
    parts = (chosen + torch.tensor([tags, 0, 0, 0])[: chosen.shape[1]]).T.contiguous()
    sizes = {"B": 5, "n": words, "N": words + 1, "T": tags, "S": symbols, "R": len(chosen)}
    scores: list[Tensor | None] = []
    for key, dims in kind.family.scores.items():
        shape = [sizes[d] for d in dims.split()]
        x = torch.randn([1, *shape[1:]] if key in kind.shared else shape, generator=g, dtype=torch.float64)
        if key in kind.shared:
            x[0, 4::9] = -math.inf
        else:
            x[1][torch.rand(x[1].shape, generator=g) < 0.1] = -math.inf
            x[2] *= 300.0
        scores.append(None if key in kind.without else x[0] if key == "roots" and key in kind.shared else x)
    first = scores[0]
    assert first is not None
    if next(iter(kind.family.scores)) == "arcs":
        first[0, 2, 3] = first[0, 3, 2] = 9.0
        first[2, 1, 2] = first[2, 2, 1] = 5000.0
        first[4, :, 2] = -math.inf
    else:
        first[4, 2] = -math.inf
    made = {CKY.name: lambda: index_rules(parts, symbols), LEXICAL.name: lambda: Rules.of(*parts, symbols).table}
    inputs: list[object] = [made[kind.family.name]()] if kind.family.name in made else []
    flags = [] if kind.single_root is None else [kind.single_root]
    found = Example(kind.family, scores, (*inputs, lengths, *flags))
    for which, x in enumerate(scores):
        if x is not None and x.shape[0] == 5:
            x[3] = torch.where(found.read(which)[3], x[3], math.nan)
    return found._replace(scores=[None if x is None else x.to(dtype) for x in scores])
