"""Pairs of arcs scored by templates, only where someone asks, with bounds from the tables."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from itertools import combinations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpuparse.decoding.parts import Kind, Parts, as_axis, legal_pairs
from gpuparse.nn.templates.atoms import ROLES
from gpuparse.nn.templates.places import Nodes, Places
from gpuparse.nn.templates.tables import WeightTable, score
from gpuparse.ops.pricing import CODES, Scorer


class TableBounds:
    """Tables with one role's node maximised away, for all three roles of a kind of parts.

    A bound is the sum over the templates of the most that any value of the missing node and any of its relations to
    the others can give.
    """

    def __init__(self, kind: Kind, tables: Sequence[WeightTable]) -> None:
        self.tables = tuple(tables)
        self._roles = ROLES[kind]
        self._kept: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}
        self.bounding: list[list[WeightTable]] = []
        for role in self._roles:
            offset, left = 0, []
            for table in self.tables:
                smaller = table.without(role).moved(offset)
                offset += smaller.size
                left.append(smaller)
            self.bounding.append(left)

    @torch.no_grad()
    def weights(self, weights: Float[Tensor, " R"], axis: int, *, keep: bool) -> Float[Tensor, " r"]:
        """The weights of ``bounding[axis]``.

        Args:
            keep: keep them for the next call, until ``forget`` is called or the weights are seen to have changed (some
                optimisers change them unseen).
        """
        keep = keep and not weights.is_inference()
        if keep and axis in self._kept:
            source, version, made = self._kept[axis]
            alike = (made.device, made.dtype) == (weights.device, weights.dtype)
            if alike and source() is weights and weights._version == version:
                return made
        made = torch.cat([table.maximised(weights, self._roles[axis]) for table in self.tables])
        if keep:
            self._kept[axis] = (weakref.ref(weights), weights._version, made)
        return made

    def forget(self) -> None:
        """Make all of them anew when they are asked for."""
        self._kept.clear()


class TemplateParts(Parts):
    """Grandparents or siblings of a batch, each the sum of its templates' weights.

    Args:
        keep: whether the weights are those of a model in use, for which the tables of the bounds are made once.
    """

    def __init__(
        self, kind: Kind, bounds: TableBounds, weights: Float[Tensor, " R"], nodes: Nodes, *, keep: bool = False
    ) -> None:
        super().__init__(kind, nodes.lengths, nodes.count, weights.dtype, weights.device)
        self._bounds = bounds
        self._weights = weights
        self._nodes = nodes
        self._roles = ROLES[kind]
        self._keep = keep
        self._scorer: Scorer | None = None

    def bound(self, axis: int) -> Float[Tensor, "B N N"]:
        weights = self._bounds.weights(self._weights, as_axis(axis), keep=self._keep)
        tables = self._bounds.bounding[axis]
        first, second = (role for place, role in enumerate(self._roles) if place != axis)
        most = score(tables, weights, lambda: self._nodes.grid(first, second), 1)
        if self.kind == "siblings" and axis == 0:
            # Where the head is the missing node it may be s itself, which then stands for no sibling.
            most = torch.maximum(most, score(tables, weights, self._without_sibling, 1))
        return torch.where(legal_pairs(self.kind, axis, self.lengths, self.nodes), most, -torch.inf)

    def scorer(self) -> Scorer | None:
        if self._weights.shape[0] >= 1 << 31:
            return None
        if self._scorer is None:
            self._scorer = Scorer.templates(self._weights, *self._rows(), siblings=self.kind == "siblings")
        return self._scorer

    @torch.no_grad()
    def _rows(self) -> tuple[Int64[Tensor, "T 3 B N"], Int64[Tensor, "T 3 14"]]:
        """For each table what each node, and how each two nodes lie to each other, adds to the row of a pair, in the
        order of ``Scorer``; of siblings with one place more, for nobody."""
        roles = ("s", "h", "m") if self.kind == "siblings" else self._roles
        device, (B, N) = self.device, (self._nodes.sentences, self.nodes + (self.kind == "siblings"))
        sentence, node = torch.arange(B, device=device)[:, None], torch.arange(N, device=device)
        places = Places(self._nodes, sentence, dict.fromkeys(roles, node), {})
        lie = torch.arange(CODES, device=device)
        index = torch.zeros(len(self._bounds.tables), 3, B, N, dtype=torch.int64, device=device)
        relations = torch.zeros(len(self._bounds.tables), 3, CODES, dtype=torch.int64, device=device)
        pairs = list(combinations(roles, 2))
        for t, table in enumerate(self._bounds.tables):
            index[t, 0] += table.offset
            stride = table.size
            for group in table.groups:
                stride //= group.size
                (atom, *_) = group.atoms
                if atom.kind == "node":
                    index[t, roles.index(atom.roles[0])] += stride * group.index(places)[0]
                    continue
                one, other = atom.roles
                half, turned = CODES // 2, (one, other) not in pairs
                right, far = lie // half ^ int(turned), lie % half
                value = {"direction": right, "distance": far, "direction+distance": right * half + far}[atom.what]
                relations[t, pairs.index((other, one) if turned else (one, other))] += stride * value
        return index, relations

    def to(self, device: torch.device | str) -> TemplateParts:
        return TemplateParts(self.kind, self._bounds, self._weights.to(device), self._nodes.to(device))

    def _score(self, sentence: Tensor, i: Tensor, j: Tensor, k: Tensor) -> Float[Tensor, " T"]:
        roles = dict(zip(self._roles, (i, j, k), strict=True))
        return score(self._bounds.tables, self._weights, lambda: self._nodes.listed(sentence, roles))

    def _dense(self) -> Float[Tensor, "B N N N"]:
        return score(self._bounds.tables, self._weights, lambda: self._nodes.cube(*self._roles), 1)

    def _without_sibling(self) -> Iterator[Places]:
        for places in self._nodes.grid("s", "m"):
            nobody = torch.full_like(places.roles["s"], self.nodes)
            yield Places(self._nodes, places.sentence, places.roles, {"s": nobody})
