"""Atoms: the single things that a feature template looks at, and the mixing of their values into hash keys.

An atom is written

- ``h.word``, ``m.tag``, ``h-1.tag``, ``m+1.prefix``: an attribute (word, prefix, tag, feat, feats) of a node of the
  part, or of its neighbour so many places on. ``feat`` is each morphological feature of the node by itself (a feature
  for every one of them), ``feats`` all of them as one value.
- ``hm.direction``, ``hm.distance``, ``hm.direction+distance``: how two nodes of the part lie to each other. For arcs
  ``direction`` means ``hm.direction``.
- ``between.tag``: each different tag between head and modifier (arcs only; at most one in a template).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Int64
from torch import Tensor

PartKind = Literal["arcs", "grandparents", "siblings"]
Template = Sequence[str]

ROLES: dict[str, tuple[str, ...]] = {
    "arcs": ("h", "m"),
    "grandparents": ("g", "p", "c"),
    "siblings": ("h", "s", "m"),
}
ATTRIBUTES = ("word", "prefix", "tag", "feat", "feats")
DISTANCES = (1, 2, 3, 4, 5, 10)  # upper ends of the bins of a distance; the last bin has none
RELATIONS = {"direction": 2, "distance": len(DISTANCES) + 1, "direction+distance": 2 * (len(DISTANCES) + 1)}

_NODE = re.compile(rf"(?P<role>[a-z])(?P<offset>[+-][0-9]+)?\.(?P<what>{'|'.join(ATTRIBUTES)})")
_RELATION = re.compile(r"((?P<one>[a-z])(?P<other>[a-z])\.)?(?P<what>direction|distance|direction\+distance)")


@dataclass(frozen=True)
class Atom:
    """One atom, read from its name."""

    name: str
    kind: Literal["node", "relation", "between"]
    roles: tuple[str, ...]  # the nodes of the part that it looks at
    what: str  # attribute or relation
    offset: int = 0  # of the node looked at from the role's

    @classmethod
    def read(cls, name: str, part: PartKind) -> Atom:
        """The atom of that name for parts of that kind; ``ValueError`` where there is none."""
        roles = ROLES[part]
        if name == "between.tag" and part == "arcs":
            return cls(name, "between", roles, "tag")
        if (node := _NODE.fullmatch(name)) and node["role"] in roles:
            return cls(name, "node", (node["role"],), node["what"], int(node["offset"] or 0))
        if relation := _RELATION.fullmatch(name):
            one, other = relation["one"], relation["other"]
            if one is None and part == "arcs":
                one, other = roles
            if one in roles and other in roles and one != other:
                short = part == "arcs" and (one, other) == roles  # both ways of writing it are one atom
                name = relation["what"] if short else f"{one}{other}.{relation['what']}"
                return cls(name, "relation", (one, other), relation["what"])
        example = f"{roles[0]}.word, {roles[1]}-1.tag, {roles[0]}{roles[1]}.direction+distance"
        raise ValueError(f"template of {part}: no atom {name!r}; there are atoms such as {example}")


def read_templates(text: str) -> tuple[tuple[str, ...], ...]:
    """Templates written in a string: atoms apart by spaces, templates by semicolons or line ends."""
    lines = (tuple(line.split()) for line in re.split(r"[;\n]", text))
    return tuple(line for line in lines if line)


def read_atoms(template: Template | str, part: PartKind) -> tuple[Atom, ...]:
    """The atoms of one template, checked."""
    names = template.split() if isinstance(template, str) else list(template)
    atoms = tuple(Atom.read(name, part) for name in names)
    shown = " ".join(names)
    if len(set(names)) != len(names):
        raise ValueError(f"template of {part} {shown!r}: an atom stands twice; take one of them out")
    if sum(atom.kind == "between" for atom in atoms) > 1:
        raise ValueError(f"template of {part} {shown!r}: more than one between; take all but one out")
    if part != "arcs" and any(atom.what == "feat" for atom in atoms):
        raise ValueError(f"template of {part} {shown!r}: feat is for arcs and labels only; take feats")
    return atoms


def distinct(templates: Iterable[Template | str], part: PartKind) -> list[tuple[Atom, ...]]:
    """The atoms of all templates; ``ValueError`` where two look at the same."""
    found: dict[frozenset[Atom], tuple[Atom, ...]] = {}
    for template in templates:
        atoms = read_atoms(template, part)
        if found.setdefault(frozenset(atoms), atoms) is not atoms:
            shown = " ".join(atom.name for atom in atoms)
            raise ValueError(f"template of {part} {shown!r} is there twice; take one of them out")
    return list(found.values())


def signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


_FIRST, _SECOND = signed(0xBF58476D1CE4E5B9), signed(0x94D049BB133111EB)
_FINAL = signed(0x9E3779B97F4A7C15)


def salt(name: str) -> int:
    """An int64 that stands for a name, the same in every process."""
    return signed(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))


def mix(values: Int64[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
    """All 64 bits of each value stirred, one to one (the end of SplitMix64); products wrap around."""
    values = (values ^ (values >> 30 & (1 << 34) - 1)) * _FIRST
    values = (values ^ (values >> 27 & (1 << 37) - 1)) * _SECOND
    return values ^ (values >> 31 & (1 << 33) - 1)


def bucket(keys: Int64[Tensor, "*shape"], bits: int) -> Int64[Tensor, "*shape"]:
    """A bucket 0..2^bits − 1 for sums of mixed values.

    The sum alone would not do: two values whose keys are close would share their buckets whatever is added to them.
    """
    out = keys >> 32
    out ^= keys
    out *= _FINAL
    out >>= 64 - bits  # arithmetic: from −2^(bits − 1) on
    out += 1 << (bits - 1)
    return out
