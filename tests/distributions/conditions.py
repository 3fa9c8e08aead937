"""Conditions at random for every family, and families under a condition: their structures are those that meet it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tests.distributions.families import Enumerated, Family
from tests.distributions.numeric import NEG_INF, generator

MASK = -(2.0**24)
"""A large number in place of -inf: every sum of fifteen of them and of small scores is known to 2^-25."""


@dataclass(frozen=True)
class Condition:
    required: Tensor | None
    forbidden: Tensor | None

    def on(self, device: torch.device) -> dict[str, Tensor]:
        both = {"required": self.required, "forbidden": self.forbidden}
        return {name: x.to(device) for name, x in both.items() if x is not None}

    def allows(self, family: Family, b: int, n: int) -> Tensor:
        """Which structures of n words meet it [C], fact by fact."""
        has, size = family.has(n), family.facts.shape(n)
        good = torch.ones(len(has), dtype=torch.bool)
        if self.forbidden is not None:
            good &= ~(has & self.forbidden[b][tuple(slice(s) for s in size)]).flatten(1).any(1)
        if self.required is not None:
            values = has.movedim(family.facts.axis + 1, -1)
            for place in torch.cartesian_prod(*map(torch.arange, values.shape[1:-1])).view(-1, values.dim() - 2):
                value, here = int(self.required[b][tuple(place)]), values[(slice(None), *place)]
                if is_read(family, place.tolist()) and value != -1:
                    good &= here.any(1) if value == -2 else here[:, value]
        return good


def is_read(family: Family, place: list[int]) -> bool:
    """Whether a place among those required is: not node 0, and no span that ends before it begins."""
    return place[0] > 0 if family.facts.axis == 0 else len(place) < 2 or place[0] <= place[1]


def some_condition(
    family: Family,
    lengths: Tensor,
    seed: int,
    *,
    required: float = 0.3,
    forbidden: float = 0.2,
    oracles: list[Enumerated] | None = None,
) -> Condition:
    """Shares of the facts of one structure that are required, and of all that are forbidden, those of that structure
    left out: one that is possible in `oracles`, or any. Without these, what is required may be forbidden, too. What is
    not read is at random."""
    g, n = generator(seed), int(lengths.max())
    size, axis = family.facts.shape(n), family.facts.axis
    barred = torch.rand(len(lengths), *size, generator=g) < forbidden
    chosen = torch.randint(-3, 9, barred.sum(axis + 1).shape, generator=g)
    for b, words in enumerate(lengths.tolist()):
        has = family.has(words)
        known = oracles is not None and oracles[b].exists
        able = (oracles[b].scores > NEG_INF).nonzero()[:, 0] if oracles and known else torch.arange(len(has))
        facts = has[able[int(torch.randint(len(able), (), generator=g))]].nonzero()
        inner = torch.cartesian_prod(*(torch.arange(s) for k, s in enumerate(family.facts.shape(words)) if k != axis))
        for place in inner.view(len(inner), -1).tolist():
            if is_read(family, place):
                chosen[(b, *place)] = -1
        for fact in facts.tolist():
            place = [x for k, x in enumerate(fact) if k != axis]
            if torch.rand((), generator=g) < required:
                any_symbol = axis == 2 and torch.rand((), generator=g) < 0.5
                chosen[(b, *place)] = -2 if any_symbol else fact[axis]
            if oracles is not None:
                barred[(b, *fact)] = False
    return Condition(chosen if required else None, barred if forbidden else None)


def under(family: Family, *conditions: Condition, validate: bool | None = None) -> Family:
    """The family given conditions, one after the other; `validate` in place of what it is asked for."""

    def make(*scores: Any, **options: Any) -> Any:
        p = family.make(*scores, **options if validate is None else {**options, "validate_args": validate})
        for condition in conditions:
            p = p.given(**condition.on(p.lengths.device))
        return p

    def allowed(b: int, n: int) -> Tensor:
        return torch.stack([condition.allows(family, b, n) for condition in conditions]).all(0)

    return replace(family, make=make, allowed=allowed)


def masked(scores: dict[str, Tensor], seed: int, share: float = 0.3) -> dict[str, Tensor]:
    """A share of the scores replaced by a large finite mask."""
    g = generator(seed)
    return {
        name: torch.where((torch.rand(x.shape, generator=g) < share) & x.isfinite(), MASK, x)
        for name, x in scores.items()
    }
