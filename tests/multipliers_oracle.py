"""Random steps of dual decomposition: what the oracles said, and what is known by then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gpuparse.decoding.dual.steps import Decreasing, Halving, Polyak
from gpuparse.ops.backend import Backend
from gpuparse.ops.multipliers import multipliers
from gpuparse.ops.plain.multipliers import CERTIFIED, DONE, ENOUGH, KNOWN, STOP_AT

INF = float("inf")
RULES = (Polyak(patience=2), Halving(0.5), Decreasing(0.25))
PARTS = ([(2, 9), (2, 9)], [(3, 70)], [(2, 130), (3, 5)])


@dataclass(frozen=True)
class Asked:
    """Arguments of ``multipliers``. All numbers are whole or such parts of them that no sum is rounded."""

    y: Tensor
    values: Tensor
    score: Tensor | None
    total: Tensor | None
    moved: Tensor | None
    parts: tuple[list[tuple[int, int]], Tensor]
    changed: dict[str, Tensor | None]
    rule: Any
    last: bool

    def answer(self, backend: Backend | None = None, rule: Any = None) -> dict[str, Tensor | None]:
        """What is known after it; ``rule`` in place of its own."""
        own = replace(self.rule, state=self.rule.state.clone())
        made = {name: None if x is None else x.clone() for name, x in self.changed.items()}
        given: Any = (self.y, self.values, self.score, self.total, self.moved, self.parts)
        multipliers(*given, **made, rule=rule(own) if rule else own, last=self.last, backend=backend)  # type: ignore[arg-type]
        done = self.changed["known"][:, DONE : DONE + 1] != 0  # type: ignore[index]
        return {**made, "rule": own.state.masked_fill(done, 0.0)}  # of which plain rules say anything


def equal(found: dict[str, Tensor | None], expected: dict[str, Tensor | None]) -> None:
    """Sizes of steps are rounded, and numbers of at most some hundreds that they are taken off or multiplied by."""
    for name, x in expected.items():
        torch.testing.assert_close(
            found[name], x, rtol=1e-15, atol=1e-13, equal_nan=True, msg=lambda told, name=name: f"{name}: {told}"
        )


class Torch:
    """A rule that kernels do not know."""

    def __init__(self, rule: Any) -> None:
        self.size = rule.size


def some_step(seed: int, dtype: torch.dtype = torch.float64, B: int = 5, N: int = 7) -> Asked:
    """``seed`` chooses the rule, the parts and what else there is."""
    g = torch.Generator().manual_seed(seed)

    def whole(*shape: int, most: int = 16) -> Tensor:
        return torch.randint(-most, most + 1, shape, generator=g).double() / 8

    parts = PARTS[seed % 3]
    T, count = sum(many * size for many, size in parts), 3 if seed % 3 else 2
    y = torch.randint(0, 2, (B, T), generator=g).to(dtype)
    at = 0
    for many, size in parts:  # where all agree there is nothing left to do; and two of three go half of the way
        own = y[:, at : at + many * size].unflatten(1, (many, size))
        own[0] = own[0, :1]
        own[:, :, 1:] *= 3 if many == 3 else 1  # thirds of it are whole
        at += many * size
    values = whole(B, count, most=800)
    known = torch.zeros(B, KNOWN, dtype=torch.float64)
    dual = values.sum(1)
    near = dual + whole(B, most=4) * (torch.arange(B) % 2)  # bounds and scores near it, some of them equal
    rounded = torch.stack([torch.full((B,), 2.0**-k) for k in (20, 9, 8)], 1).double()
    known[:, :6] = torch.stack([near - 1, near, dual.abs() + 3, dual * 0 + 4, dual * 0, dual * 0], 1)
    known[:, ENOUGH : ENOUGH + 3] = torch.tensor([-INF, INF, 2.0**-9], dtype=torch.float64)
    known[1, ENOUGH] = near[1]
    known[3, CERTIFIED] = known[3, DONE] = 1
    if seed % 4 == 1:
        known[0, STOP_AT] = near[0] - 2
        known[2, :2] = torch.tensor([-INF, INF])
        values[2, 0] = -INF
    total = moved = None
    if seed % 2:
        total, moved = -whole(B, N, N).abs(), whole(B, N, N).abs()
        total[whole(B, N, N) > 1] = -INF
        known[:, 9:] = torch.cat([rounded, torch.stack([near + 1, whole(B).abs(), torch.arange(B) % 2], 1)], 1)
    rule = RULES[seed // 3 % 3].begin(B, torch.device("cpu"))
    changed = {
        "u": whole(B, T),
        "sums": whole(B, T).abs(),
        "least": whole(B, T) if seed % 5 else None,
        "known": known,
        "better": torch.zeros(B, dtype=torch.bool),
        "trace": torch.zeros(3, B, dtype=torch.float64),
    }
    score = near - whole(B, most=3).abs() if seed % 7 else None
    device = torch.tensor(parts)
    return Asked(y, values, score, total, moved, (parts, device), changed, rule, seed % 6 == 5)
