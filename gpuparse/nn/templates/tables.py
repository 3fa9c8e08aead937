"""Weight tables: where the weight of a template's feature lies, looking it up, and the gradient of that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from gpuparse.nn.templates.atoms import RELATIONS, Atom, bucket
from gpuparse.nn.templates.places import Places, add_up

Layout = Literal["auto", "hashed", "indexed"]
Chunks = Callable[[], Iterable[Places]]
_Term = tuple[str, tuple[Atom, ...], tuple[int, ...]]  # a role, atoms of its node and their strides


@dataclass(frozen=True)
class Group:
    """Atoms that make one index together: each combination of values its own, or hashed into 2^bits buckets."""

    atoms: tuple[Atom, ...]
    strides: tuple[int, ...]  # of an exact index
    size: int
    bits: int = 0  # 0: exact

    @cached_property
    def roles(self) -> frozenset[str]:
        return frozenset(role for atom in self.atoms for role in atom.roles)

    def index(self, places: Places) -> tuple[Int64[Tensor, "*shape"], Float[Tensor, "*shape"] | None]:
        """The index at each place. Where the group has bags, one for each member along a last axis, and a mask."""
        nodes, relations, bags = self._plan
        terms = [places.at(role, self._table(atoms, strides, places)) for role, atoms, strides in nodes]
        terms += [
            places.mixed_relation(atom) if self.bits else places.relation(atom) * stride for atom, stride in relations
        ]
        if not terms:
            terms.append(torch.zeros((), dtype=torch.int64, device=places.nodes.device))
        total, mask = add_up(terms), None
        for role, atoms, strides in bags:
            bag = places.at(role, self._table(atoms, strides, places))
            there = (places.at(role, places.nodes.value(atoms[0])) != 0).float()
            total = total[..., None] + bag if mask is None else (total[..., None] + bag[..., None, :]).flatten(-2)
            mask = there if mask is None else (mask[..., None] * there[..., None, :]).flatten(-2)
        return (bucket(total, self.bits) if self.bits else total), mask

    @cached_property
    def _plan(self) -> tuple[list[_Term], list[tuple[Atom, int]], list[_Term]]:
        """What is added up: sums over the atoms of one node, relations, bags."""
        strides = dict(zip(self.atoms, self.strides, strict=True))
        single = [atom for atom in self.atoms if atom.kind == "node" and atom.what != "feat"]
        terms = []
        for role in dict.fromkeys(atom.roles[0] for atom in single):
            own = tuple(atom for atom in single if atom.roles[0] == role)
            terms.append((role, own, tuple(strides[atom] for atom in own)))
        relations = [(atom, strides[atom]) for atom in self.atoms if atom.kind == "relation"]
        bags: list[_Term] = [(atom.roles[0], (atom,), (strides[atom],)) for atom in self.atoms if atom.what == "feat"]
        return terms, relations, bags

    def _table(self, atoms: tuple[Atom, ...], strides: tuple[int, ...], places: Places) -> Tensor:
        return places.nodes.mixed(atoms) if self.bits else places.nodes.exact(atoms, strides)


@dataclass(frozen=True)
class WeightTable:
    """The table of one template: ``size`` rows of the weights from row ``offset`` on.

    A row is found by the index of each group, the last one's running fastest, and where the template has tags between,
    by each of their ``between`` values after that.
    """

    name: str
    groups: tuple[Group, ...]
    between: int  # values of the atom between.tag; 0: the template has none
    offset: int = 0

    @property
    def size(self) -> int:
        return prod(group.size for group in self.groups) * max(1, self.between)

    def rows(self, places: Places) -> tuple[Int64[Tensor, "*shape"], Float[Tensor, "*shape"] | None]:
        """The row at each place, from 0 (a block of rows where there are tags between); bags as ``Group.index``."""
        total, mask = torch.zeros((), dtype=torch.int64, device=places.nodes.device), None
        for number, group in enumerate(self.groups):
            index, mask = group.index(places)
            total = index if number == 0 else total * group.size + index
        return total, mask

    def look_up(self, weights: Float[Tensor, "rows ..."], places: Places) -> Float[Tensor, "*shape"]:
        """The weights of the features at each place, summed where there are several; broadcasts to all places."""
        rows, mask = self.rows(places)
        own, channels = weights.narrow(0, self.offset, self.size), weights.shape[1:]
        if self.between:
            there = places.between
            blocks = own.reshape(-1, self.between * channels.numel()).index_select(0, rows.flatten())
            if not channels:
                return (blocks.view((*rows.shape, self.between)) * there.to(own.dtype)).sum(-1)
            found = blocks.view(*rows.shape, self.between, *channels)
            return (found * there.to(own.dtype).view(*there.shape, *(1,) * len(channels))).sum(-1 - len(channels))
        found = own.index_select(0, rows.flatten()).view((*rows.shape, *channels))
        if mask is None:
            return found
        return (found * mask.to(own.dtype).view(*mask.shape, *(1,) * len(channels))).sum(-1 - len(channels))

    def add_gradient(self, gradient: Float[Tensor, "rows ..."], places: Places, of: Float[Tensor, "*shape"]) -> None:
        """Add the gradient of the weights, given that of what was looked up at each place."""
        rows, mask = self.rows(places)
        own, channels = gradient.narrow(0, self.offset, self.size), gradient.shape[1:]
        if self.between:
            there = places.between
            parts = of.unsqueeze(-1 - len(channels)) * there.to(of.dtype).view(*there.shape, *(1,) * len(channels))
            parts = parts.sum_to_size((*rows.shape, self.between, *channels))
            own.view(-1, self.between * channels.numel()).index_add_(
                0, rows.flatten(), parts.reshape(-1, self.between * channels.numel())
            )
            return
        if mask is None:
            parts = of.sum_to_size((*rows.shape, *channels))
        else:
            parts = of.sum_to_size((*rows.shape[:-1], *channels)).unsqueeze(-1 - len(channels))
            parts = parts * mask.to(of.dtype).view(*mask.shape, *(1,) * len(channels))
        own.index_add_(0, rows.flatten(), parts.reshape(-1, *channels))

    def features(self, places: Places) -> Int64[Tensor, "*shape S"]:
        """The rows of the weights that are looked up at each place, −1 where there are fewer."""
        rows, mask = self.rows(places)
        there: Tensor | None = mask
        if self.between:
            rows = rows[..., None] * self.between + torch.arange(self.between, device=rows.device)
            there = places.between
        elif mask is None:
            rows = rows[..., None]
        rows = rows + self.offset
        if there is not None:
            rows = torch.where(there > 0, rows, -1)
        return rows.expand(*places.shape, rows.shape[-1])

    def moved(self, offset: int) -> WeightTable:
        """The same table from another row of the weights on."""
        return replace(self, offset=offset)

    def without(self, role: str) -> WeightTable:
        """The table left when all that looks at a role is maximised away (``maximised`` fills it)."""
        return replace(self, groups=tuple(group for group in self.groups if role not in group.roles))

    def maximised(self, weights: Float[Tensor, " R"], role: str) -> Float[Tensor, " r"]:
        """For each row of ``without(role)``, the most that a role's node and relations can make of it."""
        own = weights.narrow(0, self.offset, self.size).view([group.size for group in self.groups])
        axes = [axis for axis, group in enumerate(self.groups) if role in group.roles]
        return (own.amax(axes) if axes else own).flatten()


def joint_table(
    atoms: Sequence[Atom], counts: Mapping[str, int], bits: int, layout: Layout, offset: int
) -> WeightTable:
    """The table of a template of arcs or labels: one index, exact if all combinations fit into 2^bits rows."""
    between = counts["tag"] if any(atom.kind == "between" for atom in atoms) else 0
    inner = [atom for atom in atoms if atom.kind != "between"]
    name = " ".join(atom.name for atom in atoms)
    if between and any(atom.what == "feat" for atom in inner):
        raise ValueError(f"template {name!r}: between and feat do not go together; take feats")
    exact = _exact(inner, counts)
    if exact is None or layout == "hashed" or exact.size * max(1, between) > 1 << bits:
        if layout == "indexed":
            raise _too_large(name, bits)
        rows = max(1, bits - (between - 1).bit_length()) if between else bits
        exact = _hashed(inner, rows)
    return WeightTable(name, (exact,), between, offset)


def factored_table(
    atoms: Sequence[Atom], counts: Mapping[str, int], bits: int, layout: Layout, offset: int
) -> WeightTable:
    """The table of a template of pairs of arcs: an index for each node, one for each relation.

    So one node's values can be maximised away whatever the others are. A node's values are hashed, the node with the
    most values first, until the table has at most 2^bits rows.
    """
    name = " ".join(atom.name for atom in atoms)
    groups: list[Group] = []
    wanted: dict[str, list[Atom]] = {}
    for atom in atoms:
        if atom.kind == "node":
            wanted.setdefault(atom.roles[0], []).append(atom)
    for own in wanted.values():
        exact = _exact(own, counts)
        if exact is None or layout == "hashed":
            if layout == "indexed":
                raise _too_large(name, bits)
            size = 1 << bits if exact is None else exact.size
            exact = _hashed(own, max(1, (size - 1).bit_length()))
        groups.append(exact)
    nodes = len(groups)
    groups += [Group((atom,), (1,), RELATIONS[atom.what]) for atom in atoms if atom.kind == "relation"]
    while prod(group.size for group in groups) > 1 << bits:
        largest = max(range(nodes), key=lambda at: groups[at].size, default=None)
        if layout == "indexed" or largest is None or groups[largest].size <= 2:
            raise _too_large(name, bits)
        groups[largest] = _hashed(groups[largest].atoms, (groups[largest].size - 1).bit_length() - 1)
    return WeightTable(name, tuple(groups), 0, offset)


def _exact(atoms: Sequence[Atom], counts: Mapping[str, int]) -> Group | None:
    """A group with an index for every combination of values; None where an atom's values cannot be counted."""
    strides, size = [], 1
    for atom in atoms:
        if atom.what == "feats":
            return None
        strides.append(size)
        size *= RELATIONS[atom.what] if atom.kind == "relation" else counts[atom.what]
    return Group(tuple(atoms), tuple(strides), size)


def _hashed(atoms: Sequence[Atom], bits: int) -> Group:
    return Group(tuple(atoms), (0,) * len(atoms), 1 << bits, bits)


def _too_large(name: str, bits: int) -> ValueError:
    return ValueError(f"template {name!r} does not fit an indexed table of 2^{bits} weights; take more bits or hash it")


def score(
    tables: Sequence[WeightTable], weights: Float[Tensor, "rows ..."], chunks: Chunks, axis: int = 0
) -> Float[Tensor, "*shape"]:
    """Sum over the tables of the weights at each place, the chunks put together along an axis.

    Rows are found anew for the gradient, so that memory is that of one chunk, forward and backward. The tables are
    added in their order: a table that is nowhere lower gives sums that are nowhere lower, rounding included.
    """
    return _Score.apply(weights, tables, chunks, axis)


class _Score(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, tables: Sequence[WeightTable], chunks: Chunks, axis: int) -> Tensor:
        ctx.tables, ctx.chunks, ctx.axis = tables, chunks, axis
        ctx.shape, ctx.dtype = weights.shape, weights.dtype
        sums = []
        for places in chunks():
            total = weights.new_zeros(*places.shape, *weights.shape[1:])
            for table in tables:
                total += table.look_up(weights, places)
            sums.append(total)
        return sums[0] if len(sums) == 1 else torch.cat(sums, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        context: Any = ctx
        out = torch.zeros(context.shape, dtype=context.dtype, device=gradient.device)
        start = 0
        for places in context.chunks():
            size = places.shape[context.axis]
            part = gradient.narrow(context.axis, start, size)
            start += size
            for table in context.tables:
                table.add_gradient(out, places, part)
        return out, None, None, None


def features(tables: Sequence[WeightTable], chunks: Iterator[Places]) -> Int64[Tensor, "T S"]:
    """The rows of all the tables that are looked up at each place of a list, −1 where there are fewer."""
    return torch.cat([torch.cat([table.features(places) for table in tables], -1) for places in chunks])
