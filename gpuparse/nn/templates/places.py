"""Places: where in a batch templates are looked up, and the values of their atoms there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cached_property

import torch
from jaxtyping import Float32, Int32, Int64
from torch import Tensor

from gpuparse.data.batches import Batch
from gpuparse.nn.templates.atoms import DISTANCES, RELATIONS, Atom, mix, salt

GRID = 1 << 14  # places looked up at a time: what is made of them stays in a core's cache


def add_up(values: list[Tensor]) -> Tensor:
    return sum(values[1:], values[0])


class Nodes:
    """The attributes of a batch's nodes, 0 past a sentence's end. Column N is no node: all its attributes are 0."""

    def __init__(self, batch: Batch, tags: int) -> None:
        self.batch = batch
        self.lengths = batch.lengths
        self.sentences, self.count = batch.words.shape
        self.device = batch.words.device
        self.tags = tags
        self._cache: dict[Hashable, Tensor] = {}

    def to(self, device: torch.device | str) -> Nodes:
        return Nodes(self.batch.to(device), self.tags)

    def exact(self, atoms: tuple[Atom, ...], strides: tuple[int, ...]) -> Int64[Tensor, "B N+1"]:
        """Σ value × stride of atoms of one node."""
        terms = zip(atoms, strides, strict=True)
        return self._once((atoms, strides), lambda: add_up([self.value(atom) * stride for atom, stride in terms]))

    def mixed(self, atoms: tuple[Atom, ...]) -> Int64[Tensor, "B N+1"]:
        """Sum of the mixed values of atoms of one node."""
        if len(atoms) == 1:
            return self._once(atoms, lambda: mix(self.value(atoms[0]) + salt(atoms[0].name)))
        return self._once(atoms, lambda: add_up([self.mixed((atom,)) for atom in atoms]))

    def value(self, atom: Atom) -> Int64[Tensor, "B N+1 *F"]:
        """The value of a node atom at each node, 0 where its neighbour is past an end of the sentence."""
        return self._once(("value", atom.what, atom.offset), lambda: self._shifted(atom))

    def _shifted(self, atom: Atom) -> Tensor:
        values = self._attribute(atom.what)
        out = torch.zeros_like(values)
        size, offset = self.count, atom.offset
        if abs(offset) < size:
            out[:, max(0, -offset) : size - max(0, offset)] = values[:, max(0, offset) : size - max(0, -offset)]
        return out

    def _attribute(self, what: str) -> Tensor:
        batch = self.batch
        if what == "feats":  # one value for the bag, whatever the order in it and the padding after it
            each = mix(batch.feats + salt("feats")).masked_fill_(batch.feats == 0, 0)
            values = each.sum(-1)
        else:
            values = {"word": batch.words, "prefix": batch.prefixes, "tag": batch.tags, "feat": batch.feats}[what]
        beyond = torch.arange(self.count, device=self.device) > self.lengths[:, None]
        values = values.masked_fill(beyond if values.dim() == 2 else beyond[..., None], 0)
        return torch.cat((values, values.new_zeros(self.sentences, 1, *values.shape[2:])), 1)

    @cached_property
    def last_tags(self) -> Int32[Tensor, "B N K"]:
        """The last node, from each node back, that has each tag; −1 where there is none."""
        node = torch.arange(self.count, device=self.device, dtype=torch.int32)
        tag = torch.arange(self.tags, device=self.device)
        inside = (node <= self.lengths[:, None])[..., None]
        found = torch.where((self.batch.tags[..., None] == tag) & inside, node[:, None], -1)
        return found.cummax(1).values

    def _once(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = make()
        return found

    def grid(self, first: str, second: str) -> Iterator[Places]:
        """All pairs of nodes, [B, some, N] at a time."""
        node = torch.arange(self.count, device=self.device)
        for some in node.split(max(1, GRID // max(1, self.sentences * self.count))):
            yield Places(self, self._sentence(2), {first: some[:, None], second: node})

    def cube(self, first: str, second: str, third: str) -> Iterator[Places]:
        """All triples of nodes, [B, some, N, N] at a time."""
        node = torch.arange(self.count, device=self.device)
        for some in node.split(max(1, GRID // max(1, self.sentences * self.count**2))):
            roles = {first: some[:, None, None], second: node[:, None], third: node}
            yield Places(self, self._sentence(3), roles)

    def listed(self, sentence: Int64[Tensor, " T"], roles: Mapping[str, Int64[Tensor, " T"]]) -> Iterator[Places]:
        """Parts of a list, some at a time; at least once, even if there are none."""
        for start in range(0, max(1, len(sentence)), GRID):
            some = slice(start, start + GRID)
            yield Places(self, sentence[some], {role: node[some] for role, node in roles.items()})

    def _sentence(self, dimensions: int) -> Tensor:
        return torch.arange(self.sentences, device=self.device).view(-1, *(1,) * dimensions)


class Places:
    """Parts of a batch: their sentence and, for each role, their node; index tensors that broadcast.

    Args:
        seen: nodes whose attributes are looked at in place of the role's own; N for those of no node.
    """

    def __init__(
        self,
        nodes: Nodes,
        sentence: Int64[Tensor, "*shape"],
        roles: Mapping[str, Int64[Tensor, "*shape"]],
        seen: Mapping[str, Int64[Tensor, "*shape"]] | None = None,
    ) -> None:
        self.nodes = nodes
        self.roles = dict(roles)
        self.shape = torch.broadcast_shapes(sentence.shape, *(node.shape for node in roles.values()))
        self.sentence = sentence
        self._seen = {**roles, **(seen or {})}
        if seen is None and "h" in roles and "s" in roles:  # s = h: there is no sibling
            self._seen["s"] = torch.where(roles["s"] == roles["h"], nodes.count, roles["s"])
        self._rows: dict[str, Tensor] = {}
        self._cache: dict[Hashable, Tensor] = {}

    def at(self, role: str, table: Int64[Tensor, "B N+1 *F"]) -> Int64[Tensor, "*shape"]:
        """The entries of a table of the nodes at the nodes of a role."""
        key = (role, id(table))  # the tables live as long as the batch's nodes do
        if key not in self._cache:
            if role not in self._rows:
                self._rows[role] = self.sentence * (self.nodes.count + 1) + self._seen[role]
            rows = self._rows[role]
            self._cache[key] = table.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, *table.shape[2:])
        return self._cache[key]

    def relation(self, atom: Atom) -> Int64[Tensor, "*shape"]:
        """The value of a relation between two roles."""
        key = (atom.roles, atom.what)
        if key not in self._cache:
            one, other = (self.roles[role] for role in atom.roles)
            right = (one < other).long()
            far = (one - other).abs()
            distance = torch.stack([far > most for most in DISTANCES]).sum(0)
            self._cache[key] = {
                "direction": right,
                "distance": distance,
                "direction+distance": right * RELATIONS["distance"] + distance,
            }[atom.what]
        return self._cache[key]

    def mixed_relation(self, atom: Atom) -> Int64[Tensor, "*shape"]:
        key = ("mixed", atom.roles, atom.what)
        if key not in self._cache:
            self._cache[key] = mix(self.relation(atom) + salt(atom.name))
        return self._cache[key]

    @cached_property
    def between(self) -> Float32[Tensor, "*shape K"]:
        """1 for each tag that is found between head and modifier, else 0."""
        head, modifier = self.roles["h"], self.roles["m"]
        before = (torch.maximum(head, modifier) - 1).clamp(min=0)
        after = torch.minimum(head, modifier).int()
        last = self.nodes.last_tags
        rows = self.sentence * self.nodes.count + before
        found = last.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, self.nodes.tags)
        return (found > after[..., None]).float()
