"""Tightening until the answer is exact: where oracles do not agree, their indicators are fixed one after the other.

One branch demands an indicator (forbids those that exclude it: other heads of the word, other tags), the other forbids
it. Each is solved by dual decomposition from the penalties of the node above; what cannot be better than the best known
structure is left out. All open nodes of all sentences are solved side by side.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from gpuparse.decoding.dual.agreement import Agreement, Found, Oracle, Primal, Structures
from gpuparse.decoding.dual.decomposition import DualDecomposition

AT_ONCE = 64  # nodes that are solved side by side
ITERATIONS = 100  # for a node: what takes longer is worth two smaller ones


@dataclass(frozen=True)
class Restricted:
    """An oracle some of whose indicators are forbidden: a mask [B, ..] by name."""

    oracle: Oracle
    forbidden: Mapping[str, Tensor]

    @property
    def device(self) -> torch.device:
        return self.oracle.device

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self.oracle.shapes

    def best(self, penalties: Mapping[str, Tensor]) -> Found:
        zero = {
            n: torch.zeros(mask.shape, dtype=torch.float64, device=mask.device) for n, mask in self.forbidden.items()
        }
        given = {**zero, **penalties}
        own = {
            name: x.masked_fill(self.forbidden[name], -torch.inf) if name in self.forbidden else x
            for name, x in given.items()
        }
        return self.oracle.best(own)

    def take(self, rows: Int64[Tensor, " K"]) -> Restricted:
        return Restricted(self.oracle.take(rows), {name: mask[rows] for name, mask in self.forbidden.items()})


class Branch(NamedTuple):
    """Which structures are left: those with (True) and without some indicators, each a group and its index; and the
    penalties from which their bound follows, none unless the decomposition keeps them."""

    path: tuple[tuple[str, tuple[int, ...], bool], ...] = ()
    least: tuple[dict[str, Tensor], ...] = ()


@dataclass(order=True)
class Node:
    """A part of a sentence's structures: what is forbidden in it, a mask by group, and where to begin."""

    minus_bound: float
    number: int
    forbidden: dict[str, Tensor] = field(compare=False)
    penalties: list[dict[str, Tensor]] = field(compare=False)
    branch: Branch = field(compare=False)


@dataclass(frozen=True)
class Groups:
    """Which indicators are fixed together.

    Attributes:
        names: of each group, the names that mean the same in different oracles.
        axis: of each group, along which exactly one holds, of [B, ..] without the batch.
    """

    names: Mapping[str, tuple[str, ...]]
    axis: Mapping[str, int]


TREES = Groups({"arcs": ("arcs", "heads")}, {"arcs": 0})
TAGS = Groups({"tags": ("tags",)}, {"tags": 1})


@torch.no_grad()
def tighten(
    decomposition: DualDecomposition,
    found: Agreement,
    groups: Groups,
    *,
    nodes: int = 1000,
    seconds: Float64[Tensor, " B"] | None = None,
) -> tuple[Agreement, Int64[Tensor, " B"], dict[int, list[Branch]]]:
    """Go on until the best is proven, for no more than so many nodes of a sentence. Returns how many there were, and
    the branches that were not split of each sentence that has any.

    Args:
        found: what ``decomposition.run`` said.
        groups: of all indicators that must agree.
        nodes: at most, for each sentence; from 0 on, else ValueError.
        seconds: time for each sentence; what is solved side by side shares the time that it takes.

    The ``primal`` of the decomposition, if it has one, must know the score of the only structure that is left where all
    indicators are fixed.

    Example:
        >>> import torch, gpuparse as gp
        >>> from gpuparse import dual
        >>> generator = torch.Generator().manual_seed(0)
        >>> arcs, pairs = torch.randn(2, 6, 6, generator=generator), torch.randn(2, 6, 6, 6, generator=generator)
        >>> decomposition = dual.second_order(gp.Scores(arcs, siblings=pairs), iterations=5)
        >>> exact, solved, _ = dual.tighten(decomposition, decomposition.run(), dual.TREES)
        >>> exact.certified
        tensor([True, True])
    """
    if isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 0:
        raise ValueError(f"nodes must be a whole number from 0 on, got {nodes!r}")
    search = _DualSearch(decomposition, found, groups, nodes, seconds)
    while search.round():
        continue
    return search.result()


class _DualSearch:
    def __init__(
        self,
        owner: DualDecomposition,
        found: Agreement,
        groups: Groups,
        nodes: int,
        seconds: Float64[Tensor, " B"] | None,
    ) -> None:
        self.seconds = None if seconds is None else seconds.double().cpu()
        self.owner, self.found, self.groups, self.nodes = owner, found, groups, nodes
        self.score, self.bound = found.score.clone(), found.bound.clone()
        self.structures: Structures = {name: x.clone() for name, x in found.structures.items()}
        self.solved = torch.zeros(len(self.score), dtype=torch.int64)
        self.number = 0
        self.lost = torch.full((len(self.score),), -torch.inf, dtype=torch.float64)  # bounds of nodes nothing came of
        self.size = found.duals[0].nan_to_num(0.0, 0.0, 0.0).abs()
        _check_groups(owner, groups)
        self.open: dict[int, list[Node]] = {}
        self.closed: dict[int, list[Branch]] = {}
        masks = self._nothing_forbidden()
        for b in (~found.certified & (found.bound > -torch.inf)).nonzero()[:, 0].tolist():
            self.open[b] = []
            self.closed[b] = []
            forbidden = {name: mask[b] for name, mask in masks.items()}
            self._split(b, found, b, forbidden, float(found.bound[b]), Branch((), _of(found, b)))

    def _nothing_forbidden(self) -> dict[str, Tensor]:
        """A mask by group [B, ..]."""
        masks = {}
        for group, names in self.groups.names.items():
            oracle, name = next((o, n) for o in self.owner.oracles for n in names if n in o.shapes)
            masks[group] = torch.zeros(oracle.shapes[name], dtype=torch.bool, device=oracle.device)
        return masks

    def _split(
        self, b: int, found: Agreement, row: int, forbidden: dict[str, Tensor], bound: float, branch: Branch
    ) -> None:
        """The two branches of a node: one demands, one forbids the indicator that is disputed most."""
        best: tuple[float, str, int] | None = None
        for group, mask in forbidden.items():
            means = [
                of_oracle[name][row]
                for of_oracle in found.indicators
                for name in self.groups.names[group]
                if name in of_oracle
            ]
            mean = torch.stack(means).mean(0)
            axis = self.groups.axis[group]
            allowed = ~mask & _possible(mask, group)
            open_ = (allowed.sum(axis, keepdim=True) > 1) & (mean.sum(axis, keepdim=True) > 0)  # and not past the end
            disputed = torch.minimum(mean, 1 - mean).masked_fill(~(allowed & open_), -1.0)
            place = int(disputed.argmax())
            value = float(disputed.flatten()[place])
            if value >= 0 and (best is None or value > best[0]):
                best = value, group, place
        if best is None:  # nothing is left to choose: its structure was seen, unless there is none to make one
            if self.owner.primal is None and float(found.score[row]) == -torch.inf:
                self.lost[b] = max(float(self.lost[b]), bound)
            self.closed[b].append(branch)
            return
        _, group, place = best
        without, only = forbidden[group].clone(), forbidden[group].clone()
        index = tuple(int(i) for i in np.unravel_index(place, without.shape))
        without[index] = True
        line: list[int | slice] = [*index]
        line[self.groups.axis[group]] = slice(None)
        only[tuple(line)] = True
        only[index] = False
        penalties = [{name: u[row] for name, u in of_oracle.items()} for of_oracle in found.penalties]
        for mask, has in ((only, True), (without, False)):
            self.number += 1
            step = Branch((*branch.path, (group, index, has)), branch.least)
            heapq.heappush(self.open[b], Node(-bound, self.number, {**forbidden, group: mask}, penalties, step))

    def round(self) -> bool:
        """Solve some nodes of each sentence; whether there were any."""
        begun = time.monotonic()
        chosen: list[tuple[int, Node]] = []
        for b, heap in self.open.items():
            in_time = self.seconds is None or float(self.seconds[b]) > 0
            share = max(1, AT_ONCE // max(1, len(self.open))) if in_time else 0
            while heap and share and int(self.solved[b]) < self.nodes and len(chosen) < AT_ONCE:
                if self._is_best(b, -heap[0].minus_bound):
                    self.closed[b] += [node.branch for node in heap]
                    heap.clear()
                    break
                chosen.append((b, heapq.heappop(heap)))
                self.solved[b] += 1
                share -= 1
        if not chosen:
            return False
        nodes = Counter(b for b, _ in chosen)
        found = self._solve(chosen, nodes)
        if self.seconds is not None:
            taken = time.monotonic() - begun
            for b, count in nodes.items():
                self.seconds[b] -= taken * count / len(chosen)
        for row, (b, _) in enumerate(chosen):
            if float(found.score[row]) > float(self.score[b]):
                self.score[b] = found.score[row]
                for name, x in found.structures.items():
                    self.structures[name][b] = x[row]
        for row, (b, node) in enumerate(chosen):
            bound, branch = -node.minus_bound, node.branch
            if float(found.bound[row]) < bound:
                bound, branch = float(found.bound[row]), Branch(branch.path, _of(found, row))
            if not bool(found.certified[row]) and bound > -torch.inf and not self._is_best(b, bound):
                self._split(b, found, row, node.forbidden, bound, branch)
            else:
                self.closed[b].append(branch)
        return True

    def _is_best(self, b: int, bound: float) -> bool:
        own = slice(b, b + 1)
        row = torch.tensor([b], device=self.score.device)
        return bool(self.owner.is_best(self.score[own], torch.full_like(self.score[own], bound), self.size[own], row))

    def _solve(self, chosen: Sequence[tuple[int, Node]], nodes: Mapping[int, int]) -> Agreement:
        device = self.score.device
        rows = torch.tensor([b for b, _ in chosen], device=device)
        masks = {group: torch.stack([node.forbidden[group] for _, node in chosen]) for group in self.groups.names}
        oracles = []
        for oracle in self.owner.oracles:
            names = {
                name: masks[group]
                for group, those in self.groups.names.items()
                for name in those
                if name in oracle.shapes
            }
            oracles.append(Restricted(oracle.take(rows), names))
        primal: Primal | None = None
        if (whole := self.owner.primal) is not None:
            primal = lambda found, some: whole(found, rows[some])  # noqa: E731
        begin = [
            {name: torch.stack([node.penalties[o][name] for _, node in chosen]) for name in chosen[0][1].penalties[o]}
            for o in range(len(oracles))
        ]
        again = DualDecomposition(
            oracles,
            agree=list(self.owner.sharing),
            primal=primal,
            step=self.owner.step,
            iterations=min(self.owner.iterations, ITERATIONS),
            tolerance=self.owner.tolerance,
            rounding=None if self.owner.rounding is None else self.owner.rounding.take(rows),
            keep=self.owner.keep,
        )
        left = None
        if self.seconds is not None:
            left = torch.stack([self.seconds[b] / nodes[b] for b, _ in chosen]).to(device)
        return again.run(begin, enough=self.score[rows], seconds=left)

    def result(self) -> tuple[Agreement, Int64[Tensor, " B"], dict[int, list[Branch]]]:
        bound, certified = self.bound.clone(), self.found.certified.clone()
        for b, heap in self.open.items():
            least = max(-heap[0].minus_bound if heap else -torch.inf, float(self.lost[b]))
            bound[b] = max(least, float(self.score[b]))
            certified[b] = bool(self.score[b] > -torch.inf) and self._is_best(b, least)
            if certified[b]:
                bound[b] = self.score[b]
        knows: dict[str, Any] = {
            "structures": self.structures,
            "score": self.score,
            "bound": bound,
            "certified": certified,
        }
        found = replace(self.found, **knows, seconds=None if self.seconds is None else self.seconds.to(bound.device))
        left = {b: [*those, *(node.branch for node in self.open[b])] for b, those in self.closed.items()}
        return found, self.solved.to(bound.device), left


def _of(found: Agreement, row: int) -> tuple[dict[str, Tensor], ...]:
    """The penalties of a sentence's least bound."""
    return tuple({name: u[row] for name, u in of_oracle.items()} for of_oracle in found.least)


def _check_groups(owner: DualDecomposition, groups: Groups) -> None:
    """What is fixed must be all that must agree: a node with nothing left to choose has one structure."""
    named = {name for names in groups.names.values() for name in names}
    open_ = [name for name in owner.sharing if name not in named]
    if open_:
        raise ValueError(f"groups must have all indicators that must agree, but {open_[0]!r} is in none of them")
    for group, names in groups.names.items():
        if not any(name in owner.sharing for name in names):
            raise ValueError(f"groups: oracles need not agree on {group!r}; they must on {', '.join(owner.sharing)}")


def _possible(mask: Tensor, group: str) -> Tensor:
    """What can be chosen at all: of arcs not into node 0, and not from a node to itself."""
    if group != "arcs":
        return torch.ones_like(mask)
    N = mask.shape[0]
    possible = ~torch.eye(N, dtype=torch.bool, device=mask.device)
    possible[:, 0] = False
    return possible
